//! Choosing implementations at run time, and running operations again from what was recorded of them.

use gradewise_autograd::{
    Attributes, BackwardOptions, Error, Result, Tensor, add_n, autocast,
    backend::{self, Backend, Backends, replace, with_backends},
    clifford::{self, Bias, CliffordLayer, LayerOptions, ProductOptions, Steerable, SteerableLayer},
    concat,
    observe::{Event, Observer, Pass, observe},
    recipe::{OPERATIONS, rerun},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, Index, Positions,
    ops::{self, AttentionOptions, CrossEntropyOptions, Order, RotaryTable},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// Draws tensors, all of which require gradients.
struct Draw(ChaCha8Rng, DType);

impl Draw {
    fn normal(&mut self, shape: &[usize]) -> Tensor {
        let values = Array::randn(shape, DType::F64, &Device::Cpu, &mut self.0).unwrap();
        Tensor::new(values.cast(self.1).unwrap()).requires_grad()
    }

    fn positive(&mut self, shape: &[usize]) -> Tensor {
        let values = self.normal(shape).array().cast(DType::F64).unwrap();
        let values = ops::add_scalar(&ops::abs(&values).unwrap(), 0.5).unwrap();
        Tensor::new(values.cast(self.1).unwrap()).requires_grad()
    }
}

/// Calls every operation once; `seen` gets each result.
fn every_operation(dtype: DType, mut seen: impl FnMut(Tensor)) -> Result<()> {
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(7), dtype);
    let cpu = &Device::Cpu;
    let (x, y, p) = (draw.normal(&[3, 4, 6]), draw.normal(&[3, 4, 6]), draw.positive(&[3, 4, 6]));
    for f in [
        Tensor::abs,
        Tensor::exp,
        Tensor::sin,
        Tensor::cos,
        Tensor::tanh,
        Tensor::sigmoid,
        Tensor::silu,
        Tensor::gelu,
        Tensor::relu,
        Tensor::erf,
        Tensor::square,
    ] {
        seen(f(&x)?);
    }
    for f in [Tensor::log, Tensor::sqrt, Tensor::rsqrt, Tensor::recip] {
        seen(f(&p)?);
    }
    seen(p.pow(1.7)?);
    for f in [Tensor::add, Tensor::sub, Tensor::mul, Tensor::maximum] {
        seen(f(&x, &y)?);
    }
    seen(add_n(&[&x, &y, &p, &x])?);
    seen(x.div(&p)?);
    seen(x.mean_squared_error(&y)?);
    seen(x.add_scalar(0.3)?);
    seen(x.mul_scalar(-1.7)?);
    seen(x.clamp(-0.5, 0.7)?);
    seen(x.cast(if dtype == DType::F64 { DType::F32 } else { DType::F64 })?);
    seen(x.matmul_transposed(&y, false, true)?);
    seen(x.sum(&[0, 2], true)?);
    seen(x.max(&[1], false)?);
    seen(x.cumsum(1, true)?);
    seen(x.sum_to(&[4, 1].into())?);
    seen(x.softmax(2)?);
    seen(x.log_softmax(1)?);
    let (gain, shift) = (draw.normal(&[6]), draw.normal(&[6]));
    seen(x.layer_norm(Some(&gain), Some(&shift), 1e-5)?);
    seen(x.rms_norm(Some(&gain), 1e-6)?);
    let mask = Array::from_f64(&[1.0, 0.0, 1.0, 1.0, 0.0, 0.0], [6], dtype, cpu)?;
    seen(x.select(&mask, &y)?);
    seen(concat(&[&x, &y, &x], 1)?);
    seen(x.reshape([12, 6])?);
    seen(x.permute(&[2, 0, 1])?);
    seen(x.transpose(0, 2)?.contiguous()?);
    // Its backward pass embeds.
    seen(x.slice(1, 1..3)?);
    seen(gain.broadcast_to(&[2, 6].into())?);
    let index = Index::new(&[2, 0, 2, 3], 4, cpu)?;
    seen(x.index_select(1, &index)?);
    seen(x.segment_sum(1, &index)?);
    // Their backward passes are `net_inflow` and `segment_spread`.
    let senders = Index::new(&[1, 0, 0, 3], 4, cpu)?;
    seen(x.edge_difference(Some(&y), &index, &senders)?);
    seen(x.net_inflow(&index, &senders)?);
    seen(x.concat_segment_mean(&y, &index)?);
    seen(x.segment_spread(&index)?);
    let order = draw.normal(&[2, 5]);
    if dtype == DType::F64 || dtype == DType::F32 {
        seen(order.sort(1, Order::Descending)?.0);
        seen(order.top_k(1, 2, Order::Ascending)?.0);
    }
    let positions = Positions::new(&[1, 1, 4, 0], [2, 2], 5, cpu)?;
    seen(order.gather(1, &positions)?);
    seen(draw.normal(&[2, 2]).scatter_add(1, &positions, 5)?);
    seen(x.rotary(&RotaryTable::new(4, 6, 100.0, dtype, cpu)?)?);
    let options = AttentionOptions {
        causal: true,
        scale: Some(0.4),
        lengths: Some(Index::new(&[5, 3], 6, cpu)?),
        mask: Some(Array::from_f64(&[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0], [2, 5], dtype, cpu)?),
    };
    let (q, k) = (draw.normal(&[2, 2, 3, 4]), draw.normal(&[2, 1, 5, 4]));
    seen(q.attention(&k, &k.mul_scalar(0.5)?, &options)?);
    seen(draw.normal(&[2, 3, 24]).self_attention(2, &AttentionOptions::default())?);
    let targets = Index::new(&[0, 2, 1, 3], 4, cpu)?;
    let options = CrossEntropyOptions { ignore: Some(3), label_smoothing: 0.1 };
    seen(draw.normal(&[4, 4]).cross_entropy(&targets, &options)?);

    let algebra = &Algebra::new(Signature::new(2, 0, 0))?;
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let (x, y) = (draw.normal(&[blades, 3, 5]), draw.normal(&[blades, 3, 5]));
    seen(clifford::geometric_product(algebra, &x, &y)?);
    let w = draw.normal(&[5, paths]);
    seen(clifford::sgp(algebra, &x, &y, &w, ProductOptions { gate: false, normalize: true })?);
    seen(clifford::gelu_sgp_norm(algebra, &x, &y, &w, true)?);
    let full = draw.normal(&[paths, 5, 2]);
    seen(clifford::fcgp(algebra, &x, &y, &full, ProductOptions::default())?);
    seen(clifford::gelu_fcgp_norm(algebra, &x, &y, &full, false)?);
    let (linear, bias) = (draw.normal(&[grades, 5, 5]), draw.normal(&[5]));
    seen(clifford::mv_linear(algebra, &x, &linear, Some((&bias, Bias::AllBlades)))?);
    let (a, b) = (draw.normal(&[5, grades]), draw.normal(&[5, grades]));
    seen(clifford::mv_silu(algebra, &x, &a, &b)?);
    seen(clifford::mv_normalization(algebra, &x, &a)?);
    seen(clifford::mv_layer_norm(algebra, &x, &bias)?);
    let bias = Some((&bias, Bias::Scalar));
    for (fully_connected, w) in [(false, &w), (true, &full)] {
        let options = LayerOptions {
            fully_connected,
            product: ProductOptions { gate: true, normalize: true },
            recompute: true,
        };
        seen(clifford::clifford_layer(algebra, &CliffordLayer { x: &x, linear: &linear, bias, w }, options)?);
    }
    seen(clifford::steerable_product(
        algebra,
        &Steerable { x: &x, right: &y, a: &a, w: &w, left: Some(&y) },
    )?);
    let layer =
        SteerableLayer { x: &x, right: &linear, a: &a, w: &w, left: bias.map(|(bias, _)| (&linear, bias)) };
    seen(clifford::steerable_layer(algebra, &layer)?);
    Ok(())
}

