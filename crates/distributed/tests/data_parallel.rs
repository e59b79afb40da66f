//! Several processes take the steps of one with the whole batch.

mod common;

use common::{all_succeed, together};
use gradewise_autograd::Tensor;
use gradewise_distributed::{DataParallel, Error, Group, ShardedSampler, Tcp, same_state};
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{
    Module, Parameter, Placement, Visitor,
    data::{Split, loader::BatchOrder},
    optim::{Method, Schedule},
    train::{Part, StepReport, Trainer, TrainerConfig},
};
use gradewise_zoo::{
    data::nbody::{NBodyData, Trajectories},
    models::{NBody, NBodyConfig},
    train::nbody::Example,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const SAMPLES: usize = 22;
const BATCH: usize = 7;

fn data() -> Arc<NBodyData> {
    let trajectories = Trajectories::simulate(3, SAMPLES, 12, 5, Split::Train).unwrap();
    Arc::new(NBodyData::between(&trajectories, 1, 11).unwrap())
}

fn model(dtype: DType, seed: u64) -> NBody {
    let config = NBodyConfig { hidden: 4, layers: 2, ..NBodyConfig::default() };
    let placement = Placement::new(&Device::Cpu, dtype);
    NBody::init(&config, placement, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn trainer(model: NBody, accumulation: usize) -> Trainer<NBody> {
    let config = TrainerConfig {
        accumulation,
        clip_norm: Some(2.0),
        ema: Some(0.5),
        ..TrainerConfig::new(
            Method::Sgd { momentum: 0.9, weight_decay: 1e-3 },
            Schedule::Constant { lr: 1e-2, warmup: 0 },
        )
    };
    Trainer::new(model, config).unwrap()
}

type Outcome = (Vec<StepReport>, Vec<u64>);

fn steps(
    trainer: &mut Trainer<NBody>,
    data: &Arc<NBodyData>,
    rank: usize,
    world: usize,
    accumulation: usize,
) -> Outcome {
    // The last batch of an epoch has a single sample: fewer than processes.
    let order = BatchOrder::sequential(SAMPLES, BATCH).unwrap().shuffled(1);
    let placement = trainer.model().placement();
    let mut batches =
        ShardedSampler::new(&order, rank, world).unwrap().load(Arc::clone(data), 0, &placement, 2).unwrap();
    let loss =
        |model: &NBody, part: &Part<Example>| part.share(model.loss(&part.batch.batch, &part.batch.targets)?);
    let reports = (0..8 / accumulation).map(|_| trainer.step(&mut batches, loss).unwrap()).collect();
    let weights = trainer.model().parameters().into_iter();
    (reports, weights.flat_map(|p| p.array().to_f64_vec().unwrap()).map(f64::to_bits).collect())
}

fn alone(data: &Arc<NBodyData>, accumulation: usize, dtype: DType) -> Outcome {
    steps(&mut trainer(model(dtype, 2), accumulation), data, 0, 1, accumulation)
}

/// Runs as `world` processes, whose models begin with different weights.
fn spread(
    data: &Arc<NBodyData>,
    world: usize,
    accumulation: usize,
    dtype: DType,
    bytes: usize,
) -> Vec<Outcome> {
    all_succeed(world, |group, tcp| {
        let model = model(dtype, 2 + group.rank() as u64);
        let parallel = DataParallel::new(group, Arc::clone(tcp) as _, &model.named_parameters())?;
        let parallel = Arc::new(parallel.bucket_bytes(bytes));
        let mut trainer = trainer(model, accumulation);
        trainer.set_exchange(Arc::clone(&parallel) as _);
        let outcome = steps(&mut trainer, data, group.rank(), group.world(), accumulation);
        let steps = outcome.0.len();
        let buckets = parallel.buckets().unwrap();
        if bytes < 1000 {
            assert!(buckets > 3, "{buckets} buckets");
            // All but the last bucket, which the loss travels with, leave before the pass is over.
            assert_eq!(parallel.early_buckets(), (buckets - 1) * (steps - 1));
        }
        same_state(group, &trainer.checkpoint("test", serde_json::Value::Null).unwrap().tensors)?;
        drop(trainer);
        Ok(outcome)
    })
}

fn relative(one: &[u64], other: &[u64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let (one, other) = (one.iter().map(|&x| f64::from_bits(x)), other.iter().map(|&x| f64::from_bits(x)));
    norm(&mut one.clone().zip(other).map(|(a, b)| a - b)) / norm(&mut one.clone())
}

#[test]
fn several_processes_take_the_steps_of_one() {
    let data = data();
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        for accumulation in [1, 2] {
            let (reports, weights) = alone(&data, accumulation, dtype);
            let start: Vec<u64> = model(dtype, 2)
                .parameters()
                .into_iter()
                .flat_map(|p| p.array().to_f64_vec().unwrap())
                .map(f64::to_bits)
                .collect();
            assert!(relative(&start, &weights) > 1e-3, "the steps move the weights");
            for world in [2, 3] {
                let all = spread(&data, world, accumulation, dtype, 500);
                for (theirs, bits) in &all {
                    assert_eq!(bits, &all[0].1, "the same bits at every rank");
                    assert_eq!(theirs, &all[0].0);
                    let distance = relative(&weights, bits);
                    assert!(distance < tolerance, "{world} processes, {dtype}: {distance}");
                    for (one, other) in reports.iter().zip(theirs) {
                        assert!((one.loss - other.loss).abs() <= tolerance * one.loss, "{one:?} {other:?}");
                        assert!(
                            (one.norms.total - other.norms.total).abs() <= 10.0 * tolerance * one.norms.total
                        );
                        assert_eq!((one.step, one.lr, one.clipped), (other.step, other.lr, other.clipped));
                    }
                }
            }
        }
    }
}

#[test]
fn the_same_bits_run_after_run_and_whatever_the_buckets() {
    let data = data();
    let run = |bytes| spread(&data, 3, 1, DType::F32, bytes).remove(0);
    let first = run(500);
    assert_eq!(first, run(500));
    assert_eq!(first, run(1 << 20), "one bucket");
}

/// Two weights, of which a process uses the second only if it is told to.
struct Pair(Parameter, Parameter);

impl Module for Pair {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("first", &self.0);
        visitor.parameter("second", &self.1);
    }
}

fn pair(length: usize) -> Pair {
    let ones = |count| Parameter::new(Array::from_slice(&vec![1f64; count], [count], &Device::Cpu).unwrap());
    Pair(ones(3), ones(length))
}

fn pair_steps(
    group: &Arc<Group>,
    tcp: &Arc<Tcp>,
    uses: impl Fn(usize, u64) -> bool,
) -> Result<Vec<f64>, Error> {
    let config = TrainerConfig::new(
        Method::Sgd { momentum: 0.0, weight_decay: 0.0 },
        Schedule::Constant { lr: 0.5, warmup: 0 },
    );
    let mut trainer = Trainer::new(pair(2), config)?;
    trainer.set_exchange(Arc::new(DataParallel::new(group, Arc::clone(tcp) as _, trainer.parameters())?));
    for step in 0..2 {
        let loss = |model: &Pair, (): &()| -> gradewise_nn::Result<Tensor> {
            let mut sum = model.0.tensor().sum_all()?;
            if uses(group.rank(), step) {
                sum = sum.add(&model.1.tensor().sum_all()?)?;
            }
            Ok(sum.mul_scalar(0.5)?)
        };
        trainer.step(&mut std::iter::repeat_with(|| Ok(())), loss).map_err(Error::Nn)?;
    }
    Ok(trainer.model().parameters().into_iter().flat_map(|p| p.array().to_f64_vec().unwrap()).collect())
}

#[test]
fn parameters_without_gradients_are_named() {
    // At no process: allowed, and left as it is.
    for weights in all_succeed(2, |group, tcp| pair_steps(group, tcp, |_, _| false)) {
        assert_eq!(weights, [0.0, 0.0, 0.0, 1.0, 1.0]);
    }
    // At one process only, in the first step.
    for result in together(2, |group, tcp| pair_steps(group, tcp, |rank, _| rank == 0)) {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("`second` has no gradient at rank 1"), "{text}");
    }
    // From the second step on at one process; the other learns of it.
    for (gone, part) in [(true, "has no gradient at rank 1"), (false, "has a gradient at rank 1")] {
        let results = together(2, |group, tcp| {
            pair_steps(
                group,
                tcp,
                |rank, step| if gone { step + rank as u64 != 2 } else { step + rank as u64 == 2 },
            )
        });
        let texts: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
        assert!(texts[1].contains("`second`") && texts[1].contains(part), "{texts:?}");
        assert!(texts[0].starts_with("rank 1 (") && texts[0].contains(part), "{texts:?}");
    }
}

#[test]
fn different_models_and_different_states_are_named() {
    let results = together(2, |group, tcp| {
        let parameters = pair(2 + group.rank()).named_parameters();
        DataParallel::new(group, Arc::clone(tcp) as _, &parameters).map(|_| ())
    });
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(
            text.contains("models differ")
                && text.contains("`second` is f64 [2] at rank 0, and f64 [3] at rank 1"),
            "{text}"
        );
    }
    let results = together(2, |group, _| {
        let data = data();
        let mut trainer = trainer(model(DType::F64, 2), 1);
        // Momentum of its own, as if from another checkpoint.
        steps(&mut trainer, &data, 0, 1 + group.rank(), 1);
        same_state(group, &trainer.checkpoint("test", serde_json::Value::Null).unwrap().tensors)
    });
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("differ between processes") && text.contains("ema::"), "{text}");
    }
}
