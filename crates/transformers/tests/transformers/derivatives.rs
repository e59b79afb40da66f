//! Derivatives of small networks, to second order, and in whole runs of dropout.

use crate::mistakes::{random, streams};
use gradewise_autograd::{GradcheckOptions, Tensor, gradcheck, gradgradcheck, training};
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{Module, Placement};
use gradewise_transformers::{
    Channels, Space, Streams, TokenBatch,
    gatr::{self, GATr, GATrConfig, JoinReference},
    lgatr::{self, LGATr, LGATrConfig},
    slim::{LGATrSlim, LGATrSlimConfig, VectorChannels, VectorStreams},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

type Forward = Box<dyn Fn(&Tensor, &Tensor) -> [Tensor; 2]>;

/// Small networks of two multivectors (or vectors) and one scalar in three tokens, by name, and the number of components.
fn networks(rng: &mut ChaCha8Rng) -> Vec<(&'static str, Box<dyn Module>, Forward, usize)> {
    let (inputs, hidden, outputs) = (Channels::new(2, 1), Channels::new(2, 4), Channels::new(1, 2));
    let tokens = || TokenBatch::padded(&[3, 2], 3, place()).unwrap();
    let attention = lgatr::AttentionConfig { num_heads: 2, ..lgatr::AttentionConfig::default() };
    let mlp = lgatr::MlpConfig { mlp_ratio: 1, ..lgatr::MlpConfig::default() };
    let reinsert_s_channels = vec![0];
    let config =
        LGATrConfig { attention, mlp, reinsert_s_channels, ..LGATrConfig::new(1, inputs, hidden, outputs) };
    let lgatr = |space: Space, rng: &mut ChaCha8Rng| {
        let model = std::sync::Arc::new(LGATr::init_in(&space, &config, place(), rng).unwrap());
        let (module, tokens) = (std::sync::Arc::clone(&model), tokens());
        let forward: Forward = Box::new(move |x, s| {
            let y = model.forward(&Streams::new(x.clone(), s.clone()).unwrap(), &tokens).unwrap();
            [y.multivectors, y.scalars]
        });
        (Box::new(module) as Box<dyn Module>, forward)
    };
    let (space_time, forward) = lgatr(Space::space_time(), rng);
    let (plane, in_plane) = lgatr(Space::new(Signature::CL2).unwrap(), rng);
    let attention = gatr::AttentionConfig { num_heads: 2, ..gatr::AttentionConfig::default() };
    let config = GATrConfig { attention, ..GATrConfig::new(1, inputs, hidden, outputs) };
    let gatr = std::sync::Arc::new(GATr::init(&config, place(), rng).unwrap());
    let (points, of_sets) = (std::sync::Arc::clone(&gatr), tokens());
    let of_points: Forward = Box::new(move |x, s| {
        let x = Streams::new(x.clone(), s.clone()).unwrap();
        let y = points.forward(&x, &of_sets, JoinReference::Data).unwrap();
        [y.multivectors, y.scalars]
    });
    let channels = [VectorChannels::new(2, 1), VectorChannels::new(2, 4), VectorChannels::new(1, 2)];
    let slim = LGATrSlim::init(&LGATrSlimConfig::new(1, channels, 2), place(), rng).unwrap();
    let slim = std::sync::Arc::new(slim);
    let (vectors, of_sets) = (std::sync::Arc::clone(&slim), tokens());
    let of_vectors: Forward = Box::new(move |x, s| {
        let y = vectors.forward(&VectorStreams::new(x.clone(), s.clone()).unwrap(), &of_sets).unwrap();
        [y.vectors, y.scalars]
    });
    vec![
        ("lgatr", space_time, forward, 16),
        ("lgatr in the plane", plane, in_plane, 4),
        ("gatr", Box::new(gatr), of_points, 16),
        ("slim", Box::new(slim), of_vectors, 4),
    ]
}

fn loss(forward: &Forward, x: &Tensor, scalars: &Tensor) -> gradewise_autograd::Result<Tensor> {
    let [multivectors, scalars] = forward(x, scalars);
    multivectors.square()?.sum_all()?.add(&scalars.square()?.sum_all()?)
}

#[test]
fn gradients_are_right_to_second_order() {
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    for (name, _, forward, blades) in networks(&mut rng) {
        let (x, scalars) = (random(&[blades, 6, 2], &mut rng), random(&[6, 1], &mut rng));
        let run = |inputs: &[Tensor]| loss(&forward, &inputs[0], &inputs[1]);
        let options = GradcheckOptions { samples: 12, ..GradcheckOptions::default() };
        gradcheck(&[&x, &scalars], &options, run).unwrap_or_else(|error| panic!("{name}: {error}"));
        gradgradcheck(&[&x, &scalars], &options, run).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// One element of each parameter.
#[test]
fn gradients_of_parameters_are_right() {
    let mut rng = ChaCha8Rng::seed_from_u64(29);
    for (network, module, forward, blades) in networks(&mut rng) {
        let (x, scalars) = (random(&[blades, 6, 2], &mut rng), random(&[6, 1], &mut rng));
        let gradients = loss(&forward, &x, &scalars).unwrap().backward().unwrap();
        for (index, (name, parameter)) in module.named_parameters().into_iter().enumerate() {
            let gradient = gradients.get(&parameter.tensor());
            let gradient = gradient.unwrap_or_else(|error| panic!("{network}, {name}: {error}"));
            let gradient = gradient.array().to_f64_vec().unwrap();
            let (values, shape) = (parameter.array().to_f64_vec().unwrap(), parameter.shape());
            let element = (7 * index + 3) % values.len();
            let at = |step: f64| {
                let mut values = values.clone();
                values[element] += step;
                let values = Array::from_f64(&values, shape.clone(), DType::F64, &Device::Cpu).unwrap();
                parameter.set(values).unwrap();
                loss(&forward, &x, &scalars).unwrap().array().to_f64_vec().unwrap()[0]
            };
            let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
            at(0.0);
            let (analytic, error) = (gradient[element], (numeric - gradient[element]).abs());
            assert!(
                error <= 1e-5 * (1.0 + numeric.abs()),
                "{network}, {name} [{element}]: {analytic} {numeric}"
            );
        }
    }
}

/// With dropout the layers behind it have other numbers, as published; its masks follow from the pass.
#[test]
fn dropout_acts_in_training_alone() {
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let channels = Channels::new(2, 4);
    let config = LGATrConfig { dropout_prob: Some(0.4), ..LGATrConfig::new(1, channels, channels, channels) };
    let model = LGATr::init(&config, place(), &mut rng).unwrap();
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name == "blocks.0.mlp.layers.3.weight"), "{names:?}");
    let (x, tokens) = (streams(16, 6, channels, &mut rng), TokenBatch::new(2, 3));
    let run = || model.forward(&x, &tokens).unwrap().multivectors.array().to_f64_vec().unwrap();
    let dropped = |pass| training(pass, run);
    assert_eq!(run(), run());
    assert_eq!(dropped(1), dropped(1));
    assert_ne!(dropped(1), dropped(2));
    assert_ne!(dropped(1), run());
}
