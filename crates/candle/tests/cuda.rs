//! Tensors on a GPU: what the operators compute there, in whose memory and in which stream.

mod common;

use candle_core::{
    CudaDevice, DType, Device, Result, Storage, Tensor, Var,
    cuda_backend::cudarc::driver::{self, sys},
};
use common::{
    Place, bits, compare, every_sample, of_tensor,
    training::{
        agree,
        network::{Clouds, Descent, Draws, Network, initial},
        train,
    },
    values,
};
use gradewise_autograd::{AnySample, registry::entries};
use gradewise_candle::Fused;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{CudaDevice as OurDevice, DType as OurDType, Device as OurPlace, memory::Monitor};
use half::{bf16, f16};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    ffi::c_void,
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// One test at a time: what is asked of the driver is about the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(ours: &OurDevice) -> Place {
    Place { theirs: Device::new_cuda(ours.ordinal()).unwrap(), ours: OurPlace::Cuda(ours.clone()) }
}

fn cuda(device: &Device) -> &CudaDevice {
    let Device::Cuda(device) = device else { panic!("{device:?} is no CUDA device") };
    device
}

fn drawn(shape: &[usize], dtype: DType, device: &Device, seed: u64) -> Tensor {
    let values = Draws::new(seed).many(shape.iter().product(), 1.0);
    Tensor::from_vec(values, shape, device).unwrap().to_dtype(dtype).unwrap()
}

/// Rows and features: single ones, tails of vectors and of warps. candle's own kernels take no empty tensors.
const SIZES: [((u8, u8, u8), usize, usize); 5] =
    [((3, 0, 0), 3, 5), ((3, 0, 1), 33, 17), ((1, 1, 0), 2, 1), ((2, 0, 0), 130, 28), ((3, 0, 0), 2, 64)];

fn same_bits_with_candle_and_without(ours: &OurDevice) {
    let (_alone, place) = (alone(), place(ours));
    for (signature, batch, features) in SIZES {
        every_sample(signature, batch, features, |sample| {
            compare::<f64>(sample, true, &place);
            compare::<f32>(sample, false, &place);
            compare::<bf16>(sample, false, &place);
            compare::<f16>(sample, true, &place);
        });
    }
}

/// The output and the gradients of an operation, in the direction of ones.
fn passes<T>(sample: &AnySample, device: &Device) -> Vec<Vec<f64>>
where
    T: gradewise_kernels::Element + candle_core::WithDType,
{
    let dtype = <T as gradewise_kernels::Element>::DTYPE;
    let drawn = sample.draw(dtype, &mut ChaCha8Rng::seed_from_u64(11)).unwrap();
    let leaves = sample.place(&drawn, dtype, &OurPlace::Cpu).unwrap();
    let variable = |leaf: &gradewise_autograd::Tensor| {
        Var::from_tensor(&common::tensor::<T>(leaf.array(), false, device))
    };
    let variables: Vec<Var> = leaves.iter().map(|leaf| variable(leaf).unwrap()).collect();
    let operation = Fused::new(sample.operation(), &sample.attributes().unwrap().to_json()).unwrap();
    let inputs: Vec<&Tensor> = variables.iter().map(Var::as_tensor).collect();
    let output = operation.apply(&inputs).unwrap();
    let gradients = output.sum_all().unwrap().backward().unwrap();
    let gradients = variables.iter().filter_map(|variable| gradients.get(variable));
    std::iter::once(&output).chain(gradients).map(values).collect()
}

/// ‖a − b‖ / ‖b‖.
fn relative_error(a: &[f64], b: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied()).max(f64::MIN_POSITIVE)
}

