//! Random graphs of operations, what is refused, and what a file looks like.

mod common;

use common::{Case, STRICT, agree, compiler, difference, results, source};
use gradewise_autograd::{
    Error, Result, Tensor, concat,
    program::{Program, record},
};
use gradewise_core::{DType, Signature};
use gradewise_emit::{Argument, Source, c_source};
use gradewise_kernels::{Array, Device, Index, ops::Order};
use proptest::{prelude::*, test_runner::Config};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::cell::RefCell;

fn drawn(shapes: &[[usize; 3]], seed: u64, dtype: DType) -> Vec<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draw = |shape: &[usize; 3]| Array::randn(*shape, dtype, &Device::Cpu, &mut rng).map(Tensor::new);
    shapes.iter().map(draw).collect::<Result<_, _>>().unwrap()
}

/// A step of a random graph: what is done, and to which of the tensors so far.
#[derive(Clone, Debug)]
struct Step {
    kind: usize,
    first: usize,
    second: usize,
    axis: usize,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..24usize, 0..64usize, 0..64usize, 0..3usize).prop_map(|(kind, first, second, axis)| Step {
        kind,
        first,
        second,
        axis,
    });
    proptest::collection::vec(step, 1..14)
}

/// The other of `all` that has the sizes of `x`, or `x` itself.
fn like<'a>(all: &'a [Tensor], x: &'a Tensor, from: usize) -> &'a Tensor {
    let start = from % all.len();
    let mut order = all[start..].iter().chain(&all[..start]);
    order.find(|other| other.shape() == x.shape()).unwrap_or(x)
}

/// The tensors of a graph; all have three axes, and numbers that do not grow.
fn graph(steps: &[Step], inputs: &[Tensor], weights: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut all = inputs.to_vec();
    all.extend_from_slice(weights);
    for &Step { kind, first, second, axis } in steps {
        let x = all[first % all.len()].clone();
        let sizes = x.shape().to_vec();
        let y = match kind {
            0 => x.add(like(&all, &x, second))?.mul_scalar(0.5)?,
            1 => x.tanh()?.mul(like(&all, &x, second))?.tanh()?,
            2 => x.silu()?,
            3 => x.sub(&x.mean(&[axis], true)?)?,
            4 => x.softmax(axis)?,
            5 => x.square()?.add_scalar(1.0)?.sqrt()?.log()?,
            6 => x.transpose(axis, (axis + 1) % 3)?,
            7 => x.transpose(axis, (axis + 1) % 3)?.contiguous()?,
            8 => x.slice(axis, sizes[axis] / 2..sizes[axis])?,
            9 => concat(&[&x, like(&all, &x, second)], axis)?.slice(axis, 0..sizes[axis])?,
            10 => concat(&[&x, &x.slice(axis, 0..1)?], axis)?.mul_scalar(0.9)?,
            11 => x.matmul_transposed(like(&all, &x, second), false, true)?.tanh()?,
            12 => x.matmul_transposed(like(&all, &x, second), true, false)?.tanh()?,
            13 => {
                let list: Vec<usize> = (0..sizes[axis] + 1).map(|i| (i * 3 + second) % sizes[axis]).collect();
                x.index_select(axis, &Index::new(&list, sizes[axis], &Device::Cpu)?)?
            }
            14 => {
                let list: Vec<usize> = (0..sizes[axis]).map(|i| (i + second) % 2).collect();
                x.segment_sum(axis, &Index::new(&list, 2, &Device::Cpu)?)?.tanh()?
            }
            15 => x.reshape([sizes[1], sizes[0], sizes[2]])?,
            16 => x.transpose(0, 2)?.reshape([sizes[0], sizes[1], sizes[2]])?,
            17 => x.max(&[axis], true)?.add(&x)?.sigmoid()?,
            18 => x.sigmoid()?.div(&x.square()?.add_scalar(0.5)?)?,
            19 => x.layer_norm(None, None, 1e-3)?.mul_scalar(0.3)?,
            20 => x.clamp(-0.5, 0.7)?.add(&x.abs()?)?.mul_scalar(0.5)?,
            21 => x.cumsum(axis, second % 2 == 0)?.tanh()?,
            22 => x.gelu()?.add(&x.relu()?)?.mul_scalar(0.4)?,
            _ => x.maximum(&like(&all, &x, second).neg()?)?.exp()?.add_scalar(1.0)?.recip()?,
        };
        all.push(y);
    }
    Ok(all.split_off(inputs.len() + weights.len()))
}

const SHAPES: [[usize; 3]; 3] = [[2, 3, 5], [1, 4, 3], [2, 3, 5]];

/// The program of the last two tensors of a graph, and its case.
fn case(steps: &[Step], dtype: DType) -> Result<Case> {
    let weights = drawn(&SHAPES[1..], 7, dtype);
    let run = |inputs: &[Tensor]| {
        let mut made = graph(steps, inputs, &weights)?;
        Ok(made.split_off(made.len().saturating_sub(2)))
    };
    let program = record(&[drawn(&SHAPES, 1, dtype), drawn(&SHAPES, 2, dtype)], &[], run)?;
    let inputs = drawn(&SHAPES, 3, dtype);
    let expected = run(&inputs)?;
    Ok(Case { about: format!("{steps:?} {dtype}"), program, inputs, expected })
}

