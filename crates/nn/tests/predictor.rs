//! Predictions: on the host, and over a stand-in for the driver, where captured work is replayed.

use gradewise_autograd::Tensor;
use gradewise_fake_driver::Fake;
use gradewise_ffi::Driver;
use gradewise_kernels::{Array, CudaDevice, DType, Device, Options, custom::CudaKernel, signature};
use gradewise_nn::{
    Error, Module, Parameter, Placement, Predictor, Result,
    layers::{CliffordLayer, Layer},
    train::Capture,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry weigh(.param .u64 x, .param .u64 w, .param .u64 y, .param .u64 n) { ret; }\n";

/// y = w·x, with one weight.
unsafe extern "C" fn weigh(
    arguments: *const *const c_void,
    _: *const [u32; 3],
    _: *const [u32; 3],
    _: u32,
) -> u32 {
    // SAFETY: the kernel's parameters are three addresses of f32 and their number; they are those of live arrays.
    unsafe {
        let argument = |index: usize| *(*arguments.add(index)).cast::<u64>();
        let (x, w, y) = (argument(0) as *const f32, argument(1) as *const f32, argument(2) as *mut f32);
        for index in 0..argument(3) as usize {
            *y.add(index) = *w * *x.add(index);
        }
    }
    0
}

#[derive(Module)]
struct Weight {
    weight: Parameter,
}

/// A predictor of weighted inputs on the stand-in, with the number of times that its function was called.
struct Setting {
    fake: Fake,
    device: CudaDevice,
    calls: Arc<AtomicUsize>,
    predictor: Predictor<Weight, Tensor>,
}

impl Setting {
    fn new() -> Self {
        let fake = Fake::new();
        fake.register("weigh", weigh);
        let device =
            CudaDevice::with_options(&Driver::open(fake.path()).unwrap(), 0, Options::default()).unwrap();
        let signature =
            signature!(fn weigh(x: &[f32; n], w: &[f32; one], y: &mut [f32; n], n: usize)).unwrap();
        let kernel = CudaKernel::from_image("weigh.ptx", PTX, signature).unwrap();
        let place = Device::Cuda(device.clone());
        let weight = Parameter::new(Array::from_slice(&[2.0f32], [1], &place).unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let forward = move |model: &Weight, x: &Tensor| -> Result<Tensor> {
            counted.fetch_add(1, Ordering::Relaxed);
            let outputs = kernel.launch(&[x.array(), &model.weight.array()], &[]).map_err(Error::from)?;
            Ok(Tensor::new(outputs[0].clone()))
        };
        let predictor = Predictor::new(Weight { weight }, &place, forward);
        Self { fake, device, calls, predictor }
    }

    fn predict(&mut self, values: &[f32]) -> Array {
        self.predictor.predict(&tensor(values, &Device::Cpu)).unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn tensor(values: &[f32], device: &Device) -> Tensor {
    Tensor::new(Array::from_slice(values, [values.len()], device).unwrap())
}

fn values(array: &Array) -> Vec<f32> {
    array.to_vec().unwrap()
}

#[test]
fn work_is_captured_once_for_each_shape_and_replayed_on_every_batch() {
    let mut setting = Setting::new();
    let first = setting.predict(&[1.0, 2.0]);
    assert_eq!((values(&first), setting.calls(), setting.predictor.captured()), (vec![2.0, 4.0], 2, 1));
    let second = setting.predict(&[3.0, 5.0]);
    let third = setting.predict(&[7.0, 8.0]);
    assert_eq!(setting.calls(), 2, "a replay calls nothing");
    assert_eq!(
        (values(&first), values(&second)),
        (vec![2.0, 4.0], vec![6.0, 10.0]),
        "results stay as they were"
    );
    assert_eq!(values(&third), [14.0, 16.0]);
    assert_eq!(values(&setting.predict(&[1.0])), [2.0]);
    assert_eq!((setting.calls(), setting.predictor.captured()), (4, 2));
    assert_eq!(values(&setting.predict(&[9.0, 1.0])), [18.0, 2.0]);
    assert_eq!(setting.calls(), 4, "both shapes are kept");
}

#[test]
fn batches_on_the_device_stay_as_they_are() {
    let mut setting = Setting::new();
    let place = Device::Cuda(setting.device.clone());
    let batches = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]].map(|pair| tensor(&pair, &place));
    for _ in 0..2 {
        for (batch, expected) in batches.iter().zip([[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]]) {
            assert_eq!(values(&setting.predictor.predict(batch).unwrap()), expected);
        }
    }
    assert_eq!(setting.calls(), 2);
}

#[test]
fn predictions_are_of_the_weights_as_they_are_now() {
    let mut setting = Setting::new();
    setting.predict(&[1.0]);
    let place = Device::Cuda(setting.device.clone());
    let new = Array::from_slice(&[5.0f32], [1], &place).unwrap();
    setting.predictor.model().weight.set(new.clone()).unwrap();
    assert_eq!(values(&setting.predict(&[1.0])), [5.0]);
    assert_eq!((setting.calls(), setting.predictor.captured()), (4, 1), "recorded anew");
    // In place, as a trainer does on a device: the graph reads the same storage.
    new.overwrite_shared(&Array::from_slice(&[-1.0f32], [1], &Device::Cpu).unwrap()).unwrap();
    assert_eq!(values(&setting.predict(&[1.0])), [-1.0]);
    assert_eq!(setting.calls(), 4);
}

#[test]
fn the_shape_that_was_not_seen_for_longest_goes_first() {
    let mut setting = Setting::new();
    setting.predictor = setting.predictor.keep(2);
    for count in [1, 2, 1, 3] {
        setting.predict(&vec![1.0; count]);
    }
    assert_eq!((setting.predictor.captured(), setting.calls()), (2, 6));
    setting.predict(&[1.0]);
    assert_eq!(setting.calls(), 6, "seen after that of two");
    setting.predict(&[1.0; 2]);
    assert_eq!(setting.calls(), 8);
    setting.predictor = setting.predictor.keep(0);
    assert_eq!(values(&setting.predict(&[1.0])), [2.0]);
}

#[test]
fn what_cannot_be_captured_is_computed_launch_by_launch_or_an_error() {
    for capture in [Capture::WhenPossible, Capture::Required, Capture::Off] {
        let setting = Setting::new();
        let place = Device::Cuda(setting.device.clone());
        let weight = setting.predictor.into_model();
        // The host reads the input.
        let look = |_: &Weight, x: &Tensor| -> Result<Tensor> {
            assert!(x.array().to_vec::<f32>().map_err(Error::from)?.len() == 1);
            Ok(x.clone())
        };
        let mut predictor = Predictor::new(weight, &place, look).capture(capture);
        for value in [3.0, 4.0] {
            match predictor.predict(&tensor(&[value], &Device::Cpu)) {
                Ok(output) => {
                    assert_eq!((values(&output), capture == Capture::Required), (vec![value], false))
                }
                Err(error) => {
                    assert_eq!(capture, Capture::Required);
                    assert!(error.to_string().contains("captur"), "{error}");
                }
            }
        }
        assert_eq!(predictor.captured(), 0);
    }
}

#[test]
fn nothing_is_left_when_a_predictor_goes() {
    let mut setting = Setting::new();
    setting.predict(&[1.0, 2.0]);
    let Setting { fake, device, predictor, .. } = setting;
    assert!(fake.stat("graphs") + fake.stat("execs") > 0);
    drop(predictor);
    assert_eq!((fake.stat("graphs"), fake.stat("execs")), (0, 0));
    drop(device);
}

#[test]
fn on_the_host_a_predictor_is_the_forward_pass_without_history() {
    let place = Placement::new(&Device::Cpu, DType::F64);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let layer = CliffordLayer::new(4, gradewise_core::Signature::CL3).init(&place, &mut rng).unwrap();
    let x = Tensor::new(Array::from_f64(&[0.3; 8 * 5 * 4], [8, 5, 4], DType::F64, &Device::Cpu).unwrap());
    let expected = layer.forward(&x).unwrap().array().to_f64_vec().unwrap();
    let mut predictor = Predictor::new(layer, &Device::Cpu, |layer, x: &Tensor| layer.forward(x));
    for _ in 0..2 {
        assert_eq!(predictor.predict(&x).unwrap().to_f64_vec().unwrap(), expected);
    }
    assert_eq!(predictor.captured(), 0);
}
