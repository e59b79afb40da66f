//! What holds for every operation, over the registry: an operation that is in it is checked here.

use gradewise_autograd::{
    AnySample, Attributes, Axis, BackwardOptions, Derivative, GradcheckOptions, Kept, Prepared, Presence,
    Result, Role, Sizes, Tensor, grad, jvp,
    observe::{Event, Observer, Pass, observe},
    registry::{self, Order, entries, names, rerun},
};
use gradewise_core::{Shape, Signature};
use gradewise_kernels::{Array, DType, Device};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::collections::BTreeSet;

const CPU: Device = Device::Cpu;

/// Definite, indefinite and degenerate.
const SIGNATURES: [(u8, u8, u8); 6] = [(1, 0, 0), (2, 0, 0), (3, 0, 0), (1, 1, 0), (1, 3, 0), (3, 0, 1)];
/// Rows and features: single ones, odd ones, and no rows.
const SIZES: [(usize, usize); 3] = [(1, 1), (3, 5), (0, 2)];

fn sizes((p, q, r): (u8, u8, u8), (batch, features): (usize, usize)) -> Sizes {
    Sizes::new(Signature::new(p, q, r), batch, features).unwrap()
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(11)
}

/// Calls `check` with every sample of every operation.
fn every_sample(signature: (u8, u8, u8), size: (usize, usize), mut check: impl FnMut(&AnySample)) {
    for entry in entries() {
        let samples = entry.samples(&sizes(signature, size)).unwrap();
        assert!(!samples.is_empty(), "`{}` has no samples", entry.name());
        samples.iter().for_each(&mut check);
    }
}

/// The output and the gradients of the inputs.
fn run(sample: &AnySample, inputs: &[Tensor]) -> Result<Vec<Array>> {
    let leaves: Vec<Tensor> = inputs.iter().map(Tensor::requires_grad).collect();
    let output = sample.run(&leaves)?;
    // The same direction in every dtype.
    let direction = Array::randn(output.shape(), DType::F64, &CPU, &mut ChaCha8Rng::seed_from_u64(3))?;
    let direction =
        Tensor::new(direction.cast(DType::BF16)?.cast(output.dtype())?.to_device(&output.device())?);
    let gradients = grad(&output, &leaves.iter().collect::<Vec<_>>(), &BackwardOptions::seed(direction))?;
    Ok(std::iter::once(output.array().clone())
        .chain(gradients.into_iter().flatten().map(|g| g.array().clone()))
        .collect())
}

fn values(array: &Array) -> Vec<f64> {
    array.to_f64_vec().unwrap()
}

fn bits(arrays: &[Array]) -> Vec<Vec<u64>> {
    arrays.iter().map(|array| values(array).into_iter().map(f64::to_bits).collect()).collect()
}

fn check_derivatives(order: Order, derivative: Option<Derivative>) {
    // ‖x‖ bends sharply where the quadratic form is near 0: a smaller step, and its rounding error accepted.
    let options = GradcheckOptions { step: 3e-6, relative: 3e-6, absolute: 1e-7, samples: 12, seed: 7 };
    for signature in SIGNATURES {
        for size in SIZES {
            for entry in entries() {
                if derivative.is_none_or(|derivative| entry.derivative() == derivative) {
                    entry.check(&CPU, &sizes(signature, size), order, &options).unwrap_or_else(|error| {
                        panic!("{order:?} derivative in Cl{signature:?} at {size:?}: {error}")
                    });
                }
            }
        }
    }
}

#[test]
fn first_derivatives_are_those_of_central_differences() {
    check_derivatives(Order::First, None);
}

#[test]
fn second_derivatives_of_rules_in_operations_are_those_of_central_differences() {
    check_derivatives(Order::Second, Some(Derivative::Differentiable));
}

#[test]
fn second_derivatives_of_reexpressions_are_those_of_central_differences() {
    check_derivatives(Order::Second, Some(Derivative::Reexpressed));
}

