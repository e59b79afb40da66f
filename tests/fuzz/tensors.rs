//! Operators of gradewise-autograd with any arguments, and their gradients.

use crate::{Outcome, Source, values};
use gradewise_autograd::{
    Result, Tensor, add_n, checkpoint,
    clifford::{
        self, Bias, CliffordLayer, FullSteerableLayer, LayerOptions, MvBlock, ProductOptions, Steerable,
        SteerableLayer,
    },
    concat, stack,
};
use gradewise_kernels::{
    DType, Device,
    ops::{AttentionOptions, CrossEntropyOptions, Order, RotaryTable},
};

pub type Case = (&'static str, fn(&Source) -> Result<Tensor>);

/// The output of a case and the gradients of its leaves for the cotangent 2·output.
pub fn run(case: fn(&Source) -> Result<Tensor>, s: &Source) -> Outcome {
    let differentiated = || {
        let output = case(s)?;
        let mut arrays = vec![output.array().clone()];
        if output.is_grad_required() {
            let mut gradients = output.square()?.sum_all()?.backward()?;
            for leaf in s.leaves() {
                if gradients.contains(&leaf) {
                    arrays.push(gradients.take(&leaf)?.array().clone());
                }
            }
        }
        Ok(arrays)
    };
    let result: Result<_> = differentiated();
    values(result.map_err(|error| error.to_string())?)
}

fn any(s: &Source) -> Tensor {
    s.tensor(&s.dims())
}

fn pair(s: &Source) -> [Tensor; 2] {
    let dims = s.dims();
    let (a, b) = (s.tensor(&s.broadcastable(&dims)), s.tensor(&dims));
    if s.chance(0.5) { [a, b] } else { [b, a] }
}

/// At least one axis, and one of them.
fn axis(s: &Source) -> (Tensor, usize) {
    let dims = s.dims_of(1);
    (s.tensor(&dims), s.axis(dims.len()))
}

fn axes(s: &Source) -> (Tensor, Vec<usize>, bool) {
    let dims = s.dims();
    (s.tensor(&dims), s.axes(dims.len()), s.chance(0.5))
}

fn product_options(s: &Source) -> ProductOptions {
    ProductOptions { gate: s.chance(0.5), normalize: s.chance(0.5) }
}

fn features(s: &Source) -> (gradewise_core::Algebra, usize, usize) {
    (s.algebra(), s.size(), s.size())
}

fn product(s: &Source, full: bool) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let [x, y] = [(); 2].map(|()| s.tensor(&[algebra.blade_count(), rows, n]));
    let paths = algebra.paths().len();
    if full {
        let w = s.tensor(&[paths, n, s.size()]);
        if s.chance(0.5) {
            return clifford::gelu_fcgp_norm(&algebra, &x, &y, &w, s.chance(0.5));
        }
        return clifford::fcgp(&algebra, &x, &y, &w, product_options(s));
    }
    let w = s.tensor(&[n, paths]);
    if s.chance(0.5) {
        return clifford::gelu_sgp_norm(&algebra, &x, &y, &w, s.chance(0.5));
    }
    clifford::sgp(&algebra, &x, &y, &w, product_options(s))
}

fn linear(s: &Source) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let m = s.size();
    let x = s.tensor(&[algebra.blade_count(), rows, n]);
    let w = if s.chance(0.3) { s.tensor(&[n, m]) } else { s.tensor(&[algebra.grade_count(), n, m]) };
    let bias = s.tensor(&[m]);
    let which = if s.chance(0.5) { Bias::Scalar } else { Bias::AllBlades };
    clifford::mv_linear(&algebra, &x, &w, s.chance(0.5).then_some((&bias, which)))
}

fn steerable(s: &Source) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let [x, right, left] = [(); 3].map(|()| s.tensor(&[blades, rows, n]));
    let (a, w) = (s.tensor(&[n, grades]), s.tensor(&[n, algebra.paths().len()]));
    let left = s.chance(0.5).then_some(&left);
    clifford::steerable_product(&algebra, &Steerable { x: &x, right: &right, a: &a, w: &w, left })
}

