//! Mixed precision of messages on graphs, and of linear maps with few features on one side: what is converted, and what is not. On the
//! CPU and on a GPU.

use gradewise_autograd::{
    BackwardOptions, Policy, Result, Rule, Tensor, autocast, autocast_with,
    clifford::{self, Bias},
    grad,
    observe::{Event, Observer, observe},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device, Index};
use gradewise_testing::gpu;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const NODES: usize = 40;
const EDGES: usize = 4 * NODES;

fn devices() -> impl Iterator<Item = Device> {
    [Some(Device::Cpu), gpu()].into_iter().flatten()
}

/// Receivers and senders.
fn ends(device: &Device) -> [Index; 2] {
    let receivers: Vec<usize> = (0..EDGES).map(|edge| edge / 4).collect();
    let senders: Vec<usize> = (0..EDGES).map(|edge| (7 * edge + 1) % NODES).collect();
    [receivers, senders].map(|ends| Index::new(&ends, NODES, device).unwrap())
}

struct Draw(ChaCha8Rng, Device);

impl Draw {
    fn on(device: &Device) -> Self {
        Self(ChaCha8Rng::seed_from_u64(11), device.clone())
    }

    fn leaf(&mut self, shape: &[usize], dtype: DType) -> Tensor {
        Tensor::randn(shape, dtype, &self.1, &mut self.0).unwrap().requires_grad()
    }
}

/// Counts conversions, those within backward rules included.
#[derive(Default)]
struct Casts(usize);

impl Observer for Casts {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        self.0 += usize::from(event.operation == "cast");
        Ok(())
    }
}

/// What `run` gives, and the number of conversions.
fn counted<R>(run: impl FnOnce() -> Result<R>) -> (R, usize) {
    let (result, Casts(count)) = observe(Casts::default(), run);
    (result.unwrap(), count)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.array().to_f64_vec().unwrap()
}

fn error(found: &Array, expected: &Array) -> f64 {
    let wide = |array: &Array| array.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
    wide(found).relative_error(&wide(expected)).unwrap()
}

/// The gradients of `inputs` for the sum of the squares of `output`.
fn gradients(output: &Tensor, inputs: &[&Tensor]) -> Vec<Tensor> {
    let energy = output.square().unwrap().sum_all().unwrap();
    let found = grad(&energy, inputs, &BackwardOptions::default()).unwrap();
    found.into_iter().map(Option::unwrap).collect()
}

#[test]
fn differences_of_positions_in_f32_stay_in_f32() -> Result<()> {
    for device in devices() {
        let ([receivers, senders], mut draw) = (ends(&device), Draw::on(&device));
        // Far from the origin, where 16 bits would leave nothing of the differences.
        let positions = draw.leaf(&[3, NODES, 1], DType::F32).add_scalar(1000.0)?;
        let own = draw.leaf(&[3, EDGES, 2], DType::BF16);
        for attributes in [None, Some(&own)] {
            let run = || positions.edge_difference(attributes, &receivers, &senders);
            let apart = autocast(DType::BF16, run)?;
            assert_eq!(apart.dtype(), DType::F32);
            let exact = positions.edge_difference(None, &receivers, &senders)?;
            assert_eq!(values(&apart.slice(2, 0..1)?), values(&exact));
        }
        let inflow = autocast(DType::BF16, || {
            positions.edge_difference(None, &receivers, &senders)?.net_inflow(&receivers, &senders)
        })?;
        assert_eq!(inflow.dtype(), DType::F32);
    }
    Ok(())
}

