//! Drills over a stand-in for the driver: a device that fails in the middle of a step, and training that goes on from its last
//! checkpoint to the bits of a run that nothing happened to.

use gradewise_autograd::{Error as Autograd, Tensor, backend::replace, detect_anomalies, observe::Pass};
use gradewise_fake_driver::Fake;
use gradewise_ffi::Driver;
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, Error as Kernels, Fault, Options, custom::CudaKernel, signature,
};
use gradewise_nn::{
    Error, Placement, Result,
    checkpoint::Checkpoint,
    data::{Split, loader::BatchOrder},
    optim::{Method, Schedule},
    train::{Trainer, TrainerConfig, batches},
};
use gradewise_zoo::{
    data::nbody::{NBodyData, Trajectories},
    models::{NBody, NBodyConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::{
    ffi::c_void,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry probe(.param .u64 x, .param .u64 y, .param .u64 n) { ret; }\n";

fn data() -> Arc<NBodyData> {
    let trajectories = Trajectories::simulate(3, 16, 12, 5, Split::Train).unwrap();
    Arc::new(NBodyData::between(&trajectories, 1, 11).unwrap())
}

fn trainer() -> Trainer<NBody> {
    let config = NBodyConfig { hidden: 4, layers: 1, ..NBodyConfig::default() };
    let placement = Placement::new(&Device::Cpu, DType::F32);
    let model = NBody::init(&config, placement, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    let config = TrainerConfig {
        ema: Some(0.9),
        ..TrainerConfig::new(Method::adam(1e-4), Schedule::Constant { lr: 1e-2, warmup: 2 })
    };
    Trainer::new(model, config).unwrap()
}

/// Work on a device in the middle of every step: a copy there, a kernel, a copy back.
struct Probe {
    fake: Fake,
    device: CudaDevice,
    kernel: CudaKernel,
}

/// The code that the kernel ends with, and after how many calls.
static CODE: AtomicU32 = AtomicU32::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn run(_: *const *const c_void, _: *const [u32; 3], _: *const [u32; 3], _: u32) -> u32 {
    if CALLS.fetch_sub(1, Ordering::Relaxed) == 1 { CODE.load(Ordering::Relaxed) } else { 0 }
}

impl Probe {
    fn new() -> Self {
        let fake = Fake::new();
        fake.register("probe", run);
        // Every array asks the driver for its memory, which is to refuse it.
        let options = Options { recycle: false, ..Options::default() };
        let device = CudaDevice::with_options(&Driver::open(fake.path()).unwrap(), 0, options).unwrap();
        let signature = signature!(fn probe(x: &[f32; n], y: &mut [f32; n], n: usize)).unwrap();
        Self { fake, device, kernel: CudaKernel::from_image("probe.ptx", PTX, signature).unwrap() }
    }

    fn look(&self, loss: &Tensor) -> Result<()> {
        let there = loss.array().reshape([1])?.to_device(&Device::Cuda(self.device.clone()))?;
        self.kernel.launch(&[&there], &[])?[0].to_vec::<f32>()?;
        Ok(())
    }
}

/// Takes steps up to number `last`, and writes a checkpoint every fourth.
fn train(trainer: &mut Trainer<NBody>, probe: &Probe, last: u64, path: &Path) -> Result<()> {
    let data = data();
    let order = BatchOrder::sequential(data.len(), 4)?.shuffled(1).drop_last()?;
    let mut batches = batches(Arc::clone(&data), &order, trainer.steps(), &trainer.model().placement())?;
    while trainer.steps() < last {
        trainer.step(&mut batches, |model, example| {
            let loss = model.loss(&example.batch, &example.targets)?;
            probe.look(&loss)?;
            Ok(loss)
        })?;
        if trainer.steps().is_multiple_of(4) {
            trainer.checkpoint("nbody", serde_json::json!({}))?.write(path)?;
        }
    }
    Ok(())
}

fn bytes(trainer: &Trainer<NBody>) -> Vec<Vec<f32>> {
    trainer.parameters().iter().map(|(_, parameter)| parameter.array().to_vec::<f32>().unwrap()).collect()
}

#[test]
fn a_device_that_fails_in_a_step_is_named_and_training_goes_on_from_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut straight = trainer();
    train(&mut straight, &Probe::new(), 10, &path).unwrap();

    for (code, fault) in
        [(700, Fault::IllegalAddress), (715, Fault::IllegalInstruction), (719, Fault::LaunchFailure)]
    {
        std::fs::remove_file(&path).unwrap();
        CODE.store(code, Ordering::Relaxed);
        CALLS.store(7, Ordering::Relaxed);
        let (mut broken, probe) = (trainer(), Probe::new());
        let error = train(&mut broken, &probe, 10, &path).unwrap_err();
        let Error::Kernels(Kernels::Cuda { source, .. }) = &error else { panic!("{error:?}") };
        assert_eq!((Fault::of(source), broken.steps()), (Some(fault), 6), "{error}");
        assert!(error.to_string().contains("start a new process"), "{error}");
        // What was on the host is intact, and the device says the same as long as the process lives.
        assert!(train(&mut broken, &probe, 10, &path).unwrap_err().to_string().contains(fault.name()));
        CALLS.store(0, Ordering::Relaxed);
        assert_goes_on(&path, &straight);
    }

    // Out of memory is not the end of the device: the same process may go on, with less to do.
    std::fs::remove_file(&path).unwrap();
    let (mut broken, probe) = (trainer(), Probe::new());
    train(&mut broken, &probe, 5, &path).unwrap();
    probe.fake.fail("cuMemAllocAsync", 2, 2);
    probe.fake.fail("cuMemAllocAsync", 3, 2);
    let error = train(&mut broken, &probe, 10, &path).unwrap_err();
    assert!(matches!(&error, Error::Kernels(Kernels::DeviceOutOfMemory { .. })), "{error}");
    assert!(error.to_string().contains("accumulate gradients"), "{error}");
    assert_eq!((broken.steps(), Checkpoint::read(&path).unwrap().metadata.step), (5, 4));
    train(&mut broken, &probe, 10, &path).unwrap();
    assert_eq!(bytes(&broken), bytes(&straight));
    drop((broken, probe.kernel, probe.device));
    assert_eq!(probe.fake.remains(), []);
}

#[track_caller]
fn assert_goes_on(path: &Path, straight: &Trainer<NBody>) {
    let checkpoint = Checkpoint::read(path).unwrap();
    assert_eq!(checkpoint.metadata.step, 4);
    let mut resumed = trainer();
    resumed.resume(&checkpoint, "nbody", &serde_json::json!({})).unwrap();
    train(&mut resumed, &Probe::new(), 10, path).unwrap();
    assert_eq!(bytes(&resumed), bytes(straight));
}

#[test]
fn a_nan_in_a_chosen_layer_is_found_there() {
    let mut trainer = trainer();
    let data = data();
    let order = BatchOrder::sequential(data.len(), 4).unwrap();
    let mut batches = batches(Arc::clone(&data), &order, 0, &trainer.model().placement()).unwrap();
    for (pass, place) in
        [(Pass::Forward, "`mv_silu` gave"), (Pass::Backward, "the backward pass of `mv_silu`")]
    {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let spoil = move |call: &gradewise_autograd::backend::Call<'_>| {
            let mut outputs = call.original()?;
            if counted.fetch_add(1, Ordering::Relaxed) == 1
                && let Some(output) = outputs.iter_mut().flatten().next()
            {
                let mut values = output.to_vec::<f32>()?;
                values[3] = f32::NAN;
                *output = Array::from_slice(&values, output.dims().to_vec(), &Device::Cpu)?;
            }
            Ok(outputs)
        };
        let step = || {
            detect_anomalies(|| {
                trainer.step(&mut batches, |model, example| model.loss(&example.batch, &example.targets))
            })
        };
        let error =
            replace("mv_silu", pass, spoil, step).map_err(|error| trainer.explained(error)).unwrap_err();
        let Error::Autograd(Autograd::Anomaly(anomaly)) = &error else { panic!("{error:?}") };
        assert_eq!(
            (anomaly.operation, anomaly.pass, anomaly.nan, anomaly.inherited),
            ("mv_silu", pass, 1, false)
        );
        let text = error.to_string();
        for part in [place, "parameter `", "computed through"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert_eq!(
            (calls.load(Ordering::Relaxed), trainer.steps()),
            (2, 0),
            "it stopped there, and took no step"
        );
    }
    let report =
        trainer.step(&mut batches, |model, example| model.loss(&example.batch, &example.targets)).unwrap();
    assert!(report.loss.is_finite() && !report.skipped);
}
