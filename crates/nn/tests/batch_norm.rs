//! Running statistics of batch normalisation: what moves them, what uses them, and that no optimiser does.

use gradewise_autograd::{Tensor, fields::Statistics, training};
use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Parameter, Placement,
    fields::CliffordBatchNorm,
    layers::Layer,
    train::{Trainer, TrainerConfig},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const BLADES: usize = 4;
const CHANNELS: usize = 3;

fn field(batch: usize, seed: u64) -> Tensor {
    let shape = [BLADES, batch, 5, 2, CHANNELS];
    let x = Tensor::randn(shape, DType::F64, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
    // A mean that is not zero, and blades of different variance.
    let scale = Tensor::from_slice(&[0.5, 1.0, 2.0, 3.0], [4, 1, 1, 1, 1], &Device::Cpu).unwrap();
    x.add_scalar(0.7).unwrap().mul(&scale).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.array().to_f64_vec().unwrap()
}

/// Mean and covariance of the blades of each channel, by their definition.
fn statistics(x: &Tensor) -> (Vec<f64>, Vec<f64>) {
    let rows = x.shape().elements() / BLADES / CHANNELS;
    let x = values(x);
    let at = |i: usize, row: usize, c: usize| x[(i * rows + row) * CHANNELS + c];
    let average = |f: &dyn Fn(usize) -> f64| (0..rows).map(f).sum::<f64>() / rows as f64;
    let mut mean = vec![0.0; BLADES * CHANNELS];
    let mut covariance = vec![0.0; BLADES * BLADES * CHANNELS];
    for c in 0..CHANNELS {
        (0..BLADES).for_each(|i| mean[i * CHANNELS + c] = average(&|row| at(i, row, c)));
        for (i, j) in (0..BLADES).flat_map(|i| (0..BLADES).map(move |j| (i, j))) {
            let (of_i, of_j) = (mean[i * CHANNELS + c], mean[j * CHANNELS + c]);
            covariance[(i * BLADES + j) * CHANNELS + c] =
                average(&|row| (at(i, row, c) - of_i) * (at(j, row, c) - of_j));
        }
    }
    (mean, covariance)
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (a, b) in actual.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} instead of {b}");
    }
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn running(norm: &CliffordBatchNorm) -> (Vec<f64>, Vec<f64>) {
    let Statistics { mean, covariance } = norm.running();
    (values(&mean), values(&covariance))
}

#[test]
fn training_moves_the_running_statistics_by_the_momentum() {
    let norm = CliffordBatchNorm::new(BLADES, CHANNELS).momentum(Some(0.25)).init(place()).unwrap();
    let (mut mean, mut covariance) = running(&norm);
    for seed in 0..3 {
        let x = field(2, seed);
        training(seed, || norm.forward(&x)).unwrap();
        let (of_mean, of_covariance) = statistics(&x);
        let moved = |old: &mut Vec<f64>, new: &[f64]| {
            old.iter_mut().zip(new).for_each(|(old, new)| *old = 0.75 * *old + 0.25 * new);
        };
        moved(&mut mean, &of_mean);
        moved(&mut covariance, &of_covariance);
        assert_close(&running(&norm).0, &mean);
        assert_close(&running(&norm).1, &covariance);
    }
    let before = running(&norm);
    norm.forward(&field(2, 9)).unwrap();
    assert_eq!(running(&norm), before, "a pass outside of training leaves them");
}

#[test]
fn without_a_momentum_they_are_the_mean_over_batches() {
    let norm = CliffordBatchNorm::new(BLADES, CHANNELS).momentum(None).init(place()).unwrap();
    let batches: Vec<Tensor> = (0..4).map(|seed| field(2, seed)).collect();
    batches.iter().for_each(|x| _ = training(0, || norm.forward(x)).unwrap());
    let mut mean = vec![0.0; BLADES * CHANNELS];
    for x in &batches {
        mean.iter_mut().zip(statistics(x).0).for_each(|(sum, value)| *sum += value / 4.0);
    }
    assert_close(&running(&norm).0, &mean);
}

#[test]
fn outside_of_training_a_sample_does_not_depend_on_the_others() {
    let norm = CliffordBatchNorm::new(BLADES, CHANNELS).momentum(Some(1.0)).init(place()).unwrap();
    let x = field(3, 1);
    let first = x.slice(1, 0..1).unwrap();
    let trained = training(0, || norm.forward(&x)).unwrap();
    let (all, alone) = (norm.forward(&x).unwrap(), norm.forward(&first).unwrap());
    assert_close(&values(&all.slice(1, 0..1).unwrap()), &values(&alone));
    // The running statistics are those of this very batch now.
    assert_close(&values(&all), &values(&trained));
    let other = training(0, || norm.forward(&first)).unwrap();
    assert!(other.array().relative_error(alone.array()).unwrap() > 0.1);
}

#[test]
fn optimisers_and_counts_leave_them_out_and_checkpoints_do_not() {
    let norm = CliffordBatchNorm::new(BLADES, CHANNELS).init(place()).unwrap();
    let names: Vec<String> = norm.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias", "running_mean", "running_cov", "num_batches_tracked"]);
    assert_eq!(norm.parameter_count(), (BLADES * BLADES + BLADES) * CHANNELS);
    let config = TrainerConfig { steps: 4, lr: 0.1, weight_decay: 0.1, ..TrainerConfig::default() };
    let mut trainer = Trainer::new(norm, config.clone()).unwrap();
    let mut batches =
        (0..4).map(|seed| Ok(field(2, seed))).collect::<Vec<gradewise_nn::Result<Tensor>>>().into_iter();
    for _ in 0..4 {
        trainer.step(&mut batches, |norm, x: &Tensor| Ok(norm.forward(x)?.square()?.mean_all()?)).unwrap();
    }
    let other = CliffordBatchNorm::new(BLADES, CHANNELS).init(place()).unwrap();
    (0..4).for_each(|seed| _ = training(0, || other.forward(&field(2, seed))).unwrap());
    assert_eq!(running(trainer.model()), running(&other), "nothing but the batches moved them");
    let weight = |norm: &CliffordBatchNorm| norm.parameters()[0].array().to_f64_vec().unwrap();
    assert_ne!(weight(trainer.model()), weight(&other));

    let saved: Vec<(String, Parameter)> = trainer.model().named_parameters();
    let find = |name: &str| Ok(saved.iter().find(|(known, _)| known == name).map(|(_, p)| p.array()));
    let again = CliffordBatchNorm::new(BLADES, CHANNELS).init(place()).unwrap();
    again.load(&find).unwrap();
    let x = field(2, 7);
    let outputs = [trainer.model(), &again].map(|norm| values(&norm.forward(&x).unwrap()));
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn a_momentum_that_is_no_share_is_refused() {
    for momentum in [-0.1, 1.5, f64::NAN] {
        let refused = CliffordBatchNorm::new(4, 3).momentum(Some(momentum)).init(place()).unwrap_err();
        assert!(refused.to_string().contains("momentum"), "{refused}");
    }
}