/// Compiled together, because a compiler takes longer to start than to compile a graph.
#[test]
fn random_graphs_give_their_own_numbers() {
    let cases = RefCell::new(Vec::new());
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        Config { cases: 60, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    runner
        .run(&steps(), |steps| {
            let dtype = if steps.len() % 2 == 0 { DType::F64 } else { DType::F32 };
            cases
                .borrow_mut()
                .push(case(&steps, dtype).map_err(|error| TestCaseError::fail(error.to_string()))?);
            Ok(())
        })
        .unwrap();
    agree(&cases.into_inner());
}

fn numbers(values: &[f64]) -> Tensor {
    Tensor::new(Array::from_f64(values, [values.len()], DType::F64, &Device::Cpu).unwrap())
}

fn refused(run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> String {
    let examples = [vec![numbers(&[1.0, 2.0, 3.0])], vec![numbers(&[3.0, 1.0, 0.5])]];
    record(&examples, &[], run).unwrap_err().to_string()
}

#[test]
fn what_follows_from_the_numbers_is_refused() {
    // An index.
    let message = refused(|x| {
        let values = x[0].to_vec::<f64>()?;
        let first = if values[0] < values[1] { 0 } else { 1 };
        Ok(vec![x[0].slice(0, 0..2)?.index_select(0, &Index::new(&[first], 2, &Device::Cpu)?)?])
    });
    assert!(message.contains("`index_select`") && message.contains("follow from the numbers"), "{message}");
    // A number.
    let message = refused(|x| x[0].mul(&numbers(&[x[0].to_vec::<f64>()?[0]])).map(|y| vec![y]));
    assert!(message.contains("`mul`") && message.contains("outside of recorded operations"), "{message}");
    // Which operation runs.
    let message = refused(|x| {
        let y = if x[0].to_vec::<f64>()?[0] < 2.0 { x[0].exp() } else { x[0].sin() };
        Ok(vec![y?])
    });
    assert!(message.contains("`exp`") && message.contains("`sin`"), "{message}");
}

/// An operation without a formula is named with the parameter that was read last.
#[test]
fn unknown_operations_are_named_with_their_layer() {
    let weight = numbers(&[1.0, 2.0, 3.0]);
    let names = [("layers.0.weight".to_owned(), weight.array().clone())];
    let examples = [vec![numbers(&[1.0, 2.0, 3.0])], vec![numbers(&[3.0, 1.0, 0.5])]];
    let run = |x: &[Tensor]| Ok(vec![x[0].mul(&weight)?.sort(0, Order::Ascending)?.0]);
    let error = record(&examples, &names, run).unwrap_err();
    assert!(matches!(&error, Error::NoFormula { layer, .. } if layer.contains("layers.0.weight")), "{error}");
}

fn gates() -> Program {
    let weight = numbers(&[0.5, -1.5, 2.0]);
    let names = [("gate.weight".to_owned(), weight.array().clone())];
    let examples = [vec![numbers(&[1.0, 2.0, 3.0])], vec![numbers(&[3.0, 1.0, 0.5])]];
    record(&examples, &names, |x| Ok(vec![x[0].mul(&weight)?.silu()?.mul(&x[0])?])).unwrap()
}

#[test]
fn a_file_says_what_it_is_and_keeps_names() {
    let (x, y) = (Argument::new("x", "three numbers, in m"), Argument::new("y", "gated"));
    let about = ["A gate.".to_owned()];
    let source = Source { name: "gates", about: &about, inputs: &[x], outputs: &[y] };
    let text = c_source(&gates(), &source).unwrap();
    for part in [
        " * A gate.",
        "x [3]: three numbers, in m",
        "void gates_predict(const double *x, double *y)",
        "/* gate.weight */",
        "static const double gates_c",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // One loop for all three operations.
    assert_eq!(text.matches("/* mul, silu, mul */").count(), 1, "{text}");
    assert!(!text.contains("malloc") && text.matches("#include").count() == 1);
    let error = c_source(&gates(), &Source { name: "2 gates", ..source }).unwrap_err();
    assert!(error.to_string().contains("2 gates"), "{error}");
    let error = c_source(&gates(), &Source { outputs: &[], ..source }).unwrap_err();
    assert!(error.to_string().contains("0 results"), "{error}");
}

/// A layer of multivectors, twice as large as the stack is used for.
#[test]
fn large_work_is_the_callers() {
    let shape = [8, 500, 6];
    let draw = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        vec![Tensor::new(Array::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap())]
    };
    let algebra = gradewise_core::Algebra::new(Signature::CL3).unwrap();
    let run = |x: &[Tensor]| {
        let y = gradewise_autograd::clifford::geometric_product(&algebra, &x[0], &x[0])?;
        Ok(vec![y.softmax(0)?.sum(&[1], false)?])
    };
    let program = record(&[draw(1), draw(2)], &[], run).unwrap();
    let inputs = draw(3);
    let expected = run(&inputs).unwrap();
    let case = Case { about: "large".to_owned(), program, inputs, expected };
    assert!(source(&case, "large").contains("double *double_work)"));
    agree(&[case]);
}

#[test]
fn compilers_of_cpp_take_the_file() {
    let Some(compiler) = compiler("CXX", "c++") else { return };
    let x = vec![numbers(&[0.3, 0.1, -2.0])];
    let expected = {
        let y = x[0].mul(&numbers(&[0.5, -1.5, 2.0])).unwrap().silu().unwrap();
        vec![y.mul(&x[0]).unwrap()]
    };
    let case = Case { about: "gates".to_owned(), program: gates(), inputs: x, expected };
    let flags = [&["-xc++", "-O2"], &STRICT[1..]].concat();
    // `-lm` is a file of C++ otherwise.
    let found = results(&compiler, &flags, std::slice::from_ref(&case));
    assert!(difference(&found[0][0], &case.expected[0]) < 1e-12);
}
