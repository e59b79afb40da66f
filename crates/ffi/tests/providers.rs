//! The other providers, each over the library that the test is linked with: `tests/providers.sh` lets that be the stand-in.

#![cfg(feature = "linked")]

use gradewise_ffi::{Calls, Context, DeviceMemory, Driver, Linked, Provider, Stream};
use std::ffi::CString;

fn works(provider: impl Provider + 'static) {
    for name in Calls::FUNCTIONS {
        let symbol = provider.symbol(&CString::new(*name).unwrap());
        assert!(symbol.is_some(), "{} lacks {name}", provider.describe());
    }
    assert!(provider.symbol(c"cuNoSuchFunction").is_none());
    let driver = Driver::new(provider).unwrap();
    let stream = Stream::new(&Context::primary(&driver, 0).unwrap()).unwrap();
    let block = DeviceMemory::new(&stream, 3).unwrap();
    block.write(0, &[1, 2, 3]).unwrap();
    let mut bytes = [0; 3];
    block.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3]);
    assert_eq!(stream.context().take_parked(), None);
}

#[test]
fn the_linked_driver_works() {
    works(Linked);
}

#[cfg(feature = "cuda-sys")]
#[test]
fn the_driver_of_cuda_sys_works() {
    works(gradewise_ffi::CudaSys);
}

#[cfg(feature = "cust")]
#[test]
fn the_driver_and_the_objects_of_cust_work() {
    use gradewise_ffi::cust as borrow;
    works(borrow::Cust);
    let theirs = cust::quick_init().unwrap();
    let their_stream = cust::stream::Stream::new(cust::stream::StreamFlags::NON_BLOCKING, None).unwrap();
    let driver = Driver::new(borrow::Cust).unwrap();
    // SAFETY: one driver; their objects outlive ours.
    let (context, stream) = unsafe {
        let context = borrow::context(&driver, &theirs).unwrap();
        let stream = borrow::stream(&context, &their_stream);
        (context, stream)
    };
    assert_eq!(context.info().ordinal, 0);
    let ours = DeviceMemory::new(&stream, 12).unwrap();
    ours.fill(5).unwrap();
    stream.synchronize().unwrap();
    let mut bytes = [0; 12];
    ours.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 12]);
    drop((ours, stream));

    // A recorded graph keeps their stream.
    let their_stream = std::sync::Arc::new(their_stream);
    let alive = std::sync::Arc::downgrade(&their_stream);
    // SAFETY: the stream is of the context; the graph keeps the block.
    let graph = unsafe {
        let stream = borrow::shared(&context, their_stream);
        let ours = DeviceMemory::new(&stream, 12).unwrap();
        stream.record(ours, |recording, ours| recording.step("fill", |_| ours.fill(6)))
    };
    let mut graph = graph.unwrap();
    graph.replay().unwrap();
    graph.memory().read(0, &mut bytes).unwrap();
    assert_eq!((bytes, alive.strong_count()), ([6; 12], 1));
    drop(graph);
    assert_eq!(alive.strong_count(), 0);
}

#[cfg(feature = "cudarc")]
#[test]
fn objects_and_memory_of_cudarc_are_shared_both_ways() {
    use gradewise_ffi::cudarc as borrow;
    let theirs = cudarc::driver::CudaContext::new(0).unwrap();
    let their_stream = theirs.new_stream().unwrap();
    let slice = their_stream.clone_htod(&[1.5f32, -2.0, 3.25]).unwrap();
    // `cudarc` opens by its name the library that the test is linked with: the stand-in, for both.
    let driver = Driver::new(Linked).unwrap();
    // SAFETY: their objects outlive ours.
    let (context, stream) = unsafe {
        let context = borrow::context(&driver, &theirs).unwrap();
        let stream = borrow::stream(&context, &their_stream);
        (context, stream)
    };
    assert_eq!((context.info().ordinal, stream.raw()), (0, borrow::raw(&their_stream)));

    // Theirs, read here.
    // SAFETY: the slice outlives the result, and nobody writes to it.
    let shown = unsafe { borrow::memory(&stream, &their_stream, &slice) };
    assert_eq!((shown.pointer(), shown.bytes()), borrow::address(&their_stream, &slice));
    let mut bytes = [0; 12];
    shown.read(0, &mut bytes).unwrap();
    assert_eq!(bytes[..4], 1.5f32.to_ne_bytes());
    drop(shown);

    // Ours, written there.
    let ours = DeviceMemory::new(&stream, 12).unwrap();
    ours.fill(0).unwrap();
    // SAFETY: memory of the stream's context, of bytes that are floating-point numbers, and alive until the stream is waited for.
    let elements = unsafe {
        borrow::with_slice::<f32, _>(&their_stream, &ours, |slice| {
            their_stream.memcpy_htod(&[4.0, 5.0, 6.0], slice).unwrap();
            slice.len()
        })
    };
    stream.synchronize().unwrap();
    ours.read(0, &mut bytes).unwrap();
    assert_eq!((elements, &bytes[8..]), (3, &6.0f32.to_ne_bytes()[..]));
    assert_eq!(their_stream.clone_dtoh(&slice).unwrap(), [1.5, -2.0, 3.25], "their memory is theirs still");
}
