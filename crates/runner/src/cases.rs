//! The operators that `gradcheck` and `doctor` check, with inputs at which they are smooth.

use gradewise_autograd::{
    Result, Tensor, add_n,
    clifford::{self, Bias, FullSteerableLayer, ProductOptions, Steerable, SteerableLayer},
};
use gradewise_core::Algebra;
use gradewise_kernels::{
    DType, Device, Index, Positions,
    ops::{AttentionOptions, CrossEntropyOptions, Order, RotaryTable},
};
use rand_chacha::ChaCha8Rng;

/// Odd and small, so that tails of vectors are met.
const BATCH: usize = 3;
const FEATURES: usize = 5;
const OUT: usize = 3;

type Inputs = fn(&Algebra, &Device, &mut ChaCha8Rng) -> Result<Vec<Tensor>>;
type Function = fn(&Algebra, &[Tensor]) -> Result<Tensor>;

/// An operator.
pub struct Case {
    pub name: &'static str,
    pub inputs: Inputs,
    pub function: Function,
    /// Whether second derivatives exist and are of moderate size.
    pub smooth: bool,
}

fn randn(shape: &[usize], device: &Device, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    Tensor::randn(shape, DType::F64, device, rng)
}

/// Multivector features.
fn features(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    randn(&[algebra.blade_count(), BATCH, FEATURES], device, rng)
}

fn grades(algebra: &Algebra) -> usize {
    algebra.signature().grade_count()
}

fn one(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![randn(&[BATCH, FEATURES], device, rng)?])
}

fn positive(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![randn(&[BATCH, FEATURES], device, rng)?.square()?.add_scalar(0.5)?.detach()])
}

fn broadcast(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    let right = randn(&[FEATURES], device, rng)?.square()?.add_scalar(0.5)?.detach();
    Ok(vec![randn(&[BATCH, FEATURES], device, rng)?, right])
}

fn matrices(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![randn(&[2, BATCH, FEATURES], device, rng)?, randn(&[FEATURES, OUT], device, rng)?])
}

fn normalized(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    [&[BATCH, FEATURES][..], &[FEATURES], &[FEATURES]]
        .into_iter()
        .map(|shape| randn(shape, device, rng))
        .collect()
}

fn scaled(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![randn(&[BATCH, FEATURES], device, rng)?, randn(&[FEATURES], device, rng)?])
}

/// Features of nodes, and of four edges between them.
fn beside(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![randn(&[2, BATCH, FEATURES], device, rng)?, randn(&[2, 4, OUT], device, rng)?])
}

/// Queries, and keys and values that two heads share.
fn attended(_: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    [2, 1, 1].into_iter().map(|heads| randn(&[1, heads, BATCH, FEATURES], device, rng)).collect()
}

fn pair(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![features(algebra, device, rng)?, features(algebra, device, rng)?])
}

fn weighted(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    let mut inputs = pair(algebra, device, rng)?;
    inputs.push(randn(&[FEATURES, algebra.paths().len()], device, rng)?);
    Ok(inputs)
}

fn connected(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    let mut inputs = pair(algebra, device, rng)?;
    inputs.push(randn(&[algebra.paths().len(), FEATURES, OUT], device, rng)?);
    Ok(inputs)
}

fn linear(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![
        features(algebra, device, rng)?,
        randn(&[grades(algebra), FEATURES, OUT], device, rng)?,
        randn(&[OUT], device, rng)?,
    ])
}

fn silu(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    let parameter = [FEATURES, grades(algebra)];
    Ok(vec![
        features(algebra, device, rng)?,
        randn(&parameter, device, rng)?,
        randn(&parameter, device, rng)?,
    ])
}

fn by_grade(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![features(algebra, device, rng)?, randn(&[FEATURES, grades(algebra)], device, rng)?])
}

fn by_feature(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    Ok(vec![features(algebra, device, rng)?, randn(&[FEATURES], device, rng)?])
}

