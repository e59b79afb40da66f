//! Kernels, events, captures, and errors that stay.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{
    Arguments, Context, DeviceMemory, Error, Event, Function, LaunchConfig, Module, Stream, TensorMap,
    sys::{CUresult, capture_mode, function_attribute},
    tensor_map,
};
use std::ffi::c_void;

/// Queues x *= factor.
fn scale(kernel: &Function, stream: &Stream, x: &DeviceMemory, factor: f32) -> Result<(), Error> {
    let n = x.bytes() / 4;
    let arguments = Arguments::new().buffer(x).float(factor).int(n as i32);
    // SAFETY: the arguments are those of the kernel; the block outlives the work, or the stand-in notices.
    unsafe { kernel.launch(&LaunchConfig::linear(n.div_ceil(128) as u32, 128), stream, &arguments) }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn read(x: &DeviceMemory) -> Vec<f32> {
    let mut bytes = vec![0; x.bytes()];
    x.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn block(stream: &Stream, values: &[f32]) -> DeviceMemory {
    let block = DeviceMemory::new(stream, 4 * values.len()).unwrap();
    block.write(0, &floats(values)).unwrap();
    block
}

fn launch_nothing(kernel: &Function, stream: &Stream, config: &LaunchConfig) -> Result<(), Error> {
    // SAFETY: the kernel has no parameters.
    unsafe { kernel.launch(config, stream, &Arguments::new()) }
}

#[test]
fn a_kernel_runs_on_what_it_is_given() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "scale_f32");
    let x = block(&stream, &[1.0, -2.0, 0.5]);
    scale(&kernel, &stream, &x, 4.0).unwrap();
    assert_eq!(read(&x), [4.0, -8.0, 2.0]);
    assert_eq!(fake.stat("launches"), 1);
    drop((kernel, x, stream));
    assert_clean(&fake);
}

#[test]
fn a_kernel_of_the_test_runs_under_its_name() {
    unsafe extern "C" fn sum(
        arguments: *const *const c_void,
        _: *const [u32; 3],
        block: *const [u32; 3],
        _: u32,
    ) -> u32 {
        // SAFETY: the kernel's parameter is a struct of three 64-bit numbers: target, a, b.
        unsafe {
            let [target, a, b] = *(*arguments).cast::<[u64; 3]>();
            *(target as *mut u64) = a + b + u64::from((*block)[0]);
        }
        0
    }
    let fake = Fake::new();
    fake.register("unregistered", sum);
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "unregistered");
    assert_eq!(kernel.parameter_sizes(), Ok(vec![24]));
    let target = DeviceMemory::new(&stream, 8).unwrap();
    let arguments = Arguments::new().value(&[target.pointer(), 40, 2].map(u64::to_ne_bytes).concat());
    assert_eq!(arguments.sizes(), [24]);
    // SAFETY: the argument is what the kernel takes.
    unsafe { kernel.launch(&LaunchConfig::linear(1, 100), &stream, &arguments) }.unwrap();
    let mut bytes = [0; 8];
    target.read(0, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 142);
}

#[test]
fn a_missing_kernel_names_those_there_are() {
    let fake = Fake::new();
    let context = Context::primary(&driver(&fake), 0).unwrap();
    let module = Module::load(&context, "m", PTX).unwrap();
    for name in ["scale_f64", "with\0zero"] {
        match module.function(name) {
            Err(Error::Kernel { module, kernel, known }) => {
                assert_eq!((module.as_str(), kernel.as_str()), ("m", name));
                assert_eq!(known, ["scale_f32", "trap", "unregistered"]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_image_that_does_not_load_says_why() {
    let fake = Fake::new();
    let context = Context::primary(&driver(&fake), 0).unwrap();
    let malformed = b".version 8.0\n.target sm_75\n.entry f(.param .b7 x)";
    let error = Module::load(&context, "broken", malformed).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::ERROR_INVALID_PTX));
    let text = error.to_string();
    assert!(text.contains("`broken`") && text.contains("fake ptxas: malformed"), "{text}");
    let newer = b".version 99.0\n.target sm_75\n";
    let error = Module::load(&context, "newer", newer).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::ERROR_UNSUPPORTED_PTX_VERSION));
    let before = fake.stat("calls");
    assert!(matches!(Module::load(&context, "noise", &[1, 2, 3, 4, 5]), Err(Error::Image { .. })));
    assert_eq!(fake.stat("calls"), before, "the driver need not look at it");
    let other =
        [&0xba55_ed50_u32.to_le_bytes()[..], &[1, 0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0], &[7; 8]].concat();
    let error = Module::load(&context, "other", &other).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::ERROR_NO_BINARY_FOR_GPU));
    drop(context);
    assert_clean(&fake);
}