fn steerable_layer(s: &Source, full: bool) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let (grades, paths) = (algebra.grade_count(), algebra.paths().len());
    let x = s.tensor(&[algebra.blade_count(), rows, n]);
    let (right, a) = (s.tensor(&[grades, n, n]), s.tensor(&[n, grades]));
    let m = if full { s.size() } else { n };
    let (left, bias) = (s.tensor(&[grades, n, m]), s.tensor(&[m]));
    let left = s.chance(0.5).then_some((&left, &bias));
    if full {
        let w = s.tensor(&[paths, n, m]);
        let operands = FullSteerableLayer { x: &x, right: &right, a: &a, w: &w, left };
        return clifford::fc_steerable_layer(&algebra, &operands);
    }
    let w = s.tensor(&[n, paths]);
    clifford::steerable_layer(&algebra, &SteerableLayer { x: &x, right: &right, a: &a, w: &w, left })
}

fn layer(s: &Source) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let paths = algebra.paths().len();
    let x = s.tensor(&[algebra.blade_count(), rows, n]);
    let linear = s.tensor(&[algebra.grade_count(), n, n]);
    let bias = s.tensor(&[n]);
    let fully_connected = s.chance(0.5);
    let w = if fully_connected { s.tensor(&[paths, n, s.size()]) } else { s.tensor(&[n, paths]) };
    let which = if s.chance(0.5) { Bias::Scalar } else { Bias::AllBlades };
    let operands =
        CliffordLayer { x: &x, linear: &linear, bias: s.chance(0.5).then_some((&bias, which)), w: &w };
    let options = LayerOptions { fully_connected, product: product_options(s), recompute: s.chance(0.5) };
    clifford::clifford_layer(&algebra, &operands, options)
}

fn block(s: &Source) -> Result<Tensor> {
    let (algebra, rows, inputs) = features(s);
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let n = s.size();
    let x = s.tensor(&[blades, rows, inputs]);
    let (w, bias) = (s.tensor(&[grades, inputs, n]), s.tensor(&[n]));
    let [a, b, normalization] = [(); 3].map(|()| s.tensor(&[n, grades]));
    let [right, left] = [(); 2].map(|()| s.tensor(&[grades, n, n]));
    let (product, left_bias, gain) = (s.tensor(&[n, algebra.paths().len()]), s.tensor(&[n]), s.tensor(&[n]));
    let residual = s.tensor(&[blades, rows, n]);
    let operands = MvBlock {
        x: &x,
        linear: (&w, &bias),
        silu: (&a, &b),
        right: &right,
        normalization: &normalization,
        product: &product,
        left: (&left, &left_bias),
        gain: &gain,
        residual: s.chance(0.5).then_some(&residual),
    };
    clifford::mv_block(&algebra, &operands)
}

fn gates(s: &Source) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let x = s.tensor(&[algebra.blade_count(), rows, n]);
    let [a, b] = [(); 2].map(|()| s.tensor(&[n, algebra.grade_count()]));
    match s.below(3) {
        0 => clifford::mv_silu(&algebra, &x, &a, &b),
        1 => clifford::mv_normalization(&algebra, &x, &a),
        _ => clifford::mv_layer_norm(&algebra, &x, &s.tensor(&[n])),
    }
}

fn bilinear(s: &Source) -> Result<Tensor> {
    let (algebra, rows, n) = features(s);
    let [x, y] = [(); 2].map(|()| s.tensor(&[algebra.blade_count(), rows, n]));
    if s.chance(0.5) {
        return clifford::geometric_product(&algebra, &x, &y);
    }
    clifford::regressive_product(&algebra, &x, &y)
}

fn attention(s: &Source) -> Result<Tensor> {
    let (batch, groups, per_group) = (s.below(3), s.below(3), 1 + s.below(2));
    let (queries, keys, n) = (s.size(), s.size(), s.size());
    let options = AttentionOptions {
        causal: s.chance(0.5),
        scale: s.chance(0.3).then(|| s.number()),
        lengths: if s.chance(0.3) { Some(s.index(batch, keys + 1)?) } else { None },
        mask: s.chance(0.3).then(|| s.array(&[batch, keys])),
        sequences: if s.chance(0.3) { Some(s.sequences([queries, keys])?) } else { None },
        dropout: s.chance(0.3).then(|| s.attention_dropout()),
    };
    if s.chance(0.3) {
        let heads = groups * per_group;
        return s.tensor(&[batch, queries, 3 * heads * n]).self_attention(s.count(heads), &options);
    }
    let q = s.tensor(&[batch, groups * per_group, queries, n]);
    let [k, v] = [(); 2].map(|()| s.tensor(&[batch, groups, keys, n]));
    q.attention(&k, &v, &options)
}

