//! Communicators over a stand-in for NCCL among the threads of this program.

mod common;

use common::{assert_clean, stream};
use gradewise_fake_driver::{Fake, Thread};
use gradewise_ffi::{
    DeviceMemory, Dynamic, Error, Nccl,
    nccl::{Communicator, Options, ncclDataType_t},
};
use std::{sync::LazyLock, thread, time::Duration};

/// Open as long as the program runs: a library that is closed forgets its groups.
fn library() -> Nccl {
    static LIBRARY: LazyLock<Nccl> = LazyLock::new(|| {
        Nccl::new(Dynamic::open("NCCL", &[gradewise_fake_driver::nccl()], "").unwrap()).unwrap()
    });
    LIBRARY.clone()
}

fn options(blocking: bool) -> Options {
    Options { timeout: Duration::from_secs(10), blocking }
}

/// Runs `work` as each rank, on a device of its own.
fn ranks<T: Send>(
    world: usize,
    blocking: bool,
    work: impl Fn(&Communicator, &DeviceMemory) -> T + Sync,
) -> Vec<T> {
    let id = library().unique_id().unwrap();
    let run = |rank: usize| {
        let fake = Fake::new();
        let stream = stream(&fake);
        let result = {
            let communicator =
                Communicator::new(&library(), stream.context(), id, rank, world, options(blocking)).unwrap();
            assert_eq!((communicator.rank(), communicator.world()), (rank, world));
            let block = DeviceMemory::new(&stream, 40).unwrap();
            let values: Vec<u8> =
                (0..5).flat_map(|i| (f64::from(i) + 10.0 * rank as f64).to_ne_bytes()).collect();
            block.write(0, &values).unwrap();
            stream.synchronize().unwrap();
            work(&communicator, &block)
        };
        drop(stream);
        assert_clean(&fake);
        result
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..world).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn values(block: &DeviceMemory) -> Vec<f64> {
    let mut bytes = [0; 40];
    block.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|x| f64::from_ne_bytes(x.try_into().unwrap())).collect()
}

#[test]
fn sums_and_copies_reach_every_rank() {
    for blocking in [false, true] {
        let all = ranks(3, blocking, |communicator, block| {
            let (at, stream) = (block.pointer(), block.stream());
            // SAFETY: the block has five numbers, and nobody else.
            unsafe { communicator.all_reduce(at, at, 5, ncclDataType_t::FLOAT64, stream).unwrap() };
            communicator.check().unwrap();
            let sums = values(block);
            let own: Vec<u8> = [communicator.rank() as f64; 5].iter().flat_map(|x| x.to_ne_bytes()).collect();
            block.write(0, &own).unwrap();
            stream.synchronize().unwrap();
            // SAFETY: as above.
            unsafe { communicator.broadcast(at, 5, ncclDataType_t::FLOAT64, 1, stream).unwrap() };
            (sums, values(block))
        });
        for (sums, copies) in all {
            assert_eq!(sums, [30.0, 33.0, 36.0, 39.0, 42.0]);
            assert_eq!(copies, [1.0; 5]);
        }
    }
}

#[test]
fn a_rank_that_does_not_come_ends_the_wait() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let id = library().unique_id().unwrap();
    let options = Options { timeout: Duration::from_millis(200), blocking: false };
    let error = Communicator::new(&library(), stream.context(), id, 0, 2, options).unwrap_err();
    assert!(matches!(&error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("0.2 s"), "{error}");
}

#[test]
fn an_abort_ends_what_others_wait_for() {
    let (calls, called) = std::sync::mpsc::channel();
    let called = std::sync::Mutex::new(called);
    let all = ranks(2, false, |communicator, block| {
        if communicator.rank() == 1 {
            called.lock().unwrap().recv().map(|other: Thread| other.wait_until_blocked()).unwrap();
            communicator.abort();
            communicator.abort();
            assert!(communicator.check().unwrap_err().to_string().contains("aborted"));
            return String::new();
        }
        let at = block.pointer();
        calls.send(Thread::current()).unwrap();
        // SAFETY: the block has five numbers, and nobody else.
        let result = unsafe { communicator.all_reduce(at, at, 5, ncclDataType_t::FLOAT64, block.stream()) };
        result.unwrap_err().to_string()
    });
    assert!(all[0].contains("ncclAllReduce") && all[0].contains("remote process exited"), "{}", all[0]);
    assert!(all[0].contains("last words"), "{}", all[0]);
}

#[test]
fn communicators_end_in_good_order() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let id = library().unique_id().unwrap();
    let communicator = Communicator::new(&library(), stream.context(), id, 0, 1, options(false)).unwrap();
    communicator.finish().unwrap();
    let strange = Communicator::new(&library(), stream.context(), id, 3, 2, options(false)).unwrap_err();
    assert!(matches!(strange, Error::Status { .. }), "{strange}");
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn a_library_that_is_missing_or_old_is_named() {
    let tried = ["/nowhere/libnccl.so.2", "libnccl-of-nobody.so"];
    let error = Dynamic::open("NCCL", &tried, "install it").map(|_| ()).unwrap_err().to_string();
    assert!(tried.iter().all(|path| error.contains(path)) && error.contains("install it"), "{error}");

    let error = Nccl::new(Old).unwrap_err();
    assert!(matches!(error, Error::LibraryTooOld { .. }));
    let text = error.to_string();
    assert!(text.contains("2.10.3") && text.contains("2.14"), "{text}");
    assert_eq!(library().version().unwrap(), (2, 28, 3));
}

/// A library of which only the version is known.
struct Old;

impl gradewise_ffi::Provider for Old {
    fn symbol(&self, name: &std::ffi::CStr) -> Option<*const std::ffi::c_void> {
        unsafe extern "system" fn version(target: *mut i32) -> i32 {
            // SAFETY: the caller gives the address of a number.
            unsafe { *target = 21003 };
            0
        }
        (name == c"ncclGetVersion").then_some(version as *const std::ffi::c_void)
    }

    fn describe(&self) -> String {
        "an old one".to_owned()
    }
}