#[test]
fn launches_past_the_limits_of_the_device_are_refused_by_name() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "trap");
    let linear = LaunchConfig::linear(1, 32);
    let cases = [
        (LaunchConfig { grid: [0, 1, 1], ..linear }, "grid size along x", 0, i32::MAX as u64),
        (LaunchConfig { grid: [1 << 31, 1, 1], ..linear }, "grid size along x", 1 << 31, i32::MAX as u64),
        (LaunchConfig { grid: [1, 65536, 1], ..linear }, "grid size along y", 65536, 65535),
        (LaunchConfig { block: [1, 1, 65], ..linear }, "block size along z", 65, 64),
        (LaunchConfig { block: [1, 0, 1], ..linear }, "block size along y", 0, 1024),
        (LaunchConfig { block: [32, 32, 2], ..linear }, "number of threads per block", 2048, 1024),
        (
            LaunchConfig { shared: 300 << 10, ..linear },
            "dynamic shared memory in bytes",
            300 << 10,
            227 << 10,
        ),
        (LaunchConfig { cluster: [17, 1, 1], ..linear }, "number of blocks per cluster", 17, 16),
        (LaunchConfig { cluster: [0, 1, 1], ..linear }, "number of blocks per cluster", 0, 16),
        (
            LaunchConfig { grid: [6, 3, 1], cluster: [2, 2, 1], ..linear },
            "remainder of the grid by the cluster along y",
            1,
            0,
        ),
    ];
    let before = fake.stat("calls");
    for (config, expected, value, most) in cases {
        match launch_nothing(&kernel, &stream, &config) {
            Err(Error::Launch { kernel, what, actual, limit }) => {
                assert_eq!((kernel.as_str(), what, actual, limit), ("trap", expected, value, most));
            }
            other => panic!("{config:?}: {other:?}"),
        }
    }
    assert_eq!(fake.stat("calls"), before);
}

#[test]
fn shared_memory_above_the_usual_must_be_allowed_first() {
    let fake = Fake::new();
    fake.register("unregistered", nothing);
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "unregistered");
    let config = LaunchConfig { shared: 100 << 10, cluster: [2, 1, 1], ..LaunchConfig::linear(4, 64) };
    let launch = || {
        let pod = [0u8; 24];
        // SAFETY: the argument is what the kernel takes.
        unsafe { kernel.launch(&config, &stream, &Arguments::new().large(&pod)) }
    };
    assert_eq!(launch().unwrap_err().code(), Some(CUresult::ERROR_INVALID_VALUE));
    kernel.allow_shared(100 << 10).unwrap();
    launch().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(kernel.attribute(function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES), Ok(100 << 10));
    assert!(kernel.allow_shared(228 << 10).is_err());
    assert_eq!(kernel.occupancy(1024, 0), Ok(2));
    assert_eq!(kernel.best_block(0, 256), Ok((256, 64)));
    let pairs = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(2, 32) };
    assert_eq!(kernel.clusters(&pairs), Ok(1));
}

#[test]
fn a_launch_that_overlaps_says_so_with_and_without_clusters() {
    let fake = Fake::new();
    fake.register("unregistered", nothing);
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "unregistered");
    let launch = |config: LaunchConfig| {
        let pod = [0u8; 24];
        // SAFETY: the argument is what the kernel takes, which touches no memory.
        unsafe { kernel.launch(&config, &stream, &Arguments::new().large(&pod)) }
    };
    let linear = LaunchConfig::linear(4, 64);
    for (overlapped, cluster, expected) in [(false, 1, 0), (false, 2, 0), (true, 1, 1), (true, 2, 2)] {
        launch(LaunchConfig { overlapped, cluster: [cluster, 1, 1], ..linear }).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(fake.stat("overlapped"), expected);
    }
    fake.set("major", 8);
    let refused = launch(LaunchConfig { overlapped: true, ..linear }).unwrap_err();
    assert_eq!(refused.code(), Some(CUresult::ERROR_NOT_SUPPORTED));
}

