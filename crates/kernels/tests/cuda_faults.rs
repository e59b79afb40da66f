//! What can go wrong on a CUDA device, over a stand-in for the driver: every error has its type, names what helps, and
//! leaves the device usable and nothing behind. None of this needs a GPU or kernels.

use gradewise_fake_driver::{Fake, Thread};
use gradewise_ffi::{Arguments, Driver, Dynamic, LaunchConfig, Module, Provider};
use gradewise_kernels::{Array, CudaDevice, DType, Device, Error, Index, Options, Result, debug::Launches};
use std::{
    ffi::{CStr, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
};

const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;
const UNKNOWN: u32 = 4711;

fn open(fake: &Fake) -> CudaDevice {
    CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap()
}

/// A device whose blocks go back to the pool at once, for tests that count them.
fn open_without_recycling(fake: &Fake) -> CudaDevice {
    let options = Options { recycle: false, ..Options::default() };
    CudaDevice::with_options(&Driver::open(fake.path()).unwrap(), 0, options).unwrap()
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|index| index as f32 - 1.5).collect()
}

fn upload(device: &CudaDevice, count: usize) -> Result<Array> {
    Array::from_slice(&values(count), [count], &Device::Cuda(device.clone()))
}

/// The device does what it should, and gives back what that took.
#[track_caller]
fn assert_usable(device: &CudaDevice) {
    let before = device.allocated();
    let x = upload(device, 100).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), values(100));
    let y = upload(device, 100).unwrap();
    let ((), graph) = device.capture(|| y.overwrite_shared(&x)).unwrap();
    graph.replay().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), values(100));
    drop((x, y, graph));
    device.synchronize().unwrap();
    assert_eq!(device.allocated(), before);
    assert_eq!(device.context().take_parked(), None);
}

/// Everything was released, once, and nothing was used after that.
#[track_caller]
fn assert_clean(fake: &Fake) {
    assert_eq!(fake.remains(), []);
}

const KIB: usize = 1 << 10;

#[test]
fn out_of_memory_names_what_is_asked_for_what_is_free_and_who_holds_the_rest() {
    let fake = Fake::new();
    fake.set("memory", 1 << 20);
    let device = open(&fake);
    let (large, small) = (upload(&device, 150 * KIB).unwrap(), upload(&device, 10 * KIB).unwrap());
    let error = upload(&device, 125 * KIB).unwrap_err();
    let Error::DeviceOutOfMemory { operation, device: 0, requested, free, total, allocated, holders } =
        &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*operation, *requested, *total), ("from_slice", 500 * KIB, 1 << 20));
    assert_eq!((*allocated, *free), (640 * KIB, (1 << 20) - 640 * KIB));
    assert_eq!((holders[0].operation, holders[0].arrays, holders[0].bytes), ("from_slice", 2, 640 * KIB));
    let text = error.to_string();
    for part in
        ["500.0 KiB requested", "384.0 KiB of 1.0 MiB free", "640.0 KiB in arrays", "reduce the batch"]
    {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_usable(&device);
    // What did not fit does, once the memory of others is back.
    drop(large);
    let again = upload(&device, 200 * KIB).unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), values(200 * KIB));
    drop((small, again, device));
    assert_clean(&fake);
}

