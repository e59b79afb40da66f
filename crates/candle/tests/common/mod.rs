//! What the tests on the CPU and on a GPU share: an operation of the registry in candle beside the same operation in gradewise.

#![allow(dead_code, reason = "no test needs all of it")]

pub mod training;

use candle_core::{DType, Device, Shape, Tensor, Var};
use gradewise_autograd::{AnySample, BackwardOptions, Sizes, grad, registry::entries};
use gradewise_candle::Fused;
use gradewise_core::Signature;
use gradewise_kernels::{Array, Element};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: gradewise_kernels::Device = gradewise_kernels::Device::Cpu;

/// One device as both libraries have it.
pub struct Place {
    pub theirs: Device,
    pub ours: gradewise_kernels::Device,
}

impl Place {
    pub const CPU: Self = Self { theirs: Device::Cpu, ours: CPU };
}

/// The bits of the values; −0 as 0, because candle adds gradients to zeros.
pub fn bits(values: impl IntoIterator<Item = f64>) -> Vec<u64> {
    values.into_iter().map(|value| (value + 0.0).to_bits()).collect()
}

pub fn of_array(array: &Array) -> Vec<u64> {
    bits(array.to_f64_vec().unwrap())
}

/// The values of a tensor, wherever it is.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub fn of_tensor(tensor: &Tensor) -> Vec<u64> {
    bits(values(tensor))
}

/// An array as a tensor; `turned` as a transposed view of other memory, beginning in its middle.
pub fn tensor<T: Element + candle_core::WithDType>(array: &Array, turned: bool, device: &Device) -> Tensor {
    let values = array.to_vec::<T>().unwrap();
    let tensor = Tensor::from_vec(values, Shape::from(array.dims()), device).unwrap();
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

/// How far results of views may be off: sums over several axes may go through them in another order, and a 16-bit result is
/// then rounded to a neighbour.
fn of_views<T: Element>() -> f64 {
    match <T as Element>::DTYPE {
        gradewise_kernels::DType::F64 | gradewise_kernels::DType::F32 => 1e-5,
        gradewise_kernels::DType::BF16 => 1.0 / 64.0,
        gradewise_kernels::DType::F16 => 1.0 / 512.0,
    }
}

/// One operation on `place`: in candle it has the bits that it has without candle, forward and backward.
pub fn compare<T: Element + candle_core::WithDType>(sample: &AnySample, turned: bool, place: &Place) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let drawn = sample.draw(<T as Element>::DTYPE, &mut rng).unwrap();
    let leaves: Vec<_> = sample.place(&drawn, <T as Element>::DTYPE, &place.ours).unwrap();
    let leaves: Vec<_> = leaves.iter().map(gradewise_autograd::Tensor::requires_grad).collect();
    let output = sample.run(&leaves).unwrap();
    let direction = Array::randn(output.shape(), output.dtype(), &CPU, &mut rng).unwrap();
    let seed = gradewise_autograd::Tensor::new(direction.to_device(&place.ours).unwrap());
    let ours = grad(&output, &leaves.iter().collect::<Vec<_>>(), &BackwardOptions::seed(seed)).unwrap();

    let operation = Fused::new(sample.operation(), &sample.attributes().unwrap().to_json()).unwrap();
    let there = |array: &Array, turned| tensor::<T>(array, turned, &place.theirs);
    let variables: Vec<Var> =
        leaves.iter().map(|leaf| Var::from_tensor(&there(leaf.array(), false)).unwrap()).collect();
    let inputs: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let result = operation.apply(&inputs.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(result.dims(), output.shape().dims(), "{sample}");
    assert_eq!(of_tensor(&result), of_array(output.array()), "{sample}");
    // Another dtype comes of casts alone, whose result candle's product with the direction would refuse.
    if output.dtype() == <T as Element>::DTYPE {
        let seed = there(&direction, turned);
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

    let views: Vec<Tensor> = leaves.iter().map(|leaf| there(leaf.array(), true)).collect();
    let result = operation.apply(&views.iter().collect::<Vec<_>>()).unwrap();
    for (theirs, ours) in of_tensor(&result).into_iter().zip(of_array(output.array())) {
        let (theirs, ours) = (f64::from_bits(theirs), f64::from_bits(ours));
        assert!(
            (theirs - ours).abs() <= of_views::<T>() * ours.abs().max(1.0),
            "{sample}, of views: {theirs} and {ours}"
        );
    }
}

/// All samples of the registry in an algebra, with so many rows and features.
pub fn every_sample(signature: (u8, u8, u8), batch: usize, features: usize, check: impl Fn(&AnySample)) {
    let sizes = Sizes::new(Signature::new(signature.0, signature.1, signature.2), batch, features).unwrap();
    // A record of an empty table of angles does not say how many pairs there are.
    for entry in entries().into_iter().filter(|entry| batch > 0 || entry.name() != "rotary") {
        entry.samples(&sizes).unwrap().iter().for_each(&check);
    }
}
