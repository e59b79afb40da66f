//! Training on the GPU: captured steps compute the bits of eager ones, run after run, and keep to their memory; the host
//! computes the same numbers to rounding, and takes over checkpoints.

use gradewise_autograd::{
    autocast, no_grad,
    observe::{Event, Observer, observe},
};
use gradewise_kernels::{Array, CudaDevice, DType, Device, ops};
use gradewise_nn::{
    Error, Module, Placement, Predictor, Result,
    checkpoint::Checkpoint,
    optim::{Method, MixedPrecision, ScalerConfig, Schedule},
    train::{Batch, Capture, CapturedStep, StepReport, Trainer, TrainerConfig},
};
use gradewise_zoo::{
    models::{ForceField, ForceFieldConfig, NBody, NBodyBatch, NBodyConfig},
    train::nbody::Example,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn small() -> NBodyConfig {
    NBodyConfig { hidden: 9, layers: 2, ..NBodyConfig::default() }
}

fn config(method: Method) -> TrainerConfig {
    let schedule = Schedule::Cosine { lr: 4e-3, final_lr: 1e-5, warmup: 5, decay: 100, total: 200 };
    TrainerConfig { clip_norm: Some(0.5), ema: Some(0.9), ..TrainerConfig::new(method, schedule) }
}

fn trainer(config: TrainerConfig, placement: &Placement) -> Trainer<NBody> {
    let model = NBody::init(&small(), placement, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    Trainer::new(model, config).unwrap()
}

/// Batches of `systems` systems on the host, the same ones for every caller.
fn batches(systems: usize, dtype: DType) -> impl Iterator<Item = Result<Example>> {
    let placement = Placement::new(&Device::Cpu, dtype);
    (0u64..).map(move |number| {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let mut random =
            |count: usize| -> Vec<f64> { (0..count).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (positions, velocities, charges) =
            (random(systems * 15), random(systems * 15), random(systems * 5));
        let batch = NBodyBatch::new((&positions, &velocities, &charges), 5, &placement)?;
        let targets: Vec<f64> = positions.iter().zip(&velocities).map(|(x, v)| x + 0.5 * v).collect();
        let targets = batch.targets(&targets)?;
        Ok(Example { batch, targets })
    })
}

fn loss(model: &NBody, example: &Example) -> Result<gradewise_autograd::Tensor> {
    model.loss(&example.batch, &example.targets)
}

/// All weights, bit by bit, and the reports of the steps.
fn train(
    device: &CudaDevice,
    capture: bool,
    config: TrainerConfig,
    steps: usize,
) -> (Vec<u64>, Vec<StepReport>) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    let mut trainer = trainer(config, &placement);
    let mut stepper = CapturedStep::new(device, capture);
    let mut batches = batches(7, DType::F32);
    let reports = (0..steps).map(|_| stepper.step(&mut trainer, &mut batches, loss).unwrap()).collect();
    assert_eq!(stepper.node_count().unwrap().is_some(), capture);
    (bits(trainer.model()), reports)
}

fn bits(model: &impl Module) -> Vec<u64> {
    let values = |parameter: gradewise_nn::Parameter| parameter.array().to_f64_vec().unwrap();
    model.parameters().into_iter().flat_map(values).map(f64::to_bits).collect()
}

fn captured_steps_compute_the_bits_of_eager_ones(device: &CudaDevice) {
    for method in [Method::adam(1e-4), Method::adamw(1e-2), Method::Sgd { momentum: 0.9, weight_decay: 1e-4 }]
    {
        let eager = train(device, false, config(method), 200);
        let captured = train(device, true, config(method), 200);
        assert_eq!(eager, captured, "{method:?}");
        assert_eq!(captured, train(device, true, config(method), 200), "run after run");
        assert!(eager.1.iter().any(|report| report.clipped), "the limit was reached");
    }
}

fn a_trainer_takes_captured_steps_by_itself(device: &CudaDevice) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    let (expected, reports) = train(device, true, config(Method::adam(1e-4)), 10);
    for capture in [Capture::WhenPossible, Capture::Required, Capture::Off] {
        let mut trainer = trainer(config(Method::adam(1e-4)), &placement);
        trainer.set_capture(capture);
        let mut batches = batches(7, DType::F32);
        let found: Vec<StepReport> = (0..10).map(|_| trainer.step(&mut batches, loss).unwrap()).collect();
        assert_eq!((bits(trainer.model()), &found), (expected.clone(), &reports), "{capture:?}");
        let nodes = trainer.captured_nodes::<Example>().unwrap();
        assert_eq!(nodes.is_some(), capture != Capture::Off, "{capture:?}");
    }
}

/// Batches of three sizes by turns, each recorded once; more sizes than recordings are kept, too.
fn steps_of_several_shapes_have_the_bits_of_eager_ones(device: &CudaDevice) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    for (sizes, steps) in [(3, 30), (40, 90)] {
        let train = |capture: bool| {
            let mut trainer = trainer(config(Method::adam(1e-4)), &placement);
            let mut stepper = CapturedStep::new(device, capture);
            let mut all: Vec<_> = (1..=sizes).map(|systems| batches(systems, DType::F32)).collect();
            let reports: Vec<StepReport> = (0..steps)
                .map(|step| stepper.step(&mut trainer, &mut all[step % sizes], loss).unwrap())
                .collect();
            (bits(trainer.model()), reports)
        };
        assert_eq!(train(true), train(false), "{sizes} sizes");
    }
}

