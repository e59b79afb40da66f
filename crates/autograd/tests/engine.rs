//! The gradient engine: accumulation, errors with reasons, hooks, deep graphs, threads, checkpointing, higher orders.

use gradewise_autograd::{
    BackwardContext, BackwardOptions, Derivative, Error, Forward, Operand, Operation, Result, Rule, Sample,
    Sizes, Tensor, checkpoint, concat, evaluation, grad, is_grad_enabled, is_training, no_grad,
    observe::{Event, Observer, observe},
    training, training_stream,
};
use gradewise_kernels::{Array, DType, Device, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

const CPU: Device = Device::Cpu;

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &CPU).unwrap().requires_grad()
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, DType::F64, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap().requires_grad()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

#[test]
fn contributions_of_every_use_add_up() -> Result<()> {
    let x = leaf(&[1.0, -2.0, 3.0]);
    let square = x.mul(&x)?;
    let y = concat(&[&square.mul(&x)?, &square, &x], 0)?.sum_all()?;
    let grads = y.backward()?;
    let expected: Vec<f64> = [1.0f64, -2.0, 3.0].iter().map(|x| 3.0 * x * x + 2.0 * x + 1.0).collect();
    assert_eq!(values(grads.get(&x)?), expected);
    assert_eq!(grads.len(), 1);
    assert_eq!(y.backward()?.get(&x)?.to_vec::<f64>()?, expected, "a graph can be differentiated again");
    Ok(())
}

/// Operations by which gradients are added up.
#[derive(Default)]
struct Sums(Vec<(&'static str, usize)>);

impl Observer for Sums {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        if event.operation.starts_with("add") {
            self.0.push((event.operation, event.inputs.len()));
        }
        Ok(())
    }
}

#[test]
fn contributions_are_added_in_order_several_at_a_time() -> Result<()> {
    for uses in [1, 2, 3, 7, 8, 9, 15, 16, 23] {
        let x = Tensor::randn([33], DType::F32, &CPU, &mut ChaCha8Rng::seed_from_u64(uses))?.requires_grad();
        let factors: Vec<Tensor> = (0..uses).map(|seed| random(&[33], seed)).collect();
        let factors: Vec<Tensor> =
            factors.iter().map(|t| t.detach().cast(DType::F32)).collect::<Result<_>>()?;
        let terms: Vec<Tensor> = factors.iter().map(|factor| x.mul(factor)).collect::<Result<_>>()?;
        let y = concat(&terms.iter().collect::<Vec<_>>(), 0)?.sum_all()?;
        let found = y.backward()?.get(&x)?.to_vec::<f32>()?;
        // The latest use comes first, in single precision.
        let mut expected = factors[factors.len() - 1].to_vec::<f32>()?;
        for factor in factors.iter().rev().skip(1) {
            expected.iter_mut().zip(factor.to_vec::<f32>()?).for_each(|(sum, term)| *sum += term);
        }
        assert_eq!(found, expected, "{uses} uses");
        let mut watched = Vec::new();
        y.backward_watched(&BackwardOptions::default(), |_, gradient| watched.push(gradient.clone()))?;
        assert_eq!(watched[0].to_vec::<f32>()?, expected, "{uses} uses, watched");
        // With a graph, sums are operations.
        let (gradients, Sums(sums)) =
            observe(Sums::default(), || y.backward_with(&BackwardOptions::create_graph()));
        assert_eq!(gradients?.get(&x)?.to_vec::<f32>()?, expected, "{uses} uses, with a graph");
        let added: usize = sums.iter().map(|(_, inputs)| inputs - 1).sum();
        assert_eq!((added, sums.len()), (uses as usize - 1, (uses as usize - 1).div_ceil(7)), "{sums:?}");
        assert!(sums.iter().all(|(name, inputs)| (*name == "add") == (*inputs == 2)), "{sums:?}");
    }
    Ok(())
}

#[test]
fn sums_of_many_contributions_are_differentiated_again() -> Result<()> {
    // y = Σ_k k·x³ of eleven uses of x³: the second derivative goes through the sum of their gradients.
    let x = leaf(&[0.5, -1.5, 2.0]);
    let cube = x.square()?.mul(&x)?;
    let terms: Vec<Tensor> = (1..=11).map(|k| cube.mul_scalar(f64::from(k))).collect::<Result<_>>()?;
    let y = concat(&terms.iter().collect::<Vec<_>>(), 0)?.sum_all()?;
    let slope = grad(&y, &[&x], &BackwardOptions::create_graph())?.remove(0).unwrap();
    let bend = slope.sum_all()?.backward()?.take(&x)?;
    for ((x, slope), bend) in values(&x).iter().zip(values(&slope)).zip(values(&bend)) {
        assert!((slope - 66.0 * 3.0 * x * x).abs() < 1e-10 && (bend - 66.0 * 6.0 * x).abs() < 1e-10);
    }
    Ok(())
}

#[test]
fn adding_to_a_gradient_changes_no_other_tensor() -> Result<()> {
    // The gradient of `add` is shared by both operands, and one of them receives another contribution.
    let (a, b) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]));
    let seed = Tensor::from_slice(&[1.0, 1.0], [2], &CPU)?;
    let y = a.add(&b)?.add(&a.mul_scalar(10.0)?)?;
    let grads = y.backward_with(&BackwardOptions::seed(seed.clone()))?;
    assert_eq!(values(grads.get(&a)?), [11.0, 11.0]);
    assert_eq!(values(grads.get(&b)?), [1.0, 1.0]);
    assert_eq!(values(&seed), [1.0, 1.0]);
    Ok(())
}