/// J·v against central differences of the forward pass along v, and u·(J·v) = v·(Jᵀ·u) with the backward pass.
#[test]
fn derivatives_along_directions_are_those_of_both_passes() {
    let mut checked = BTreeSet::new();
    for signature in [(3, 0, 0), (1, 1, 0), (3, 0, 1)] {
        every_sample(signature, (3, 5), |sample| {
            let mut rng = rng();
            let inputs = sample.place(&sample.draw(DType::F64, &mut rng).unwrap(), DType::F64, &CPU).unwrap();
            let tangents: Vec<Tensor> = inputs
                .iter()
                .map(|x| Tensor::randn(x.shape(), DType::F64, &CPU, &mut rng).unwrap())
                .collect();
            let (references, along) =
                (inputs.iter().collect::<Vec<_>>(), tangents.iter().collect::<Vec<_>>());
            let (value, derivative) = jvp(&references, &along, |x| sample.run(x)).unwrap();
            assert_eq!((derivative.shape(), derivative.dtype()), (value.shape(), value.dtype()), "{sample}");
            // Central differences of a conversion to fewer digits measure its rounding, not its derivative.
            if value.dtype() != DType::F64 {
                return;
            }
            let moved = |step: f64| {
                let inputs: Vec<Tensor> = inputs
                    .iter()
                    .zip(&tangents)
                    .map(|(x, v)| x.add(&v.mul_scalar(step).unwrap()).unwrap())
                    .collect();
                values(sample.run(&inputs).unwrap().array())
            };
            let step = 1e-6;
            let (above, below) = (moved(step), moved(-step));
            let derivatives = values(derivative.array());
            let largest = derivatives.iter().fold(1f64, |largest, value| largest.max(value.abs()));
            for (analytic, (above, below)) in derivatives.iter().zip(above.iter().zip(&below)) {
                let numeric = (above - below) / (2.0 * step);
                assert!((analytic - numeric).abs() < 1e-5 * largest, "{sample}: {analytic} {numeric}");
            }
            let cotangent = Tensor::randn(value.shape(), DType::F64, &CPU, &mut rng).unwrap();
            let leaves: Vec<Tensor> = inputs.iter().map(Tensor::requires_grad).collect();
            let output = sample.run(&leaves).unwrap();
            let options = BackwardOptions::seed(cotangent.clone());
            let gradients = grad(&output, &leaves.iter().collect::<Vec<_>>(), &options).unwrap();
            let dot = |a: &Tensor, b: &Tensor| -> (f64, f64) {
                let products = || values(a.array()).into_iter().zip(values(b.array())).map(|(a, b)| a * b);
                (products().sum(), products().map(f64::abs).sum())
            };
            let forward = dot(&cotangent, &derivative);
            let pairs = gradients.iter().zip(&tangents).filter_map(|(g, v)| Some(dot(g.as_ref()?, v)));
            let backward = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
            let bound = 1e-11 * (forward.1 + backward.1);
            assert!((forward.0 - backward.0).abs() <= bound, "{sample}: {forward:?} {backward:?}");
            checked.insert(sample.operation());
        });
    }
    let all: BTreeSet<&str> = names().into_iter().collect();
    assert_eq!(checked, all);
}

#[test]
fn kernels_agree_with_reexpressions() {
    for signature in SIGNATURES {
        every_sample(signature, (3, 5), |sample| {
            if sample.is_reexpressed() {
                let inputs =
                    sample.place(&sample.draw(DType::F64, &mut rng()).unwrap(), DType::F64, &CPU).unwrap();
                let (fused, plain) = (sample.run(&inputs).unwrap(), sample.reexpress(&inputs).unwrap());
                let error = fused.array().relative_error(plain.array()).unwrap();
                assert!(error < 1e-12, "{sample} in Cl{signature:?}: {error:e}");
            }
        });
    }
}

/// Compares each pass with the reference on the host in double precision, and runs each operation again from its record.
#[derive(Default)]
struct Again {
    forward: BTreeSet<&'static str>,
    backward: BTreeSet<&'static str>,
}

