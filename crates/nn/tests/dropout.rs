//! Dropout: in training alone, and with the masks of an undisturbed run after a resume.

use gradewise_autograd::{Tensor, evaluation, no_grad, training};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Result,
    checkpoint::Checkpoint,
    layers::{Activation, Dropout, Layer, Linear, Sequential},
    optim::{Method, Schedule},
    train::{Trainer, TrainerConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn layers(seed: u64) -> Sequential {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut linear = |from, to| Linear::new(from, to).init(&Device::Cpu, &mut rng).unwrap();
    // Two layers of one seed: they draw apart all the same.
    let block =
        Sequential::new().then(linear(8, 8)).then(Activation::Gelu).then(Dropout::new(0.3, 4).unwrap());
    Sequential::new().then(linear(4, 8)).then(Dropout::new(0.3, 4).unwrap()).then(block).then(linear(8, 1))
}

fn trainer(seed: u64, accumulation: usize) -> Trainer<Sequential> {
    let config = TrainerConfig {
        accumulation,
        ema: Some(0.9),
        ..TrainerConfig::new(Method::adam(1e-4), Schedule::Constant { lr: 1e-2, warmup: 0 })
    };
    Trainer::new(layers(seed), config).unwrap()
}

fn input() -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    Tensor::randn([16, 4], gradewise_kernels::DType::F32, &Device::Cpu, &mut rng).unwrap()
}

fn loss(model: &Sequential, x: &Tensor) -> Result<Tensor> {
    Ok(model.forward(x)?.add_scalar(-1.0)?.square()?.mean_all()?)
}

fn run(trainer: &mut Trainer<Sequential>, steps: usize) -> Vec<f64> {
    let mut batches = std::iter::repeat_with(|| Ok(input()));
    (0..steps).map(|_| trainer.step(&mut batches, loss).unwrap().loss).collect()
}

fn weights(trainer: &Trainer<Sequential>) -> Vec<Vec<f64>> {
    trainer.parameters().iter().map(|(_, parameter)| parameter.array().to_f64_vec().unwrap()).collect()
}

fn saved(trainer: &Trainer<Sequential>) -> Checkpoint {
    trainer.checkpoint("layers", serde_json::json!({})).unwrap()
}

#[test]
fn a_resumed_run_draws_the_masks_of_an_undisturbed_one() {
    for accumulation in [1, 3] {
        let mut straight = trainer(1, accumulation);
        let losses = run(&mut straight, 8);
        let mut first = trainer(1, accumulation);
        run(&mut first, 4);
        // What is measured in between draws nothing.
        first.evaluate(|model| loss(model, &input())).unwrap();
        let mut second = trainer(2, accumulation);
        second.resume(&saved(&first), "layers", &serde_json::json!({})).unwrap();
        assert_eq!(run(&mut second, 4), losses[4..]);
        assert_eq!(weights(&second), weights(&straight));
    }
}

#[test]
fn checkpoints_of_earlier_versions_go_on_with_the_masks_of_their_step() {
    let mut straight = trainer(1, 2);
    let losses = run(&mut straight, 6);
    let mut first = trainer(1, 2);
    run(&mut first, 3);
    let mut old = saved(&first);
    assert_eq!(old.metadata.training.as_object_mut().unwrap().remove("passes"), Some(6.into()));
    let mut second = trainer(2, 2);
    second.resume(&old, "layers", &serde_json::json!({})).unwrap();
    assert_eq!(run(&mut second, 3), losses[3..]);
}

#[test]
fn evaluation_never_drops() {
    let mut trainer = trainer(1, 1);
    run(&mut trainer, 3);
    let value = |model: &Sequential| loss(model, &input()).unwrap().item().unwrap();
    let plain = value(trainer.model());
    for (way, seen) in [
        ("no_grad in training", training(1, || no_grad(|| value(trainer.model())))),
        ("evaluation in training", training(1, || evaluation(|| value(trainer.model())))),
        ("a second time", value(trainer.model())),
    ] {
        assert_eq!(seen, plain, "{way}");
    }
    let mut evaluate = || trainer.evaluate(|model| Ok(value(model))).unwrap();
    assert_eq!(evaluate(), evaluate(), "Trainer::evaluate");
    assert_ne!(training(1, || value(trainer.model())), plain);
}

#[test]
fn a_layer_that_is_used_twice_draws_twice() {
    let layer = Dropout::new(0.5, 1).unwrap();
    let ones = Tensor::new(Array::full([64], 1.0, gradewise_kernels::DType::F32, &Device::Cpu).unwrap());
    let draw = || layer.forward(&ones).unwrap().array().to_f64_vec().unwrap();
    let (first, second) = training(0, || (draw(), draw()));
    assert_ne!(first, second);
    assert_eq!(training(0, || (draw(), draw())), (first, second));
    assert_eq!(draw(), [1.0; 64]);
}

#[test]
fn a_second_look_at_a_step_sees_the_masks_it_drew() {
    let mut trainer = trainer(1, 2);
    run(&mut trainer, 2);
    let before = weights(&trainer);
    let seen = std::cell::RefCell::new(Vec::new());
    let noted = |model: &Sequential, x: &Tensor| {
        let loss = loss(model, x)?.mul_scalar(f64::NAN)?;
        seen.borrow_mut().push(model.forward(x)?.array().to_f64_vec()?);
        Ok(loss)
    };
    let mut batches = std::iter::repeat_with(|| Ok(input()));
    assert!(trainer.step(&mut batches, noted).unwrap().skipped);
    let step = seen.take();
    trainer.look((&mut batches).take(2), noted).unwrap();
    assert_eq!(seen.take(), step);
    assert_ne!(step[0], step[1], "each batch of a step has masks of its own");
    assert_eq!(weights(&trainer), before);
}