#[test]
fn a_missing_gradient_has_a_reason() -> Result<()> {
    let (x, other) = (leaf(&[1.0]), leaf(&[2.0]));
    let middle = x.square()?;
    let constant = Tensor::from_slice(&[3.0], [1], &CPU)?;
    let mut grads = middle.mul(&constant)?.backward()?;
    assert!(matches!(grads.get(&other), Err(Error::NotInGraph { .. })));
    assert!(matches!(grads.get(&constant), Err(Error::NotRequired { .. })));
    assert!(matches!(grads.get(&middle), Err(Error::Intermediate { operation: "square", .. })));
    let foreign = other.square()?.backward()?;
    assert!(matches!(foreign.get(&x), Err(Error::NotInGraph { .. })));
    assert!(matches!(foreign.get(&middle), Err(Error::NotInGraph { .. })));
    assert!(matches!(grads.get(&x.detach()), Err(Error::NotRequired { .. })));
    assert!(grads.contains(&x) && !grads.contains(&other));
    assert_eq!(values(&grads.take(&x)?), [6.0]);
    assert!(grads.is_empty());
    Ok(())
}

#[test]
fn backward_needs_a_scalar_or_a_seed() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = x.square()?;
    assert!(matches!(y.backward(), Err(Error::NotScalar { .. })));
    assert!(matches!(x.detach().sum_all()?.backward(), Err(Error::NoHistory { .. })));
    let hidden = no_grad(|| x.sum_all())?;
    assert!(matches!(hidden.backward(), Err(Error::NoHistory { .. })));
    let wrong = Tensor::ones([3], DType::F64, &CPU)?;
    assert!(matches!(y.backward_with(&BackwardOptions::seed(wrong)), Err(Error::GivenGradient { .. })));
    let seed = Tensor::from_slice(&[10.0, 100.0], [2], &CPU)?;
    assert_eq!(values(y.backward_with(&BackwardOptions::seed(seed))?.get(&x)?), [20.0, 400.0]);
    assert_eq!(values(x.slice(0, 0..1)?.backward()?.get(&x)?), [1.0, 0.0], "one element is a scalar");
    Ok(())
}

#[test]
fn recording_stops_inside_no_grad_only() -> Result<()> {
    let x = leaf(&[1.0]);
    assert!(is_grad_enabled());
    no_grad(|| {
        assert!(!is_grad_enabled());
        no_grad(|| assert!(!is_grad_enabled()));
        assert!(!is_grad_enabled(), "the inner guard does not end the outer one");
        assert!(std::thread::spawn(is_grad_enabled).join().unwrap(), "other threads go on recording");
    });
    let panicked = std::panic::catch_unwind(|| no_grad(|| std::panic::resume_unwind(Box::new(()))));
    assert!(panicked.is_err() && is_grad_enabled(), "a panic inside restores the mode");
    assert!(x.square()?.is_grad_required());
    Ok(())
}