fn values(array: &Array) -> Vec<f64> {
    array.to_f64_vec().unwrap()
}

fn error(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (values(a), values(b));
    let norm = |values: Vec<f64>| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(a.iter().zip(&b).map(|(a, b)| a - b).collect());
    let scale = norm(b);
    if scale == 0.0 { difference } else { difference / scale }
}

/// Runs what it sees again, from its record and by the reference.
#[derive(Default)]
struct Again {
    seen: BTreeSet<&'static str>,
    backward: BTreeSet<&'static str>,
}

impl Observer for Again {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        let reference = event.reference(DType::F64)?.expect("these are single operations");
        assert_eq!(reference.len(), event.outputs.len());
        for (output, reference) in event.outputs.iter().zip(&reference) {
            let error = error(output, reference);
            assert!(error < 2e-6, "{} {}: {error:e}", event.operation, event.pass);
        }
        match event.pass {
            Pass::Forward => {
                // As a file keeps it.
                let attributes: Attributes = event
                    .attributes()
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect();
                let inputs: Vec<Tensor> = event.inputs.iter().map(|input| input.detach()).collect();
                let output = rerun(event.operation, &attributes, &inputs)?;
                assert_eq!(values(output.array()), values(event.outputs[0]), "{}", event.operation);
                self.seen.insert(event.operation);
            }
            Pass::Backward => {
                self.backward.insert(event.operation);
            }
        }
        Ok(())
    }
}

