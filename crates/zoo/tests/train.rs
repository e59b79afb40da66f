//! Training: interrupted runs go on with the same bits, accumulation equals a larger batch, bad steps are skipped.

use gradewise_autograd::{Tensor, autocast};
use gradewise_core::DType;
use gradewise_kernels::{Device, Fusion};
use gradewise_nn::{
    Error, Module, Placement, Result,
    checkpoint::{Checkpoint, TensorFile},
    data::{Split, loader::BatchOrder},
    optim::{Method, MixedPrecision, ScalerConfig, Schedule},
    train::{Batch, MAX_CONSECUTIVE_SKIPS, StepReport, Trainer, TrainerConfig, batches},
};
use gradewise_zoo::{
    data::nbody::{NBodyData, Trajectories},
    models::{
        ForceField, ForceFieldConfig, ForceFieldKind, GravityConfig, GravityKind, GravityModel, NBody,
        NBodyConfig,
    },
    train::nbody::{Example, mean_squared_error, predict},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

fn placement(dtype: DType) -> Placement {
    Placement::new(&Device::Cpu, dtype)
}

fn data(samples: usize) -> Arc<NBodyData> {
    let trajectories = Trajectories::simulate(3, samples, 12, 5, Split::Train).unwrap();
    Arc::new(NBodyData::between(&trajectories, 1, 11).unwrap())
}

fn model(dtype: DType) -> NBody {
    let config = NBodyConfig { hidden: 4, layers: 1, ..NBodyConfig::default() };
    NBody::init(&config, placement(dtype), &mut ChaCha8Rng::seed_from_u64(2)).unwrap()
}

fn config() -> TrainerConfig {
    TrainerConfig {
        accumulation: 2,
        clip_norm: Some(1.0),
        ema: Some(0.9),
        ..TrainerConfig::new(
            Method::adam(1e-4),
            Schedule::Cosine { lr: 1e-2, final_lr: 1e-7, warmup: 3, decay: 10, total: 30 },
        )
    }
}

fn run(trainer: &mut Trainer<NBody>, data: &Arc<NBodyData>, steps: usize) -> Vec<StepReport> {
    let order = BatchOrder::sequential(data.len(), 4).unwrap().shuffled(1).drop_last().unwrap();
    let placement = trainer.model().placement();
    let mut batches = batches(Arc::clone(data), &order, trainer.steps() * 2, &placement).unwrap();
    (0..steps).map(|_| trainer.step(&mut batches, |m, e| m.loss(&e.batch, &e.targets)).unwrap()).collect()
}

fn weights(trainer: &Trainer<NBody>) -> Vec<f64> {
    trainer.model().parameters().iter().flat_map(|p| p.array().to_f64_vec().unwrap()).collect()
}

fn averaged(trainer: &mut Trainer<NBody>) -> Vec<f64> {
    trainer
        .evaluate(|m| Ok(m.parameters().iter().flat_map(|p| p.array().to_f64_vec().unwrap()).collect()))
        .unwrap()
}

#[test]
fn an_interrupted_run_goes_on_with_the_same_bits() {
    let (data, folder) = (data(22), tempfile::tempdir().unwrap());
    for dtype in [DType::F32, DType::F64] {
        let mut straight = Trainer::new(model(dtype), config()).unwrap();
        let reports = run(&mut straight, &data, 9);
        assert!(reports.iter().any(|r| r.clipped), "clipping takes part in the test");

        let path = folder.path().join(format!("{dtype}.safetensors"));
        let mut first = Trainer::new(model(dtype), config()).unwrap();
        run(&mut first, &data, 4);
        first.checkpoint("nbody", serde_json::json!({})).unwrap().write(&path).unwrap();
        // Different initial weights: everything must come from the file.
        let other = NBody::init(
            &NBodyConfig { hidden: 4, layers: 1, ..NBodyConfig::default() },
            placement(dtype),
            &mut ChaCha8Rng::seed_from_u64(99),
        );
        let mut second = Trainer::new(other.unwrap(), config()).unwrap();
        second.resume(&Checkpoint::read(&path).unwrap(), "nbody", &serde_json::json!({})).unwrap();
        assert_eq!(second.steps(), 4);
        assert_eq!(run(&mut second, &data, 5), reports[4..]);
        assert_eq!(weights(&second), weights(&straight));
        assert_eq!(averaged(&mut second), averaged(&mut straight));
        assert_ne!(averaged(&mut second), weights(&second));
    }
}

#[test]
fn training_reduces_the_error() {
    let data = data(64);
    let schedule = Schedule::Cosine { lr: 2e-2, final_lr: 1e-7, warmup: 5, decay: 60, total: 120 };
    let config = TrainerConfig { accumulation: 2, ..TrainerConfig::new(Method::adam(1e-4), schedule) };
    let mut trainer = Trainer::new(model(DType::F32), config).unwrap();
    let error =
        |t: &mut Trainer<NBody>| t.evaluate(|m| mean_squared_error(&predict(m, &data, 10)?, &data)).unwrap();
    let before = error(&mut trainer);
    let reports = run(&mut trainer, &data, 120);
    let after = error(&mut trainer);
    assert!(after < 0.5 * before, "{before} -> {after}");
    assert!(reports.iter().all(|report| !report.skipped));
    let names: Vec<&str> = trainer.parameter_names().collect();
    for (index, name) in names.iter().enumerate() {
        let largest = reports.iter().map(|report| report.norms.each[index]).fold(0.0, f64::max);
        // The prediction is the projection's vector part, its bias a scalar.
        assert_eq!(largest > 0.0, *name != "projection.bias", "`{name}`: largest gradient {largest:e}");
    }
}

#[test]
fn accumulated_gradients_are_those_of_the_larger_batch() {
    let data = data(8);
    let halves = [[0, 1, 2, 3], [4, 5, 6, 7]].map(|half| data.select(&half).unwrap());
    let step = |accumulation, parts: &[&NBodyData]| {
        let config = TrainerConfig { accumulation, clip_norm: None, ema: None, ..config() };
        let mut trainer = Trainer::new(model(DType::F64), config).unwrap();
        let mut batches = parts.iter().map(|part| Example::new(part, placement(DType::F64)));
        let report = trainer.step(&mut batches, |m, e| m.loss(&e.batch, &e.targets)).unwrap();
        (report, weights(&trainer))
    };
    let (whole, a) = step(1, &[&data]);
    let (parts, b) = step(2, &[&halves[0], &halves[1]]);
    assert!((whole.loss / parts.loss - 1.0).abs() < 1e-12);
    assert!((whole.norms.total / parts.norms.total - 1.0).abs() < 1e-10);
    let difference: f64 = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    assert!(difference / b.iter().map(|b| b * b).sum::<f64>().sqrt() < 1e-8, "{difference:e}");
}

#[test]
fn elements_of_gradients_are_clipped_to_the_largest_value() {
    let data = data(8);
    let method = Method::Sgd { momentum: 0.0, weight_decay: 0.0 };
    let schedule = Schedule::Constant { lr: 1.0, warmup: 0 };
    let change = |clip_norm, clip_value| {
        let config = TrainerConfig { clip_norm, clip_value, ..TrainerConfig::new(method, schedule) };
        let mut trainer = Trainer::new(model(DType::F64), config).unwrap();
        let before = weights(&trainer);
        let report = run(&mut trainer, &data, 1).remove(0);
        let change = before.iter().zip(weights(&trainer)).map(|(before, after)| before - after);
        (change.collect::<Vec<f64>>(), report.norms.total)
    };
    let (free, norm) = change(None, None);
    let largest = free.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let limit = largest / 10.0;
    // With a learning rate of 1 the weights change by the gradients: each element is cut off, and not scaled.
    let (clipped, _) = change(None, Some(limit));
    let expected = |value: f64| value.clamp(-limit, limit);
    let near = |(found, free): (&f64, &f64)| (found - expected(*free)).abs() < 1e-12 * largest;
    assert!(clipped.iter().zip(&free).all(near));
    assert!(clipped.iter().any(|value| (value.abs() / limit - 1.0).abs() < 1e-9), "the limit is reached");
    // The limit of the norm acts first.
    let (both, _) = change(Some(0.5 * norm), Some(limit));
    let near = |(found, free): (&f64, &f64)| (found - expected(0.5 * free)).abs() < 1e-12 * largest;
    assert!(both.iter().zip(&free).all(near));
    for refused in [0.0, -1.0, f64::NAN] {
        let config = TrainerConfig { clip_value: Some(refused), ..config() };
        let error = Trainer::new(model(DType::F32), config).err().unwrap();
        assert!(matches!(error, Error::Argument { argument: "clip_value", .. }), "{refused}: {error}");
    }
}

#[test]
fn steps_that_are_not_finite_are_skipped_and_many_of_them_end_training() {
    let data = data(8);
    let mut trainer = Trainer::new(model(DType::F32), config()).unwrap();
    run(&mut trainer, &data, 1);
    let (before, average) = (weights(&trainer), averaged(&mut trainer));
    let mut batches = std::iter::repeat_with(|| Example::new(&data, placement(DType::F32)))
        .take(2 * MAX_CONSECUTIVE_SKIPS as usize);
    let spoiled = |m: &NBody, e: &Example| Ok(m.loss(&e.batch, &e.targets)?.mul_scalar(f64::NAN)?);
    let mut outcome: Result<StepReport> = trainer.step(&mut batches, spoiled);
    let report = outcome.as_ref().unwrap();
    assert!(report.skipped && !report.norms.are_finite() && report.step == 2);
    assert_eq!((weights(&trainer), averaged(&mut trainer), trainer.skipped_steps()), (before, average, 1));
    for _ in 1..MAX_CONSECUTIVE_SKIPS {
        outcome = trainer.step(&mut batches, spoiled);
    }
    assert!(matches!(outcome, Err(Error::Diverged { skipped: MAX_CONSECUTIVE_SKIPS, .. })), "{outcome:?}");
    assert!(trainer.step(&mut batches, spoiled).unwrap_err().to_string().contains("no more batches"));
}

#[test]
fn checkpoints_of_other_models_and_bare_weights_are_refused() {
    let mut trainer = Trainer::new(model(DType::F32), config()).unwrap();
    run(&mut trainer, &data(8), 1);
    let good = trainer.checkpoint("nbody", serde_json::json!({})).unwrap();
    let before = weights(&trainer);

    let mut bare = good.clone();
    bare.metadata.training = serde_json::Value::Null;
    assert!(
        trainer
            .resume(&bare, "nbody", &serde_json::json!({}))
            .unwrap_err()
            .to_string()
            .contains("without the state")
    );

    let mut empty = good.clone();
    empty.tensors = TensorFile::new();
    assert!(matches!(trainer.resume(&empty, "nbody", &serde_json::json!({})), Err(Error::Tensor { .. })));

    let wider = NBody::init(
        &NBodyConfig { hidden: 5, layers: 1, ..NBodyConfig::default() },
        placement(DType::F32),
        &mut ChaCha8Rng::seed_from_u64(1),
    );
    let error = Trainer::new(wider.unwrap(), config())
        .unwrap()
        .resume(&good, "nbody", &serde_json::json!({}))
        .unwrap_err()
        .to_string();
    assert!(error.contains("expected"), "{error}");
    assert_eq!(weights(&trainer), before);
}

/// The mean loss of the last steps.
fn last(reports: &[StepReport]) -> f64 {
    let last = &reports[reports.len() - 10..];
    last.iter().map(|report| report.loss).sum::<f64>() / last.len() as f64
}

/// Forces are gradients of an energy, so gradients of a loss on them are second derivatives, taken within mixed precision.
#[test]
fn losses_of_forces_run_in_mixed_precision() {
    let (placement, data) = (placement(DType::F32), data(6));
    let sizes = ForceFieldConfig { hidden: 12, layers: 2, ..ForceFieldConfig::default() };
    let model = ForceField::init(&sizes, &placement, &mut ChaCha8Rng::seed_from_u64(4)).unwrap();
    let example = Example::new(&data, &placement).unwrap();
    let run = || -> Result<(f64, Vec<f64>)> {
        // Any field of vectors will do.
        let loss = model.loss(&example.batch, &example.targets.slice(0, 0..3)?)?;
        let (gradients, mut all) = (loss.backward()?, Vec::new());
        for parameter in model.parameters() {
            // Some parameters move the energy, and no force.
            if let Ok(gradient) = gradients.get(&parameter.tensor()) {
                assert_eq!(gradient.dtype(), DType::F32);
                all.extend(gradient.array().to_f64_vec()?);
            }
        }
        Ok((loss.item()?, all))
    };
    let (exact, expected) = run().unwrap();
    let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    // Second derivatives magnify roundings, of which those of bf16 are eight times as large.
    for (dtype, bound) in [(DType::F16, 0.05), (DType::BF16, 0.5)] {
        let (loss, found) = autocast(dtype, run).unwrap();
        assert_ne!(loss, exact, "16 bits were used");
        assert!((loss - exact).abs() < 0.02 * exact, "{dtype}: {loss} and {exact}");
        let differences: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let error = norm(&differences) / norm(&expected);
        assert!(error < bound, "{dtype}: gradients differ by {error:e}");
    }
}

#[test]
fn mixed_precision_trains_weights_in_f32_to_the_same_loss() {
    let data = data(24);
    let mut exact = Trainer::new(model(DType::F32), config()).unwrap();
    let expected = run(&mut exact, &data, 40);
    for dtype in [DType::BF16, DType::F16] {
        let mut precision = MixedPrecision::new(dtype).unwrap();
        assert_eq!(precision.scaler.is_some(), dtype == DType::F16);
        if let Some(scaler) = &mut precision.scaler {
            // Small enough for every step.
            scaler.initial = 1024.0;
        }
        let mut trainer =
            Trainer::new(model(DType::F32), config()).unwrap().mixed_precision(&precision).unwrap();
        let reports = run(&mut trainer, &data, 40);
        assert!(trainer.model().parameters().iter().all(|p| p.array().dtype() == DType::F32));
        assert_ne!(weights(&trainer), weights(&exact), "16 bits were used");
        let (mixed, full) = (last(&reports), last(&expected));
        assert!((mixed - full).abs() < 0.05 * full, "{dtype}: {mixed} and {full}");
        assert!(reports[0].loss > 2.0 * mixed, "it learned");
        // Gradients are those of the loss itself, whatever it was multiplied by.
        let (norm, reference) = (reports[0].norms.total, expected[0].norms.total);
        assert!((norm - reference).abs() < 0.03 * reference, "{dtype}: {norm} and {reference}");
        assert_eq!(reports[0].scale, precision.scaler.map(|scaler| scaler.initial));
    }
    let error = Trainer::new(model(DType::F64), config())
        .unwrap()
        .mixed_precision(&MixedPrecision::new(DType::BF16).unwrap())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("f64") && error.contains("f32"), "{error}");
}