#[test]
fn hooks_see_the_complete_gradient_and_can_replace_it() -> Result<()> {
    let x = leaf(&[2.0]);
    let middle = x.square()?;
    let seen = Arc::new(Mutex::new(vec![]));
    let log = Arc::clone(&seen);
    middle.register_hook(move |gradient| {
        log.lock().unwrap().push(gradient.item()?);
        Ok(None)
    });
    middle.register_hook(|gradient| Ok(Some(gradient.mul_scalar(10.0)?)));
    let y = middle.mul_scalar(3.0)?.add(&middle.mul_scalar(4.0)?)?;
    assert_eq!(values(y.backward()?.get(&x)?), [7.0 * 10.0 * 4.0]);
    assert_eq!(*seen.lock().unwrap(), [7.0], "once, after both contributions");
    x.register_hook(|_| Ok(Some(Tensor::zeros([2], DType::F64, &CPU)?)));
    assert!(matches!(y.backward(), Err(Error::GivenGradient { .. })));
    Ok(())
}

#[test]
fn watched_leaves_are_seen_once_complete_and_before_the_pass_is_over() -> Result<()> {
    let weights: Vec<Tensor> = (0..4).map(|seed| random(&[3, 3], seed)).collect();
    let (unused, x) = (random(&[3, 3], 9), random(&[2, 3], 5));
    let rules = Arc::new(AtomicUsize::new(0));
    let mut hidden = x.clone();
    for weight in &weights {
        hidden = hidden.matmul(weight)?.sigmoid()?;
        let rules = Arc::clone(&rules);
        hidden.register_hook(move |_| {
            rules.fetch_add(1, Ordering::SeqCst);
            Ok(None)
        });
    }
    // The second weight is used again by the last operation.
    let loss = hidden.matmul(&weights[1])?.sum_all()?;
    let mut seen = Vec::new();
    let watched = loss.backward_watched(&BackwardOptions::default(), |leaf, gradient| {
        seen.push((leaf.id(), values(gradient), rules.load(Ordering::SeqCst)));
    })?;
    let plain = loss.backward()?;
    let order: Vec<_> = seen.iter().map(|(id, ..)| *id).collect();
    assert_eq!(order, [&weights[3], &weights[2], &weights[1], &x, &weights[0]].map(Tensor::id));
    let passed: Vec<usize> = seen.iter().map(|(.., passed)| *passed).collect();
    assert_eq!(passed, [1, 2, 3, 4, 4], "each as soon as its last use has been differentiated");
    for (id, gradient, _) in seen {
        let leaf = weights.iter().chain([&x]).find(|leaf| leaf.id() == id).unwrap();
        assert_eq!(values(watched.get(leaf)?), gradient);
        assert_eq!(values(plain.get(leaf)?), gradient);
    }
    assert!(!watched.contains(&unused));
    Ok(())
}

#[test]
fn grad_differentiates_towards_intermediates_and_no_further() -> Result<()> {
    let x = leaf(&[0.5, 1.5]);
    let middle = x.exp()?;
    let unrelated = leaf(&[1.0]);
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&visits);
    x.register_hook(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    });
    let y = middle.square()?.sum_all()?;
    let gradients = grad(&y, &[&middle, &unrelated], &BackwardOptions::default())?;
    let expected: Vec<f64> = values(&middle).iter().map(|m| 2.0 * m).collect();
    assert_eq!(values(gradients[0].as_ref().unwrap()), expected);
    assert!(gradients[1].is_none());
    assert_eq!(visits.load(Ordering::Relaxed), 0, "nothing before the intermediate is visited");

    let both = grad(&y, &[&x, &middle], &BackwardOptions::default())?;
    let total: Vec<f64> = values(&middle).iter().map(|m| 2.0 * m * m).collect();
    assert_eq!(
        values(both[0].as_ref().unwrap()),
        total,
        "the derivative through the other input is included"
    );
    assert_eq!(visits.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn derivatives_of_any_order() -> Result<()> {
    // The n-th derivative of sin is sin(x + nπ/2).
    let x = leaf(&[0.3, -1.1, 2.0]);
    let mut derivative = x.sin()?;
    for order in 1..=5 {
        let total = derivative.sum_all()?;
        derivative = total.backward_with(&BackwardOptions::create_graph())?.take(&x)?;
        let shift = std::f64::consts::FRAC_PI_2 * f64::from(order);
        for (value, x) in values(&derivative).iter().zip(values(&x)) {
            assert!((value - (x + shift).sin()).abs() < 1e-12, "order {order}");
        }
    }
    Ok(())
}

#[test]
fn forces_can_be_trained() -> Result<()> {
    // Energy k·Σx²/2, forces −k·x: a loss on the forces has a derivative with respect to k.
    let (x, k) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let energy = x.square()?.sum_all()?.mul(&k)?.mul_scalar(0.5)?;
    let force = grad(&energy, &[&x], &BackwardOptions::create_graph())?[0].clone().unwrap().neg()?;
    assert_eq!(values(&force), [-3.0, -6.0]);
    let loss = force.square()?.sum_all()?;
    let grads = loss.backward()?;
    assert_eq!(values(grads.get(&k)?), [2.0 * 3.0 * 5.0]);
    assert_eq!(values(grads.get(&x)?), [18.0, 36.0]);
    Ok(())
}

#[test]
fn a_long_chain_neither_overflows_the_stack_nor_slows_down() {
    const STEPS: usize = 200_000;
    let run = || -> Result<f64> {
        let x = leaf(&[1.0]);
        let mut y = x.clone();
        for _ in 0..STEPS {
            y = y.add_scalar(1e-6)?;
        }
        let gradient = y.backward()?.get(&x)?.item();
        let towards = grad(&y, &[&x], &BackwardOptions::default())?;
        assert_eq!(values(towards[0].as_ref().unwrap()), [1.0]);
        drop(x);
        drop(y);
        gradient
    };
    // A stack that a recursion over the chain would overflow a hundred times over.
    let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap().unwrap(), 1.0);
}

