//! Device memory: ranges, order, running out of it.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{
    DeviceMemory, Error, Event, HostMemory, PeerAccess, Pool, Stream, sys::CUresult, sys::capture_mode,
};

#[test]
fn what_is_written_is_read() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let block = DeviceMemory::new(&stream, 10).unwrap();
    block.fill(9).unwrap();
    block.write(3, &[1, 2, 3]).unwrap();
    let other = DeviceMemory::immediate(&stream, 4).unwrap();
    other.copy_from(1, &block, 4, 3).unwrap();
    let (mut all, mut part) = ([0; 10], [0; 3]);
    block.read(0, &mut all).unwrap();
    other.read(1, &mut part).unwrap();
    assert_eq!(all, [9, 9, 9, 1, 2, 3, 9, 9, 9, 9]);
    assert_eq!(part, [2, 3, 9]);
    drop((block, other, stream));
    assert_clean(&fake);
}

#[test]
fn a_range_past_the_end_is_refused_before_the_driver_sees_it() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let [block, other] = [8, 4].map(|bytes| DeviceMemory::new(&stream, bytes).unwrap());
    let calls = fake.stat("calls");
    assert_eq!(block.write(7, &[0; 2]), Err(Error::Range { operation: "write", end: 9, bytes: 8 }));
    assert_eq!(
        block.read(usize::MAX, &mut [0]),
        Err(Error::Range { operation: "read", end: u64::MAX, bytes: 8 })
    );
    assert_eq!(block.copy_from(0, &other, 2, 3), Err(Error::Range { operation: "copy", end: 5, bytes: 4 }));
    assert_eq!(block.copy_from(6, &other, 0, 3), Err(Error::Range { operation: "copy", end: 9, bytes: 8 }));
    assert_eq!(fake.stat("calls"), calls);
}

#[test]
fn empty_blocks_and_ranges_need_no_special_care() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let empty = DeviceMemory::new(&stream, 0).unwrap();
    assert_eq!(empty.bytes(), 0);
    empty.fill(1).unwrap();
    empty.write(0, &[]).unwrap();
    empty.read(0, &mut []).unwrap();
    empty.copy_from(0, &empty, 0, 0).unwrap();
    assert!(empty.write(0, &[1]).is_err());
    drop((empty, HostMemory::new(stream.context(), 0).unwrap(), stream));
    assert_clean(&fake);
}

#[test]
fn running_out_of_memory_is_an_error_after_which_all_goes_on() {
    let fake = Fake::new();
    fake.set("memory", 1 << 20);
    let stream = stream(&fake);
    let held = DeviceMemory::new(&stream, 700_000).unwrap();
    for allocate in [DeviceMemory::new, DeviceMemory::immediate] {
        let error = allocate(&stream, 400_000).unwrap_err();
        assert_eq!(error.code(), Some(CUresult::ERROR_OUT_OF_MEMORY));
        assert!(error.to_string().contains("out of memory"), "{error}");
    }
    held.fill(3).unwrap();
    let mut bytes = [0; 4];
    held.read(699_996, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 4]);
    let memory = stream.context().memory().unwrap();
    assert_eq!(memory.total, 1 << 20);
    assert!(memory.free < 400_000);
    drop(held);
    // The free is queued in the same stream, so that its memory serves this.
    let next = DeviceMemory::new(&stream, 400_000).unwrap();
    drop((next, stream));
    assert_clean(&fake);
}

#[test]
fn a_block_that_is_dropped_comes_back() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let before = stream.context().memory().unwrap();
    for _ in 0..100 {
        drop(DeviceMemory::new(&stream, 123_456).unwrap());
        drop(DeviceMemory::immediate(&stream, 123_456).unwrap());
    }
    stream.synchronize().unwrap();
    assert_eq!(stream.context().memory().unwrap(), before);
    assert_eq!(fake.stat("bytes"), 0);
}

#[test]
fn a_block_is_returned_after_the_work_that_was_queued_before() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let target = DeviceMemory::new(&stream, 4).unwrap();
    let source = DeviceMemory::new(&stream, 4).unwrap();
    source.write(0, &[1, 2, 3, 4]).unwrap();
    target.copy_from(0, &source, 0, 4).unwrap();
    drop(source);
    let mut bytes = [0; 4];
    target.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert_eq!(fake.stat("blocks"), 1);
}

#[test]
fn an_event_orders_a_free_after_a_use_in_another_stream() {
    let fake = Fake::new();
    let first = stream(&fake);
    let second = Stream::new(first.context()).unwrap();
    let event = Event::new(first.context(), false).unwrap();
    let source = DeviceMemory::new(&first, 4).unwrap();
    let target = DeviceMemory::new(&second, 4).unwrap();
    source.fill(5).unwrap();
    event.record(&first).unwrap();
    second.wait(&event).unwrap();
    target.copy_from(0, &source, 0, 4).unwrap();
    event.record(&second).unwrap();
    first.wait(&event).unwrap();
    drop(source);
    first.synchronize().unwrap();
    let mut bytes = [0; 4];
    target.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 4]);
    drop((target, event, first, second));
    assert_clean(&fake);
}

