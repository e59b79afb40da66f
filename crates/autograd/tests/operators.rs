//! Compositions of operations and special cases of single ones: first and second derivatives against central differences, and whether
//! results require gradients. The operations themselves are checked over the registry, in `registry.rs`.

use gradewise_autograd::{
    BackwardOptions, GradcheckOptions, Result, Tensor,
    clifford::{
        ProductOptions, geometric_product, metric_product, metric_sgp, sgp, tensor_dot, tensor_matrix,
        tensor_tensor, tensor_vector,
    },
    grad, gradcheck, gradgradcheck, jvp, no_grad, stack,
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, Index,
    ops::{self, AttentionOptions, CrossEntropyOptions, Order, RotaryTable},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

/// One operator on inputs of the given shapes, shifted and scaled into its domain.
struct Case {
    name: &'static str,
    shapes: &'static [&'static [usize]],
    operator: Operator,
}

type Operator = fn(&[Tensor]) -> Result<Tensor>;

macro_rules! cases {
    ($($name:literal $shapes:expr => |$x:ident| $body:expr;)*) => {
        &[$(Case { name: $name, shapes: &$shapes, operator: |$x| $body }),*]
    };
}

fn index(values: &[usize], bound: usize) -> Index {
    Index::new(values, bound, &CPU).unwrap()
}

/// A mask that is 1 on every other element.
fn checkered(like: &Tensor) -> Array {
    let mask: Vec<f64> = (0..15).map(|position| f64::from(position % 2)).collect();
    Array::from_f64(&mask, [3, 5], like.dtype(), &CPU).unwrap()
}