fn a_loss_that_cannot_be_captured_goes_on_operator_by_operator_or_is_an_error_on_request(
    device: &CudaDevice,
) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    // The host looks at every loss.
    let looked_at = |model: &NBody, example: &Example| {
        let loss = loss(model, example)?;
        assert!(loss.item()?.is_finite());
        Ok(loss)
    };
    let (expected, _) = train(device, false, config(Method::adam(1e-4)), 6);
    let mut willing = trainer(config(Method::adam(1e-4)), &placement);
    let mut source = batches(7, DType::F32);
    for _ in 0..6 {
        willing.step(&mut source, looked_at).unwrap();
    }
    assert_eq!(bits(willing.model()), expected);
    assert!(willing.captured_nodes::<Example>().unwrap().is_none());
    let mut strict = trainer(config(Method::adam(1e-4)), &placement);
    strict.set_capture(Capture::Required);
    assert!(strict.step(&mut batches(7, DType::F32), looked_at).is_err());
}

fn accumulated_batches_are_captured_too(device: &CudaDevice) {
    let config = TrainerConfig { accumulation: 3, ..config(Method::adam(0.0)) };
    assert_eq!(train(device, false, config.clone(), 20), train(device, true, config, 20));
}

fn steps_through_second_derivatives_are_captured_too(device: &CudaDevice) {
    let mixed = MixedPrecision::new(DType::BF16).unwrap();
    let train = |capture: bool, (dtype, precision): (DType, Option<&MixedPrecision>)| {
        let sizes = ForceFieldConfig { hidden: 5, ..ForceFieldConfig::default() };
        let placement = Placement::new(&Device::Cuda(device.clone()), dtype);
        let model = ForceField::init(&sizes, &placement, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
        let trainer = Trainer::new(model, config(Method::adam(0.0))).unwrap();
        let mut trainer = match precision {
            Some(precision) => trainer.mixed_precision(precision).unwrap(),
            None => trainer,
        };
        let mut stepper = CapturedStep::new(device, capture);
        let mut batches = batches(4, dtype);
        let loss = |model: &ForceField, example: &Example| model.loss(&example.batch, &example.targets);
        let reports: Vec<StepReport> =
            (0..12).map(|_| stepper.step(&mut trainer, &mut batches, loss).unwrap()).collect();
        assert_eq!(stepper.node_count().unwrap().is_some(), capture);
        (bits(trainer.model()), reports)
    };
    for precision in [(DType::F64, None), (DType::F32, Some(&mixed))] {
        let (eager, captured) = (train(false, precision), train(true, precision));
        assert_eq!(eager, captured);
        assert!(captured.1[11].loss < captured.1[0].loss, "{:?}", captured.1);
    }
}

fn the_host_computes_the_same_steps(device: &CudaDevice) {
    let cuda = Placement::new(&Device::Cuda(device.clone()), DType::F64);
    let cpu = Placement::new(&Device::Cpu, DType::F64);
    let (mut there, mut here) =
        (trainer(config(Method::adam(1e-4)), &cuda), trainer(config(Method::adam(1e-4)), &cpu));
    let mut stepper = CapturedStep::new(device, true);
    let (mut first, mut second) = (batches(4, DType::F64), batches(4, DType::F64));
    for _ in 0..30 {
        let a = stepper.step(&mut there, &mut first, loss).unwrap();
        let b = here.step(&mut second, loss).unwrap();
        assert!((a.loss - b.loss).abs() <= 1e-9 * b.loss, "step {}: {} and {}", a.step, a.loss, b.loss);
        assert!((a.norms.total - b.norms.total).abs() <= 1e-8 * b.norms.total);
        assert_eq!((a.step, a.lr, a.clipped, a.skipped), (b.step, b.lr, b.clipped, b.skipped));
    }
}

fn elements_of_gradients_are_clipped_as_on_the_host(device: &CudaDevice) {
    let cuda = Placement::new(&Device::Cuda(device.clone()), DType::F64);
    let cpu = Placement::new(&Device::Cpu, DType::F64);
    // The weights show the gradients themselves; the norm's limit acts first on some of the steps.
    let method = Method::Sgd { momentum: 0.5, weight_decay: 1e-4 };
    let schedule = Schedule::Constant { lr: 1e-2, warmup: 0 };
    let base = TrainerConfig::new(method, schedule);
    let clipped = TrainerConfig { clip_norm: Some(0.5), clip_value: Some(1e-2), ema: Some(0.9), ..base };
    let free = TrainerConfig { clip_value: None, ..clipped.clone() };
    let (mut there, mut here) = (trainer(clipped.clone(), &cuda), trainer(clipped.clone(), &cpu));
    let mut stepper = CapturedStep::new(device, true);
    let (mut first, mut second) = (batches(4, DType::F64), batches(4, DType::F64));
    for _ in 0..10 {
        let on_device = stepper.step(&mut there, &mut first, loss).unwrap();
        let on_host = here.step(&mut second, loss).unwrap();
        assert!(on_device.clipped && on_host.clipped, "step {}", on_host.step);
    }
    // Reported by elements alone, too, and only where one is beyond the limit.
    for (limit, is_beyond) in [(1e-2, true), (1e9, false)] {
        let by_value = TrainerConfig { clip_norm: None, clip_value: Some(limit), ..clipped.clone() };
        let (_, reports) = train(device, true, by_value, 3);
        assert!(reports.iter().all(|report| report.clipped == is_beyond), "limit {limit}");
    }
    let values = |bits: Vec<u64>| bits.into_iter().map(f64::from_bits).collect::<Vec<_>>();
    let (there, here) = (values(bits(there.model())), values(bits(here.model())));
    let distance = gradewise_nn::symmetry::relative_distance(&there, &here);
    assert!(distance < 1e-9, "{distance:e}");
    assert_ne!(train(device, true, clipped.clone(), 10).0, train(device, true, free, 10).0, "it acts");
    assert_eq!(train(device, true, clipped.clone(), 10), train(device, false, clipped, 10));
}

fn checkpoints_go_from_the_gpu_to_the_host_and_back(device: &CudaDevice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let cuda = Placement::new(&Device::Cuda(device.clone()), DType::F64);
    let cpu = Placement::new(&Device::Cpu, DType::F64);
    let method = Method::adam(1e-4);

    let mut stepper = CapturedStep::new(device, true);
    let mut source = batches(4, DType::F64);
    let mut first = trainer(config(method), &cuda);
    for _ in 0..5 {
        stepper.step(&mut first, &mut source, loss).unwrap();
    }
    first.checkpoint("nbody", serde_json::Value::Null).unwrap().write(&path).unwrap();
    let mut here = trainer(config(method), &cpu);
    here.resume(&Checkpoint::read(&path).unwrap(), "nbody", &serde_json::Value::Null).unwrap();
    assert_eq!(bits(first.model()), bits(here.model()));
    let mut on = batches(4, DType::F64).skip(5);
    for _ in 0..5 {
        here.step(&mut on, loss).unwrap();
    }
    here.checkpoint("nbody", serde_json::Value::Null).unwrap().write(&path).unwrap();

    // Back into a trainer whose step is captured: the weights it was captured with are replaced.
    first.resume(&Checkpoint::read(&path).unwrap(), "nbody", &serde_json::Value::Null).unwrap();
    assert_eq!(bits(first.model()), bits(here.model()));
    let (mut a, mut b) = (batches(4, DType::F64).skip(10), batches(4, DType::F64).skip(10));
    for _ in 0..5 {
        let there = stepper.step(&mut first, &mut a, loss).unwrap();
        let report = here.step(&mut b, loss).unwrap();
        assert!((there.loss - report.loss).abs() <= 1e-9 * report.loss);
        assert_eq!(there.step, report.step);
    }
}

fn a_step_that_is_not_finite_changes_nothing_and_training_goes_on(device: &CudaDevice) {
    for capture in [false, true] {
        let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
        let mut trainer = trainer(config(Method::adam(1e-4)), &placement);
        let mut stepper = CapturedStep::new(device, capture);
        let mut good = batches(4, DType::F32);
        for _ in 0..3 {
            stepper.step(&mut trainer, &mut good, loss).unwrap();
        }
        let before = bits(trainer.model());
        let mut bad = batches(4, DType::F32).map(|example| {
            let mut example = example?;
            example.targets = example.targets.mul_scalar(f64::NAN)?;
            Ok(example)
        });
        let report = stepper.step(&mut trainer, &mut bad, loss).unwrap();
        assert!(report.skipped && report.loss.is_nan());
        assert_eq!(bits(trainer.model()), before);
        assert!(!stepper.step(&mut trainer, &mut good, loss).unwrap().skipped);
        assert_ne!(bits(trainer.model()), before);
        assert_eq!((trainer.steps(), trainer.skipped_steps()), (5, 1));
        let failed = (0..30).map(|_| stepper.step(&mut trainer, &mut bad, loss)).find_map(Result::err);
        assert!(matches!(failed, Some(Error::Diverged { .. })));
    }
}

fn batches_of_another_size_are_taken_and_recorded_anew(device: &CudaDevice) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    let run = |capture| {
        let mut trainer = trainer(config(Method::adam(0.0)), &placement);
        let mut stepper = CapturedStep::new(device, capture);
        for systems in [4, 4, 4, 2, 4, 4, 1, 1, 1] {
            stepper.step(&mut trainer, &mut batches(systems, DType::F32), loss).unwrap();
        }
        bits(trainer.model())
    };
    assert_eq!(run(false), run(true));
}