impl Observer for Again {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        let (double, single) = (event.reference(DType::F64)?.unwrap(), event.reference(DType::F32)?.unwrap());
        assert_eq!(double.len(), event.outputs.len());
        for ((output, double), single) in event.outputs.iter().zip(&double).zip(&single) {
            // The reference in f32 tells how well conditioned the operation is at these inputs.
            let (error, own) = (output.relative_error(double)?, single.relative_error(double)?);
            assert!(
                error <= 2e-6 + 4.0 * own,
                "{} {}: {error:e}, f32 itself {own:e}",
                event.operation,
                event.pass
            );
        }
        if event.pass == Pass::Backward {
            self.backward.insert(event.operation);
            return Ok(());
        }
        // As a file keeps the attributes.
        let attributes: Attributes = event.attributes()?.to_json().parse()?;
        let inputs: Vec<Tensor> = event.inputs.iter().map(|input| input.detach()).collect();
        let output = rerun(event.operation, &attributes, &inputs)?;
        assert_eq!(bits(&[output.array().clone()]), bits(&[event.outputs[0].clone()]), "{}", event.operation);
        self.forward.insert(event.operation);
        Ok(())
    }
}

#[test]
fn every_operation_runs_again_from_its_record_and_agrees_with_the_reference() {
    let (_, again) = observe(Again::default(), || {
        every_sample((3, 0, 0), (3, 5), |sample| {
            let drawn = sample.draw(DType::F32, &mut rng()).unwrap();
            run(sample, &sample.place(&drawn, DType::F32, &CPU).unwrap()).unwrap();
        });
    });
    let all: BTreeSet<&str> = names().into_iter().collect();
    assert_eq!(again.forward, all);
    assert_eq!(again.backward, all);
}

#[test]
fn sixteen_bit_results_are_those_of_f32_rounded() {
    for dtype in [DType::BF16, DType::F16] {
        every_sample((3, 0, 0), (3, 5), |sample| {
            let drawn = sample.draw(dtype, &mut rng()).unwrap();
            let [short, wide] = [dtype, DType::F32].map(|dtype| {
                let inputs = sample.place(&drawn, dtype, &CPU).unwrap();
                (run(sample, &inputs).unwrap(), inputs)
            });
            let declared = sample.operation() == "cast" || sample.operation() == "cross_entropy";
            assert!(declared || short.0[0].dtype() == dtype, "{sample}: {}", short.0[0].dtype());
            // The output is that of f32, rounded once.
            let expected = wide.0[0].cast(short.0[0].dtype()).unwrap();
            assert_eq!(bits(&short.0[..1]), bits(&[expected]), "{sample} in {dtype}");
            for (gradient, input) in short.0[1..].iter().zip(&short.1) {
                assert_eq!((gradient.dtype(), gradient.shape()), (dtype, input.shape()), "{sample}");
            }
        });
    }
}

/// Views of the same elements: transposed in memory, and in the middle of a larger array.
fn as_view(tensor: &Tensor) -> Tensor {
    let array = tensor.array();
    let rank = array.shape().rank();
    if rank == 0 {
        return tensor.clone();
    }
    let order: Vec<usize> = (0..rank).rev().collect();
    let turned = array.permute(&order).unwrap().contiguous().unwrap().permute(&order).unwrap();
    let axis = rank - 1;
    let padding = Array::full(array.shape(), f64::NAN, array.dtype(), &array.device()).unwrap();
    let padded = gradewise_kernels::ops::concat(&[&padding, &turned, &padding], axis).unwrap();
    let size = array.dims()[axis];
    Tensor::new(padded.slice(axis, size..2 * size).unwrap())
}

#[test]
fn views_give_the_bits_of_copies() {
    for size in SIZES {
        every_sample((2, 0, 1), size, |sample| {
            let inputs =
                sample.place(&sample.draw(DType::F32, &mut rng()).unwrap(), DType::F32, &CPU).unwrap();
            let views: Vec<Tensor> = inputs.iter().map(as_view).collect();
            assert_eq!(bits(&run(sample, &views).unwrap()), bits(&run(sample, &inputs).unwrap()), "{sample}");
        });
    }
}