#[test]
fn threads_build_and_differentiate_graphs_on_shared_leaves() {
    let x = random(&[50], 1);
    let gradient = |scale: f64| -> Result<Vec<f64>> {
        Ok(values(x.mul_scalar(scale)?.sin()?.sum_all()?.backward()?.get(&x)?))
    };
    let results: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let handles: Vec<_> =
            (1..9).map(|scale| scope.spawn(move || gradient(f64::from(scale)).unwrap())).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    for (scale, result) in (1..9).map(f64::from).zip(results) {
        let expected: Vec<f64> = values(&x).iter().map(|x| scale * (scale * x).cos()).collect();
        assert!(result.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}

#[test]
fn the_same_graph_gives_the_same_bits() -> Result<()> {
    let (x, w) = (random(&[40, 30], 2), random(&[30, 30], 3));
    let run = || -> Result<Vec<f64>> {
        let mut y = x.clone();
        for _ in 0..4 {
            y = y.add(&y.matmul(&w)?.tanh()?)?.softmax(1)?.add(&x)?;
        }
        Ok(values(y.square()?.sum_all()?.backward()?.get(&w)?))
    };
    assert_eq!(run()?, run()?);
    Ok(())
}

/// A chain of layers with a captured parameter.
fn block(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..3 {
        y = y.matmul(w)?.tanh()?;
    }
    Ok(y)
}

#[test]
fn a_checkpoint_changes_neither_values_nor_gradients() -> Result<()> {
    let (x, w, b) = (random(&[4, 5], 4), random(&[5, 5], 5), random(&[5], 6));
    let plain = block(&x.add(&b)?, &w)?.square()?.sum_all()?;
    let expected = plain.backward()?;
    let captured = w.clone();
    let body = move |inputs: &[Tensor]| block(&inputs[0].add(&inputs[1])?, &captured);
    let y = checkpoint(&[&x, &b], body)?.square()?.sum_all()?;
    assert_eq!(y.item()?, plain.item()?);
    let grads = y.backward()?;
    for tensor in [&x, &w, &b] {
        assert_eq!(values(grads.get(tensor)?), values(expected.get(tensor)?));
    }
    Ok(())
}

#[test]
fn a_checkpoint_recomputes_and_reaches_second_derivatives() -> Result<()> {
    let (x, w) = (random(&[3, 3], 7), random(&[3, 3], 8));
    let calls = Arc::new(AtomicUsize::new(0));
    let (counter, captured) = (Arc::clone(&calls), w.clone());
    let body = move |inputs: &[Tensor]| {
        counter.fetch_add(1, Ordering::Relaxed);
        block(&inputs[0], &captured)
    };
    let second = |energy: Tensor| -> Result<(Vec<f64>, Vec<f64>)> {
        let force = grad(&energy, &[&x], &BackwardOptions::create_graph())?[0].clone().unwrap();
        let grads = force.square()?.sum_all()?.backward()?;
        Ok((values(grads.get(&x)?), values(grads.get(&w)?)))
    };
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs()));
    let y = checkpoint(&[&x], body)?;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    y.sum_all()?.backward()?;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "once forward, once backward");
    let (gx, gw) = second(y.sum_all()?)?;
    let (ex, ew) = second(block(&x, &w)?.sum_all()?)?;
    assert!(close(&gx, &ex) && close(&gw, &ew));

    let silent = no_grad(|| checkpoint(&[&x], |inputs| inputs[0].exp()))?;
    assert!(!silent.is_grad_required());
    Ok(())
}