/// That the stand-in notices what the test above prevents.
#[test]
fn without_that_event_the_stand_in_sees_a_use_after_free() {
    let fake = Fake::new();
    let first = stream(&fake);
    let second = Stream::new(first.context()).unwrap();
    let source = DeviceMemory::new(&first, 4).unwrap();
    let target = DeviceMemory::new(&second, 4).unwrap();
    target.copy_from(0, &source, 0, 4).unwrap();
    drop(source);
    first.synchronize().unwrap();
    assert_eq!(second.synchronize().unwrap_err().code(), Some(CUresult::ERROR_ILLEGAL_ADDRESS));
    assert_eq!(fake.stat("uses_after_free"), 1);
}

#[test]
fn memory_obtained_at_once_neither_disturbs_a_capture_nor_is_captured() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let graph = stream
        .capture(capture_mode::GLOBAL, |stream| {
            let block = DeviceMemory::immediate(stream, 16)?;
            drop(block);
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(graph.node_count(), Ok(0));
    assert_eq!(stream.context().take_parked(), None);
    drop((graph, stream));
    assert_clean(&fake);
}

#[test]
fn after_that_the_thread_captures_as_before() {
    let fake = Fake::new();
    let stream = stream(&fake);
    stream.begin_capture(capture_mode::GLOBAL).unwrap();
    let block = DeviceMemory::immediate(&stream, 16).unwrap();
    drop(block);
    assert!(stream.context().synchronize().is_err(), "what a capture forbids is forbidden again");
    let error = stream.end_capture().unwrap_err();
    assert_eq!(error.code(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED));
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn page_locked_memory_is_copied_in_stream_order() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let mut host = HostMemory::new(stream.context(), 6).unwrap();
    assert_eq!(host.as_slice(), [0; 6]);
    host.as_mut_slice().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    let block = DeviceMemory::new(&stream, 8).unwrap();
    let mut back = HostMemory::new(stream.context(), 8).unwrap();
    block.fill(0).unwrap();
    // SAFETY: both host blocks live, untouched, until the stream is synchronised.
    unsafe {
        block.write_async(1, &host).unwrap();
        block.read_async(0, &mut back).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(back.as_slice(), [0, 1, 2, 3, 4, 5, 6, 0]);
    // SAFETY: refused, so that nothing is copied.
    assert!(matches!(unsafe { block.write_async(3, &host) }, Err(Error::Range { end: 9, .. })));
    drop((host, back, block, stream));
    assert_clean(&fake);
}

#[test]
fn the_pool_counts_and_gives_back() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let pool = Pool::new(stream.context()).unwrap();
    pool.keep(1 << 20).unwrap();
    let block = DeviceMemory::new(&stream, 100_000).unwrap();
    assert!(pool.used().unwrap() >= 100_000);
    drop(block);
    stream.synchronize().unwrap();
    assert_eq!(pool.used(), Ok(0));
    assert!(pool.reserved().unwrap() >= 100_000 && pool.used_peak().unwrap() >= 100_000);
    pool.trim(0).unwrap();
    pool.reset_peaks().unwrap();
    assert_eq!((pool.reserved(), pool.used_peak(), pool.reserved_peak()), (Ok(0), Ok(0), Ok(0)));
}

#[test]
fn a_device_reaches_the_memory_of_its_peer_while_it_may() {
    let fake = Fake::new();
    let here = stream(&fake);
    let driver = here.context().driver().clone();
    let there = Stream::new(&gradewise_ffi::Context::primary(&driver, 1).unwrap()).unwrap();
    assert_eq!(PeerAccess::is_possible(here.context(), there.context()), Ok(true));
    assert_eq!(PeerAccess::is_possible(here.context(), here.context()), Ok(false));
    let first = PeerAccess::new(here.context(), there.context()).unwrap();
    let second = PeerAccess::new(here.context(), there.context()).unwrap();
    drop(second); // did not begin it, does not end it
    assert_eq!(fake.stat("cuCtxDisablePeerAccess"), 0);
    let (near, far) = (DeviceMemory::new(&here, 4).unwrap(), DeviceMemory::new(&there, 4).unwrap());
    far.write(0, &[4, 3, 2, 1]).unwrap();
    there.synchronize().unwrap();
    near.copy_from_peer(1, &far, 0, 3, &here).unwrap();
    assert!(matches!(near.copy_from_peer(2, &far, 0, 3, &here), Err(Error::Range { .. })));
    let mut bytes = [0; 3];
    near.read(1, &mut bytes).unwrap();
    assert_eq!(bytes, [4, 3, 2]);
    drop(first);
    assert_eq!(fake.stat("cuCtxDisablePeerAccess"), 1);
    drop((near, far, here, there));
    assert_clean(&fake);
}

#[test]
fn contents_are_not_zero_by_chance() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let block = DeviceMemory::new(&stream, 64).unwrap();
    let mut bytes = [0; 64];
    block.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte != 0), "a test that relies on zeros would not be noticed");
}
