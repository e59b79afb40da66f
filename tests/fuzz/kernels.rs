//! Operators of gradewise-kernels with any arguments.

use crate::{Outcome, Source, values};
use gradewise_kernels::{
    Array, DType, Device, Result,
    ops::{
        self, AttentionOptions, CrossEntropyOptions, Order, RandomStream, RotaryTable,
        clifford::{
            clifford_layer, fcgp, mv_layer_norm,
            mv_linear::{self, Bias},
            mv_normalization::{self, Norm},
            mv_silu,
            sgp::{self, ProductOptions},
            steerable_gp, steerable_layer,
            table_product::{self, Table},
        },
        optim::{self, Adam, Sgd, WeightDecay},
    },
};

pub type Case = (&'static str, fn(&Source) -> Outcome);

fn one(result: Result<Array>) -> Outcome {
    values([result.map_err(|error| error.to_string())?])
}

fn unary(s: &Source, function: fn(&Array) -> Result<Array>) -> Outcome {
    one(function(&s.array(&s.dims())))
}

fn binary(s: &Source, function: fn(&Array, &Array) -> Result<Array>) -> Outcome {
    let dims = s.dims();
    let (a, b) = (s.array(&s.broadcastable(&dims)), s.array(&dims));
    if s.chance(0.5) { one(function(&a, &b)) } else { one(function(&b, &a)) }
}

fn reducing(s: &Source, function: fn(&Array, &[usize], bool) -> Result<Array>) -> Outcome {
    let dims = s.dims();
    one(function(&s.array(&dims), &s.axes(dims.len()), s.chance(0.5)))
}

fn along(s: &Source, function: fn(&Array, usize) -> Result<Array>) -> Outcome {
    let dims = s.dims_of(1);
    one(function(&s.array(&dims), s.axis(dims.len())))
}

fn order(s: &Source) -> Order {
    if s.chance(0.5) { Order::Ascending } else { Order::Descending }
}

/// `?` for results of the kernels in a function that gives an [`Outcome`].
macro_rules! tried {
    ($result:expr) => {
        $result.map_err(|error| error.to_string())?
    };
}

macro_rules! functions {
    ($kind:ident: $($name:ident)*) => { [$((stringify!($name), (|s| $kind(s, ops::$name)) as fn(&Source) -> Outcome)),*] };
}

fn options(s: &Source) -> ProductOptions {
    ProductOptions { gate: s.chance(0.5), normalize: s.chance(0.5) }
}

fn norm(s: &Source, centred: bool) -> Outcome {
    let dims = s.dims_of(1);
    let features = [dims[dims.len() - 1]];
    let x = s.array(&dims);
    let weight = s.chance(0.7).then(|| s.array(&features));
    let bias = s.chance(0.7).then(|| s.array(&features));
    let grad = s.array(&dims);
    if centred {
        let forward = tried!(ops::layer_norm(&x, weight.as_ref(), bias.as_ref(), s.number()));
        let (weight, has_bias, mean) = (weight.as_ref(), bias.is_some(), &forward.mean);
        let back = tried!(ops::layer_norm_backward(&x, weight, has_bias, mean, &forward.inverse_std, &grad));
        return values([Some(forward.output), Some(back.x), back.weight, back.bias].into_iter().flatten());
    }
    let forward = tried!(ops::rms_norm(&x, weight.as_ref(), s.number()));
    let back = tried!(ops::rms_norm_backward(&x, weight.as_ref(), &forward.inverse_rms, &grad));
    values([Some(forward.output), Some(back.x), back.weight].into_iter().flatten())
}

fn attention(s: &Source) -> Outcome {
    let (batch, groups, per_group) = (s.below(3), s.below(3), 1 + s.below(2));
    let (queries, keys, features) = (s.size(), s.size(), s.size());
    let heads = if s.chance(0.1) { 0 } else { groups * per_group };
    let q = s.array(&[batch, heads, queries, features]);
    let [k, v] = [(); 2].map(|()| s.array(&[batch, groups, keys, features]));
    let options = AttentionOptions {
        causal: s.chance(0.5),
        scale: s.chance(0.3).then(|| s.number()),
        lengths: if s.chance(0.3) { Some(tried!(s.index(batch, keys + 1))) } else { None },
        mask: s.chance(0.3).then(|| s.array(&[batch, keys])),
        sequences: if s.chance(0.3) { Some(tried!(s.sequences([queries, keys]))) } else { None },
        dropout: s.chance(0.3).then(|| s.attention_dropout()),
    };
    let grad = s.array(&[batch, heads, queries, features]);
    let forward = tried!(ops::attention(&q, &k, &v, &options));
    let back = tried!(ops::attention_backward([&q, &k, &v], &options, &forward, &grad));
    values([forward.output, back.q, back.k, back.v])
}

fn cross_entropy(s: &Source) -> Outcome {
    let (rows, classes) = (s.size(), s.size());
    let x = s.array(&[rows, classes]);
    let targets = tried!(s.index(rows, classes));
    let ignore = s.chance(0.3).then(|| s.below(classes + 2));
    let options =
        CrossEntropyOptions { ignore, label_smoothing: if s.chance(0.5) { s.number() } else { 0.0 } };
    let forward = tried!(ops::cross_entropy(&x, &targets, &options));
    let seed = s.array(&[]);
    let grad = tried!(ops::cross_entropy_backward(&x, &targets, &options, &forward, &seed));
    values([forward.loss, grad])
}

fn product(s: &Source, full: bool) -> Outcome {
    let algebra = s.algebra();
    let (blades, paths) = (algebra.blade_count(), algebra.paths().len());
    let (rows, n, m) = (s.size(), s.size(), s.size());
    let [x, y] = [(); 2].map(|()| s.array(&[blades, rows, n]));
    let needs = sgp::Needs { x: s.chance(0.8), y: s.chance(0.8), w: s.chance(0.8) };
    let options = options(s);
    let (product, back) = if full {
        let w = s.array(&[paths, n, m]);
        let operands = sgp::Operands { x: &x, y: &y, w: &w };
        let product = tried!(fcgp::forward(&algebra, &operands, options));
        let grad = s.array(&[blades, rows, m]);
        let back = tried!(fcgp::backward(&algebra, &operands, options, &product, &grad, needs));
        (product, back)
    } else {
        let w = s.array(&[n, paths]);
        let operands = sgp::Operands { x: &x, y: &y, w: &w };
        let product = tried!(sgp::forward(&algebra, &operands, options));
        let grad = s.array(&[blades, rows, n]);
        let back = tried!(sgp::backward(&algebra, &operands, options, &product, &grad, needs));
        (product, back)
    };
    values([Some(product.output), back.x, back.y, back.w].into_iter().flatten())
}

fn linear(s: &Source) -> Outcome {
    let algebra = s.algebra();
    let (blades, rows, n, m) = (algebra.blade_count(), s.size(), s.size(), s.size());
    let x = s.array(&[blades, rows, n]);
    let w = if s.chance(0.3) { s.array(&[n, m]) } else { s.array(&[algebra.grade_count(), n, m]) };
    let which = if s.chance(0.5) { Bias::Scalar } else { Bias::AllBlades };
    let bias = s.chance(0.5).then(|| s.array(&[m]));
    let output = tried!(mv_linear::forward(&algebra, &x, &w, bias.as_ref().map(|bias| (bias, which))));
    let grad = s.array(&[blades, rows, m]);
    let needs = mv_linear::Needs { x: s.chance(0.8), w: s.chance(0.8), bias: s.chance(0.8) };
    let back = tried!(mv_linear::backward(&algebra, &x, &w, which, &grad, needs));
    values([Some(output), back.x, back.w, back.bias].into_iter().flatten())
}

fn gates(s: &Source) -> Outcome {
    let algebra = s.algebra();
    let (blades, rows, n) = (algebra.blade_count(), s.size(), s.size());
    let [x, grad] = [(); 2].map(|()| s.array(&[blades, rows, n]));
    let [a, b] = [(); 2].map(|()| s.array(&[n, algebra.grade_count()]));
    let silu = tried!(mv_silu::forward(&algebra, &x, &a, &b));
    let silu_back = tried!(mv_silu::backward(&algebra, &x, &a, &b, &grad));
    let normal = tried!(mv_normalization::forward(Norm::Smooth, &algebra, &x, &a));
    let normal_back = tried!(mv_normalization::backward(Norm::Smooth, &algebra, &x, &a, &grad));
    let gain = s.array(&[n]);
    let scaled = tried!(mv_layer_norm::forward(&algebra, &x, &gain));
    let scaled_back = tried!(mv_layer_norm::backward(&algebra, &x, &gain, &grad));
    values([
        silu,
        silu_back.x,
        silu_back.a,
        silu_back.b,
        normal,
        normal_back.x,
        normal_back.a,
        scaled,
        scaled_back.x,
        scaled_back.a,
    ])
}

fn steerable(s: &Source) -> Outcome {
    let algebra = s.algebra();
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let (rows, n) = (s.size(), s.size());
    let [x, y, added, grad] = [(); 4].map(|()| s.array(&[blades, rows, n]));
    let (a, w) = (s.array(&[n, grades]), s.array(&[n, paths]));
    let left = s.chance(0.5).then_some(&added);
    let operands = steerable_gp::Operands { x: &x, right: &y, a: &a, w: &w, left };
    let output = tried!(steerable_gp::forward(&algebra, &operands));
    let needs = steerable_gp::Needs { x: s.chance(0.8), right: s.chance(0.8), w: s.chance(0.8) };
    let back = tried!(steerable_gp::backward(&algebra, &operands, &grad, needs));
    let mut found = vec![Some(output), back.x, back.right, back.a, back.w, back.left];
    let [right, left] = [(); 2].map(|()| s.array(&[grades, n, n]));
    let bias = s.array(&[n]);
    let left = s.chance(0.5).then_some((&left, &bias));
    let operands = steerable_layer::Operands { x: &x, right: &right, a: &a, w: &w, left };
    found.push(Some(tried!(steerable_layer::forward(&algebra, &operands))));
    let back = tried!(steerable_layer::backward(&algebra, &operands, &grad));
    found.extend([Some(back.x), Some(back.right), Some(back.a), Some(back.w)]);
    values(found.into_iter().flatten())
}

fn layer(s: &Source) -> Outcome {
    let algebra = s.algebra();
    let (blades, rows, n, m) = (algebra.blade_count(), s.size(), s.size(), s.size());
    let full = s.chance(0.5);
    let x = s.array(&[blades, rows, n]);
    let linear = s.array(&[algebra.grade_count(), n, n]);
    let bias = s.array(&[n]);
    let paths = algebra.paths().len();
    let w = if full { s.array(&[paths, n, m]) } else { s.array(&[n, paths]) };
    let which = if s.chance(0.5) { Bias::Scalar } else { Bias::AllBlades };
    let operands = clifford_layer::Operands {
        x: &x,
        linear: &linear,
        bias: s.chance(0.5).then_some((&bias, which)),
        w: &w,
    };
    let options = clifford_layer::Options { fully_connected: full, product: options(s) };
    let output = tried!(clifford_layer::forward(&algebra, &operands, options));
    let grad = s.array(&[blades, rows, if full { m } else { n }]);
    let y = s.chance(0.5).then_some(&output.y);
    let needs = clifford_layer::Needs {
        x: s.chance(0.8),
        linear: s.chance(0.8),
        bias: s.chance(0.8),
        w: s.chance(0.8),
    };
    let kept = clifford_layer::Kept { product: &output.product, y };
    let back = tried!(clifford_layer::backward(&algebra, &operands, options, kept, &grad, needs));
    values([Some(output.product.output), back.x, back.linear, back.bias, back.w].into_iter().flatten())
}

fn tables(s: &Source) -> Outcome {
    let algebra = s.algebra();
    let table = if s.chance(0.5) { Table::geometric(&algebra) } else { Table::regressive(&algebra) };
    let (blades, rows) = (algebra.blade_count(), s.size());
    let [a, b] = [(); 2].map(|()| s.array(&[blades, rows]));
    one(table_product::forward(&table, &a, &b))
}

fn edges(s: &Source) -> Outcome {
    let (blades, nodes, edges, features) = (s.size(), s.size(), s.size(), s.size());
    let h = s.array(&[blades, nodes, features]);
    let messages = s.array(&[blades, edges, s.size()]);
    let (receivers, senders) = (tried!(s.index(edges, nodes)), tried!(s.index(edges, nodes)));
    match s.below(4) {
        0 => one(ops::edge_difference(&h, s.chance(0.5).then_some(&messages), &receivers, &senders)),
        1 => one(ops::net_inflow(&messages, &receivers, &senders)),
        2 => one(ops::concat_segment_mean(&h, &messages, &receivers)),
        _ => one(ops::segment_spread(&h, &receivers)),
    }
}

fn by_position(s: &Source) -> Outcome {
    let dims = s.dims_of(1);
    let axis = s.axis(dims.len());
    let mut picked = dims.clone();
    let bound = dims.get(axis).copied().unwrap_or(1);
    if let Some(size) = picked.get_mut(axis) {
        *size = s.size();
    }
    let positions = tried!(s.positions(&picked, bound));
    if s.chance(0.5) {
        return one(ops::gather(&s.array(&dims), axis, &positions));
    }
    one(ops::scatter_add(&s.array(&picked), axis, &positions, s.count(bound)))
}

fn by_index(s: &Source) -> Outcome {
    let dims = s.dims_of(1);
    let axis = s.axis(dims.len());
    let bound = dims.get(axis).copied().unwrap_or(1);
    let x = s.array(&dims);
    if s.chance(0.5) {
        return one(ops::index_select(&x, axis, &tried!(s.index(s.size(), bound))));
    }
    one(ops::segment_sum(&x, axis, &tried!(s.index(bound, 1 + s.size()))))
}

fn sorted(s: &Source) -> Outcome {
    let dims = s.dims_of(1);
    let (x, axis) = (s.array(&dims), s.axis(dims.len()));
    let size = dims.get(axis).copied().unwrap_or(1);
    match s.below(4) {
        0 => values([tried!(ops::sort(&x, axis, order(s))).0]),
        1 => values([tried!(ops::top_k(&x, axis, s.count(s.below(size + 1)), order(s))).0]),
        2 => tried!(ops::argmax(&x, axis)).to_vec().map(|_| Vec::new()).map_err(|error| error.to_string()),
        _ => tried!(ops::argmin(&x, axis)).to_vec().map(|_| Vec::new()).map_err(|error| error.to_string()),
    }
}

fn joined(s: &Source) -> Outcome {
    let dims = s.dims_of(1);
    let arrays: Vec<Array> = (0..s.below(4)).map(|_| s.array(&dims)).collect();
    let arrays: Vec<&Array> = arrays.iter().collect();
    match s.below(3) {
        0 => one(ops::concat(&arrays, s.axis(dims.len()))),
        1 => one(ops::stack(&arrays, s.axis(dims.len() + 1))),
        _ => one(ops::add_n(&arrays)),
    }
}

fn added(s: &Source) -> Outcome {
    let dims = s.dims();
    let [mut a, b, c] = [(); 3].map(|()| s.array(&dims));
    if s.chance(0.5) {
        tried!(ops::add_assign(&mut a, &b));
    } else {
        tried!(ops::add_n_assign(&mut a, &[&b, &c]));
    }
    values([a])
}

fn views(s: &Source) -> Outcome {
    let dims = s.dims();
    let x = s.array(&dims);
    match s.below(7) {
        0 => one(x.permute(&s.axes(dims.len()))),
        1 => one(x.transpose(s.axis(dims.len()), s.axis(dims.len()))),
        2 => {
            let axis = s.axis(dims.len());
            let (start, end) = (s.below(4), s.count(s.below(6)));
            one(x.slice(axis, start..end))
        }
        3 => one(x.unsqueeze(s.axis(dims.len() + 1))),
        4 => one(x.squeeze(s.axis(dims.len()))),
        5 => one(x.reshape([x.elements()])),
        _ => one(x.broadcast_to(s.dims())),
    }
}

fn optimizer(s: &Source) -> Outcome {
    let dims = s.dims();
    let [mut p, g, mut m, mut v] = [(); 4].map(|()| s.array(&dims));
    // Second moments are squares.
    if let Ok(square) = ops::square(&v) {
        v = square;
    }
    let step = u64::from(!s.chance(0.1));
    match s.below(3) {
        0 => {
            let decay = if s.chance(0.5) { WeightDecay::L2 } else { WeightDecay::Decoupled };
            let (lr, eps, weight_decay) = (s.number(), s.number(), s.number());
            let constants = Adam { lr, betas: (0.9, 0.99), eps, weight_decay, decay, step };
            tried!(optim::adam(&constants, &mut p, &g, &mut m, &mut v));
        }
        1 => {
            let constants = Sgd { lr: s.number(), momentum: s.number(), weight_decay: s.number(), step };
            tried!(optim::sgd(&constants, &mut p, &g, &mut m));
        }
        _ => tried!(optim::ema(s.number(), &mut p, &g)),
    }
    values([p, m, v])
}

fn rotary(s: &Source) -> Outcome {
    let (tokens, features) = (s.size(), 2 * s.below(5));
    let x = s.array(&[s.size(), tokens, features]);
    let table = tried!(RotaryTable::new(
        s.count(tokens),
        s.count(features),
        10.0 + s.number(),
        x.dtype(),
        &Device::Cpu
    ));
    one(ops::rotary(&x, &table, s.chance(0.5)))
}

fn rest(s: &Source) -> Outcome {
    let dims = s.dims();
    let x = s.array(&dims);
    match s.below(9) {
        0 => one(ops::add_scalar(&x, s.number())),
        1 => one(ops::mul_scalar(&x, s.number())),
        2 => one(ops::pow_scalar(&x, s.number())),
        3 => one(ops::clamp(&x, s.number(), s.number())),
        4 => one(ops::dropout_mask(
            dims.as_slice(),
            s.number(),
            RandomStream { seed: 1, stream: 2 },
            x.dtype(),
            &Device::Cpu,
        )),
        5 => one(ops::pad(&x, s.axis(dims.len()), s.count(s.below(3)), s.count(s.below(20)))),
        6 => one(ops::sum_to(&x, &s.broadcastable(&dims).into())),
        7 => {
            let like = s.array(&dims);
            let loss = tried!(ops::mean_squared_error(&x, &like));
            values([tried!(ops::mean_squared_error_backward(&x, &like, &s.array(&[]))), loss])
        }
        _ => one(x.cast(if s.chance(0.5) { DType::F64 } else { DType::BF16 })),
    }
}

fn matmul(s: &Source) -> Outcome {
    let (m, k, n) = (s.size(), s.size(), s.size());
    let batch = s.dims();
    let (turn_a, turn_b) = (s.chance(0.3), s.chance(0.3));
    let with = |batch: Vec<usize>, rows, columns, turned| {
        let matrix = if turned { [columns, rows] } else { [rows, columns] };
        [batch, matrix.to_vec()].concat()
    };
    let a = s.array(&with(s.broadcastable(&batch), m, k, turn_a));
    let b = s.array(&with(batch, k, n, turn_b));
    one(ops::matmul(&a, &b, turn_a, turn_b))
}

pub fn all() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    all.extend(functions!(unary: neg abs sign exp log sqrt rsqrt recip square sin cos tanh erf sigmoid silu gelu relu not_finite));
    all.extend(
        functions!(binary: add sub mul div max min equal not_equal less less_equal greater greater_equal),
    );
    all.extend(functions!(reducing: sum mean max_over min_over));
    all.extend(functions!(along: softmax log_softmax));
    let more: [Case; 23] = [
        ("select", |s| {
            let dims = s.dims();
            one(ops::select(&s.array(&dims), &s.array(&dims), &s.array(&dims)))
        }),
        ("cumsum", |s| {
            let dims = s.dims_of(1);
            one(ops::cumsum(&s.array(&dims), s.axis(dims.len()), s.chance(0.5)))
        }),
        ("layer_norm", |s| norm(s, true)),
        ("rms_norm", |s| norm(s, false)),
        ("matmul", matmul),
        ("attention", attention),
        ("cross_entropy", cross_entropy),
        ("sgp", |s| product(s, false)),
        ("fcgp", |s| product(s, true)),
        ("mv_linear", linear),
        ("gates and norms", gates),
        ("steerable", steerable),
        ("clifford_layer", layer),
        ("table_product", tables),
        ("edges", edges),
        ("positions", by_position),
        ("index lists", by_index),
        ("order", sorted),
        ("joins", joined),
        ("in place", added),
        ("views", views),
        ("optimisers", optimizer),
        ("rotary", rotary),
    ];
    all.extend(more);
    all.push(("the rest", rest));
    all
}