/// Against the same calls on candle's CPU. How exact the kernels are in themselves is what `gradewise-autograd` tests
/// (`cuda_registry.rs`); here a few digits tell whether the right elements were read and written.
fn values_are_those_of_the_cpu(ours: &OurDevice) {
    fn check<T>(sample: &AnySample, device: &Device, bound: f64) -> usize
    where
        T: gradewise_kernels::Element + candle_core::WithDType,
    {
        let (there, here) = (passes::<T>(sample, device), passes::<T>(sample, &Device::Cpu));
        assert_eq!(there.len(), here.len(), "{sample}");
        for (index, (there, here)) in there.iter().zip(&here).enumerate() {
            let error = relative_error(there, here);
            // Sums that cancel, such as gradients of norms in the direction of ones, have no digits of their own.
            let scale = here.iter().map(|value| value * value).sum::<f64>().sqrt();
            assert!(error <= bound || error * scale <= bound, "{sample}: result {index} is {error:.1e} off");
        }
        there.len()
    }
    let (_alone, place) = (alone(), place(ours));
    let compared = std::cell::Cell::new(0);
    every_sample((3, 0, 0), 33, 17, |sample| {
        let device = &place.theirs;
        let results = check::<f64>(sample, device, 1e-9)
            + check::<f32>(sample, device, 1e-3)
            + check::<bf16>(sample, device, 0.1)
            + check::<f16>(sample, device, 0.02);
        compared.set(compared.get() + results);
    });
    assert!(compared.get() > 4 * entries().len(), "{} results", compared.get());
}

fn fifty_steps_of_training_have_the_same_losses(ours: &OurDevice) {
    let (_alone, place) = (alone(), place(ours));
    agree(&train(OurDType::F64, &place, &place), "f64, both on the GPU");
    agree(&train(OurDType::F32, &place, &place), "f32, both on the GPU");
    agree(&train(OurDType::F64, &place, &Place::CPU), "f64, candle on the GPU, gradewise on the CPU");
}

fn an_empty_batch_has_an_empty_result(ours: &OurDevice) {
    let (_alone, place) = (alone(), place(ours));
    let silu = Fused::mv_silu(&Algebra::new(Signature::CL3).unwrap()).unwrap();
    let x = drawn(&[8, 3, 5], DType::F32, &place.theirs, 1).narrow(1, 3, 0).unwrap();
    let [a, b] = [2, 3].map(|seed| drawn(&[5, 4], DType::F32, &place.theirs, seed));
    assert_eq!(silu.apply(&[&x, &a, &b]).unwrap().dims(), [8, 0, 5]);
}

