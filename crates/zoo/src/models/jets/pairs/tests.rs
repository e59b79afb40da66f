mod definition;

use super::*;
use crate::{
    data::jets::{FourMomentum, JetSets},
    models::{JetKind, JetTagger, JetTaggerConfig, Reference},
};
use gradewise_autograd::no_grad;
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{
    data::{Samples, Split},
    symmetry::{Isometry, relative_distance},
    train::{Trainer, TrainerConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const SMALL: JetTaggerConfig = JetTaggerConfig {
    kind: JetKind::Pairs,
    hidden: 4,
    layers: 2,
    units: 8,
    scalars: 12,
    heads: 2,
    reference: Reference::None,
};

fn model(config: &JetTaggerConfig, dtype: DType) -> JetTagger {
    let placement = Placement::new(&Device::Cpu, dtype);
    JetTagger::init(config, placement, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
}

/// A model after some steps.
fn trained(config: &JetTaggerConfig, dtype: DType, jets: &JetSets) -> JetTagger {
    let placement = Placement::new(&Device::Cpu, dtype);
    let settings = TrainerConfig { steps: 40, lr: 5e-3, ..TrainerConfig::default() };
    let mut trainer = Trainer::new(model(config, dtype), settings).unwrap();
    let mut batches = (0..).map(|step: usize| {
        let indices: Vec<usize> = (0..16).map(|k| (16 * step + k) % jets.labels().len()).collect();
        jets.batch(&indices, &placement)
    });
    let losses: Vec<f64> =
        (0..40).map(|_| trainer.step(&mut batches, |model, batch| model.loss(batch)).unwrap().loss).collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[30..]) < mean(&losses[..10]) - 0.02, "{losses:?}");
    let trained = model(config, dtype);
    trained
        .load(&|name| {
            let found = trainer.parameters().iter().find(|(other, _)| other == name);
            Ok(found.map(|(_, parameter)| parameter.array()))
        })
        .unwrap();
    trained
}

fn logits(model: &JetTagger, jets: &JetSets, indices: &[usize], dtype: DType) -> Vec<f64> {
    let batch = jets.batch(indices, &Placement::new(&Device::Cpu, dtype)).unwrap();
    no_grad(|| model.forward(&batch)).unwrap().array().to_f64_vec().unwrap()
}

/// Toy jets, of 2 to 24 particles.
fn jets() -> JetSets {
    JetSets::simulate(64, 24, 7, Split::Train).unwrap()
}

/// The jets after a rotation, and a boost of γ = 100.
fn fast(jets: &JetSets, rng: &mut ChaCha8Rng) -> JetSets {
    const GAMMA: f64 = 100.0;
    let speed = (1.0 - GAMMA.powi(-2)).sqrt();
    let rotation = Isometry::random_fixing(Signature::STA, &[0], 2, rng).unwrap();
    let mut momenta = jets.clone().moved(&rotation).unwrap().momenta();
    for row in momenta.chunks_exact_mut(4) {
        let (energy, along) = (row[0], row[3]);
        (row[0], row[3]) = (GAMMA * (energy + speed * along), GAMMA * (along + speed * energy));
    }
    JetSets::new(jets.particles(), &momenta, jets.labels().to_vec()).unwrap()
}

/// The jets in their rest frames.
fn resting(jets: &JetSets) -> JetSets {
    let mut momenta = vec![0.0; jets.labels().len() * jets.particles() * 4];
    for (jet, rows) in momenta.chunks_exact_mut(jets.particles() * 4).enumerate() {
        let total = jets.jet(jet).fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(&particle));
        for (row, particle) in rows.chunks_exact_mut(4).zip(jets.jet(jet)) {
            row.copy_from_slice(&particle.at_rest_with(&total, total.square().sqrt()).0);
        }
    }
    JetSets::new(jets.particles(), &momenta, jets.labels().to_vec()).unwrap()
}