unsafe extern "C" fn nothing(_: *const *const c_void, _: *const [u32; 3], _: *const [u32; 3], _: u32) -> u32 {
    0
}

#[test]
fn an_error_of_a_kernel_shows_at_the_next_wait_and_stays() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let x = DeviceMemory::new(&stream, 4).unwrap();
    let trap = kernel(stream.context(), "trap");
    launch_nothing(&trap, &stream, &LaunchConfig::linear(1, 1)).unwrap();
    let sticky = Some(CUresult::ERROR_ILLEGAL_ADDRESS);
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.code(), sticky);
    assert!(error.code().unwrap().is_sticky());
    assert_eq!(x.fill(0).unwrap_err().code(), sticky);
    assert_eq!(DeviceMemory::new(&stream, 4).unwrap_err().code(), sticky);
    assert_eq!(Stream::new(stream.context()).unwrap_err().code(), sticky);
    assert_eq!(stream.context().synchronize().unwrap_err().code(), sticky);
    // The other device is another context.
    let other = Stream::new(&Context::primary(stream.context().driver(), 1).unwrap()).unwrap();
    DeviceMemory::new(&other, 4).unwrap().fill(1).unwrap();
    assert_eq!(other.synchronize(), Ok(()));
    drop((x, trap));
    assert_eq!(stream.context().take_parked().unwrap().code(), sticky);
    drop((stream, other));
    assert_clean(&fake);
}

#[test]
fn an_error_told_at_a_call_stays_too() {
    let fake = Fake::new();
    let stream = stream(&fake);
    fake.fail("cuStreamSynchronize", 1, ILLEGAL_ADDRESS);
    assert!(stream.synchronize().is_err());
    assert_eq!(stream.synchronize().unwrap_err().code(), Some(CUresult::ERROR_ILLEGAL_ADDRESS));
    assert!(!CUresult::ERROR_OUT_OF_MEMORY.is_sticky() && !CUresult::ERROR_NOT_READY.is_sticky());
}

#[test]
fn events_mark_and_measure() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let x = DeviceMemory::new(&stream, 4).unwrap();
    let [start, end] = [(); 2].map(|()| Event::new(stream.context(), true).unwrap());
    start.record(&stream).unwrap();
    x.fill(0).unwrap();
    x.fill(1).unwrap();
    end.record(&stream).unwrap();
    assert_eq!((end.is_done(), stream.is_done()), (Ok(false), Ok(false)));
    assert_eq!(end.milliseconds_since(&start).unwrap_err().code(), Some(CUresult::ERROR_NOT_READY));
    end.synchronize().unwrap();
    assert_eq!((end.is_done(), stream.is_done()), (Ok(true), Ok(true)));
    assert!(end.milliseconds_since(&start).unwrap() > 0.0);
    let plain = Event::new(stream.context(), false).unwrap();
    plain.record(&stream).unwrap();
    plain.synchronize().unwrap();
    assert!(plain.milliseconds_since(&start).is_err());
}

#[test]
fn a_captured_step_replays_and_takes_new_arguments() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let kernel = kernel(stream.context(), "scale_f32");
    let (x, y) = (block(&stream, &[1.0, 2.0]), block(&stream, &[1.0]));
    let capture = |x: &DeviceMemory, factor| {
        stream
            .capture(capture_mode::THREAD_LOCAL, |stream| {
                scale(&kernel, stream, x, factor)?;
                scale(&kernel, stream, x, factor)
            })
            .unwrap()
    };
    let graph = capture(&x, 3.0);
    assert_eq!(fake.stat("launches"), 0, "recorded, not done");
    assert_eq!(graph.node_count(), Ok(2));
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.upload(&stream).unwrap();
    // SAFETY: the blocks outlive the launches.
    let launch = |exec: &gradewise_ffi::GraphExec| unsafe { exec.launch(&stream) }.unwrap();
    launch(&exec);
    launch(&exec);
    assert_eq!(read(&x), [81.0, 162.0]);
    assert_eq!(exec.update(&capture(&y, 5.0)), Ok(true));
    launch(&exec);
    assert_eq!(read(&y), [25.0]);
    let other = stream.capture(capture_mode::THREAD_LOCAL, |_| x.fill(0)).unwrap();
    assert_eq!(exec.update(&other), Ok(false));
    launch(&exec);
    assert_eq!(read(&y), [625.0]);
    drop((exec, other, kernel, x, y, stream));
    assert_clean(&fake);
}