const SMOOTH: &[Case] = cases! {
    "neg" [&[3, 5]] => |x| x[0].neg();
    "mul scalar tensor" [&[2, 3], &[]] => |x| x[0].mul(&x[1]);
    "mul by itself" [&[3, 5]] => |x| x[0].mul(&x[0]);
    "mean_squared_error of a target" [&[3, 5]] => |x| {
        Tensor::ones([3, 5], x[0].dtype(), &CPU)?.mean_squared_error(&x[0])
    };
    "sum_all" [&[2, 3, 5]] => |x| x[0].sum_all();
    "mean" [&[2, 3, 5]] => |x| x[0].mean(&[1, 2], true);
    "mean_all" [&[2, 3, 5]] => |x| x[0].mean_all();
    "reshape of a view" [&[2, 3, 5]] => |x| x[0].transpose(0, 2)?.reshape([15, 2]);
    "unsqueeze" [&[3, 5]] => |x| x[0].unsqueeze(1);
    "squeeze" [&[3, 1, 5]] => |x| x[0].squeeze(1);
    "slices of one tensor" [&[7, 3]] => |x| x[0].slice(0, 0..4)?.mul(&x[0].slice(0, 3..7)?);
    "stack" [&[2, 3], &[2, 3]] => |x| stack(&[&x[0], &x[1]], 1);
    "segment_mean" [&[5, 3]] => |x| x[0].segment_mean(0, &index(&[2, 0, 2, 2, 0], 4));
    "matmul of views" [&[5, 3], &[2, 5]] => |x| x[0].transpose(0, 1)?.matmul(&x[1].transpose(0, 1)?);
    "embedding" [&[4, 3]] => |x| x[0].embedding(&index(&[3, 1, 1, 0, 3, 3], 4), [3, 2]);
    "sort" [&[3, 5]] => |x| Ok(x[0].sort(1, Order::Descending)?.0);
    "top_k" [&[5, 3]] => |x| x[0].square()?.top_k(0, 2, Order::Ascending).map(|(values, _)| values);
    "rotary" [&[2, 3, 4]] => |x| x[0].rotary(&RotaryTable::new(3, 4, 10.0, x[0].dtype(), &CPU)?);
    "cross_entropy ignoring one class past the last" [&[4, 5]] => |x| {
        let options = CrossEntropyOptions { ignore: Some(5), label_smoothing: 0.0 };
        x[0].cross_entropy(&index(&[5, 0, 5, 3], 6), &options)
    };
    "attention with padding and a row that sees nothing" [&[2, 1, 5, 2], &[2, 1, 3, 2], &[2, 1, 3, 2]] => |x| {
        let mask = Array::from_f64(&[1.0, 0.0, 1.0, 0.0, 1.0, 1.0], [2, 3], x[0].dtype(), &CPU)?;
        let options = AttentionOptions {
            causal: true, lengths: Some(index(&[3, 2], 4)), mask: Some(mask), ..Default::default()
        };
        x[0].attention(&x[1], &x[2], &options)
    };
    "self_attention" [&[2, 3, 12]] => |x| {
        x[0].self_attention(2, &AttentionOptions { causal: true, ..Default::default() })
    };
    "layer_norm alone, of a view" [&[5, 3]] => |x| x[0].transpose(0, 1)?.layer_norm(None, None, 1e-5);
    "select of a broadcast" [&[3, 1], &[]] => |x| x[0].select(&checkered(&x[0]), &x[1]);
    "dropout" [&[3, 5]] => |x| x[0].dropout(0.4, (3, 4));
    "dropout of nothing" [&[3, 5]] => |x| x[0].mul_scalar(1.0)?.dropout(0.0, (3, 4));
    "tensor_vector" [&[5, 2, 3], &[3, 2, 3]] => |x| tensor_vector(&x[0], &x[1]);
    "tensor_dot" [&[5, 2, 3], &[5, 2, 3]] => |x| tensor_dot(&x[0], &x[1]);
    "tensor_tensor" [&[5, 4], &[5, 4]] => |x| tensor_tensor(&x[0], &x[1]);
    "tensor_matrix" [&[5, 2]] => |x| tensor_matrix(&x[0]);
    "metric_product" [&[3], &[8, 2], &[8, 2]] => |x| metric_product(&x[0], &x[1], &x[2]);
    "metric_sgp" [&[2], &[4, 3, 2], &[4, 3, 2], &[2, 10]] => |x| metric_sgp(&x[0], &x[1], &x[2], &x[3]);
    "a composite" [&[3, 5], &[5, 3], &[3]] => |x| {
        x[0].matmul(&x[1])?.add(&x[2])?.silu()?.softmax(1)?.square()?.mean(&[0], false)
    };
};

/// Piecewise linear operators: nothing to differentiate twice, and no step may cross a kink.
const PIECEWISE: &[Case] = cases! {
    "max over axes" [&[2, 3, 5]] => |x| x[0].max(&[0, 2], false);
    "min over axes" [&[2, 3, 5]] => |x| x[0].min(&[1], true);
    "minimum" [&[3, 5], &[3, 1]] => |x| x[0].minimum(&x[1]);
};

fn inputs(case: &Case, seed: u64) -> Vec<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draw = |shape: &&[usize]| Tensor::randn(*shape, DType::F64, &CPU, &mut rng).unwrap();
    case.shapes.iter().map(draw).collect()
}

fn passes<T>(case: &Case, what: &str, result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what} of {}: {error}", case.name))
}

#[test]
fn first_derivatives() {
    for case in SMOOTH.iter().chain(PIECEWISE) {
        let inputs = inputs(case, 1);
        let inputs = inputs.iter().collect::<Vec<_>>();
        let report =
            passes(case, "gradcheck", gradcheck(&inputs, &GradcheckOptions::default(), case.operator));
        assert!(report.checked > 0);
    }
}

#[test]
fn second_derivatives() {
    // A linear operator's second derivative vanishes; squaring its result makes it visible.
    for case in SMOOTH {
        let inputs = inputs(case, 2);
        let inputs = inputs.iter().collect::<Vec<_>>();
        let squared = |x: &[Tensor]| (case.operator)(x)?.square();
        passes(case, "gradgradcheck", gradgradcheck(&inputs, &GradcheckOptions::default(), squared));
    }
}