#[test]
fn results_have_the_same_bits_for_every_number_of_threads() {
    let results = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut all = Vec::new();
            every_sample((3, 0, 0), (67, 19), |sample| {
                let drawn = sample.draw(DType::F32, &mut rng()).unwrap();
                let inputs = sample.place(&drawn, DType::F32, &CPU).unwrap();
                all.push((sample.to_string(), bits(&run(sample, &inputs).unwrap())));
            });
            all
        })
    };
    let one = results(1);
    for (several, one) in results(3).iter().zip(&one) {
        assert!(several == one, "{}", one.0);
    }
}

/// Front ends take numbers of inputs, shapes of outputs and what is saved from these.
#[test]
fn operands_and_sizes_are_those_of_what_runs() {
    for (signature, size) in SIGNATURES.into_iter().flat_map(|s| SIZES.map(|size| (s, size))) {
        every_sample(signature, size, |sample| {
            let name = sample.operation();
            let entry = registry::find(name).unwrap();
            let prepared = Prepared::new(name, &sample.attributes().unwrap()).unwrap();
            let inputs = sample.draw(DType::F64, &mut rng()).unwrap();
            let Kept { output, saved } = prepared.forward(&inputs).unwrap();
            let shapes: Vec<&[usize]> = inputs.iter().map(Array::dims).collect();
            let sizes = |axes: &[Axis]| Axis::sizes(axes, &shapes).unwrap().dims().to_vec();
            let has_rows = entry.operands().iter().any(|operand| operand.role == Role::Rows);
            let axes = prepared.output_axes();
            assert!(axes.is_some() || !has_rows, "{name}: operands with rows, and no sizes of the output");
            if let Some(axes) = axes {
                assert_eq!(sizes(&axes), output.dims(), "{name}");
            }
            let saved_axes = prepared.saved_axes();
            assert_eq!(saved_axes.len(), entry.saved().len(), "{name}");
            let owned: Vec<Shape> = shapes.iter().map(|&shape| Shape::from(shape)).collect();
            if has_rows && prepared.serves(&owned, DType::F64, &CPU).unwrap() {
                let expected: Vec<Vec<usize>> = saved_axes.iter().flatten().map(|axes| sizes(axes)).collect();
                let saved: Vec<Vec<usize>> =
                    saved.unwrap().iter().map(|array| array.dims().to_vec()).collect();
                assert_eq!(saved, expected, "{name}");
            }
        });
    }
}

#[test]
fn operands_have_names_of_their_own_and_required_ones_come_first() {
    for entry in entries() {
        let (name, operands) = (entry.name(), entry.operands());
        let names: BTreeSet<_> = operands.iter().map(|operand| operand.name).collect();
        assert_eq!(names.len(), operands.len(), "{name}");
        let required = operands.iter().take_while(|operand| operand.presence == Presence::Required).count();
        assert!(operands[required..].iter().all(|operand| operand.presence != Presence::Required), "{name}");
        assert!(
            operands.iter().rev().skip(1).all(|operand| operand.presence != Presence::Repeated),
            "{name}"
        );
        let packed: Vec<usize> = (0..operands.len()).filter(|&index| operands[index].is_packed).collect();
        assert!(packed.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{name}: packed operands are adjacent");
        // The numbers of rows and the dtype are the first one's.
        let has_rows = operands.iter().any(|operand| operand.role == Role::Rows);
        assert!(!has_rows || operands[0].role == Role::Rows, "{name}");
    }
    // The message of a wrong number of inputs names them.
    let error = Prepared::new("mv_linear", &"{\"algebra\":\"3,0,0\",\"bias\":null}".parse().unwrap())
        .unwrap()
        .forward(&[]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("0 inputs were given, expected 2 to 3 (x, weight, bias?)"), "{text}");
}

#[test]
fn names_are_unique_and_sorted() {
    let names = names();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    assert_eq!(names.len(), entries().len(), "operations of this crate all have entries");
}