#[test]
fn what_the_pool_keeps_is_given_up_before_an_allocation_fails() {
    let fake = Fake::new();
    let device = open_without_recycling(&fake);
    drop(upload(&device, 1000).unwrap());
    let trims = fake.stat("cuMemPoolTrimTo");
    fake.fail("cuMemAllocAsync", 1, OUT_OF_MEMORY);
    let x = upload(&device, 1000).unwrap();
    assert_eq!(fake.stat("cuMemPoolTrimTo") - trims, 1);
    assert_eq!(x.to_vec::<f32>().unwrap(), values(1000));
    // Twice in a row, it is out of memory; another error is no reason to try again.
    fake.fail("cuMemAllocAsync", 1, OUT_OF_MEMORY);
    fake.fail("cuMemAllocAsync", 2, OUT_OF_MEMORY);
    assert!(matches!(upload(&device, 10), Err(Error::DeviceOutOfMemory { requested: 40, .. })));
    fake.fail("cuMemAllocAsync", 1, UNKNOWN);
    let calls = fake.stat("cuMemAllocAsync");
    assert!(matches!(upload(&device, 10), Err(Error::Cuda { operation: "from_slice", .. })));
    assert_eq!(fake.stat("cuMemAllocAsync") - calls, 1);
    assert_usable(&device);
    drop((x, device));
    assert_clean(&fake);
}

#[test]
fn a_graph_that_finds_no_memory_leaves_none_behind() {
    let fake = Fake::new();
    fake.set("memory", 1 << 20);
    let device = open(&fake);
    let x = upload(&device, 100 * KIB).unwrap();
    let error = device.capture(|| upload(&device, 200 * KIB)).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::DeviceOutOfMemory { requested: 819_200, .. }), "{error:?}");
    assert_usable(&device);
    drop((x, device));
    assert_clean(&fake);
}

#[test]
fn the_memory_of_a_dropped_array_comes_back() {
    let fake = Fake::new();
    let device = open_without_recycling(&fake);
    let x = upload(&device, 1000).unwrap();
    let view = x.slice(0, 10..20).unwrap();
    assert_eq!(device.allocated(), 4000);
    drop(x);
    assert_eq!(device.allocated(), 4000, "a view holds the memory it shows");
    assert_eq!(view.to_vec::<f32>().unwrap(), values(1000)[10..20]);
    drop(view);
    device.synchronize().unwrap();
    let report = device.memory().unwrap();
    assert_eq!((report.allocated, report.peak, report.holders.len()), (0, 4000, 0));
    assert!(report.reserved >= 4000, "the pool keeps it for the next");
    assert_eq!(fake.stat("bytes"), 0);
    assert_eq!(device.trim().unwrap(), report.reserved);
    assert_eq!(device.memory().unwrap().reserved, 0);
    device.reset_peak();
    for round in 0..1000 {
        let count = 1 + round % 100;
        assert_eq!(upload(&device, count).unwrap().to_vec::<f32>().unwrap(), values(count));
    }
    device.synchronize().unwrap();
    let report = device.memory().unwrap();
    assert_eq!((report.allocated, report.peak), (0, 400));
    assert!(report.reserved <= 1 << 20, "{report:?}");
    drop(device);
    assert_clean(&fake);
}