#[test]
fn checkpoints_nest_and_pass_errors_on() -> Result<()> {
    let (x, w) = (random(&[3, 3], 9), random(&[3, 3], 10));
    let (inner, outer) = (w.clone(), w.clone());
    let nested = checkpoint(&[&x], move |inputs| {
        let inner = inner.clone();
        let y = checkpoint(&[&inputs[0]], move |inputs| block(&inputs[0], &inner))?;
        block(&y, &outer)
    })?;
    let grads = nested.sum_all()?.backward()?;
    let expected = block(&block(&x, &w)?, &w)?.sum_all()?.backward()?;
    for tensor in [&x, &w] {
        let (a, b) = (values(grads.get(tensor)?), values(expected.get(tensor)?));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-13 * (1.0 + b.abs())));
    }
    assert!(checkpoint(&[&x], |inputs| inputs[0].reshape([5])).is_err());
    Ok(())
}

#[test]
fn a_pass_of_training_ends_with_its_body_and_gives_each_draw_its_own_stream() {
    let draw = || (training_stream(5), training_stream(5), training_stream(6));
    assert!(!is_training());
    assert_eq!(draw(), (None, None, None));
    let (first, second, other) = training(9, draw);
    assert_eq!((first, other), (Some(9), Some(9)), "the number of the pass, for every seed");
    assert!(second.is_some() && second != first);
    assert_eq!(training(9, draw), (first, second, other), "a pass of the same number draws the same");
    assert_ne!(training(10, draw).1, second);
    let (outside, inside) = training(9, || (evaluation(draw), no_grad(draw)));
    assert_eq!((outside, inside), ((None, None, None), (None, None, None)));
    let inner = training(1, || (training(2, || training_stream(5)), training_stream(5)));
    assert_eq!(inner, (Some(2), Some(1)), "the outer pass goes on");
    let panicked = std::panic::catch_unwind(|| training(1, || std::panic::resume_unwind(Box::new(()))));
    assert!(panicked.is_err() && !is_training());
    training(1, || std::thread::scope(|scope| scope.spawn(|| assert!(!is_training())).join().unwrap()));
}

#[test]
fn a_checkpoint_draws_the_same_masks_again() -> Result<()> {
    let x = random(&[40], 3);
    let drop = |x: &Tensor| x.square()?.dropout(0.5, (7, training_stream(7).unwrap_or(u64::MAX)));
    let run = |through: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<f64>> {
        // A mask before, one within, one after.
        let y = training(4, || drop(&through(&drop(&x)?)?))?;
        Ok(values(y.sum_all()?.backward()?.get(&x)?))
    };
    let plain = run(&drop)?;
    assert!(plain.contains(&0.0) && plain.iter().any(|&value| value != 0.0));
    assert_eq!(run(&|x| checkpoint(&[x], move |x| drop(&x[0])))?, plain);
    let twice = move |x: &[Tensor]| checkpoint(&[&x[0]], move |x| drop(&x[0]));
    assert_eq!(run(&|x| checkpoint(&[x], twice))?, plain);
    Ok(())
}

/// Returns gradients that do not fit.
#[derive(serde::Serialize, serde::Deserialize)]
struct Misfit {
    #[serde(skip)]
    gradients: Vec<Option<Tensor>>,
}

impl Operation for Misfit {
    const NAME: &'static str = "misfit";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::add(&inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(self.gradients.clone())
    }
}