fn what_does_not_fit_is_refused_by_name(ours: &OurDevice) {
    let (_alone, place) = (alone(), place(ours));
    let product = Fused::geometric_product(&Algebra::new(Signature::CL3).unwrap()).unwrap();
    let x = drawn(&[8, 2, 2], DType::F32, &place.theirs, 1);
    let error = product.apply(&[&x, &x.to_dtype(DType::U32).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("table_product: input 1 of shape [8, 2, 2] has dtype U32"), "{error}");
    let error = product.apply(&[&x, &x.to_device(&Device::Cpu).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("device mismatch"), "{error}");
    let wide = drawn(&[8, 2, 3], DType::F32, &place.theirs, 1);
    let error = product.apply(&[&x, &wide]).unwrap_err().to_string();
    assert!(error.contains("[8, 2, 3]"), "{error}");
}

/// Holds a stream up until it is opened, a few seconds at most.
struct Gate(Sender<()>);

impl Gate {
    fn close(device: &CudaDevice) -> Self {
        unsafe extern "C" fn wait(receiver: *mut c_void) {
            // SAFETY: the box that was given away below, once.
            let receiver = unsafe { Box::from_raw(receiver.cast::<Receiver<()>>()) };
            let _ = receiver.recv_timeout(Duration::from_secs(5));
        }
        let (open, receiver) = channel::<()>();
        let receiver = Box::into_raw(Box::new(receiver)).cast();
        // SAFETY: a stream that lives; the function calls nothing of CUDA, and owns what it is given.
        unsafe {
            driver::result::stream::launch_host_function(device.cuda_stream().cu_stream(), wait, receiver)
        }
        .unwrap();
        Self(open)
    }

    /// Opens it. Fails if it has opened by itself.
    fn open(self) {
        self.0.send(()).expect("the stream was held up until now");
    }
}

/// What is queued while candle's stream is held up has the results that it has otherwise.
fn behind_a_gate(ours: &OurDevice, run: impl Fn(&Tensor, &[Tensor; 2]) -> Result<Tensor>) {
    let _alone = alone();
    // The stream of the thread, and one of the device's own.
    for device in [Device::new_cuda(ours.ordinal()), Device::new_cuda_with_stream(ours.ordinal())] {
        let device = device.unwrap();
        let parameters = [2, 3].map(|seed| drawn(&[64, 4], DType::F64, &device, seed));
        let [first, second] = [4, 5].map(|seed| drawn(&[8, 1000, 64], DType::F64, &device, seed));
        // Kernels are loaded, and their tables made, before the stream is held up. Other values, so that memory which is used
        // again does not hold the right ones.
        run(&first, &parameters).unwrap();
        let stream = cuda(&device).cuda_stream();
        stream.synchronize().unwrap();
        let gate = Gate::close(cuda(&device));
        let result = run(&second, &parameters).unwrap();
        // SAFETY: a stream that lives.
        let state = unsafe { sys::cuStreamQuery(stream.cu_stream()) };
        assert_eq!(state, sys::CUresult::CUDA_ERROR_NOT_READY, "nothing has waited for the stream");
        gate.open();
        let on_host = |tensor: &Tensor| tensor.to_device(&Device::Cpu).unwrap();
        let expected = run(&on_host(&second), &parameters.each_ref().map(on_host)).unwrap();
        let error = relative_error(&values(&result), &values(&expected));
        assert!(error <= 1e-12, "{error:e}");
    }
}

fn results_wait_for_candle_and_candle_for_them(ours: &OurDevice) {
    let silu = Fused::mv_silu(&Algebra::new(Signature::CL3).unwrap()).unwrap();
    behind_a_gate(ours, |x, [a, b]| silu.apply(&[&x.affine(2.0, 0.0)?, a, b])?.affine(1.0, 1.0));
}

fn gradients_wait_for_candle_and_candle_for_them(ours: &OurDevice) {
    let silu = Fused::mv_silu(&Algebra::new(Signature::CL3).unwrap()).unwrap();
    behind_a_gate(ours, |x, [a, b]| {
        let x = Var::from_tensor(&x.affine(2.0, 0.0)?)?;
        let y = silu.apply(&[&x, a, b])?;
        let gradients = (&y * &y)?.sum_all()?.backward()?;
        gradients.get(&x).expect("the result depends on it").affine(3.0, 0.0)
    });
}

/// Bytes in use of the pool that candle allocates from: now, or at most since it was last told to forget.
struct Pool(sys::CUmemoryPool);

impl Pool {
    fn of(ours: &OurDevice) -> Self {
        let mut pool = ptr::null_mut();
        // SAFETY: the device is there, and the result is written to a place that lives.
        let state = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, ours.ordinal() as i32) };
        assert_eq!(state, sys::CUresult::CUDA_SUCCESS);
        Self(pool)
    }

    fn read(&self, attribute: sys::CUmemPool_attribute) -> u64 {
        let mut bytes = 0u64;
        // SAFETY: both attributes that are asked for are of 64 bits, and the place lives.
        let state = unsafe { sys::cuMemPoolGetAttribute(self.0, attribute, (&raw mut bytes).cast()) };
        assert_eq!(state, sys::CUresult::CUDA_SUCCESS);
        bytes
    }

    fn now(&self) -> u64 {
        self.read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }

    fn most(&self) -> u64 {
        self.read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    }

    fn forget_most(&self) {
        let mut bytes = 0u64;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        // SAFETY: 64 bits that live; zero is what the driver asks for.
        let state = unsafe { sys::cuMemPoolSetAttribute(self.0, attribute, (&raw mut bytes).cast()) };
        assert_eq!(state, sys::CUresult::CUDA_SUCCESS);
    }
}

