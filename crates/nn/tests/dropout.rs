//! Dropout: in training alone, and with the masks of an undisturbed run after a resume.

use gradewise_autograd::{Tensor, evaluation, no_grad, training};
use gradewise_kernels::{Array, DType, Device, ops::attention::Sequences};
use gradewise_nn::{
    Result,
    checkpoint::Checkpoint,
    layers::{Activation, Dropout, Layer, Linear, SelfAttention, Sequential},
    optim::{Method, Schedule},
    train::{Exchange, Trainer, TrainerConfig},
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
    Tensor::randn([16, 4], DType::F32, &Device::Cpu, &mut rng).unwrap()
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
    let ones = Tensor::new(Array::full([64], 1.0, DType::F32, &Device::Cpu).unwrap());
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

fn attention(p: f64, seed: u64) -> SelfAttention {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    SelfAttention::new(8, 2).causal(true).dropout(p, 6).init(&Device::Cpu, &mut rng).unwrap()
}

fn tokens(count: usize) -> Tensor {
    Tensor::randn([2, count, 8], DType::F32, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(2)).unwrap()
}

#[test]
fn attention_drops_weights_in_training_alone() {
    let values = |layer: &SelfAttention| layer.forward(&tokens(20)).unwrap().array().to_f64_vec().unwrap();
    let (layer, plain) = (attention(0.4, 1), values(&attention(0.0, 1)));
    assert_eq!(values(&layer), plain);
    let (first, again) = (training(3, || values(&layer)), training(3, || values(&layer)));
    assert_eq!(first, again);
    for (what, other) in [
        ("without", plain),
        ("another pass", training(4, || values(&layer))),
        ("a second use in a pass", training(3, || (values(&layer), values(&layer))).1),
    ] {
        assert_ne!(first, other, "{what}");
    }
    let refused =
        SelfAttention::new(8, 2).dropout(1.0, 0).init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1));
    assert!(refused.unwrap_err().to_string().contains("below 1"));
}

#[test]
fn attention_goes_on_with_the_masks_of_an_undisturbed_run() {
    let loss =
        |layer: &SelfAttention, x: &Tensor| Ok(layer.forward(x)?.add_scalar(-1.0)?.square()?.mean_all()?);
    let trainer = |seed| {
        let schedule = Schedule::Constant { lr: 1e-2, warmup: 0 };
        Trainer::new(attention(0.3, seed), TrainerConfig::new(Method::adam(1e-4), schedule)).unwrap()
    };
    let run = |trainer: &mut Trainer<SelfAttention>, steps: usize| -> Vec<f64> {
        let mut batches = std::iter::repeat_with(|| Ok(tokens(12)));
        (0..steps).map(|_| trainer.step(&mut batches, loss).unwrap().loss).collect()
    };
    let (mut straight, mut first, mut second) = (trainer(1), trainer(1), trainer(2));
    let losses = run(&mut straight, 6);
    run(&mut first, 3);
    let saved = first.checkpoint("attention", serde_json::json!({})).unwrap();
    second.resume(&saved, "attention", &serde_json::json!({})).unwrap();
    assert_eq!(run(&mut second, 3), losses[3..]);
}

#[test]
fn packed_tokens_attend_within_their_sequence() {
    let (layer, x) = (attention(0.0, 1), tokens(9));
    let starts = [0, 4, 4, 9];
    let packed = layer.forward_packed(&x, &Sequences::alike(&starts, &Device::Cpu).unwrap()).unwrap();
    for part in [0..4, 4..9] {
        let alone = layer.forward(&x.slice(1, part.clone()).unwrap()).unwrap().array().to_f64_vec().unwrap();
        let together = packed.slice(1, part).unwrap().array().to_f64_vec().unwrap();
        assert!(alone.iter().zip(&together).all(|(a, b)| (a - b).abs() < 1e-6), "{alone:?} {together:?}");
    }
    let error = layer.forward_packed(&x, &Sequences::alike(&[0, 8], &Device::Cpu).unwrap()).unwrap_err();
    assert!(error.to_string().contains("end at the number of tokens"), "{error}");
}

/// One of several processes, whose gradients nobody adds to.
struct Rank(usize);

impl Exchange for Rank {
    fn rank(&self) -> usize {
        self.0
    }

    fn ready(&self, _: usize, _: &Array) -> Result<()> {
        Ok(())
    }

    fn finish(&self, loss: &Array, _: &mut [Option<Array>]) -> Result<Array> {
        Ok(loss.clone())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn the_processes_of_a_run_draw_different_masks() {
    let losses = |rank: usize| {
        let mut trainer = trainer(1, 2);
        trainer.set_exchange(std::sync::Arc::new(Rank(rank)));
        run(&mut trainer, 3)
    };
    let all: Vec<Vec<f64>> = [0, 1, 2, 63].map(losses).to_vec();
    for (position, one) in all.iter().enumerate() {
        // The weights are equal at the first step, so only the masks can make the losses differ.
        assert!(all[..position].iter().all(|other| other[0] != one[0]), "{all:?}");
    }
    assert_eq!(losses(1), all[1], "and the same ones each time");
    assert_eq!(run(&mut trainer(1, 2), 3), all[0], "rank 0 those of a run alone");
}

#[test]
fn a_step_that_is_stopped_changes_nothing() {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };
    let (mut straight, mut stopped) = (trainer(1, 3), trainer(1, 3));
    run(&mut straight, 2);
    run(&mut stopped, 2);
    let flag = Arc::new(AtomicBool::new(false));
    let given = AtomicUsize::new(0);
    // The request comes while the second of three batches is computed.
    let mut batches = std::iter::repeat_with(|| {
        if given.fetch_add(1, Ordering::SeqCst) == 1 {
            flag.store(true, Ordering::SeqCst);
        }
        Ok(input())
    });
    let error = gradewise_autograd::stoppable(&flag, || stopped.step(&mut batches, loss)).unwrap_err();
    assert!(error.is_stopped(), "{error}");
    assert_eq!(given.load(Ordering::SeqCst), 2, "no batch is asked for after the request");
    assert_eq!(weights(&stopped), weights(&straight));
    assert_eq!(run(&mut stopped, 3), run(&mut straight, 3));
}
