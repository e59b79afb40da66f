//! The operators and layers as workloads.

use super::workload::{Prepared, Workload};
use crate::{Case, Error, Op, Pass, Result};
use gradewise_autograd::{BackwardOptions, Tensor, clifford, no_grad};
use gradewise_core::{Algebra, DType};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Placement,
    layers::{CliffordLayer, Layer, MvLayerNorm, MvLinear, MvNormalization, MvSilu, SteerableProduct},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The period of the random numbers. A prime, so that rows of a tensor do not repeat at a small distance.
const STRETCH: usize = 1_048_573;

/// A tensor of standard normal samples times `scale`: one period is drawn on the host and repeated on the device, because drawing a hundred
/// million numbers takes longer than the measurement.
pub(super) fn random(
    shape: &[usize],
    scale: f64,
    (dtype, device): (DType, &Device),
    rng: &mut ChaCha8Rng,
) -> Result<Array> {
    let elements: usize = shape.iter().product();
    let drawn = elements.min(STRETCH);
    let host = Array::randn([drawn], DType::F64, &Device::Cpu, rng)?.to_f64_vec()?;
    let scaled: Vec<f64> = host.into_iter().map(|value| value * scale).collect();
    let stretch = Array::from_f64(&scaled, [1, drawn], dtype, device)?;
    let repeats = elements.div_ceil(drawn.max(1));
    let repeated = stretch.broadcast_to([repeats, drawn])?.contiguous()?.reshape([repeats * drawn])?;
    Ok(repeated.slice(0, 0..elements)?.contiguous()?.reshape(shape)?)
}

/// An operator or layer: inputs and parameters by name, and a seed for the backward pass.
pub(super) struct Operator {
    pub inputs: Vec<(String, Tensor)>,
    pub seed: Tensor,
    pub apply: Box<dyn Fn() -> Result<Tensor>>,
}

impl Operator {
    pub fn forward(&self) -> Result<Tensor> {
        no_grad(|| (self.apply)())
    }

    /// The output, and the gradients in the order of the inputs.
    pub fn both(&self) -> Result<(Tensor, Vec<Tensor>)> {
        let output = (self.apply)()?;
        let gradients = output.backward_with(&BackwardOptions::seed(self.seed.clone()))?;
        let found = self.inputs.iter().map(|(_, input)| Ok(gradients.get(input)?.clone()));
        Ok((output, found.collect::<Result<_>>()?))
    }
}

impl Workload for Operator {
    fn prepare(&self, pass: Pass) -> Result<Prepared<'_>> {
        let both = || self.both().map(drop);
        match pass {
            Pass::Forward => {
                Ok(Prepared { run: Box::new(|| self.forward().map(drop)), graph_bytes: Some(0) })
            }
            Pass::Both => Ok(Prepared { run: Box::new(both), graph_bytes: Some(0) }),
            Pass::Graph => {
                let Device::Cuda(device) = self.seed.device() else {
                    return Err(Error::Request("only work on a CUDA device can be captured".to_owned()));
                };
                // Loads constants and kernels onto the device before the capture.
                both()?;
                let mut failure = None;
                let captured = device.capture(|| {
                    failure = both().err();
                    Ok(())
                });
                // Returns the error from inside the capture, which is the root cause of the failed capture.
                if let Some(failure) = failure {
                    return Err(failure);
                }
                let ((), graph) = captured?;
                let graph_bytes = Some(graph.bytes());
                Ok(Prepared { run: Box::new(move || Ok(graph.replay()?)), graph_bytes })
            }
        }
    }
}

pub(super) fn build(case: &Case, device: &Device) -> Result<Operator> {
    let &Case { op, signature, batch, features: n, dtype, .. } = case;
    let algebra = Algebra::new(signature)?;
    let (paths, grades) = (algebra.paths().len(), algebra.grade_count() as f64);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let place = Placement::new(device, dtype);
    let mut draw = |shape: &[usize], variance: f64| -> Result<Tensor> {
        Ok(Tensor::new(random(shape, variance.sqrt(), (dtype, device), &mut rng)?).requires_grad())
    };
    let shape = if op == Op::Matmul { vec![batch, n] } else { vec![algebra.blade_count(), batch, n] };
    let (x, seed) = (draw(&shape, 1.0)?, draw(&shape, 1.0)?.detach());
    let mut weights = ChaCha8Rng::seed_from_u64(2);
    match op {
        Op::Product | Op::FcProduct => {
            let y = draw(&shape, 1.0)?;
            let (full, sizes, variance) = match op {
                Op::Product => (false, vec![n, paths], 1.0 / grades),
                _ => (true, vec![paths, n, n], 1.0 / (grades * n as f64)),
            };
            let w = draw(&sizes, variance)?;
            let apply = if full { clifford::gelu_fcgp_norm } else { clifford::gelu_sgp_norm };
            Ok(function([("x", x), ("y", y), ("w", w)], seed, move |[x, y, w]| {
                Ok(apply(&algebra, x, y, w, true)?)
            }))
        }
        Op::Matmul => {
            let w = draw(&[n, n], 1.0 / n as f64)?;
            Ok(function([("x", x), ("w", w)], seed, |[x, w]| Ok(x.matmul(w)?)))
        }
        Op::Layer | Op::FcLayer => {
            let layer = CliffordLayer::new(n, signature).fully_connected(op == Op::FcLayer);
            Ok(module(layer.init(place, &mut weights)?, x, seed))
        }
        Op::Linear => Ok(module(MvLinear::new(n, n, signature).init(place, &mut weights)?, x, seed)),
        Op::MvSilu => Ok(module(MvSilu::new(n, signature).init(place)?, x, seed)),
        Op::MvNormalization => Ok(module(MvNormalization::new(n, signature).init(place)?, x, seed)),
        Op::MvLayerNorm => Ok(module(MvLayerNorm::new(n, signature).init(place)?, x, seed)),
        Op::SteerableLayer => {
            Ok(module(SteerableProduct::new(n, signature).init(place, &mut weights)?, x, seed))
        }
        Op::NBody => unreachable!("a model, not an operator"),
    }
}