fn edges(s: &Source) -> Result<Tensor> {
    let (blades, nodes, edges, n) = (s.size(), s.size(), s.size(), s.size());
    let h = s.tensor(&[blades, nodes, n]);
    let messages = s.tensor(&[blades, edges, s.size()]);
    let (receivers, senders) = (s.index(edges, nodes)?, s.index(edges, nodes)?);
    match s.below(4) {
        0 => h.edge_difference(s.chance(0.5).then_some(&messages), &receivers, &senders),
        1 => messages.net_inflow(&receivers, &senders),
        2 => h.concat_segment_mean(&messages, &receivers),
        _ => h.segment_spread(&receivers),
    }
}

fn indexed(s: &Source) -> Result<Tensor> {
    let (x, axis) = axis(s);
    let bound = x.shape().dims().get(axis).copied().unwrap_or(1);
    match s.below(6) {
        0 => x.index_select(axis, &s.index(s.size(), bound)?),
        1 => x.segment_sum(axis, &s.index(bound, 1 + s.size())?),
        2 => x.segment_mean(axis, &s.index(bound, 1 + s.size())?),
        3 => {
            let (rows, columns) = (s.size(), s.size());
            s.tensor(&[bound, s.size()]).embedding(&s.index(rows * columns, bound)?, [rows, columns])
        }
        kind => {
            let mut picked = x.shape().dims().to_vec();
            if let Some(size) = picked.get_mut(axis) {
                *size = s.size();
            }
            let positions = s.positions(&picked, bound)?;
            if kind == 4 {
                return x.gather(axis, &positions);
            }
            s.tensor(&picked).scatter_add(axis, &positions, s.count(bound))
        }
    }
}

fn views(s: &Source) -> Result<Tensor> {
    let x = any(s);
    let rank = x.shape().rank();
    match s.below(9) {
        0 => {
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.rotate_left(s.below(rank));
            x.permute(&axes)
        }
        1 => x.transpose(s.axis(rank), s.axis(rank)),
        2 => x.slice(s.axis(rank), s.below(3)..s.count(3)),
        3 => x.unsqueeze(s.axis(rank + 1)),
        4 => x.squeeze(s.axis(rank)),
        5 => x.reshape([s.count(x.shape().elements())]),
        6 => x.broadcast_to(&s.dims().into()),
        7 => x.sum_to(&s.broadcastable(x.shape().dims()).into()),
        _ => x.contiguous(),
    }
}

fn matmul(s: &Source) -> Result<Tensor> {
    let (m, k, n, batch) = (s.size(), s.size(), s.size(), s.dims());
    let a = s.tensor(&[s.broadcastable(&batch), vec![m, k]].concat());
    if s.chance(0.3) {
        let (turn_a, turn_b) = (s.chance(0.5), s.chance(0.5));
        let b = s.tensor(&[batch, vec![k, n]].concat());
        return a.matmul_transposed(&b, turn_a, turn_b);
    }
    a.matmul(&s.tensor(&[batch, vec![k, n]].concat()))
}

fn norms(s: &Source) -> Result<Tensor> {
    let dims = s.dims_of(1);
    let x = s.tensor(&dims);
    let [weight, bias] = [(); 2].map(|()| s.tensor(&dims[dims.len() - 1..]));
    let (weight, bias) = (s.chance(0.5).then_some(&weight), s.chance(0.5).then_some(&bias));
    if s.chance(0.5) { x.layer_norm(weight, bias, s.number()) } else { x.rms_norm(weight, s.number()) }
}

fn joins(s: &Source) -> Result<Tensor> {
    let dims = s.dims_of(1);
    let tensors: Vec<Tensor> = (0..s.below(4)).map(|_| s.tensor(&dims)).collect();
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    match s.below(3) {
        0 => concat(&tensors, s.axis(dims.len())),
        1 => stack(&tensors, s.axis(dims.len() + 1)),
        _ => add_n(&tensors),
    }
}

