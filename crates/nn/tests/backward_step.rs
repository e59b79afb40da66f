//! `Optimizer::backward_step`: the step that a hand-written loop takes is the one of a trainer.

use gradewise_kernels::Array;
use gradewise_nn::{
    DType, Device, Error, Module, Parameter, Placement, Result, Tensor,
    layers::{Layer, Linear, Sequential},
    loss::mean_squared_error,
    optim::{MAX_CONSECUTIVE_SKIPS, Method, Optimizer, ScalerConfig, Schedule},
    train::{Trainer, TrainerConfig},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

type Batch = (Tensor, Tensor);

fn model(dtype: DType) -> Result<Sequential> {
    let (place, rng) = (Placement::new(&Device::Cpu, dtype), &mut ChaCha8Rng::seed_from_u64(2));
    Ok(Sequential::new()
        .then(Linear::new(3, 5).init(&place, rng)?)
        .then(gradewise_nn::layers::Activation::Tanh)
        .then(Linear::new(5, 1).init(&place, rng)?))
}

fn batch(dtype: DType) -> Result<Batch> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let x = Tensor::randn([7, 3], dtype, &Device::Cpu, rng)?;
    Ok((x.clone(), x.sum(&[1], true)?.mul_scalar(20.0)?))
}

fn values(model: &impl Module) -> Vec<Vec<f64>> {
    model.parameters().iter().map(|parameter| parameter.array().to_f64_vec().unwrap()).collect()
}

fn loss(model: &Sequential, (x, y): &Batch) -> Result<Tensor> {
    mean_squared_error(&model.forward(x)?, y)
}

#[test]
fn steps_are_those_of_the_trainer_bit_for_bit() -> Result<()> {
    for (method, norm, value) in [
        (Method::adam(0.0), None, None),
        (Method::adamw(0.1), Some(0.5), None),
        (Method::Sgd { momentum: 0.9, weight_decay: 0.01 }, Some(3.0), Some(0.2)),
    ] {
        let config = TrainerConfig {
            clip_norm: norm,
            clip_value: value,
            ..TrainerConfig::new(method, Schedule::Constant { lr: 0.02, warmup: 0 })
        };
        let (by_trainer, by_hand, data) = (model(DType::F32)?, model(DType::F32)?, batch(DType::F32)?);
        let mut trainer = Trainer::new(by_trainer, config)?;
        let mut batches = std::iter::repeat_with(|| Ok(data.clone()));
        let mut optimizer = Optimizer::for_model(&by_hand, method)?;
        if let Some(limit) = norm {
            optimizer = optimizer.clip_norm(limit);
        }
        if let Some(limit) = value {
            optimizer = optimizer.clip_value(limit);
        }
        for _ in 0..5 {
            let report = trainer.step(&mut batches, loss)?;
            let update = optimizer.backward_step(&loss(&by_hand, &data)?, 0.02)?;
            assert_eq!(
                (&update.norms, update.clipped, update.skipped),
                (&report.norms, report.clipped, false)
            );
            assert_eq!(update.clipped, norm.is_some(), "the limits are exceeded where there are some");
        }
        assert_eq!(values(trainer.model()), values(&by_hand), "{method:?}");
    }
    Ok(())
}

#[test]
fn losses_are_scaled_and_updates_are_not() -> Result<()> {
    let (plain, scaled, data) = (model(DType::F64)?, model(DType::F64)?, batch(DType::F64)?);
    let config = ScalerConfig { initial: 1024.0, interval: 2, ..ScalerConfig::default() };
    let mut one = Optimizer::for_model(&plain, Method::adam(0.0))?;
    let mut other = Optimizer::for_model(&scaled, Method::adam(0.0))?.scale_losses(config)?;
    let mut scales = Vec::new();
    for _ in 0..4 {
        one.backward_step(&loss(&plain, &data)?, 0.01)?;
        scales.extend(other.backward_step(&loss(&scaled, &data)?, 0.01)?.scale);
    }
    assert_eq!(scales, [1024.0, 1024.0, 2048.0, 2048.0]);
    assert_eq!(values(&plain), values(&scaled), "scales are powers of two: not a bit differs");
    let refused = Optimizer::new(Method::adam(0.0))?.scale_losses(ScalerConfig { growth: 0.0, ..config });
    assert!(matches!(refused, Err(Error::Argument { argument: "growth", .. })));
    Ok(())
}

#[test]
fn steps_without_finite_gradients_are_skipped_and_end_as_divergence() -> Result<()> {
    let (model, (x, y)) = (model(DType::F64)?, batch(DType::F64)?);
    let (before, bad) = (values(&model), (x.mul_scalar(f64::NAN)?, y.clone()));
    let config = ScalerConfig { initial: 1024.0, ..ScalerConfig::default() };
    let mut optimizer =
        Optimizer::for_model(&model, Method::adam(0.0))?.clip_norm(1.0).scale_losses(config)?;
    let update = optimizer.backward_step(&loss(&model, &bad)?, 0.01)?;
    assert!(update.skipped && !update.clipped);
    assert_eq!(values(&model), before);
    let update = optimizer.backward_step(&loss(&model, &(x, y))?, 0.01)?;
    assert_eq!((update.skipped, update.scale), (false, Some(512.0)), "the scale was halved");
    for _ in 1..MAX_CONSECUTIVE_SKIPS {
        assert!(optimizer.backward_step(&loss(&model, &bad)?, 0.01)?.skipped);
    }
    let error = optimizer.backward_step(&loss(&model, &bad)?, 0.01).unwrap_err();
    assert!(matches!(error, Error::Diverged { skipped: MAX_CONSECUTIVE_SKIPS, .. }), "{error}");
    assert!(error.to_string().contains("0.weight"), "{error}");
    Ok(())
}

#[test]
fn mistakes_are_named_with_the_remedy() -> Result<()> {
    let (model, data) = (model(DType::F64)?, batch(DType::F64)?);
    let said = |optimizer: &mut Optimizer, loss: &Tensor, lr| {
        optimizer.backward_step(loss, lr).unwrap_err().to_string()
    };
    let mut without = Optimizer::new(Method::adam(0.0))?;
    assert!(said(&mut without, &loss(&model, &data)?, 0.1).contains("Optimizer::for_model(&model, method)"));
    let mut optimizer = Optimizer::for_model(&model, Method::adam(0.0))?;
    let message = said(&mut optimizer, &model.forward(&data.0)?, 0.1);
    assert!(message.contains("of shape [7, 1]") && message.contains("mean_all"), "{message}");
    assert!(said(&mut optimizer, &loss(&model, &data)?.detach(), 0.1).contains("no parameter"));
    let stranger = Parameter::new(Array::from_slice(&[1.0f64], [1], &Device::Cpu)?);
    let message = said(&mut optimizer, &stranger.tensor().square()?.sum_all()?, 0.1);
    assert!(
        message.starts_with("Optimizer::backward_step") && message.contains("this optimiser"),
        "{message}"
    );
    assert!(said(&mut optimizer, &loss(&model, &data)?, -1.0).contains("`lr` is -1"));
    // A loss of the weights before a step is not one of those after it.
    let old = loss(&model, &data)?;
    optimizer.backward_step(&loss(&model, &data)?, 0.1)?;
    assert!(said(&mut optimizer, &old, 0.1).contains("after the last step"));
    Ok(())
}