fn batches_that_the_caller_keeps_on_the_gpu_stay_as_they_are(device: &CudaDevice) {
    let place = Device::Cuda(device.clone());
    let host: Vec<Example> = batches(4, DType::F32).take(3).map(Result::unwrap).collect();
    let there: Vec<Example> = host.iter().map(|example| example.to_device(&place).unwrap()).collect();
    let run = |examples: &[Example]| {
        let mut trainer = trainer(config(Method::adam(0.0)), &Placement::new(&place, DType::F32));
        let mut source = examples.iter().cycle().map(|example| Ok(example.clone()));
        for _ in 0..8 {
            trainer.step(&mut source, loss).unwrap();
        }
        bits(trainer.model())
    };
    assert_eq!(run(&host), run(&there));
    for (example, same) in host.iter().zip(&there) {
        let values = |example: &Example| example.targets.array().to_f64_vec().unwrap();
        assert_eq!(values(example), values(same));
    }
}

fn predictions_are_captured_for_each_shape_with_the_bits_of_eager_ones(device: &CudaDevice) {
    let place = Device::Cuda(device.clone());
    let mut trainer = trainer(config(Method::adam(0.0)), &Placement::new(&place, DType::F32));
    let model = |seed| {
        NBody::init(&small(), Placement::new(&place, DType::F32), &mut ChaCha8Rng::seed_from_u64(seed))
            .unwrap()
    };
    let forward = |model: &NBody, batch: &NBodyBatch| model.forward(batch);
    let mut predictor = Predictor::new(model(1), &place, forward).capture(Capture::Required);
    let mut source = batches(3, DType::F32);
    for round in 0..3 {
        for systems in [1, 5, 1, 2] {
            let batch = batches(systems, DType::F32).nth(round).unwrap().unwrap().batch;
            let eager = no_grad(|| forward(predictor.model(), &batch.to_device(&place).unwrap())).unwrap();
            let found = predictor.predict(&batch).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), eager.array().to_vec::<f32>().unwrap());
        }
        assert_eq!(predictor.captured(), 3);
        // Other weights: those of a trainer after a step.
        trainer.step(&mut source, loss).unwrap();
        for (own, (_, new)) in predictor.model().parameters().iter().zip(trainer.model().named_parameters()) {
            own.set(new.array().copy().unwrap()).unwrap();
        }
    }
}