fn order(s: &Source) -> Result<Tensor> {
    let (x, axis) = axis(s);
    let order = if s.chance(0.5) { Order::Ascending } else { Order::Descending };
    let size = x.shape().dims().get(axis).copied().unwrap_or(1);
    if s.chance(0.5) {
        return Ok(x.sort(axis, order)?.0);
    }
    Ok(x.top_k(axis, s.count(s.below(size + 1)), order)?.0)
}

fn losses(s: &Source) -> Result<Tensor> {
    if s.chance(0.4) {
        let dims = s.dims();
        return s.tensor(&dims).mean_squared_error(&s.tensor(&dims));
    }
    let (rows, classes) = (s.size(), s.size());
    let x = s.tensor(&[rows, classes]);
    let ignore = s.chance(0.3).then(|| s.below(classes + 2));
    let options =
        CrossEntropyOptions { ignore, label_smoothing: if s.chance(0.5) { s.number() } else { 0.0 } };
    x.cross_entropy(&s.index(rows, classes)?, &options)
}

fn rotary(s: &Source) -> Result<Tensor> {
    let (tokens, n) = (s.size(), 2 * s.below(5));
    let x = s.tensor(&[s.size(), tokens, n]);
    x.rotary(&RotaryTable::new(s.count(tokens), s.count(n), 10.0, x.dtype(), &Device::Cpu)?)
}

fn recomputed(s: &Source) -> Result<Tensor> {
    let (x, y) = (any(s), any(s));
    checkpoint(&[&x, &y], |inputs| inputs[0].tanh()?.mul(&inputs[1]))
}

macro_rules! methods {
    ($($name:ident)*) => { [$((stringify!($name), (|s| any(s).$name()) as fn(&Source) -> Result<Tensor>)),*] };
}

macro_rules! pairs {
    ($($name:ident)*) => {
        [$((stringify!($name), (|s| { let [a, b] = pair(s); a.$name(&b) }) as fn(&Source) -> Result<Tensor>)),*]
    };
}

macro_rules! reductions {
    ($($name:ident)*) => {
        [$((stringify!($name), (|s| { let (x, axes, keep) = axes(s); x.$name(&axes, keep) })
            as fn(&Source) -> Result<Tensor>)),*]
    };
}

pub fn all() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    all.extend(methods!(neg abs exp log sqrt rsqrt recip square sin cos tanh sigmoid silu gelu relu erf sum_all mean_all));
    all.extend(pairs!(add sub mul div minimum maximum));
    all.extend(reductions!(sum mean max min));
    let more: [Case; 32] = [
        ("add_scalar", |s| any(s).add_scalar(s.number())),
        ("mul_scalar", |s| any(s).mul_scalar(s.number())),
        ("pow", |s| any(s).pow(s.number())),
        ("clamp", |s| any(s).clamp(s.number(), s.number())),
        ("dropout", |s| any(s).dropout(s.number(), (3, 4))),
        ("cast", |s| any(s).cast(if s.chance(0.5) { DType::F64 } else { DType::F32 })),
        ("softmax", |s| {
            let (x, axis) = axis(s);
            x.softmax(axis)
        }),
        ("log_softmax", |s| {
            let (x, axis) = axis(s);
            x.log_softmax(axis)
        }),
        ("cumsum", |s| {
            let (x, axis) = axis(s);
            x.cumsum(axis, s.chance(0.5))
        }),
        ("select", |s| {
            let dims = s.dims();
            s.tensor(&dims).select(&s.array(&dims), &s.tensor(&dims))
        }),
        ("matmul", matmul),
        ("norms", norms),
        ("joins", joins),
        ("order", order),
        ("losses", losses),
        ("rotary", rotary),
        ("views", views),
        ("indexed", indexed),
        ("edges", edges),
        ("attention", attention),
        ("checkpoint", recomputed),
        ("bilinear products", bilinear),
        ("sgp", |s| product(s, false)),
        ("fcgp", |s| product(s, true)),
        ("mv_linear", linear),
        ("gates and norms", gates),
        ("steerable_product", steerable),
        ("steerable_layer", |s| steerable_layer(s, false)),
        ("fc_steerable_layer", |s| steerable_layer(s, true)),
        ("clifford_layer", layer),
        ("mv_block", block),
        ("leaf", |s| Ok(any(s))),
    ];
    all.extend(more);
    all
}