#[test]
fn an_error_that_stays_says_that_the_context_is_lost() {
    // An illegal address in a kernel shows at the next operation that waits.
    let fake = Fake::new();
    let device = open(&fake);
    let x = upload(&device, 100).unwrap();
    let ptx = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry trap() { ret; }\n";
    let trap = Module::load(device.context(), "test", ptx).unwrap().function("trap").unwrap();
    // SAFETY: the kernel has no parameters.
    unsafe { trap.launch(&LaunchConfig::linear(1, 1), device.stream(), &Arguments::new()) }.unwrap();
    for _ in 0..2 {
        let error = x.to_vec::<f32>().unwrap_err();
        let Error::Cuda { operation: "to_vec", device: 0, source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.code().map(|code| code.0), Some(ILLEGAL_ADDRESS));
        let text = error.to_string();
        for part in
            ["ILLEGAL_ADDRESS", "start a new process", "GRADEWISE_LAUNCH_BLOCKING=1", "compute-sanitizer"]
        {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert!(matches!(device.synchronize(), Err(Error::Cuda { .. })));
        assert!(matches!(upload(&device, 10), Err(Error::Cuda { .. })));
        assert!(device.capture(|| Ok(())).is_err());
        assert!(device.memory().is_err() && device.trim().is_err());
    }
    // Nothing panics on the way out, and nothing is released twice.
    drop((trap, x, device));
    for count in ["double_frees", "uses_after_free", "bad_handles"] {
        assert_eq!(fake.stat(count), 0, "{count}");
    }
}

#[test]
fn errors_in_the_middle_of_transfers_lose_nothing() {
    let fake = Fake::new();
    let device = open(&fake);
    let x = upload(&device, 1000).unwrap();
    let y = upload(&device, 1000).unwrap();
    let other = Array::full([1000], 7.0, DType::F32, &Device::Cpu).unwrap();
    let check = |call: &str, operation: &str, work: &dyn Fn() -> Result<()>| {
        let before = device.allocated();
        fake.fail(call, 1, UNKNOWN);
        let error = work().unwrap_err();
        let text = error.to_string();
        assert!(matches!(&error, Error::Cuda { operation: o, .. } if *o == operation), "{call}: {error:?}");
        assert!(text.contains(call) && text.contains("4711") && text.contains("cuda:0"), "{text}");
        assert_eq!(device.allocated(), before, "{call}");
        assert_usable(&device);
    };
    check("cuMemcpyHtoDAsync_v2", "from_slice", &|| upload(&device, 10).map(|_| ()));
    check("cuMemcpyHtoDAsync_v2", "overwrite_shared", &|| x.overwrite_shared(&other));
    check("cuMemcpyDtoDAsync_v2", "overwrite_shared", &|| x.overwrite_shared(&y));
    check("cuMemcpyDtoHAsync_v2", "to_vec", &|| x.to_vec::<f32>().map(|_| ()));
    check("cuStreamSynchronize", "to_vec", &|| x.to_vec::<f32>().map(|_| ()));
    check("cuCtxSetCurrent", "to_vec", &|| x.to_vec::<f32>().map(|_| ()));
    assert_eq!(x.to_vec::<f32>().unwrap(), values(1000), "what failed has changed nothing");
    drop((x, y, device));
    assert_clean(&fake);
}

/// A library without one of its functions.
struct Without(Dynamic, &'static str);

impl Provider for Without {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        if name.to_bytes() == self.1.as_bytes() { None } else { self.0.symbol(name) }
    }

    fn describe(&self) -> String {
        "a library with a hole".to_owned()
    }
}

#[test]
fn a_function_that_the_driver_lacks_is_named_by_the_operation_that_needs_it() {
    let fake = Fake::new();
    for (missing, operation) in [
        ("cuDevicePrimaryCtxRetain", "open the device"),
        ("cuStreamCreate", "open the device"),
        ("cuMemPoolSetAttribute", "open the device"),
        ("cuMemAllocAsync", "from_slice"),
        ("cuMemcpyHtoDAsync_v2", "from_slice"),
        ("cuMemcpyDtoHAsync_v2", "to_vec"),
        ("cuStreamBeginCapture_v2", "capture"),
        ("cuGraphInstantiateWithFlags", "capture"),
        ("cuGraphLaunch", "replay"),
    ] {
        let library = Dynamic::open("the driver", &[fake.path()], "").unwrap();
        let driver = Driver::new(Without(library, missing)).unwrap();
        let work = || {
            let device = CudaDevice::with_driver(&driver, 0)?;
            let (x, y) = (upload(&device, 10)?, upload(&device, 10)?);
            x.to_vec::<f32>()?;
            device.capture(|| y.overwrite_shared(&x))?.1.replay()
        };
        let error = work().unwrap_err();
        let Error::Cuda { operation: found, source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*found, operation, "{missing}");
        assert!(
            matches!(source, gradewise_ffi::Error::Symbol { symbol, .. } if *symbol == missing),
            "{source:?}"
        );
        assert!(error.to_string().contains("a library with a hole"), "{error}");
        assert_clean(&fake);
    }
}

#[test]
fn constants_are_put_on_a_device_once_so_that_captured_work_can_ask_for_them() {
    let fake = Fake::new();
    let cuda = open(&fake);
    let device = Device::Cuda(cuda.clone());
    let list = || Index::constant(&[2, 0, 1], 3, &device);
    let array = || Array::constant(&[1.0, -1.0], [2, 1], DType::F32, &device);
    let captured = |work: &dyn Fn() -> Result<()>| cuda.capture(work).map(|_| ());
    for work in [&|| list().map(drop) as Result<()>, &|| array().map(drop)] as [&dyn Fn() -> Result<()>; 2] {
        assert!(matches!(captured(work), Err(Error::InCapture { .. })), "a transfer cannot be captured");
        work().unwrap();
        let before = cuda.allocated();
        captured(work).unwrap();
        assert_eq!(cuda.allocated(), before, "nothing is put there again");
    }
    // Others of another bound, shape or dtype are others.
    assert_eq!(Index::constant(&[2, 0, 1], 4, &device).unwrap().bound(), 4);
    assert_eq!(Array::constant(&[1.0, -1.0], [1, 2], DType::F32, &device).unwrap().dims(), [1, 2]);
    assert_eq!(Array::constant(&[1.0, -1.0], [2, 1], DType::F64, &device).unwrap().dtype(), DType::F64);
    let other = Index::new(&[0, 1, 2], 3, &device).unwrap();
    for constant in [list().unwrap(), Index::constant(&[2, 0, 1], 3, &Device::Cpu).unwrap()] {
        assert!(!constant.overwrite(&other).unwrap(), "all that ask share it");
        assert_eq!(constant.to_vec().unwrap(), [2, 0, 1]);
    }
    assert_eq!(array().unwrap().to_vec::<f32>().unwrap(), [1.0, -1.0]);
    assert!(Index::constant(&[3], 3, &device).is_err());
    assert_usable(&cuda);

    // They and the device hold each other until they are forgotten.
    let beside = cuda.beside().unwrap();
    let there = Device::Cuda(beside.clone());
    Array::constant(&[1.0], [1], DType::F32, &there).unwrap();
    for device in [cuda, beside] {
        assert!(device.allocated() > 0);
        device.forget_constants();
    }
    drop((device, there, other));
    assert_clean(&fake);
}

#[test]
fn devices_that_are_not_there_and_drivers_too_old_are_refused() {
    let fake = Fake::new();
    let driver = Driver::open(fake.path()).unwrap();
    let error = CudaDevice::with_driver(&driver, 7).unwrap_err();
    assert!(matches!(&error, Error::NoSuchDevice { device: 7, devices } if devices.len() == 2), "{error:?}");
    for part in ["no device cuda:7", "there are cuda:0 (", "cuda:1 (", "gradewise doctor"] {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
    // What the driver refuses of a device that is there comes with what to do.
    for (code, part) in [(100, "--gpus all"), (801, "update the NVIDIA driver"), (803, "reboot")] {
        fake.fail("cuDevicePrimaryCtxRetain", 1, code);
        let error = CudaDevice::with_driver(&driver, 0).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("gradewise doctor"), "{code}: {error}");
    }
    fake.set("version", 11040);
    let error = Driver::open(fake.path()).unwrap_err();
    assert!(error.to_string().contains("serves CUDA 11.4, at least 12.0 is needed"), "{error}");
    assert_clean(&fake);
}

#[cfg(feature = "cuda")]
#[test]
fn a_device_that_no_image_serves_is_refused_with_both_sides_named() {
    let fake = Fake::new();
    fake.set("major", 5);
    let error = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap_err();
    assert!(matches!(&error, Error::UnsupportedDevice { capability: (5, 0), .. }), "{error:?}");
    assert!(error.to_string().contains("too old") && !error.to_string().contains("rebuild"), "{error}");
    assert_clean(&fake);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn an_operator_without_a_kernel_says_which_and_returns_its_memory() {
    let fake = Fake::new();
    let device = open(&fake);
    let error = Array::zeros([10], DType::F32, &Device::Cuda(device.clone())).unwrap_err();
    assert_eq!(error, Error::NoKernel { operation: "zeros", kernel: "gw_fill_w4".to_owned() });
    assert_eq!(device.allocated(), 0);
    assert_usable(&device);
    drop(device);
    assert_clean(&fake);
}

#[test]
fn what_a_graph_cannot_hold_is_refused_and_the_capture_goes_on() {
    let fake = Fake::new();
    let device = open(&fake);
    let (x, y) = (upload(&device, 50).unwrap(), upload(&device, 50).unwrap());
    let host = Array::full([50], 3.0, DType::F32, &Device::Cpu).unwrap();
    let ((), other) = device.capture(|| x.overwrite_shared(&y)).unwrap();
    let refused = |result: Result<()>, operation: &'static str| {
        assert_eq!(result.unwrap_err(), Error::InCapture { operation });
    };
    let ((), graph) = device
        .capture(|| {
            refused(x.to_vec::<f32>().map(|_| ()), "to_vec");
            refused(upload(&device, 10).map(|_| ()), "from_slice");
            refused(x.overwrite_shared(&host), "overwrite_shared");
            refused(device.synchronize(), "synchronize");
            refused(device.trim().map(|_| ()), "trim");
            refused(device.capture(|| Ok(())).map(|_| ()), "capture");
            refused(other.replay(), "replay");
            y.overwrite_shared(&x)
        })
        .unwrap();
    assert!(graph.bytes() >= 40, "what the refused upload took belongs to the graph");
    assert_eq!(device.allocated(), 400 + graph.bytes());
    // So that a limit counts it, too; what is reused inside a graph is not counted again.
    device.set_limit(400 + graph.bytes() + 100);
    assert!(upload(&device, 50).unwrap_err().is_out_of_memory());
    device.set_limit(0);
    x.overwrite_shared(&host).unwrap();
    graph.replay().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0; 50]);
    assert_usable(&device);
    drop((x, y, graph, other, device));
    assert_clean(&fake);
}