#[test]
fn gradients_are_required_exactly_of_what_depends_on_a_leaf() {
    for case in SMOOTH.iter().chain(PIECEWISE) {
        let constants = inputs(case, 3);
        let output = passes(case, "forward", (case.operator)(&constants));
        assert!(!output.is_grad_required() && output.is_leaf(), "{} of constants", case.name);
        for position in 0..constants.len() {
            let mut some = constants.clone();
            some[position] = some[position].requires_grad();
            let output = passes(case, "forward", (case.operator)(&some));
            assert!(output.is_grad_required() && !output.is_leaf(), "{} of leaf {position}", case.name);
            let silent = passes(case, "forward", no_grad(|| (case.operator)(&some)));
            assert!(!silent.is_grad_required(), "{} under no_grad", case.name);
            assert!(!output.detach().is_grad_required());
            // A gradient has no history unless its graph was asked for.
            let ones = Tensor::ones(output.shape(), DType::F64, &CPU).unwrap();
            let options = BackwardOptions::seed(ones);
            let gradient = passes(case, "backward", grad(&output, &[&some[position]], &options));
            let gradient = gradient[0].as_ref().unwrap();
            assert!(!gradient.is_grad_required(), "the gradient of {} has a history", case.name);
            assert_eq!(gradient.shape(), some[position].shape());
        }
    }
}

#[test]
fn single_precision_gradients_agree_with_double() {
    for case in SMOOTH.iter().chain(PIECEWISE) {
        let double = inputs(case, 4);
        let single: Vec<Tensor> =
            double.iter().map(|x| Tensor::new(x.array().cast(DType::F32).unwrap()).requires_grad()).collect();
        let rounded: Vec<Tensor> =
            single.iter().map(|x| Tensor::new(x.array().cast(DType::F64).unwrap()).requires_grad()).collect();
        let gradients = |x: &[Tensor]| -> Vec<Array> {
            let output = (case.operator)(x).unwrap();
            let seed = Tensor::full(output.shape(), 0.7, output.dtype(), &CPU).unwrap();
            let options = BackwardOptions::seed(seed);
            let gradients = grad(&output, &x.iter().collect::<Vec<_>>(), &options).unwrap();
            gradients.into_iter().map(|gradient| gradient.unwrap().array().clone()).collect()
        };
        for (single, double) in gradients(&single).iter().zip(&gradients(&rounded)) {
            // The gradient of softmax in a constant direction is 0: everything cancels, so an absolute bound joins in.
            let error = single.relative_error(double).unwrap();
            let largest = double.to_f64_vec().unwrap().into_iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            assert!(error < 1e-5 || error * largest < 1e-6, "{}: {error:e}", case.name);
        }
    }
}

#[test]
fn equal_extrema_share_the_gradient() -> Result<()> {
    let leaf = |values: &[f64]| Tensor::from_slice(values, [values.len()], &CPU).unwrap().requires_grad();
    let x = leaf(&[2.0, 1.0, 2.0, f64::NEG_INFINITY]);
    assert_eq!(x.max(&[0], false)?.backward()?.get(&x)?.to_vec::<f64>()?, [0.5, 0.0, 0.5, 0.0]);
    let (a, b) = (leaf(&[1.0, 2.0, f64::INFINITY]), leaf(&[1.0, 3.0, f64::INFINITY]));
    let grads = a.maximum(&b)?.sum_all()?.backward()?;
    assert_eq!(grads.get(&a)?.to_vec::<f64>()?, [0.5, 0.0, 0.5]);
    assert_eq!(grads.get(&b)?.to_vec::<f64>()?, [0.5, 1.0, 0.5]);
    let x = leaf(&[f64::INFINITY, -1.0, 0.5]);
    assert_eq!(x.clamp(0.0, 1.0)?.sum_all()?.backward()?.get(&x)?.to_vec::<f64>()?, [0.0, 0.0, 1.0]);
    Ok(())
}