#[test]
fn a_scale_that_overflows_backs_off_and_steps_are_skipped_until_it_fits() {
    let data = data(16);
    let mut precision = MixedPrecision::new(DType::F16).unwrap();
    precision.scaler =
        Some(ScalerConfig { initial: (1u64 << 34) as f64, interval: 4, ..ScalerConfig::default() });
    let start = || Trainer::new(model(DType::F32), config()).unwrap().mixed_precision(&precision).unwrap();
    let mut trainer = start();
    let reports = run(&mut trainer, &data, 30);
    let skipped = reports.iter().filter(|report| report.skipped).count();
    assert!(skipped > 2 && skipped < 20, "{skipped} steps were skipped");
    assert!(reports[0].skipped && reports[0].loss.is_finite(), "the loss itself is fine");
    let scales: Vec<f64> = reports.iter().map(|report| report.scale.unwrap()).collect();
    for (pair, report) in scales.windows(2).zip(&reports) {
        let moved = pair[1] / pair[0];
        assert!(if report.skipped { moved == 0.5 } else { moved == 1.0 || moved == 2.0 }, "{scales:?}");
    }
    assert!(scales.windows(2).any(|pair| pair[1] > pair[0]), "it grows again: {scales:?}");
    assert_eq!(trainer.skipped_steps() as usize, skipped);
    // The scale is part of a checkpoint.
    let checkpoint = trainer.checkpoint("nbody", serde_json::Value::Null).unwrap();
    let mut resumed = start();
    resumed.resume(&checkpoint, "nbody", &serde_json::Value::Null).unwrap();
    assert_eq!(resumed.loss_scale(), trainer.loss_scale());
    run(&mut trainer, &data, 6);
    run(&mut resumed, &data, 6);
    assert_eq!(weights(&resumed), weights(&trainer));
}