#[test]
fn errors_and_panics_inside_a_capture_leave_the_device_usable() {
    let fake = Fake::new();
    let device = open(&fake);
    let (x, y) = (upload(&device, 50).unwrap(), upload(&device, 50).unwrap());
    let own = || Error::Argument { operation: "test", argument: "x", actual: String::new(), expected: "" };
    let error = device.capture(|| y.overwrite_shared(&x).and(Err::<(), _>(own()))).map(|_| ()).unwrap_err();
    assert_eq!(error, own());
    assert_usable(&device);
    let before = upload(&device, 10).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        device.capture(|| -> Result<()> {
            y.overwrite_shared(&x)?;
            drop(before);
            let _taken = upload(&device, 1000);
            panic!("on purpose")
        })
    }));
    let payload = panicked.map(|_| ()).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_usable(&device);
    for call in [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuMemcpyDtoDAsync_v2",
    ] {
        fake.fail(call, 1, UNKNOWN);
        let error = device.capture(|| y.overwrite_shared(&x)).map(|_| ()).unwrap_err();
        assert!(matches!(&error, Error::Cuda { .. }) && error.to_string().contains(call), "{error}");
        if call == "cuStreamEndCapture" {
            // A call that is told to fail does nothing; the driver's would have ended the capture.
            device.stream().end_capture().unwrap();
        }
        assert_usable(&device);
    }
    drop((x, y, device));
    assert_clean(&fake);
}