#[test]
fn a_nan_that_is_not_selected_reaches_no_gradient() -> Result<()> {
    // √x at −1 is NaN, as is its slope; only the other branch is chosen there.
    let x = Tensor::from_slice(&[4.0, -1.0], [2], &CPU)?.requires_grad();
    let mask = ops::greater(x.array(), &Array::scalar(0.0, DType::F64, &CPU)?)?;
    let safe = x.select(&mask, &Tensor::ones([2], DType::F64, &CPU)?)?;
    let y = safe.sqrt()?.select(&mask, &x.mul_scalar(3.0)?)?;
    assert_eq!(y.to_vec::<f64>()?, [2.0, -3.0]);
    assert_eq!(y.sum_all()?.backward()?.get(&x)?.to_vec::<f64>()?, [0.25, 3.0]);
    Ok(())
}

/// The yardstick is arithmetic of 3 × 3 matrices.
#[test]
fn products_of_tensors_are_those_of_their_matrices() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut draw = |leading: usize| Tensor::randn([leading, 7], DType::F64, &CPU, &mut rng);
    let (s, t, v) = (draw(5)?, draw(5)?, draw(3)?);
    let values = |tensor: Tensor| tensor.to_vec::<f64>();
    let (matrices, others) = (values(tensor_matrix(&s)?)?, values(tensor_matrix(&t)?)?);
    let (vectors, images) = (values(v.clone())?, values(tensor_vector(&s, &v)?)?);
    let (dots, products) = (values(tensor_dot(&s, &t)?)?, values(tensor_matrix(&tensor_tensor(&s, &t)?)?)?);
    let components = values(s)?;
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-13 * (1.0 + b.abs()), "{a} {b}");
    for at in 0..7 {
        let entry = |of: &[f64], i: usize, j: usize| of[(3 * i + j) * 7 + at];
        let [s, t] = [&matrices, &others].map(|of| move |i: usize, j: usize| entry(of, i, j));
        for (component, (i, j)) in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)].into_iter().enumerate() {
            assert_eq!([s(i, j), s(j, i)], [components[component * 7 + at]; 2]);
        }
        close(s(0, 0) + s(1, 1) + s(2, 2), 0.0);
        let dot: f64 = (0..9).map(|k| s(k / 3, k % 3) * t(k / 3, k % 3)).sum();
        close(dots[at], dot);
        for i in 0..3 {
            close(images[i * 7 + at], (0..3).map(|j| s(i, j) * vectors[j * 7 + at]).sum());
            for j in 0..3 {
                let both: f64 = (0..3).map(|k| s(i, k) * t(k, j) + t(i, k) * s(k, j)).sum();
                let trace = if i == j { 2.0 / 3.0 * dot } else { 0.0 };
                close(entry(&products, i, j), both - trace);
            }
        }
    }
    let one = Tensor::from_slice(&[2.0, 0.0, 1.25, -0.5, 3.5], [5, 1], &CPU)?;
    assert_eq!(tensor_dot(&one, &one)?.to_vec::<f64>()?, [34.125]);
    assert!(tensor_matrix(&v).unwrap_err().to_string().contains("leading axis of 5"));
    Ok(())
}