#[test]
fn a_capture_ends_also_when_the_work_in_it_fails() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let refused = Error::Range { operation: "x", end: 1, bytes: 0 };
    let result = stream.capture(capture_mode::GLOBAL, |stream| {
        assert_eq!(stream.is_capturing(), Ok(true));
        Err::<(), _>(refused.clone())
    });
    assert_eq!(result.unwrap_err(), refused);
    assert_eq!(stream.is_capturing(), Ok(false));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = stream.capture(capture_mode::GLOBAL, |_| -> Result<(), Error> { panic!("on purpose") });
    }));
    assert!(panicked.is_err());
    assert_eq!(stream.is_capturing(), Ok(false));
    DeviceMemory::new(&stream, 4).unwrap().fill(0).unwrap();
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn what_a_capture_forbids_spoils_it_and_nothing_else() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let x = DeviceMemory::new(&stream, 4).unwrap();
    stream.begin_capture(capture_mode::GLOBAL).unwrap();
    x.fill(1).unwrap();
    assert_eq!(stream.synchronize().unwrap_err().code(), Some(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(x.fill(2).unwrap_err().code(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED));
    assert_eq!(stream.end_capture().unwrap_err().code(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED));
    x.fill(3).unwrap();
    let mut bytes = [0; 4];
    x.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 4]);
    assert_eq!(stream.end_capture().unwrap_err().code(), Some(CUresult::ERROR_ILLEGAL_STATE));
    drop((x, stream));
    assert_clean(&fake);
}

#[test]
fn another_stream_joins_a_capture_through_an_event() {
    let fake = Fake::new();
    let first = stream(&fake);
    let second = Stream::new(first.context()).unwrap();
    let (fork, join) =
        (Event::new(first.context(), false).unwrap(), Event::new(first.context(), false).unwrap());
    let (x, y) = (DeviceMemory::new(&first, 4).unwrap(), DeviceMemory::new(&second, 4).unwrap());
    let graph = first
        .capture(capture_mode::GLOBAL, |first| {
            fork.record(first)?;
            second.wait(&fork)?;
            x.fill(1)?;
            y.fill(2)?;
            join.record(&second)?;
            first.wait(&join)
        })
        .unwrap();
    assert_eq!(graph.node_count(), Ok(2));
    assert_eq!(second.is_capturing(), Ok(false));
}

#[test]
fn tensor_maps_check_their_dimensions() {
    let fake = Fake::new();
    let driver = driver(&fake);
    let map = TensorMap {
        dtype: tensor_map::FLOAT32,
        address: 1 << 20,
        sizes: &[100, 7],
        strides: &[400],
        tile: &[32, 4],
        swizzle: tensor_map::SWIZZLE_128B,
        promotion: tensor_map::PROMOTION_128B,
    };
    let encoded = map.encode(&driver).unwrap();
    assert_eq!(encoded.0[0], 1 << 20);
    assert_eq!((align_of_val(&encoded), size_of_val(&encoded)), (128, 128));
    for wrong in [
        TensorMap { strides: &[], ..map },
        TensorMap { tile: &[32], ..map },
        TensorMap { sizes: &[], strides: &[], tile: &[], ..map },
    ] {
        assert!(matches!(wrong.encode(&driver), Err(Error::Argument { .. })), "{wrong:?}");
    }
    for wrong in [
        TensorMap { address: 8, ..map },
        TensorMap { strides: &[404], ..map },
        TensorMap { tile: &[512, 1], ..map },
    ] {
        let error = wrong.encode(&driver).unwrap_err();
        assert_eq!(error.code(), Some(CUresult::ERROR_INVALID_VALUE), "{wrong:?}");
    }
}
