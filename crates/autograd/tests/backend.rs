//! Choosing implementations at run time, and running operations again from what was recorded of them.

use gradewise_autograd::{
    Attributes, Error, Result, Tensor, autocast,
    backend::{Backend, Backends, replace, with_backends},
    clifford,
    observe::{Event, Observer, Pass, observe},
    registry::{self, rerun},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::collections::BTreeMap;

/// Draws tensors, all of which require gradients.
struct Draw(ChaCha8Rng, DType);

impl Draw {
    fn normal(&mut self, shape: &[usize]) -> Tensor {
        let values = Array::randn(shape, DType::F64, &Device::Cpu, &mut self.0).unwrap();
        Tensor::new(values.cast(self.1).unwrap()).requires_grad()
    }
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

#[test]
fn products_in_16_bits_on_the_cpu_are_computed_wide_and_rounded() {
    for dtype in [DType::BF16, DType::F16] {
        let tolerance = if dtype == DType::BF16 { 1e-2 } else { 2e-3 };
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
    let message = |name, attributes: &str| {
        rerun(name, &attributes.parse().unwrap(), std::slice::from_ref(&x)).unwrap_err().to_string()
    };
    assert!(message("glue", "null").contains("gelu"));
    assert!(message("softmax", "{}").contains("missing field `axis`"));
    assert!(message("softmax", r#"{"axis":"x"}"#).contains("\"x\""));
    assert!(message("add", "null").contains("1 inputs were given, expected 2"));
    assert!(message("table_product", r#"{"sizes":[1,1,1],"terms":[[0,1,0,1]]}"#).contains("outside"));
    assert!("{".parse::<Attributes>().is_err());
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
    assert!(registry::names().contains(&"matmul"));
}