#[test]
fn memory_let_go_during_a_capture_lives_until_the_graph_goes() {
    let fake = Fake::new();
    let device = open_without_recycling(&fake);
    let y = upload(&device, 50).unwrap();
    let record = || {
        let x = upload(&device, 50).unwrap();
        let ((), graph) = device
            .capture(|| {
                y.overwrite_shared(&x)?;
                drop(x);
                Ok(())
            })
            .unwrap();
        graph
    };
    let zeros = Array::full([50], 0.0, DType::F32, &Device::Cpu).unwrap();
    let graph = record();
    let held = fake.stat("blocks");
    for _ in 0..3 {
        y.overwrite_shared(&zeros).unwrap();
        assert_usable(&device);
        graph.replay().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), values(50));
    }
    assert_eq!(device.allocated(), 400, "the array is gone, its memory is not");
    let held_by = |name: &str| device.holders().iter().find(|h| h.operation == name).map(|h| h.bytes);
    assert_eq!(held_by("captured graphs"), Some(200), "{:?}", device.holders());
    drop(graph);
    assert_eq!((device.allocated(), held_by("captured graphs")), (200, None));
    device.synchronize().unwrap();
    assert_eq!(held - fake.stat("blocks"), 1, "its memory went with the graph");

    // A graph that goes during another's capture hands that memory on.
    let graph = record();
    let held = fake.stat("blocks");
    let ((), second) = device
        .capture(|| {
            drop(graph);
            Ok(())
        })
        .unwrap();
    device.synchronize().unwrap();
    assert_eq!(fake.stat("blocks"), held);
    drop(second);
    device.synchronize().unwrap();
    assert_eq!(held - fake.stat("blocks"), 1);
    assert_eq!(device.context().take_parked(), None);
    drop((y, device));
    assert_clean(&fake);
}