#[test]
fn products_of_a_metric_of_signs_are_those_of_its_algebra() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for (p, q, r) in [(1, 0, 0), (3, 0, 0), (1, 3, 0), (0, 2, 0), (3, 0, 1), (1, 1, 1), (0, 0, 2), (4, 1, 0)]
    {
        let algebra = Algebra::new(Signature::new(p, q, r))?;
        let n = algebra.dimension();
        let square = |generator: usize| match generator {
            g if g < usize::from(p) => 1.0,
            g if g < usize::from(p + q) => -1.0,
            _ => 0.0,
        };
        let metric = Tensor::from_slice(&(0..n).map(square).collect::<Vec<f64>>(), [n], &CPU)?;
        let mut draw = |shape: &[usize]| Tensor::randn(shape, DType::F64, &CPU, &mut rng);
        let shape = [1 << n, 3, 2];
        let (x, y) = (draw(&shape)?, draw(&shape)?);
        let near = |a: Tensor, b: Tensor| a.array().relative_error(b.array());
        let error = near(metric_product(&metric, &x, &y)?, geometric_product(&algebra, &x, &y)?)?;
        assert!(error < 1e-15 * f64::from(1 << n), "{}: {error:e}", algebra.signature());
        if r == 0 {
            // A path without generators that square to zero is one of Cl(n,0), too.
            let w = draw(&[2, algebra.paths().len()])?;
            let product = sgp(&algebra, &x, &y, &w, ProductOptions::default())?;
            let error = near(metric_sgp(&metric, &x, &y, &w)?, product)?;
            assert!(error < 1e-14, "weighted, {}: {error:e}", algebra.signature());
        }
    }
    let (metric, x) = (Tensor::ones([3], DType::F64, &CPU)?, Tensor::ones([4, 2], DType::F64, &CPU)?);
    assert!(metric_product(&metric, &x, &x).is_err(), "four blades are not those of three generators");
    let message = metric_product(&x, &x, &x).unwrap_err().to_string();
    assert!(message.contains("metric is [4, 2]") && message.contains("each generator"), "{message}");
    let w = Tensor::ones([2, 3], DType::F64, &CPU)?;
    let features = Tensor::ones([8, 1, 2], DType::F64, &CPU)?;
    let message = metric_sgp(&metric, &features, &features, &w).unwrap_err().to_string();
    assert!(message.contains("[features, 20]"), "{message}");
    Ok(())
}

#[test]
fn a_derivative_along_a_direction_has_its_edges() -> Result<()> {
    let x = Tensor::from_slice(&[0.5, -1.0], [2], &CPU)?;
    let v = Tensor::from_slice(&[2.0, 3.0], [2], &CPU)?;
    // Without gradients around it, and of a function that does not depend on what it is given.
    let (y, along) = no_grad(|| jvp(&[&x], &[&v], |x| x[0].exp()?.sum_all()))?;
    assert_eq!(y.item()?, 0.5f64.exp() + (-1f64).exp());
    assert!((along.item()? - (2.0 * 0.5f64.exp() + 3.0 * (-1f64).exp())).abs() < 1e-15);
    assert!(!y.is_grad_required() && !along.is_grad_required());
    let constant = jvp(&[&x], &[&v], |_| Tensor::ones([3], DType::F64, &CPU))?;
    assert_eq!(constant.1.to_vec::<f64>()?, [0.0; 3]);
    // One input of several that is not used adds nothing.
    let (_, along) = jvp(&[&x, &x], &[&v, &v], |x| x[1].mul_scalar(3.0))?;
    assert_eq!(along.to_vec::<f64>()?, [6.0, 9.0]);
    let refused = |tangents: &[&Tensor]| jvp(&[&x], tangents, |x| x[0].square()).unwrap_err().to_string();
    assert!(refused(&[]).contains("0 tangents for 1 inputs"));
    assert!(refused(&[&Tensor::ones([3], DType::F64, &CPU)?]).contains("jvp"));
    Ok(())
}