#[test]
fn every_operation_can_be_run_again_and_compared_with_the_reference() {
    let (result, again) = observe(Again::default(), || {
        let mut outputs = Vec::new();
        every_operation(DType::F32, |output| outputs.push(output))?;
        outputs.iter().try_for_each(|output| {
            let seed = Draw(ChaCha8Rng::seed_from_u64(9), output.dtype()).normal(output.shape()).detach();
            output.backward_with(&BackwardOptions::seed(seed)).map(|_| ())
        })
    });
    result.unwrap();
    let left: Vec<_> = OPERATIONS.iter().filter(|name| !again.seen.contains(*name)).collect();
    // The one operation that the CPU has no kernel for.
    assert_eq!(left, [&"mv_block"], "operations that no case calls");
    let strangers: Vec<_> = again.seen.iter().filter(|name| !OPERATIONS.contains(name)).collect();
    assert!(strangers.is_empty(), "operations missing in OPERATIONS: {strangers:?}");
    assert!(again.backward.len() > 50, "{:?}", again.backward);
}

#[test]
fn sixteen_bit_numbers_on_the_cpu_are_computed_wide_and_rounded() {
    for dtype in [DType::BF16, DType::F16] {
        let tolerance = if dtype == DType::BF16 { 1e-2 } else { 2e-3 };
        every_operation(dtype, |output| {
            // The same from the rounded inputs, in double precision, is what the observer compares with; here dtypes and gradients.
            let expected = if output.operation() == Some("cross_entropy") { DType::F32 } else { dtype };
            assert!(output.dtype() == expected || output.operation() == Some("cast"), "{output:?}");
            let seed = Tensor::ones(output.shape(), output.dtype(), &Device::Cpu).unwrap();
            output.backward_with(&BackwardOptions::seed(seed)).unwrap();
        })
        .unwrap();
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(1), dtype);
        let (a, b) = (draw.normal(&[7, 9]), draw.normal(&[9, 5]));
        let wide = |t: &Tensor| Tensor::new(t.array().cast(DType::F64).unwrap()).requires_grad();
        let (wa, wb) = (wide(&a), wide(&b));
        let run = |a: &Tensor, b: &Tensor| {
            let y = a.matmul(b).unwrap();
            let grads = y.sum_all().unwrap().backward().unwrap();
            (y.array().clone(), grads.get(a).unwrap().array().clone())
        };
        let ((y, gradient), (expected, slope)) = (run(&a, &b), run(&wa, &wb));
        assert_eq!(gradient.dtype(), dtype);
        assert!(error(&y, &expected) < tolerance && error(&gradient, &slope) < tolerance);
    }
}

#[test]
fn choices_are_read_written_and_refused_by_name() {
    let chosen: Backends = "gelu=reference, softmax.backward=cuda".parse().unwrap();
    assert_eq!(chosen.to_string(), "gelu=reference,softmax.backward=cuda");
    assert_eq!(chosen.to_string().parse::<Backends>().unwrap(), chosen);
    for (text, parts) in [
        ("glue=reference", ["`glue`", "gelu"]),
        ("gelu=cpu", ["`cpu`", "reference and cuda"]),
        ("gelu", ["`gelu` is no choice", "OPERATION=reference"]),
        ("gelu.sideways=cuda", ["`sideways`", ".backward"]),
    ] {
        let message = text.parse::<Backends>().unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert!(Backends::default().choose("all", None, Backend::Reference).is_ok());
}

#[test]
fn the_reference_gives_the_same_bits_on_the_cpu() {
    let run = |backends: &str| {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(3), DType::F32);
        let algebra = Algebra::new(Signature::new(3, 0, 0)).unwrap();
        let (x, w) = (draw.normal(&[8, 5, 4]), draw.normal(&[4, algebra.paths().len()]));
        with_backends(&backends.parse().unwrap(), || {
            let y = clifford::gelu_sgp_norm(&algebra, &x, &x.sin().unwrap(), &w, true).unwrap();
            let grads = y.square().unwrap().sum_all().unwrap().backward().unwrap();
            let mut all = y.to_vec::<f32>().unwrap();
            all.extend(grads.get(&x).unwrap().to_vec::<f32>().unwrap());
            all.extend(grads.get(&w).unwrap().to_vec::<f32>().unwrap());
            all
        })
    };
    let plain = run("");
    for backends in [
        "all=reference",
        "gelu_sgp_norm.backward=reference",
        "gelu_sgp_norm.forward=reference",
        "sin=reference",
    ] {
        assert_eq!(run(backends), plain, "{backends}");
    }
}