#[test]
fn features_in_sixteen_bits_stay_so_with_attributes_as_they_are() -> Result<()> {
    for (device, dtype) in devices().flat_map(|device| [DType::BF16, DType::F16].map(|d| (device.clone(), d)))
    {
        let ([receivers, senders], mut draw) = (ends(&device), Draw::on(&device));
        for features in [28, 5, 64] {
            let (h, own) = (draw.leaf(&[8, NODES, features], dtype), draw.leaf(&[8, EDGES, 1], DType::F32));
            let difference = || h.edge_difference(Some(&own), &receivers, &senders);
            let (messages, casts) = counted(|| autocast(dtype, difference));
            assert_eq!((messages.dtype(), casts), (dtype, 0), "{features}");
            // The bits of what is computed in f32 and rounded once.
            let wide = h.cast(DType::F32)?.edge_difference(Some(&own), &receivers, &senders)?;
            assert_eq!(values(&messages), values(&wide.cast(dtype)?), "{features}");
            let (joined, casts) =
                counted(|| autocast(dtype, || h.concat_segment_mean(&messages, &receivers)));
            assert_eq!((joined.dtype(), casts), (dtype, 0));
            let of_wide = h.cast(DType::F32)?.concat_segment_mean(&wide, &receivers)?;
            let bound = if dtype == DType::BF16 { 1e-2 } else { 2e-3 };
            assert!(error(joined.array(), of_wide.array()) <= bound);
            // Gradients have the dtypes of what they are gradients of, and agree.
            let found = gradients(&joined, &[&h, &own]);
            let expected = gradients(&of_wide, &[&h, &own]);
            assert_eq!([found[0].dtype(), found[1].dtype()], [dtype, DType::F32]);
            for (found, expected) in found.iter().zip(&expected) {
                let error = error(found.array(), expected.array());
                assert!(error <= bound, "{device} {dtype} {features}: {error:e}");
            }
        }
    }
    Ok(())
}

#[test]
fn inputs_of_different_dtypes_go_by_the_rule() -> Result<()> {
    for device in devices() {
        let ([receivers, senders], mut draw) = (ends(&device), Draw::on(&device));
        let [h, messages] = [DType::BF16, DType::F32].map(|dtype| draw.leaf(&[8, NODES, 4], dtype));
        let [short, wide] = [DType::F16, DType::F32].map(|dtype| draw.leaf(&[8, EDGES, 2], dtype));
        let difference = |own: &Tensor| h.edge_difference(Some(own), &receivers, &senders);
        // Attributes of another 16-bit dtype follow the features.
        assert_eq!(autocast(DType::BF16, || difference(&short))?.dtype(), DType::BF16);
        // Means of f32 are taken in f32.
        let mean = || h.concat_segment_mean(&wide, &receivers);
        assert_eq!(autocast(DType::BF16, mean)?.dtype(), DType::F32);
        let own = autocast(DType::BF16, || messages.edge_difference(Some(&short), &receivers, &senders))?;
        assert_eq!(own.dtype(), DType::F32);
        // Other rules on request.
        let by = |rules: &str| -> Result<DType> {
            let policy = Policy::new(DType::BF16)?.with_all(rules)?;
            Ok(autocast_with(&policy, || difference(&wide))?.dtype())
        };
        assert_eq!(by("edge_difference=widest")?, DType::F32);
        assert_eq!(by("edge_difference=f32")?, DType::F32);
        assert_eq!(by("edge_difference=16-bit")?, DType::BF16);
        assert_eq!(by("edge_difference=first")?, DType::BF16);
    }
    let policy = Policy::new(DType::BF16)?;
    assert_eq!(policy.rule("edge_difference"), Rule::First);
    assert!(
        ["concat_segment_mean", "net_inflow", "segment_spread"].map(|name| policy.rule(name))
            == [Rule::Widest; 3]
    );
    Ok(())
}

#[test]
fn maps_with_few_features_take_those_and_parameters_as_they_are() -> Result<()> {
    let algebra = Algebra::new(Signature::CL3)?;
    for (device, dtype) in devices().flat_map(|device| [DType::BF16, DType::F16].map(|d| (device.clone(), d)))
    {
        for (inputs, outputs) in [(3, 28), (28, 1), (8, 17), (17, 8)] {
            let mut draw = Draw::on(&device);
            let of_few = inputs < outputs;
            let x = draw.leaf(&[8, NODES, inputs], if of_few { DType::F32 } else { dtype });
            let [w, b] = [&[4, inputs, outputs][..], &[outputs]].map(|shape| draw.leaf(shape, DType::F32));
            let map = |x: &Tensor| clifford::mv_linear(&algebra, x, &w, Some((&b, Bias::Scalar)));
            let (y, casts) = counted(|| autocast(dtype, || map(&x)));
            assert_eq!(
                (y.dtype(), casts),
                (if of_few { dtype } else { DType::F32 }, 0),
                "{inputs} → {outputs}"
            );
            let exact = map(&x.cast(DType::F32)?)?;
            let bound = if !of_few {
                1e-6
            } else if dtype == DType::BF16 {
                1e-2
            } else {
                2e-3
            };
            assert!(error(y.array(), exact.array()) <= bound, "{inputs} → {outputs}");
            let (found, casts) = counted(|| grad(&y, &[&x, &w, &b], &BackwardOptions::seed(y.detach())));
            assert_eq!(casts, 0, "{inputs} → {outputs}");
            let seed = BackwardOptions::seed(exact.detach());
            let expected = grad(&exact, &[&x, &w, &b], &seed)?;
            for (input, (found, expected)) in [&x, &w, &b].into_iter().zip(found.iter().zip(&expected)) {
                let (found, expected) = (found.as_ref().unwrap(), expected.as_ref().unwrap());
                assert_eq!(found.dtype(), input.dtype());
                let error = error(found.array(), expected.array());
                assert!(error <= 1e-2, "{device} {dtype} {inputs} → {outputs}: {error:e}");
            }
        }
        // On request, all in 16 bits is what there is otherwise; all in f32, too.
        let mut draw = Draw::on(&device);
        let (x, w) = (draw.leaf(&[8, NODES, 28], DType::F32), draw.leaf(&[4, 28, 12], DType::F32));
        let map = || clifford::mv_linear(&algebra, &x, &w, None);
        assert_eq!(autocast(dtype, map)?.dtype(), dtype, "neither side is narrow");
        let (w, policy) =
            (draw.leaf(&[4, 28, 2], DType::F32), Policy::new(dtype)?.with("mv_linear", Rule::Full)?);
        let (y, casts) = counted(|| autocast_with(&policy, || clifford::mv_linear(&algebra, &x, &w, None)));
        assert_eq!((y.dtype(), casts), (DType::F32, 0));
    }
    Ok(())
}