#[test]
fn other_threads_wait_for_a_capture_to_end() {
    let fake = Fake::new();
    let device = open(&fake);
    let (x, y, mine) =
        (upload(&device, 50).unwrap(), upload(&device, 50).unwrap(), upload(&device, 9).unwrap());
    let ((), own) = device.capture(|| y.overwrite_shared(&x)).unwrap();
    let (thread, graph) = device
        .capture(|| {
            let (started, wait) = std::sync::mpsc::channel();
            let device = device.clone();
            let thread = std::thread::spawn(move || {
                started.send(Thread::current()).unwrap();
                drop((mine, own));
                upload(&device, 20).unwrap().to_vec::<f32>().unwrap()
            });
            // From here on it waits for the end of the capture, or has done all the harm that it could.
            wait.recv().unwrap().wait_until_blocked();
            y.overwrite_shared(&x)?;
            Ok(thread)
        })
        .unwrap();
    assert_eq!(thread.join().unwrap(), values(20));
    assert_eq!(graph.node_count().unwrap(), 1, "nothing of the other thread's is in the graph");
    graph.replay().unwrap();
    assert_eq!(device.context().take_parked(), None);
    drop((x, y, graph, device));
    assert_clean(&fake);
}

/// Whatever call of the driver fails: an error or success, no panic, and nothing left but what could not be released.
#[test]
fn any_single_failure_is_an_error_and_leaks_nothing() {
    let work = |fake: &Fake| -> Result<()> {
        let driver = Driver::open(fake.path()).map_err(|source| Error::Cuda {
            operation: "open",
            device: 0,
            source,
            launches: Launches::default(),
        })?;
        let device = CudaDevice::with_driver(&driver, 0)?;
        let (x, y) = (upload(&device, 50)?, upload(&device, 50)?);
        let gone = upload(&device, 50)?;
        let ((), graph) = device.capture(|| {
            y.overwrite_shared(&x)?;
            let _ = upload(&device, 10);
            drop(gone);
            Ok(())
        })?;
        graph.replay()?;
        y.to_vec::<f32>()?;
        device.memory()?;
        device.trim()?;
        Ok(())
    };
    let fake = Fake::new();
    work(&fake).unwrap();
    let calls = fake.stat("calls");
    assert!(calls > 50, "{calls}");
    for code in [UNKNOWN, OUT_OF_MEMORY] {
        let mut failures = 0;
        for nth in 1..=calls {
            fake.reset();
            fake.fail("*", nth, code);
            failures += u64::from(work(&fake).is_err());
            if fake.stat("failed_releases") == 0 {
                assert_eq!(fake.remains(), [], "call {nth} answers {code}");
            }
        }
        assert!(failures > calls / 3, "{failures} of {calls}");
    }
}