/// Norms of features whose squares, but not whose norms, are beyond the range of `f32`: forward, backward, and backward again.
#[test]
fn norms_of_large_features_are_those_of_double_precision() {
    use gradewise_autograd::clifford::{mv_layer_norm, mv_normalization};
    type Norm = fn(&Algebra, &Tensor, &Tensor) -> Result<Tensor>;
    let deviation = |found: &Tensor, exact: &Tensor| -> f64 {
        let (found, exact) = (found.array().to_f64_vec().unwrap(), exact.array().to_f64_vec().unwrap());
        let squares =
            |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let difference = squares(&mut found.iter().zip(&exact).map(|(a, b)| a - b));
        let size = squares(&mut exact.iter().copied());
        if size == 0.0 { difference } else { difference / size }
    };
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for signature in [Signature::CL3, Signature::new(2, 0, 1), Signature::new(0, 2, 0)] {
        let algebra = Algebra::new(signature).unwrap();
        let grades = algebra.grade_count();
        let operators: [(Norm, Vec<usize>); 2] =
            [(mv_layer_norm, vec![3]), (mv_normalization, vec![3, grades])];
        for (operator, shape) in operators {
            for exponent in [0, 5, 10, 13, 16] {
                let draw = |rng: &mut ChaCha8Rng, shape: Vec<usize>| {
                    Tensor::randn(shape, DType::F32, &CPU, rng).unwrap()
                };
                let scale = 10f64.powi(exponent);
                let x = draw(&mut rng, vec![algebra.blade_count(), 4, 3]).mul_scalar(scale).unwrap();
                let (parameter, along) = (draw(&mut rng, shape.clone()), draw(&mut rng, x.shape().to_vec()));
                let run = |dtype: DType| {
                    let [x, parameter, along] =
                        [&x, &parameter, &along].map(|tensor| tensor.detach().cast(dtype).unwrap());
                    let (x, parameter) = (x.requires_grad(), parameter.requires_grad());
                    let y = operator(&algebra, &x, &parameter).unwrap();
                    let loss = y.mul(&along).unwrap().sum_all().unwrap();
                    let options = BackwardOptions { seed: None, create_graph: true };
                    let first = grad(&loss, &[&x, &parameter], &options).unwrap();
                    [vec![Some(y)], first]
                        .concat()
                        .into_iter()
                        .flatten()
                        .map(|t| t.detach())
                        .collect::<Vec<_>>()
                };
                for (found, exact) in run(DType::F32).iter().zip(&run(DType::F64)) {
                    let error = deviation(found, exact);
                    assert!(error < 1e-5, "{signature}, features of 1e{exponent}: {error}");
                }
            }
        }
    }
}

#[test]
fn errors_name_the_operation_that_was_called() -> Result<()> {
    let random = |shape: &[usize]| Tensor::randn(shape, DType::F64, &CPU, &mut ChaCha8Rng::seed_from_u64(1));
    let cl3 = Algebra::new(Signature::CL3)?;
    for (x, y) in [(&[8, 4, 2][..], &[8, 5, 2][..]), (&[8, 2, 2], &[8, 5, 1]), (&[4, 5], &[4, 5]), (&[], &[])]
    {
        for (name, product) in [
            ("geometric_product", geometric_product as fn(&Algebra, &Tensor, &Tensor) -> Result<Tensor>),
            ("regressive_product", gradewise_autograd::clifford::regressive_product),
        ] {
            let message = product(&cl3, &random(x)?, &random(y)?).unwrap_err().to_string();
            assert!(message.starts_with(name) && message.contains("[8, …]"), "{message}");
        }
    }
    assert_eq!(geometric_product(&cl3, &random(&[8])?, &random(&[8])?)?.shape().dims(), [8]);
    let segments = Index::new(&[0, 1, 1], 2, &CPU)?;
    for (shape, axis) in [(&[2, 3][..], 0), (&[2, 3], 9), (&[], 0)] {
        let message = random(shape)?.segment_mean(axis, &segments).unwrap_err().to_string();
        assert!(message.starts_with("segment_mean") && message.contains("size 3"), "{message}");
    }
    assert_eq!(random(&[3, 2])?.segment_mean(0, &segments)?.shape().dims(), [2, 2]);
    Ok(())
}