fn ten_thousand_steps_do_not_grow_memory(device: &CudaDevice) {
    // Counts of its own: other tests of this process may run at the same time.
    let device = &device.beside().unwrap();
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    for (capture, steps) in [(true, 10_000), (false, 300)] {
        let mut trainer = trainer(config(Method::adam(1e-4)), &placement);
        let mut stepper = CapturedStep::new(device, capture);
        let examples: Vec<Example> = batches(2, DType::F32).take(5).map(Result::unwrap).collect();
        let mut source = examples.iter().cycle().map(|example| Ok(example.clone()));
        let mut settled = None;
        for step in 0..steps {
            stepper.step(&mut trainer, &mut source, loss).unwrap();
            if step == 20 {
                settled = Some(device.memory().unwrap());
            }
        }
        let (before, after) = (settled.unwrap(), device.memory().unwrap());
        assert!(after.allocated <= before.allocated + (1 << 20), "{before:?} {after:?}");
    }
    device.forget_constants();
}

fn a_request_that_no_gpu_has_room_for_leaves_the_device_usable(device: &CudaDevice) {
    let on = Device::Cuda(device.clone());
    let held = Array::ones([1 << 20], DType::F32, &on).unwrap();
    let error = Array::zeros([1usize << 45], DType::F32, &on).unwrap_err();
    let gradewise_kernels::Error::DeviceOutOfMemory { requested, free, total, holders, .. } = &error else {
        panic!("{error}")
    };
    assert!(*requested == 4 << 45 && free <= total && !holders.is_empty(), "{error}");
    assert!(error.to_string().contains("reduce the batch"), "{error}");
    assert_eq!(ops::sum(&held, &[0], false).unwrap().item().unwrap(), f64::from(1 << 20));
}