#[test]
fn functions_with_gradients_that_do_not_fit_are_refused() -> Result<()> {
    let (a, b) = (leaf(&[1.0]), leaf(&[2.0]));
    let apply = |gradients: Vec<Option<Array>>| {
        let gradients = gradients.into_iter().map(|gradient| gradient.map(Tensor::new)).collect();
        Tensor::apply(Misfit { gradients }, &[&a, &b])
    };
    let run = |gradients| apply(gradients)?.backward();
    let one = Array::ones([1], DType::F64, &CPU)?;
    let count = Error::GradientCount { operation: "misfit", actual: 1, expected: 2 };
    assert_eq!(run(vec![Some(one.clone())]).unwrap_err().to_string(), count.to_string());
    let error = run(vec![Some(one.clone()), Some(one.broadcast_to([2])?)]).unwrap_err();
    assert!(matches!(error, Error::GradientShape { operation: "misfit", index: 1, .. }), "{error}");
    let narrow = one.cast(DType::F32)?;
    let error = run(vec![None, Some(narrow.clone())]).unwrap_err();
    assert!(matches!(error, Error::GradientPlace { operation: "misfit", index: 1, .. }), "{error}");
    assert!(error.to_string().contains("f32 on cpu") && error.to_string().contains("f64 on cpu"), "{error}");
    let y = apply(vec![Some(one.clone()), None])?;
    let seed = BackwardOptions::seed(Tensor::new(narrow.clone()));
    assert!(matches!(y.backward_with(&seed), Err(Error::GivenGradient { .. })));
    let hooked = leaf(&[1.0]);
    hooked.register_hook(move |_| Ok(Some(Tensor::new(narrow.clone()))));
    let error = hooked.square()?.backward().unwrap_err();
    assert!(matches!(error, Error::GivenGradient { .. }), "{error}");
    assert!(error.to_string().starts_with("the gradient that a hook returned is ["), "{error}");
    let grads = run(vec![Some(one), None])?;
    assert!(grads.contains(&a) && !grads.contains(&b));
    Ok(())
}

/// Its rule adds tensors that do not broadcast.
#[derive(serde::Serialize, serde::Deserialize)]
struct Mistaken;

impl Operation for Mistaken {
    const NAME: &'static str = "mistaken";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("a")];

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::square(&inputs[0])?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.add(&Tensor::ones([2], DType::F64, &CPU)?)?)])
    }
}

/// Also from within a checkpoint, whose backward pass runs that of the operation.
#[test]
fn a_rule_that_fails_names_its_operation() -> Result<()> {
    let a = leaf(&[1.0, 2.0, 3.0]);
    let plain = Tensor::apply(Mistaken, &[&a])?;
    let kept = checkpoint(&[&a], |x| Tensor::apply(Mistaken, &[&x[0]]))?;
    for y in [plain, kept] {
        let message = y.sum_all()?.backward().unwrap_err().to_string();
        assert!(message.starts_with("backward of `mistaken`: add: "), "{message}");
        assert!(message.contains("[3]") && message.contains("[2]"), "{message}");
    }
    Ok(())
}

/// 3·x, whose rule adds to the gradients that `x` has so far, if there are at most two.
#[derive(serde::Serialize, serde::Deserialize)]
struct Thrice {
    #[serde(skip)]
    taken: Arc<Mutex<Vec<usize>>>,
}

impl Operation for Thrice {
    const NAME: &'static str = "thrice";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::mul_scalar(&inputs[0], 3.0)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let earlier = context.take_earlier(0, 2);
        self.taken.lock().unwrap().push(earlier.len());
        assert!(context.take_earlier(0, 2).is_empty() && context.take_earlier(1, 2).is_empty());
        let own = grad.mul_scalar(3.0)?;
        Ok(vec![Some(earlier.into_iter().try_fold(own, |sum, gradient| sum.add(&gradient))?)])
    }
}

#[test]
fn a_rule_may_add_to_the_gradients_that_came_before() -> Result<()> {
    for later in 0..5 {
        let (x, taken) = (leaf(&[1.0, -2.0]), Arc::default());
        // The use before it in the forward pass comes after it in the backward pass, and is added to what it returns.
        let first = x.mul_scalar(100.0)?;
        let thrice = Tensor::apply(Thrice { taken: Arc::clone(&taken) }, &[&x])?;
        let after: Vec<Tensor> = (0..later).map(|_| x.mul_scalar(10.0)).collect::<Result<_>>()?;
        let all: Vec<&Tensor> = [&first, &thrice].into_iter().chain(&after).collect();
        let y = concat(&all, 0)?.sum_all()?;
        let expected = vec![103.0 + 10.0 * f64::from(later); 2];
        assert_eq!(values(y.backward()?.get(&x)?), expected);
        // Not where the sum would be recorded, nor where rules are watched.
        let recorded = y.backward_with(&BackwardOptions::create_graph())?;
        assert_eq!(values(recorded.get(&x)?), expected);
        assert_eq!(values(observe(Sums::default(), || y.backward()).0?.get(&x)?), expected);
        let few = if later <= 2 { later as usize } else { 0 };
        assert_eq!(*taken.lock().unwrap(), [few, 0, 0], "{later} uses after it");
    }
    Ok(())
}

