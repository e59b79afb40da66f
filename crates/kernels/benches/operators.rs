//! Operators at the sizes of an n-body training step, `[8, 2000, 28]` in f32, and the overhead of a small one.
//!
//! `cargo bench -p gradewise-kernels --bench operators`. The throughput is that of the bytes an operator must move.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::ops::clifford::{mv_layer_norm, mv_linear, mv_silu, steerable_layer};
use gradewise_kernels::{Array, DType, Device, Index, Result, Shape, debug, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::hint::black_box;

fn random(shape: impl Into<Shape>) -> Array {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    Array::randn(shape, DType::F32, &Device::Cpu, &mut rng).expect("memory for a few megabytes")
}

fn operators(c: &mut Criterion) {
    let x = random([8, 2000, 28]);
    let y = random([8, 2000, 28]);
    let (bias, column, blade) = (random([28]), random([1, 2000, 1]), random([8, 1, 1]));
    let turned = x.permute(&[1, 2, 0]).expect("a permutation");
    let nodes = random([8, 500, 28]);
    let edges: Vec<usize> = (0..2000).map(|edge| edge * 7919 % 500).collect();
    let index = Index::new(&edges, 500, &Device::Cpu).expect("indices below 500");
    let bytes = 4 * x.elements() as u64;
    let single = Shape::from([28]);
    let per_row = Shape::from([1, 2000, 28]);

    type Operator<'a> = Box<dyn Fn() -> Result<Array> + 'a>;
    let cases: Vec<(&str, u64, Operator<'_>)> = vec![
        ("add", 3, Box::new(|| ops::add(&x, &y))),
        ("add_n of three", 4, Box::new(|| ops::add_n(&[&x, &y, &x]))),
        ("mul by [28]", 2, Box::new(|| ops::mul(&x, &bias))),
        ("mul by [1, 2000, 1]", 2, Box::new(|| ops::mul(&x, &column))),
        ("mul by [8, 1, 1]", 2, Box::new(|| ops::mul(&x, &blade))),
        ("add of a permutation", 3, Box::new(|| ops::add(&turned, &turned))),
        ("select", 4, Box::new(|| ops::select(&y, &x, &y))),
        ("mul_scalar", 2, Box::new(|| ops::mul_scalar(&x, 2.0))),
        ("sigmoid", 2, Box::new(|| ops::sigmoid(&x))),
        ("tanh", 2, Box::new(|| ops::tanh(&x))),
        ("gelu", 2, Box::new(|| ops::gelu(&x))),
        ("sqrt", 2, Box::new(|| ops::sqrt(&x))),
        ("sum of all", 1, Box::new(|| ops::sum(&x, &[0, 1, 2], false))),
        ("sum over features", 1, Box::new(|| ops::sum(&x, &[2], true))),
        ("sum over blades", 1, Box::new(|| ops::sum(&x, &[0], true))),
        ("sum to [28]", 1, Box::new(|| ops::sum_to(&x, &single))),
        ("sum to [1, 2000, 28]", 1, Box::new(|| ops::sum_to(&x, &per_row))),
        ("max over features", 1, Box::new(|| ops::max_over(&x, &[2], true))),
        ("contiguous of a permutation", 2, Box::new(|| turned.contiguous())),
        ("concat along features", 4, Box::new(|| ops::concat(&[&x, &y], 2))),
        ("pad along features", 3, Box::new(|| ops::pad(&x, 2, 28, 56))),
        ("softmax", 2, Box::new(|| ops::softmax(&x, 2))),
        ("layer_norm", 2, Box::new(|| Ok(ops::layer_norm(&x, Some(&bias), Some(&bias), 1e-5)?.output))),
        ("index_select", 2, Box::new(|| ops::index_select(&nodes, 1, &index))),
        ("segment_sum", 2, Box::new(|| ops::segment_sum(&x, 1, &index))),
        ("edge_difference", 2, Box::new(|| ops::edge_difference(&nodes, None, &index, &index))),
        ("concat_segment_mean", 2, Box::new(|| ops::concat_segment_mean(&nodes, &x, &index))),
        (
            "dropout_mask",
            1,
            Box::new(|| {
                ops::dropout_mask(
                    x.shape(),
                    0.1,
                    ops::RandomStream { seed: 1, stream: 2 },
                    DType::F32,
                    &Device::Cpu,
                )
            }),
        ),
    ];
    let mut group = c.benchmark_group("operators [8, 2000, 28] f32");
    for (name, passes, operator) in &cases {
        group.throughput(Throughput::Bytes(passes * bytes));
        group.bench_function(*name, |b| b.iter(|| black_box(operator().expect("valid operands"))));
    }
    group.finish();

    let (small, other) = (random([16]), random([16]));
    let mut group = c.benchmark_group("overhead");
    group.bench_function("add [16]", |b| b.iter(|| ops::add(&small, &other).expect("valid operands")));
    group.bench_function("sqrt [16]", |b| b.iter(|| ops::sqrt(&small).expect("valid operands")));
    group.bench_function("sum [16]", |b| b.iter(|| ops::sum(&small, &[0], false).expect("valid operands")));
    // What debug mode costs a launch while it is off.
    group.bench_function("debug mode off", |b| b.iter(|| black_box(debug::waits())));
    group.bench_function("slice [16]", |b| b.iter(|| small.slice(0, 2..9).expect("a range inside")));
    group.finish();
}

/// The layers of a Clifford-group-equivariant block in Cl(3,0,0), forward and backward, in rows per second.
fn layers(c: &mut Criterion) {
    const ROWS: usize = 2000;
    const N: usize = 28;
    let algebra = Algebra::new(Signature::CL3).expect("a common signature");
    let (grades, paths) = (algebra.grade_count(), algebra.paths().len());
    let (x, grad) = (random([8, ROWS, N]), random([8, ROWS, N]));
    let (matrices, bias, slopes) = (random([grades, N, N]), random([N]), random([N, grades]));
    let weights = random([N, paths]);
    let layer = steerable_layer::Operands {
        x: &x,
        right: &matrices,
        a: &slopes,
        w: &weights,
        left: Some((&matrices, &bias)),
    };
    let needs = mv_linear::Needs { x: true, w: true, bias: true };
    let kind = mv_linear::Bias::Scalar;
    let mut group = c.benchmark_group("layers [8, 2000, 28] f32");
    group.throughput(Throughput::Elements(ROWS as u64));
    type Case<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let cases: Vec<Case<'_>> = vec![
        (
            "steerable_layer forward",
            Box::new(|| {
                black_box(steerable_layer::forward(&algebra, &layer).expect("valid operands"));
            }),
        ),
        (
            "steerable_layer backward",
            Box::new(|| {
                black_box(steerable_layer::backward(&algebra, &layer, &grad).expect("valid operands"));
            }),
        ),
        (
            "mv_linear forward",
            Box::new(|| {
                black_box(
                    mv_linear::forward(&algebra, &x, &matrices, Some((&bias, kind))).expect("valid operands"),
                );
            }),
        ),
        (
            "mv_linear backward",
            Box::new(|| {
                black_box(
                    mv_linear::backward(&algebra, &x, &matrices, kind, &grad, needs).expect("valid operands"),
                );
            }),
        ),
        (
            "mv_silu forward",
            Box::new(|| {
                black_box(mv_silu::forward(&algebra, &x, &slopes, &slopes).expect("valid operands"));
            }),
        ),
        (
            "mv_silu backward",
            Box::new(|| {
                black_box(mv_silu::backward(&algebra, &x, &slopes, &slopes, &grad).expect("valid operands"));
            }),
        ),
        (
            "mv_layer_norm forward",
            Box::new(|| {
                black_box(mv_layer_norm::forward(&algebra, &x, &bias).expect("valid operands"));
            }),
        ),
        (
            "mv_layer_norm backward",
            Box::new(|| {
                black_box(mv_layer_norm::backward(&algebra, &x, &bias, &grad).expect("valid operands"));
            }),
        ),
    ];
    for (name, layer) in &cases {
        group.bench_function(*name, |b| b.iter(layer));
    }
    group.finish();
}

criterion_group!(benches, operators, layers);
criterion_main!(benches);