#[test]
fn what_cannot_be_a_step_is_refused_in_words_of_training() {
    use gradewise_autograd::Tensor;
    use gradewise_nn::layers::{Layer, Linear};
    let trainer = || {
        let layer = Linear::new(1, 1).init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        Trainer::new(layer, TrainerConfig { steps: 10, ..TrainerConfig::default() }).unwrap()
    };
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2, 1], &Device::Cpu).unwrap();
    let mut given = std::iter::repeat_with(|| Ok(x.clone()));
    let mut none = std::iter::empty::<Result<Tensor>>();
    for (parts, result) in [
        (["`loss`", "[2, 1]"], trainer().step(&mut given, |model, x: &Tensor| model.forward(x))),
        (["`loss`", "no parameter"], trainer().step(&mut given, |_, x: &Tensor| Ok(x.square()?.mean_all()?))),
        (
            ["`loss`", "detach"],
            trainer()
                .step(&mut given, |model, x: &Tensor| Ok(model.forward(x)?.detach().square()?.mean_all()?)),
        ),
        (
            ["`batches`", "another batch"],
            trainer().step(&mut none, |model, x| Ok(model.forward(x)?.mean_all()?)),
        ),
    ] {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with("training step: "), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    }
    let message = placement(DType::F32).tensor(&[1.0, 2.0], [3]).unwrap_err().to_string();
    assert!(message.contains("Placement::tensor") && message.contains("2 numbers"), "{message}");
}