fn function<const INPUTS: usize>(
    inputs: [(&str, Tensor); INPUTS],
    seed: Tensor,
    apply: impl Fn([&Tensor; INPUTS]) -> Result<Tensor> + 'static,
) -> Operator {
    let named = inputs.iter().map(|(name, input)| ((*name).to_owned(), input.clone())).collect();
    let arguments = inputs.map(|(_, input)| input);
    Operator { inputs: named, seed, apply: Box::new(move || apply(arguments.each_ref())) }
}

fn module(layer: impl Layer + 'static, x: Tensor, seed: Tensor) -> Operator {
    let parameters = layer.named_parameters();
    let mut inputs = vec![("x".to_owned(), x.clone())];
    inputs.extend(parameters.into_iter().map(|(name, parameter)| (name, parameter.tensor())));
    Operator { inputs, seed, apply: Box::new(move || Ok(layer.forward(&x)?)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pass, gpu::workload};
    use gradewise_core::Signature;
    use gradewise_kernels::Compute;

    fn case(op: Op, signature: Signature) -> Case {
        Case::new(op, signature, (6, 5), DType::F32, Compute::Exact)
    }

    #[test]
    fn every_operator_runs_and_differentiates_all_its_inputs() {
        for op in Op::ALL.into_iter().filter(|op| *op != Op::NBody) {
            for signature in [Signature::CL2, Signature::STA] {
                let operator = build(&case(op, signature), &Device::Cpu).unwrap();
                let output = operator.forward().unwrap();
                assert!(!output.is_grad_required(), "{op}");
                let (again, gradients) = operator.both().unwrap();
                assert_eq!(again.to_vec::<f32>().unwrap(), output.to_vec::<f32>().unwrap(), "{op}");
                assert_eq!(gradients.len(), operator.inputs.len());
                for ((name, input), gradient) in operator.inputs.iter().zip(&gradients) {
                    assert_eq!(input.shape(), gradient.shape(), "{op} {name}");
                    let values = gradient.to_vec::<f32>().unwrap();
                    assert!(values.iter().all(|value| value.is_finite()), "{op} {name}");
                    assert!(values.iter().any(|value| *value != 0.0), "{op} {name} has no influence");
                }
            }
        }
    }

    #[test]
    fn graphs_need_a_cuda_device() {
        let workload = workload(&case(Op::Product, Signature::CL3), &Device::Cpu).unwrap();
        assert!(workload.prepare(Pass::Graph).err().unwrap().to_string().contains("CUDA device"));
        for pass in [Pass::Forward, Pass::Both] {
            (workload.prepare(pass).unwrap().run)().unwrap();
        }
    }

    #[test]
    fn long_tensors_repeat_a_stretch_and_short_ones_do_not() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let long = random(&[3, STRETCH / 2], 1.0, (DType::F32, &Device::Cpu), &mut rng).unwrap();
        let values = long.to_vec::<f32>().unwrap();
        assert_eq!(values.len(), 3 * (STRETCH / 2));
        assert_eq!(values[0], values[STRETCH]);
        assert_ne!(values[0], values[STRETCH / 2], "rows differ");
        let short =
            random(&[4, 1000], 2.0, (DType::F64, &Device::Cpu), &mut rng).unwrap().to_f64_vec().unwrap();
        let variance = short.iter().map(|value| value * value).sum::<f64>() / 4000.0;
        assert!((variance / 4.0 - 1.0).abs() < 0.15, "{variance}");
        assert_eq!(random(&[0, 4], 1.0, (DType::F32, &Device::Cpu), &mut rng).unwrap().elements(), 0);
    }
}