/// Jets of γ = 100, and jets of the laboratory, whose γ is up to 14, boosted once more: what their rounding leaves of the products of nearly
/// parallel momenta is less.
#[test]
fn trained_logits_do_not_change_under_boosts_of_gamma_100() {
    let (jets, all) = (jets(), (0..64).collect::<Vec<_>>());
    for (dtype, [at_rest, flying]) in [(DType::F64, [1e-10, 5e-9]), (DType::F32, [1e-4, 1e-4])] {
        let model = trained(&SMALL, dtype, &jets);
        let plain = logits(&model, &jets, &all, dtype);
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for (jets, bound) in [(resting(&jets), at_rest), (jets.clone(), flying)] {
            for _ in 0..5 {
                let moved = fast(&jets, &mut rng);
                let change = relative_distance(&logits(&model, &moved, &all, dtype), &plain);
                assert!(change < bound, "{dtype}: {change:e}");
            }
        }
    }
}

#[test]
fn directions_of_the_laboratory_leave_their_own_group() {
    let (jets, all) = (jets(), (0..64).collect::<Vec<_>>());
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for reference in [Reference::Time, Reference::Beam, Reference::TimeBeam] {
        let model = model(&JetTaggerConfig { reference, ..SMALL }, DType::F64);
        let plain = logits(&model, &jets, &all, DType::F64);
        let mut change = |fixed: &[usize]| {
            let isometry = Isometry::random_fixing(Signature::STA, fixed, 3, &mut rng).unwrap();
            let moved = jets.clone().moved(&isometry).unwrap();
            relative_distance(&logits(&model, &moved, &all, DType::F64), &plain)
        };
        let (kept, broken) = (change(reference.fixed()), change(&[]));
        assert!(kept < 1e-9 && broken > 1e-4, "{reference}: {kept:e} {broken:e}");
    }
}

#[test]
fn neither_padding_nor_the_order_of_particles_matters() {
    let jets = jets();
    let model = trained(&SMALL, DType::F64, &jets);
    let all: Vec<usize> = (0..64).collect();
    let together = logits(&model, &jets, &all, DType::F64);
    let alone: Vec<f64> = all.iter().flat_map(|&jet| logits(&model, &jets, &[jet], DType::F64)).collect();
    let padding = relative_distance(&alone, &together);
    assert!(padding < 1e-12, "{padding:e}");
    let mut turned = jets.momenta();
    for jet in turned.chunks_exact_mut(24 * 4) {
        let rows: Vec<[f64; 4]> = jet.chunks_exact(4).map(|row| row.try_into().unwrap()).collect();
        jet.copy_from_slice(&rows.into_iter().rev().collect::<Vec<_>>().concat());
    }
    let turned = JetSets::new(24, &turned, jets.labels().to_vec()).unwrap();
    let order = relative_distance(&logits(&model, &turned, &all, DType::F64), &together);
    assert!(order < 1e-12 && order > 0.0, "{order:e}");
}

/// Some elements of each parameter.
#[test]
fn gradients_of_parameters_are_those_of_differences() {
    const STEP: f64 = 1e-5;
    let jets = jets();
    let batch = jets.batch(&[0, 5, 9], &Placement::new(&Device::Cpu, DType::F64)).unwrap();
    let model = model(&JetTaggerConfig { reference: Reference::Beam, ..SMALL }, DType::F64);
    let parameters = model.unique_parameters().unwrap();
    assert!(parameters.len() > 30, "{}", parameters.len());
    let gradients = model.loss(&batch).unwrap().backward().unwrap();
    let mut dead = Vec::new();
    for (name, parameter) in &parameters {
        let gradient = gradients.get(&parameter.tensor()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let gradient = gradient.array().to_f64_vec().unwrap();
        if gradient.iter().all(|&element| element == 0.0) {
            dead.push(name);
        }
        let (values, shape) = (parameter.array().to_f64_vec().unwrap(), parameter.shape());
        for element in [0, values.len() / 2, values.len() - 1] {
            let at = |step: f64| {
                let mut values = values.clone();
                values[element] += step;
                let moved = Array::from_f64(&values, shape.clone(), DType::F64, &Device::Cpu).unwrap();
                parameter.set(moved).unwrap();
                no_grad(|| model.loss(&batch)).unwrap().item().unwrap()
            };
            let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            at(0.0);
            let error = (difference - gradient[element]).abs();
            assert!(error < 1e-8, "{name}[{element}]: {difference} {}", gradient[element]);
        }
    }
    assert!(dead.is_empty(), "{dead:?}");
}