/// Reports and weights of steps in mixed precision.
fn train_mixed(
    device: &CudaDevice,
    capture: bool,
    precision: &MixedPrecision,
    steps: usize,
) -> (Vec<u64>, Vec<StepReport>) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    let mut trainer = trainer(config(Method::adam(1e-4)), &placement).mixed_precision(precision).unwrap();
    let mut stepper = CapturedStep::new(device, capture);
    let mut batches = batches(7, DType::F32);
    let reports = (0..steps).map(|_| stepper.step(&mut trainer, &mut batches, loss).unwrap()).collect();
    assert_eq!(stepper.node_count().unwrap().is_some(), capture);
    (bits(trainer.model()), reports)
}

fn captured_steps_in_mixed_precision_scale_skip_and_compute_the_bits_of_eager_ones(device: &CudaDevice) {
    let mut overflowing = MixedPrecision::new(DType::F16).unwrap();
    // Overflows in the first steps, and grows into overflow again while steps are replayed.
    overflowing.scaler =
        Some(ScalerConfig { initial: (1u64 << 26) as f64, interval: 3, ..ScalerConfig::default() });
    for precision in [MixedPrecision::new(DType::BF16).unwrap(), overflowing] {
        let eager = train_mixed(device, false, &precision, 40);
        let captured = train_mixed(device, true, &precision, 40);
        assert_eq!(eager.0, captured.0);
        // As text, in which a NaN of a skipped step is one.
        assert_eq!(format!("{:?}", eager.1), format!("{:?}", captured.1));
        let (_, reports) = captured;
        let skipped = reports.iter().filter(|report| report.skipped).count();
        assert_eq!(skipped > 2, precision.scaler.is_some(), "{skipped} skipped");
        if precision.scaler.is_some() {
            let late = reports[20..].iter().filter(|report| report.skipped).count();
            assert!(late > 0, "the scale grows until a replayed step overflows");
        }
        // As on the host. Where a scale first fits depends on how the last bit was rounded, and with it the batch of the first step.
        if precision.scaler.is_some() {
            continue;
        }
        let mut host = trainer(config(Method::adam(1e-4)), &Placement::new(&Device::Cpu, DType::F32))
            .mixed_precision(&precision)
            .unwrap();
        let mut batches = batches(7, DType::F32);
        let first = reports.iter().find(|report| !report.skipped).unwrap();
        let other =
            (0..40).map(|_| host.step(&mut batches, loss).unwrap()).find(|report| !report.skipped).unwrap();
        assert!((first.norms.total - other.norms.total).abs() < 0.05 * other.norms.total);
        assert!((first.zeros - other.zeros).abs() < 0.02, "{} {}", first.zeros, other.zeros);
    }
}