fn results_are_in_slices_of_candle_and_nothing_is_copied(ours: &OurDevice) {
    let (_alone, place, pool) = (alone(), place(ours), Pool::of(ours));
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let silu = Fused::mv_silu(&algebra).unwrap();
    let device = &place.theirs;
    let x = Var::from_tensor(&drawn(&[8, 4096, 64], DType::F32, device, 1)).unwrap();
    let [a, b] = [2, 3].map(|seed| drawn(&[64, 4], DType::F32, device, seed));
    let bytes = 8 * 4096 * 64 * 4;
    let forward = || silu.apply(&[&x, &a, &b]).unwrap();
    drop(forward().sum_all().unwrap().backward().unwrap());
    device.synchronize().unwrap();

    let monitor = Monitor::start(&place.ours).unwrap();
    let before = pool.now();
    pool.forget_most();
    let output = forward();
    device.synchronize().unwrap();
    // The result alone: neither it nor the input was copied.
    assert_eq!(pool.most() - before, bytes, "forward");
    {
        let (storage, layout) = output.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { panic!("the result is not on the GPU") };
        let slice = storage.as_cuda_slice::<f32>().unwrap();
        assert_eq!((slice.len(), layout.start_offset(), layout.is_contiguous()), (8 * 4096 * 64, 0, true));
    }
    drop(output.sum_all().unwrap().backward().unwrap());
    drop(output);
    device.synchronize().unwrap();
    assert_eq!(pool.now(), before, "all of it is given back");
    let delta = monitor.finish().unwrap();
    assert_eq!((delta.allocated, delta.peak), (0, 0), "memory of gradewise: {delta}");
}

fn memory_does_not_grow_while_training(ours: &OurDevice) {
    let (_alone, place, pool) = (alone(), place(ours), Pool::of(ours));
    let mut draws = Draws::new(7);
    let (clouds, initial) = (Clouds::draw(8, &mut draws), initial(&mut draws));
    let device = &place.theirs;
    let network = Network::new(&Algebra::new(Signature::CL3).unwrap(), &initial, DType::F64, device).unwrap();
    let (x, y) = (clouds.input(device).unwrap(), clouds.target(device).unwrap());
    let mut descent = Descent::new(&network.parameters);
    let mut steps = |count: usize| {
        for _ in 0..count {
            descent.step(&network.parameters, &network.loss(&x, &y).unwrap()).unwrap();
        }
        device.synchronize().unwrap();
        (pool.now(), place.ours.memory().unwrap().allocated)
    };
    let before = steps(10);
    assert_eq!(steps(500), before);
}

/// Two threads, each with a device and a stream of its own, compute what one computes.
fn threads_do_not_disturb_each_other(ours: &OurDevice) {
    let (_alone, ordinal) = (alone(), ours.ordinal());
    let layer = move |seed: u64| {
        let device = Device::new_cuda_with_stream(ordinal).unwrap();
        let silu = Fused::mv_silu(&Algebra::new(Signature::CL3).unwrap()).unwrap();
        let [a, b] = [2, 3].map(|seed| drawn(&[64, 4], DType::F32, &device, seed));
        let mut x = drawn(&[8, 500, 64], DType::F32, &device, seed);
        for _ in 0..50 {
            x = silu.apply(&[&x, &a, &b]).unwrap();
        }
        of_tensor(&x)
    };
    let expected = [1, 2].map(layer);
    assert_ne!(expected[0], expected[1]);
    assert!(expected[0].iter().any(|&value| value != bits([0.0])[0]), "the values have not vanished");
    let threads = [1, 2].map(|seed| std::thread::spawn(move || layer(seed)));
    assert_eq!(threads.map(|thread| thread.join().unwrap()), expected);
}

gradewise_testing::main!(
    same_bits_with_candle_and_without,
    values_are_those_of_the_cpu,
    fifty_steps_of_training_have_the_same_losses,
    an_empty_batch_has_an_empty_result,
    what_does_not_fit_is_refused_by_name,
    results_wait_for_candle_and_candle_for_them,
    gradients_wait_for_candle_and_candle_for_them,
    results_are_in_slices_of_candle_and_nothing_is_copied,
    memory_does_not_grow_while_training,
    threads_do_not_disturb_each_other,
);
