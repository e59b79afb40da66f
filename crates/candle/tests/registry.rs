//! Every operation of the registry gives in candle what it gives in gradewise, bit for bit, forward and backward.

use candle_core::{Device, Shape, Tensor, Var};
use gradewise_autograd::{AnySample, BackwardOptions, Sizes, grad, registry::entries};
use gradewise_candle::Fused;
use gradewise_core::Signature;
use gradewise_kernels::{Array, Element};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: gradewise_kernels::Device = gradewise_kernels::Device::Cpu;

/// The bits of the values; −0 as 0, because candle adds gradients to zeros.
fn bits(values: impl IntoIterator<Item = f64>) -> Vec<u64> {
    values.into_iter().map(|value| (value + 0.0).to_bits()).collect()
}

fn of_array(array: &Array) -> Vec<u64> {
    bits(array.to_f64_vec().unwrap())
}

fn of_tensor(tensor: &Tensor) -> Vec<u64> {
    let wide = tensor.to_dtype(candle_core::DType::F64).unwrap();
    bits(wide.flatten_all().unwrap().to_vec1::<f64>().unwrap())
}

/// An array as a tensor; `turned` as a transposed view of other memory, beginning in its middle.
fn tensor<T: Element + candle_core::WithDType>(array: &Array, turned: bool) -> Tensor {
    let values = array.to_vec::<T>().unwrap();
    let tensor = Tensor::from_vec(values, Shape::from(array.dims()), &Device::Cpu).unwrap();
    let rank = array.rank();
    if !turned || rank < 2 || array.elements() == 0 {
        return tensor;
    }
    let other = tensor.t().unwrap().contiguous().unwrap();
    let twice = Tensor::cat(&[&other, &other], 0).unwrap();
    let rows = other.dim(0).unwrap();
    // Of […, last, before], the second half of its first axis.
    twice.narrow(0, rows, rows).unwrap().t().unwrap()
}

fn compare<T: Element + candle_core::WithDType>(sample: &AnySample, turned: bool) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let drawn = sample.draw(<T as Element>::DTYPE, &mut rng).unwrap();
    let leaves: Vec<_> = sample.place(&drawn, <T as Element>::DTYPE, &CPU).unwrap();
    let leaves: Vec<_> = leaves.iter().map(gradewise_autograd::Tensor::requires_grad).collect();
    let output = sample.run(&leaves).unwrap();
    let direction = Array::randn(output.shape(), output.dtype(), &CPU, &mut rng).unwrap();
    let seed = gradewise_autograd::Tensor::new(direction.clone());
    let ours = grad(&output, &leaves.iter().collect::<Vec<_>>(), &BackwardOptions::seed(seed)).unwrap();

    let operation = Fused::new(sample.operation(), &sample.attributes().unwrap().to_json()).unwrap();
    let variables: Vec<Var> =
        leaves.iter().map(|leaf| Var::from_tensor(&tensor::<T>(leaf.array(), false)).unwrap()).collect();
    let inputs: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let result = operation.apply(&inputs.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(result.dims(), output.shape().dims(), "{sample}");
    assert_eq!(of_tensor(&result), of_array(output.array()), "{sample}");
    // Another dtype comes of casts alone, whose result candle's product with the direction would refuse.
    if output.dtype() == <T as Element>::DTYPE {
        let seed = tensor::<T>(&direction, turned);
        let gradients = (&result * &seed).unwrap().sum_all().unwrap().backward().unwrap();
        for (index, (variable, ours)) in variables.iter().zip(ours).enumerate() {
            match (gradients.get(variable), ours) {
                (Some(theirs), Some(ours)) => {
                    assert_eq!(of_tensor(theirs), of_array(ours.array()), "{sample}: gradient {index}");
                }
                // A gradient that is missing is one of zeros, which the joined inputs have.
                (Some(theirs), None) => assert!(of_tensor(theirs).iter().all(|&b| f64::from_bits(b) == 0.0)),
                (None, None) => {}
                (None, Some(ours)) => {
                    panic!("{sample}: gradient {index} is missing, of {} elements", ours.array().elements())
                }
            }
        }
    }

    // Of views the same values; sums over several axes may go through them in another order.
    let views: Vec<Tensor> = leaves.iter().map(|leaf| tensor::<T>(leaf.array(), true)).collect();
    let result = operation.apply(&views.iter().collect::<Vec<_>>()).unwrap();
    for (theirs, ours) in of_tensor(&result).into_iter().zip(of_array(output.array())) {
        let (theirs, ours) = (f64::from_bits(theirs), f64::from_bits(ours));
        assert!(
            (theirs - ours).abs() <= 1e-5 * ours.abs().max(1.0),
            "{sample}, of views: {theirs} and {ours}"
        );
    }
}

fn every_sample(signature: (u8, u8, u8), batch: usize, features: usize, check: impl Fn(&AnySample)) {
    let sizes = Sizes::new(Signature::new(signature.0, signature.1, signature.2), batch, features).unwrap();
    // A record of an empty table of angles does not say how many pairs there are.
    for entry in entries().into_iter().filter(|entry| batch > 0 || entry.name() != "rotary") {
        entry.samples(&sizes).unwrap().iter().for_each(&check);
    }
}

#[test]
fn an_operation_gives_the_bits_that_it_gives_without_candle() {
    assert!(entries().len() > 50, "the registry is empty");
    for (signature, batch, features) in
        [((3, 0, 0), 3, 5), ((3, 0, 1), 1, 4), ((1, 1, 0), 2, 1), ((2, 0, 0), 0, 2)]
    {
        every_sample(signature, batch, features, |sample| compare::<f64>(sample, true));
        every_sample(signature, batch, features, |sample| compare::<f32>(sample, false));
    }
}

#[test]
fn sixteen_bit_dtypes_are_computed_wide_and_rounded() {
    every_sample((3, 0, 0), 2, 4, |sample| {
        if sample.operation().starts_with("mv_") || sample.operation().ends_with("gp") {
            compare::<half::bf16>(sample, false);
            compare::<half::f16>(sample, false);
        }
    });
}