fn steerable(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    let mut inputs = pair(algebra, device, rng)?;
    inputs.push(randn(&[FEATURES, grades(algebra)], device, rng)?);
    inputs.push(randn(&[FEATURES, algebra.paths().len()], device, rng)?);
    inputs.push(features(algebra, device, rng)?);
    Ok(inputs)
}

/// Operands of a whole layer with `out` features and product weights of this shape.
fn layer(
    algebra: &Algebra,
    out: usize,
    weights: &[usize],
    device: &Device,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Tensor>> {
    let grades = grades(algebra);
    Ok(vec![
        features(algebra, device, rng)?,
        randn(&[grades, FEATURES, FEATURES], device, rng)?,
        randn(&[FEATURES, grades], device, rng)?,
        randn(weights, device, rng)?,
        randn(&[grades, FEATURES, out], device, rng)?,
        randn(&[out], device, rng)?,
    ])
}

fn weighted_layer(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    layer(algebra, FEATURES, &[FEATURES, algebra.paths().len()], device, rng)
}

fn connected_layer(algebra: &Algebra, device: &Device, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
    layer(algebra, OUT, &[algebra.paths().len(), FEATURES, OUT], device, rng)
}

/// Every operator.
pub fn all() -> Vec<Case> {
    let case = |name, inputs: Inputs, function: Function| Case { name, inputs, function, smooth: true };
    let rough = |name, inputs: Inputs, function: Function| Case { name, inputs, function, smooth: false };
    vec![
        case("add", broadcast, |_, x| x[0].add(&x[1])),
        case("add_n", one, |_, x| add_n(&[&x[0], &x[0].square()?, &x[0]])),
        case("sub", broadcast, |_, x| x[0].sub(&x[1])),
        case("mul", broadcast, |_, x| x[0].mul(&x[1])),
        case("div", broadcast, |_, x| x[0].div(&x[1])),
        case("exp", one, |_, x| x[0].exp()),
        case("log", positive, |_, x| x[0].log()),
        case("sqrt", positive, |_, x| x[0].sqrt()),
        case("rsqrt", positive, |_, x| x[0].rsqrt()),
        case("recip", positive, |_, x| x[0].recip()),
        case("square", one, |_, x| x[0].square()),
        case("pow", positive, |_, x| x[0].pow(2.5)),
        case("sin", one, |_, x| x[0].sin()),
        case("cos", one, |_, x| x[0].cos()),
        case("tanh", one, |_, x| x[0].tanh()),
        case("sigmoid", one, |_, x| x[0].sigmoid()),
        case("silu", one, |_, x| x[0].silu()),
        case("gelu", one, |_, x| x[0].gelu()),
        case("erf", one, |_, x| x[0].erf()),
        rough("relu", one, |_, x| x[0].relu()),
        rough("abs", one, |_, x| x[0].abs()),
        rough("max", one, |_, x| x[0].max(&[1], false)),
        case("sum", one, |_, x| x[0].sum(&[0], false)),
        case("mean", one, |_, x| x[0].mean(&[1], true)),
        case("mean_squared_error", one, |_, x| x[0].mean_squared_error(&x[0].square()?)),
        case("matmul", matrices, |_, x| x[0].matmul(&x[1])),
        case("softmax", one, |_, x| x[0].softmax(1)),
        case("log_softmax", one, |_, x| x[0].log_softmax(1)),
        case("layer_norm", normalized, |_, x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
        case("index_select", one, |_, x| {
            x[0].index_select(0, &Index::new(&[2, 0, 2, 1], BATCH, &x[0].device())?)
        }),
        case("embedding", one, |_, x| {
            x[0].embedding(&Index::new(&[2, 0, 2, 1], BATCH, &x[0].device())?, [2, 2])
        }),
        case("cumsum", one, |_, x| x[0].cumsum(1, false)),
        rough("sort", one, |_, x| Ok(x[0].sort(1, Order::Descending)?.0)),
        rough("top_k", one, |_, x| Ok(x[0].top_k(1, 2, Order::Ascending)?.0)),
        case("gather", one, |_, x| {
            x[0].gather(1, &Positions::new(&[4, 1, 1], [BATCH, 1], FEATURES, &x[0].device())?)
        }),
        case("rms_norm", scaled, |_, x| x[0].rms_norm(Some(&x[1]), 1e-5)),
        case("rotary", one, |_, x| {
            let (dtype, device) = (x[0].dtype(), x[0].device());
            let table = RotaryTable::new(BATCH, FEATURES - 1, 10.0, dtype, &device)?;
            x[0].slice(1, 1..FEATURES)?.rotary(&table)
        }),
        case("cross_entropy", one, |_, x| {
            let targets = Index::new(&[4, 0, 2], FEATURES, &x[0].device())?;
            x[0].cross_entropy(&targets, &CrossEntropyOptions { ignore: Some(0), label_smoothing: 0.1 })
        }),
        case("attention", attended, |_, x| {
            let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
            x[0].attention(&x[1], &x[2], &options)
        }),
        case("segment_mean", one, |_, x| x[0].segment_mean(0, &Index::new(&[1, 0, 1], 2, &x[0].device())?)),
        case("edge_difference", beside, |_, x| {
            let ends = |values: &[usize]| Index::new(values, BATCH, &x[0].device());
            x[0].edge_difference(Some(&x[1]), &ends(&[2, 0, 2, 1])?, &ends(&[0, 2, 0, 1])?)
        }),
        case("concat_segment_mean", beside, |_, x| {
            x[0].concat_segment_mean(&x[1], &Index::new(&[2, 0, 2, 2], BATCH, &x[0].device())?)
        }),
        case("geometric_product", pair, |a, x| clifford::geometric_product(a, &x[0], &x[1])),
        case("sgp", weighted, |a, x| clifford::sgp(a, &x[0], &x[1], &x[2], ProductOptions::default())),
        case("fcgp", connected, |a, x| clifford::fcgp(a, &x[0], &x[1], &x[2], ProductOptions::default())),
        case("gelu_sgp_norm", weighted, |a, x| clifford::gelu_sgp_norm(a, &x[0], &x[1], &x[2], true)),
        case("gelu_sgp", weighted, |a, x| clifford::gelu_sgp_norm(a, &x[0], &x[1], &x[2], false)),
        case("gelu_fcgp_norm", connected, |a, x| clifford::gelu_fcgp_norm(a, &x[0], &x[1], &x[2], true)),
        case("gelu_fcgp", connected, |a, x| clifford::gelu_fcgp_norm(a, &x[0], &x[1], &x[2], false)),
        case("mv_linear", linear, |a, x| clifford::mv_linear(a, &x[0], &x[1], Some((&x[2], Bias::Scalar)))),
        case("mv_linear_all_blades", linear, |a, x| {
            clifford::mv_linear(a, &x[0], &x[1], Some((&x[2], Bias::AllBlades)))
        }),
        case("mv_silu", silu, |a, x| clifford::mv_silu(a, &x[0], &x[1], &x[2])),
        case("mv_normalization", by_grade, |a, x| clifford::mv_normalization(a, &x[0], &x[1])),
        case("mv_layer_norm", by_feature, |a, x| clifford::mv_layer_norm(a, &x[0], &x[1])),
        case("steerable_gp", steerable, |a, x| {
            let operands = Steerable { x: &x[0], right: &x[1], a: &x[2], w: &x[3], left: Some(&x[4]) };
            clifford::steerable_product(a, &operands)
        }),
        case("steerable_layer", weighted_layer, |a, x| {
            let left = Some((&x[4], &x[5]));
            clifford::steerable_layer(a, &SteerableLayer { x: &x[0], right: &x[1], a: &x[2], w: &x[3], left })
        }),
        case("fc_steerable_layer", connected_layer, |a, x| {
            let left = Some((&x[4], &x[5]));
            clifford::fc_steerable_layer(
                a,
                &FullSteerableLayer { x: &x[0], right: &x[1], a: &x[2], w: &x[3], left },
            )
        }),
    ]
}