#[test]
fn replacements_serve_one_pass_of_one_operation_in_their_scope() {
    let x = Tensor::from_slice(&[1.0, 2.0], [2], &Device::Cpu).unwrap().requires_grad();
    let run = || {
        let y = x.exp()?.sum_all()?;
        Ok::<_, Error>((y.item()?, y.backward()?.get(&x)?.to_vec::<f64>()?))
    };
    let plain = run().unwrap();
    let doubled = replace(
        "exp",
        Pass::Forward,
        |call| {
            let output = call.original()?.remove(0).unwrap();
            Ok(vec![Some(ops::mul_scalar(&output, 2.0)?)])
        },
        run,
    )
    .unwrap();
    assert_eq!(doubled.0, 2.0 * plain.0);
    let flipped = replace(
        "exp",
        Pass::Backward,
        |call| {
            assert_eq!((call.inputs.len(), call.needs), (1, &[true][..]));
            let gradient = call.original()?.remove(0).unwrap();
            Ok(vec![Some(ops::neg(&gradient)?)])
        },
        run,
    )
    .unwrap();
    assert_eq!(flipped.0, plain.0);
    assert_eq!(flipped.1, plain.1.iter().map(|g| -g).collect::<Vec<_>>());
    assert_eq!(run().unwrap(), plain);
    // What was replaced forward and saved nothing is computed again for the backward pass.
    let algebra = Algebra::new(Signature::new(2, 0, 0)).unwrap();
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(4), DType::F64);
    let (x, w) = (draw.normal(&[4, 3, 2]), draw.normal(&[2, algebra.paths().len()]));
    let slope = || {
        let y = clifford::gelu_sgp_norm(&algebra, &x, &x, &w, true).unwrap();
        y.sum_all().unwrap().backward().unwrap().get(&w).unwrap().to_vec::<f64>().unwrap()
    };
    let expected = slope();
    assert_eq!(replace("gelu_sgp_norm", Pass::Forward, |call| call.original(), slope), expected);
    let message = replace("exp", Pass::Forward, |_| Ok(vec![]), || x.exp()).unwrap_err().to_string();
    assert!(message.contains("exp") && message.contains("no output"), "{message}");
}

#[test]
fn rerunning_refuses_what_it_cannot() {
    let x = Tensor::from_slice(&[1.0, 2.0], [2], &Device::Cpu).unwrap();
    let message =
        |name, attributes| rerun(name, &attributes, std::slice::from_ref(&x)).unwrap_err().to_string();
    assert!(message("glue", Attributes::new()).contains("gelu"));
    assert!(message("softmax", Attributes::new()).contains("`axis` is missing"));
    assert!(message("softmax", Attributes::new().with("axis", "x")).contains("`x`"));
    assert!(message("add", Attributes::new()).contains("input 1"));
}

#[derive(Default)]
struct DTypes(BTreeMap<&'static str, DType>);

impl Observer for DTypes {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        if event.pass == Pass::Forward && event.within.is_none() {
            self.0.insert(event.operation, event.outputs[0].dtype());
        }
        Ok(())
    }
}

#[test]
fn operations_run_in_the_dtypes_of_the_policy() {
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(5), DType::F32);
    let (x, w) = (draw.normal(&[5, 6]), draw.normal(&[6, 6]));
    let run = || -> Result<Tensor> {
        let h = x.matmul(&w)?.gelu()?;
        let h = h.add(&x)?.layer_norm(None, None, 1e-5)?;
        h.matmul(&w)?.softmax(1)?.square()?.mean_all()
    };
    let (loss, DTypes(seen)) = observe(DTypes::default(), || autocast(DType::BF16, run).unwrap());
    for (operation, dtype) in [
        ("matmul", DType::BF16),
        ("gelu", DType::BF16),
        // The residual stream is f32, and what differs is widened.
        ("add", DType::F32),
        ("layer_norm", DType::F32),
        ("softmax", DType::F32),
        ("sum", DType::F32),
    ] {
        assert_eq!(seen[operation], dtype, "{operation}");
    }
    let gradient = loss.backward().unwrap();
    let gradient = gradient.get(&w).unwrap();
    assert_eq!(gradient.dtype(), DType::F32, "master weights get gradients of their own dtype");
    let exact = run().unwrap().backward().unwrap();
    let off = error(gradient.array(), exact.get(&w).unwrap().array());
    assert!(off > 1e-5 && off < 3e-2, "rounded, but right: {off:e}");
    // Overrides, and what cannot be overridden.
    let policy = gradewise_autograd::Policy::new(DType::F16).unwrap().with_all("matmul=f32").unwrap();
    let wide = gradewise_autograd::autocast_with(&policy, || x.matmul(&w).unwrap());
    assert_eq!(wide.dtype(), DType::F32);
    let none = autocast(DType::BF16, || gradewise_autograd::without_autocast(|| x.matmul(&w).unwrap()));
    assert_eq!(none.dtype(), DType::F32);
    assert!(policy.clone().with_all("matmull=f32").unwrap_err().to_string().contains("matmul"));
    assert!(policy.with_all("matmul=f8").unwrap_err().to_string().contains("16-bit"));
    assert!(gradewise_autograd::Policy::new(DType::F32).is_err());
    assert!(backend::operations().contains(&"matmul"));
}