/// Three steps of a model on one batch: the losses and the weights, as bits.
fn bits_of_steps<M: Module>(
    model: M,
    example: &Example,
    fusion: Fusion,
    loss: impl Fn(&M, &Example) -> Result<Tensor>,
) -> Vec<u64> {
    let settings = TrainerConfig { accumulation: 1, ..config() };
    let mut trainer = Trainer::new(model, settings).unwrap();
    trainer.set_host_fusion(fusion);
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut batches = std::iter::once(example.to_device(&Device::Cpu));
        all.push(trainer.step(&mut batches, &loss).unwrap().loss.to_bits());
    }
    for parameter in trainer.model().parameters() {
        all.extend(parameter.array().to_f64_vec().unwrap().into_iter().map(f64::to_bits));
    }
    all
}

#[test]
fn fused_steps_have_the_bits_of_their_operators() {
    let example = Example::new(&data(100), placement(DType::F32)).unwrap();
    let pools = [1, 2].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    let rng = || ChaCha8Rng::seed_from_u64(2);
    let nbody = |fusion| {
        let model = NBody::init(&NBodyConfig::default(), placement(DType::F32), &mut rng()).unwrap();
        bits_of_steps(model, &example, fusion, |m, e| m.loss(&e.batch, &e.targets))
    };
    // Second derivatives.
    let field = |kind, fusion| {
        let sizes = ForceFieldConfig { kind, hidden: 6, layers: 1, ..ForceFieldConfig::default() };
        let model = ForceField::init(&sizes, placement(DType::F32), &mut rng()).unwrap();
        bits_of_steps(model, &example, fusion, |m, e| m.loss(&e.batch, &e.targets.slice(0, 0..3)?))
    };
    let gravity = |fusion| {
        let sizes = GravityConfig {
            kind: GravityKind::Messages,
            hidden: 8,
            layers: 1,
            scalars: 16,
            heads: 4,
            substeps: 1,
            kicks: 20,
            softening: 1e-6,
            corrections: false,
            robust: 0.0,
        };
        let model = GravityModel::init(&sizes, placement(DType::F32), &mut rng()).unwrap();
        bits_of_steps(model, &example, fusion, |m, e| m.loss(&e.batch, &e.targets))
    };
    let steps = |fusion| {
        [
            nbody(fusion),
            field(ForceFieldKind::Messages, fusion),
            field(ForceFieldKind::Tensors, fusion),
            gravity(fusion),
        ]
    };
    let expected = pools[0].install(|| steps(Fusion::Off));
    assert!(expected.iter().all(|bits| bits[0] != bits[2]), "the loss changes");
    for pool in &pools {
        let found = pool.install(|| steps(Fusion::On));
        for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(found == expected, "model {number}, {} threads", pool.current_num_threads());
        }
    }
}