/// What docs/numerics.md says about derivatives at 0.
#[test]
fn derivatives_at_zero_are_those_of_the_docs() -> Result<()> {
    let slope = |function: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<f64> {
        let x = leaf(&[0.0]);
        Ok(values(function(&x)?.sum_all()?.backward()?.get(&x)?)[0])
    };
    let cases: [(f64, f64); 7] = [
        (0.0, 0.0),
        (1.0, 1.0),
        (2.0, 0.0),
        (1.5, 0.0),
        (3.0, 0.0),
        (0.5, f64::INFINITY),
        (-2.0, f64::NEG_INFINITY),
    ];
    for (exponent, expected) in cases {
        assert_eq!(slope(&|x| x.pow(exponent))?, expected, "x^{exponent}");
    }
    assert_eq!(slope(&Tensor::sqrt)?, f64::INFINITY);
    assert_eq!(slope(&Tensor::log)?, f64::INFINITY);
    assert_eq!(slope(&Tensor::rsqrt)?, f64::NEG_INFINITY);
    assert_eq!(slope(&Tensor::recip)?, f64::NEG_INFINITY);
    assert_eq!(slope(&Tensor::abs)?, 0.0);
    assert_eq!(slope(&Tensor::relu)?, 0.0);
    assert_eq!(slope(&|x| x.clamp(0.0, 1.0))?, 1.0);
    assert!(slope(&|x| x.layer_norm(None, None, 1e-5))?.is_finite());
    assert!(slope(&|x| x.rms_norm(None, 1e-5))?.is_finite());
    // The derivative of x is x⁰, and the one after that 0, at 0 too.
    for exponent in [0.0, 1.0] {
        let x = leaf(&[0.0, 2.0]);
        let first =
            grad(&x.pow(exponent)?.sum_all()?, &[&x], &BackwardOptions::create_graph())?[0].clone().unwrap();
        let both = first.mul(&x)?.sum_all()?.backward()?;
        assert_eq!(values(both.get(&x)?), [exponent; 2], "x^{exponent}");
    }
    Ok(())
}

#[test]
fn a_function_learns_which_gradients_are_needed() -> Result<()> {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Product {
        #[serde(skip)]
        seen: Arc<Mutex<Vec<[bool; 3]>>>,
    }
    impl Operation for Product {
        const NAME: &'static str = "product";
        const RULE: Rule = Rule::Full;
        const DERIVATIVE: Derivative = Derivative::Reexpressed;
        const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];

        fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
            Ok(Vec::new())
        }
        fn forward(&self, inputs: &[Array]) -> Result<Forward> {
            let output = ops::mul(&inputs[0], &inputs[1])?;
            Ok(Forward { output: output.clone(), saved: vec![ops::neg(&output)?] })
        }
        fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
            self.seen.lock().unwrap().push([context.needs(0), context.needs(1), context.needs(2)]);
            let [saved] = context.saved(Self::NAME)?;
            assert_eq!(saved.to_f64_vec()?, ops::neg(context.output.array())?.to_f64_vec()?);
            let [a, b] = context.inputs else { unreachable!("two inputs") };
            Ok(vec![Some(grad.mul(b)?), Some(grad.mul(a)?)])
        }
    }
    let (a, b, seen) = (leaf(&[2.0]), leaf(&[3.0]), Arc::default());
    let product = |a: &Tensor, b: &Tensor| Tensor::apply(Product { seen: Arc::clone(&seen) }, &[a, b]);
    let grads = product(&a, &b.detach())?.backward()?;
    assert_eq!((values(grads.get(&a)?), grads.contains(&b)), (vec![3.0], false));
    assert_eq!(values(product(&a, &a)?.backward()?.get(&a)?), [4.0], "one tensor as both inputs");
    assert_eq!(*seen.lock().unwrap(), [[true, false, false], [true, true, false]]);
    let message = Tensor::apply(Product { seen: Arc::clone(&seen) }, &[&a]).unwrap_err().to_string();
    assert!(message.contains("1 inputs were given, expected 2"), "{message}");
    Ok(())
}