#[test]
fn a_device_beside_another_has_memory_and_captures_of_its_own() {
    let fake = Fake::new();
    let device = open(&fake);
    let beside = device.beside().unwrap();
    assert_ne!(device, beside);
    assert_eq!(device.ordinal(), beside.ordinal());
    let (x, y) = (upload(&device, 50).unwrap(), upload(&device, 50).unwrap());
    let other = upload(&beside, 20).unwrap();
    assert_eq!((device.allocated(), beside.allocated()), (400, 80));
    let error = gradewise_kernels::ops::add(&x, &upload(&beside, 50).unwrap()).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { .. }), "{error:?}");
    // A capture of one does not keep the other waiting, nor take its work in.
    let ((), graph) = device
        .capture(|| {
            assert_eq!(other.to_vec::<f32>().unwrap(), values(20));
            y.overwrite_shared(&x)
        })
        .unwrap();
    assert_eq!(graph.node_count().unwrap(), 1);
    graph.replay().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), values(50));
    drop((error, x, y, other, graph, device, beside));
    assert_clean(&fake);
}

#[test]
fn copies_between_devices_of_one_driver_need_no_host() {
    let fake = Fake::new();
    let driver = Driver::open(fake.path()).unwrap();
    let [here, there] = [0, 1].map(|ordinal| CudaDevice::with_driver(&driver, ordinal).unwrap());
    let place = |device: &CudaDevice| Device::Cuda(device.clone());
    let x = upload(&here, 100).unwrap().slice(0, 10..90).unwrap();
    let by_host = || fake.stat("cuMemcpyDtoHAsync_v2");

    // Between contexts: access is had once, and kept.
    let first = x.to_device(&place(&there)).unwrap();
    let second = first.to_device(&place(&here)).unwrap().to_device(&place(&there)).unwrap();
    assert_eq!((fake.stat("cuMemcpyPeerAsync"), by_host()), (3, 0));
    assert_eq!(fake.stat("cuCtxEnablePeerAccess"), 2);
    assert_eq!((first.device(), second.device()), (place(&there), place(&there)));
    // What it was copied from may go at once, and its memory be used for something else.
    drop(x);
    let other = upload(&here, 100).unwrap();
    for copy in [&first, &second] {
        assert_eq!(copy.to_vec::<f32>().unwrap(), &values(100)[10..90]);
    }

    // Within one context, a stream beside the other.
    let beside = place(&here.beside().unwrap());
    let before = by_host();
    let copy = other.to_device(&beside).unwrap();
    assert_eq!((fake.stat("cuMemcpyPeerAsync"), by_host()), (3, before));
    assert_eq!(copy.to_vec::<f32>().unwrap(), values(100));
    drop((copy, beside));

    // Handles of another driver never meet these in a call: that goes through the host.
    let strange = Fake::new();
    let elsewhere = open(&strange);
    let (before, copy) = (by_host(), other.to_device(&place(&elsewhere)).unwrap());
    assert_eq!((by_host(), strange.stat("cuMemcpyHtoDAsync_v2")), (before + 1, 1));
    assert_eq!(copy.to_vec::<f32>().unwrap(), values(100));

    for device in [&here, &there] {
        let refused = device.capture(|| other.to_device(&place(&there))).unwrap_err();
        assert!(matches!(refused, Error::InCapture { operation: "to_device" }), "{refused:?}");
    }
    drop((first, second, other, copy, here, there, elsewhere, driver));
    assert_clean(&fake);
    assert_clean(&strange);
}
