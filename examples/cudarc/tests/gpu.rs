//! Memory, streams and work that cudarc and gradewise share on a GPU.

#[path = "../src/learn.rs"]
mod learn;
#[path = "../src/replay.rs"]
mod replay;
mod replays;
#[path = "../src/slices.rs"]
mod slices;

use cudarc::driver::{CudaContext, CudaSlice, result::stream::launch_host_function, sys};
use gradewise_core::{Algebra, Signature};
use gradewise_ffi::cudarc as borrow;
use gradewise_kernels::{Array, CudaDevice, DType, Device, ops};
use slices::{copy, in_stream, shown};
use std::{
    ffi::c_void,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|index| ((index * 7919) % 1013) as f64 / 512.0 - 1.0).collect()
}

/// Both are in the device's primary context.
fn contexts_are_one(device: &CudaDevice) {
    let theirs = CudaContext::new(device.ordinal()).unwrap();
    let driver = device.context().driver();
    // SAFETY: their context outlives ours.
    let context = unsafe { borrow::context(driver, &theirs) }.unwrap();
    assert_eq!(context.raw(), device.context().raw());
    assert_eq!(context.info().ordinal, device.ordinal());
}

fn an_operator_reads_a_slice_where_it_is(device: &CudaDevice) {
    let stream = CudaContext::new(device.ordinal()).unwrap().new_stream().unwrap();
    let values = numbers(6 * 35);
    let slice = Arc::new(stream.clone_htod(&values).unwrap());
    let array = shown(device, &stream, &slice, &[6, 35]).unwrap();
    assert_eq!((array.address(), array.is_borrowed()), (borrow::address(&stream, &slice).0, true));
    // A view of it, too.
    let sums = in_stream(device, &stream, || {
        let turned = array.slice(1, 3..20)?.transpose(0, 1)?;
        Ok(ops::sum(&turned, &[1], false)?.to_vec::<f64>()?)
    });
    let expected: Vec<f64> =
        (3..20).map(|column| (0..6).map(|row| values[row * 35 + column]).sum()).collect();
    for (sum, expected) in sums.unwrap().iter().zip(&expected) {
        assert!((sum - expected).abs() <= 1e-12, "{sum} and {expected}");
    }
    assert_eq!(Arc::strong_count(&slice), 2);
    drop(array);
    assert_eq!(Arc::strong_count(&slice), 1, "the array gives the slice back");
    let error = shown(device, &stream, &slice, &[6, 36]).unwrap_err().to_string();
    assert!(error.contains("210 elements"), "{error}");
}

/// cudarc writes into memory of ours, and reads from it.
fn our_memory_is_a_slice_of_theirs(device: &CudaDevice) {
    let stream = CudaContext::new(device.ordinal()).unwrap().new_stream().unwrap();
    let values = numbers(100);
    in_stream(device, &stream, || {
        let ours = Array::zeros([100], DType::F64, &Device::Cuda(device.clone()))?;
        let their_stream = Arc::clone(&stream);
        // SAFETY: the stream outlives what borrows it; the array is the only one over its memory, which holds numbers, and lives
        // until the stream has been waited for.
        let lent = unsafe {
            let ours_stream = borrow::stream(device.context(), &their_stream);
            let memory = gradewise_ffi::DeviceMemory::borrow(&ours_stream, ours.address(), 800);
            borrow::with_slice::<f64, _>(&their_stream, &memory, |slice| {
                their_stream.memcpy_htod(&values, slice).map(|()| slice.len())
            })
        };
        assert_eq!(lent?, 100);
        // Our operator after their copy, and their copy after our operator.
        let squares = ops::square(&ours)?;
        let mut theirs = stream.alloc_zeros::<f64>(100)?;
        copy(device, &stream, &squares, &mut theirs)?;
        let expected: Vec<f64> = values.iter().map(|value| value * value).collect();
        assert_eq!(stream.clone_dtoh(&theirs)?, expected);
        assert!(copy(device, &stream, &squares, &mut stream.alloc_zeros::<f64>(99)?).is_err());
        Ok(())
    })
    .unwrap();
}

/// Behind a closed gate in cudarc's stream nothing of ours runs, and nothing waits for it.
fn operators_run_in_their_stream(device: &CudaDevice) {
    unsafe extern "C" fn wait(receiver: *mut c_void) {
        // SAFETY: the box that was given away below, once.
        let receiver = unsafe { Box::from_raw(receiver.cast::<Receiver<()>>()) };
        let _ = receiver.recv_timeout(Duration::from_secs(5));
    }
    let stream = CudaContext::new(device.ordinal()).unwrap().new_stream().unwrap();
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let shape = [8, 1000, 16];
    let values = numbers(8 * 1000 * 16);
    let source = stream.clone_htod(&values).unwrap();
    let slice = Arc::new(stream.alloc_zeros::<f64>(values.len()).unwrap());
    let run = |slice: &Arc<CudaSlice<f64>>| {
        in_stream(device, &stream, || {
            let x = gradewise_autograd::Tensor::new(shown(device, &stream, slice, &shape)?);
            Ok(gradewise_autograd::clifford::geometric_product(&algebra, &x, &x)?.array().clone())
        })
    };
    // Kernels are loaded before the gate is closed.
    drop(run(&slice).unwrap());
    let mut slice = Arc::into_inner(slice).expect("nothing borrows the slice any more");
    stream.synchronize().unwrap();
    let (open, receiver) = channel::<()>();
    // SAFETY: a stream that lives; the function calls nothing of CUDA, and owns what it is given.
    unsafe {
        launch_host_function(stream.cu_stream(), wait, Box::into_raw(Box::new(receiver)).cast()).unwrap();
    }
    stream.memcpy_dtod(&source, &mut slice).unwrap();
    let slice = Arc::new(slice);
    let product = run(&slice).unwrap();
    // SAFETY: a stream that lives.
    let state = unsafe { sys::cuStreamQuery(stream.cu_stream()) };
    assert_eq!(state, sys::CUresult::CUDA_ERROR_NOT_READY, "nothing has waited for the stream");
    open.send(()).expect("the stream was held up until now");
    let product = in_stream(device, &stream, || Ok(product.to_f64_vec()?)).unwrap();
    let x = Array::from_slice(&values, shape, &Device::Cpu).unwrap();
    let x = gradewise_autograd::Tensor::new(x);
    let expected = gradewise_autograd::clifford::geometric_product(&algebra, &x, &x).unwrap();
    for (product, expected) in product.iter().zip(expected.array().to_f64_vec().unwrap()) {
        assert!((product - expected).abs() <= 1e-12, "{product} and {expected}");
    }
}

fn weights_are_learned_where_cudarc_has_them(device: &CudaDevice) {
    let learned = learn::learn(device.ordinal(), 400).unwrap();
    assert!(learned.losses[0] > 0.1 && learned.losses[399] < 1e-12, "{:?}", learned.losses);
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for (path, weight) in algebra.paths().iter().zip(&learned.weights) {
        let outer = f64::from(u8::from(path.left + path.right == path.out));
        assert!((weight - outer).abs() < 1e-5, "{path:?} has the weight {weight}");
    }
}

/// What `tests/replay.rs` does over the stand-in.
fn recorded_work_of_cudarc_replays(device: &CudaDevice) {
    for case in replays::ALL {
        case(device.ordinal());
    }
}

gradewise_testing::main!(
    recorded_work_of_cudarc_replays,
    contexts_are_one,
    an_operator_reads_a_slice_where_it_is,
    our_memory_is_a_slice_of_theirs,
    operators_run_in_their_stream,
    weights_are_learned_where_cudarc_has_them,
);