/// Counts conversions, those within backward rules included.
#[derive(Default)]
struct Casts(usize);

impl Observer for Casts {
    fn observe(&mut self, event: &Event<'_>) -> gradewise_autograd::Result<()> {
        self.0 += usize::from(event.operation == "cast");
        Ok(())
    }
}

/// Conversions cost launches and memory traffic: with them, a step in mixed precision was slower than one in f32 for small batches.
fn a_step_in_mixed_precision_converts_nothing(device: &CudaDevice) {
    let placement = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    // The model of the paper.
    let model =
        || NBody::init(&NBodyConfig::default(), &placement, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let captured = |precision: Option<&MixedPrecision>| {
        let trainer = Trainer::new(model(), config(Method::adam(1e-4))).unwrap();
        let mut trainer = match precision {
            Some(precision) => trainer.mixed_precision(precision).unwrap(),
            None => trainer,
        };
        let (mut stepper, mut batches) = (CapturedStep::new(device, true), batches(7, DType::F32));
        for _ in 0..4 {
            stepper.step(&mut trainer, &mut batches, loss).unwrap();
        }
        stepper.node_count().unwrap().unwrap()
    };
    let (full, mixed) = (captured(None), captured(Some(&MixedPrecision::new(DType::BF16).unwrap())));
    assert!(full > 40 && mixed <= full, "{mixed} launches, {full} in f32");

    let model = model();
    let batch = batches(7, DType::F32).next().unwrap().unwrap().to_device(&placement.device).unwrap();
    let run = || -> Result<(f64, Vec<f64>)> {
        let loss = loss(&model, &batch)?;
        let gradients = loss.backward()?;
        let mut all = Vec::new();
        for parameter in model.parameters() {
            let gradient = gradients.get(&parameter.tensor())?;
            assert_eq!(gradient.dtype(), DType::F32);
            all.extend(gradient.array().to_f64_vec()?);
        }
        Ok((loss.item()?, all))
    };
    let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let (exact, expected) = run().unwrap();
    for dtype in [DType::BF16, DType::F16] {
        let (result, Casts(casts)) = observe(Casts::default(), || autocast(dtype, run));
        assert_eq!(casts, 0, "{dtype}");
        let (loss, found) = result.unwrap();
        assert!((loss - exact).abs() < 0.01 * exact, "{dtype}: {loss} and {exact}");
        let differences: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let error = norm(&differences) / norm(&expected);
        assert!(error < 0.05, "{dtype}: gradients differ by {error:e}");
    }
}

gradewise_testing::main!(
    captured_steps_compute_the_bits_of_eager_ones,
    a_trainer_takes_captured_steps_by_itself,
    steps_of_several_shapes_have_the_bits_of_eager_ones,
    a_loss_that_cannot_be_captured_goes_on_operator_by_operator_or_is_an_error_on_request,
    accumulated_batches_are_captured_too,
    steps_through_second_derivatives_are_captured_too,
    the_host_computes_the_same_steps,
    elements_of_gradients_are_clipped_as_on_the_host,
    checkpoints_go_from_the_gpu_to_the_host_and_back,
    a_step_that_is_not_finite_changes_nothing_and_training_goes_on,
    batches_of_another_size_are_taken_and_recorded_anew,
    batches_that_the_caller_keeps_on_the_gpu_stay_as_they_are,
    predictions_are_captured_for_each_shape_with_the_bits_of_eager_ones,
    ten_thousand_steps_do_not_grow_memory,
    a_request_that_no_gpu_has_room_for_leaves_the_device_usable,
    captured_steps_in_mixed_precision_scale_skip_and_compute_the_bits_of_eager_ones,
    a_step_in_mixed_precision_converts_nothing,
);