/// A rule of a recorded gradient runs within the policy, too: its result has the dtype of its input nevertheless.
#[test]
fn second_derivatives_of_selections_have_the_dtypes_of_inputs() -> Result<()> {
    for device in devices() {
        let ([receivers, _], mut draw) = (ends(&device), Draw::on(&device));
        let x = draw.leaf(&[8, NODES, 3], DType::BF16);
        let second = || -> Result<Tensor> {
            let energy = x.index_select(1, &receivers)?.square()?.square()?.mean_all()?;
            let slope = grad(&energy, &[&x], &BackwardOptions::create_graph())?.remove(0).unwrap();
            Ok(grad(&slope.square()?.sum_all()?, &[&x], &BackwardOptions::default())?.remove(0).unwrap())
        };
        let found = autocast(DType::BF16, second)?;
        assert_eq!(found.dtype(), DType::BF16);
        // Four messages arrive at each node, of 8·3·EDGES: the slope is 16x³/n, and the gradient of its square 6·256·x⁵/n².
        let count = (24 * EDGES) as f64;
        for (found, x) in values(&found).into_iter().zip(values(&x)) {
            let expected = 6.0 * 256.0 * x.powi(5) / (count * count);
            assert!(
                (found - expected).abs() <= 0.05 * expected.abs() + 1e-12,
                "{found} and {expected} at {x}"
            );
        }
    }
    Ok(())
}

#[test]
fn second_derivatives_go_through_what_is_mixed() -> Result<()> {
    let algebra = Algebra::new(Signature::CL3)?;
    for device in devices() {
        let ([receivers, senders], mut draw) = (ends(&device), Draw::on(&device));
        let (x, own) = (draw.leaf(&[8, NODES, 3], DType::F32), draw.leaf(&[8, EDGES, 1], DType::F32));
        let (w, v) = (draw.leaf(&[4, 3, 12], DType::F32), draw.leaf(&[4, 25, 1], DType::F32));
        // The gradient of a function of the slope, for every input.
        let second = || -> Result<Vec<Tensor>> {
            let h = clifford::mv_linear(&algebra, &x, &w, None)?;
            let messages = h.edge_difference(Some(&own), &receivers, &senders)?;
            let joined = h.concat_segment_mean(&messages, &receivers)?;
            let output = clifford::mv_linear(&algebra, &joined, &v, None)?;
            let energy = output.square()?.square()?.mean_all()?;
            let slope = grad(&energy, &[&x], &BackwardOptions::create_graph())?.remove(0).unwrap();
            let found = grad(&slope.square()?.sum_all()?, &[&x, &own, &w, &v], &BackwardOptions::default())?;
            Ok(found.into_iter().map(Option::unwrap).collect())
        };
        let (found, expected) = (autocast(DType::BF16, second)?, second()?);
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.dtype(), DType::F32);
            let error = error(found.array(), expected.array());
            assert!(error > 0.0 && error <= 5e-2, "{device}, input {position}: {error:e}");
        }
    }
    Ok(())
}
