//! cs_mv_gelu(x): x·½(1 + tanh(√(2/π)(x₀ + 0.044715 x₀³))), the gate of steerable networks by the scalar part (Zhdanov et al. 2024,
//! arXiv:2402.14730). `x` is `[blades, …]`.

use crate::ops::clifford::{
    algebra::{
        contract::{alike, exact, with_real},
        layout::{load, store},
    },
    product::gate_norm,
};
use crate::{
    Array, Device, Error, Result,
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, accumulate, dispatch, mul_add},
        split,
    },
};
use gradewise_core::Error as CoreError;
use rayon::prelude::*;

const NAME: &str = "cs_mv_gelu";
/// 2√(2/π): the gate is the logistic function of this times (x₀ + CUBIC·x₀³).
const SCALE: f64 = 1.595_769_121_605_730_8;
/// The factor of x₀³.
const CUBIC: f64 = 0.044_715;
/// Positions that one piece of work has.
const CHUNK: usize = 16 * LANES;

/// The number of blades.
fn check(x: &Array) -> Result<usize> {
    match x.dims() {
        [blades, _, ..] if *blades > 0 => Ok(*blades),
        _ => Err(Error::from(CoreError::Shape {
            operation: NAME,
            argument: "x",
            actual: x.shape().clone(),
            expected: "[blades, …, channels]".to_owned(),
            reason: "the scalar part gates all blades".to_owned(),
        })),
    }
}

/// The gated `x`.
///
/// # Errors
/// An array without blades; dtypes the device does not serve.
pub fn forward(x: &Array) -> Result<Array> {
    let blades = check(x)?;
    let x = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return gate_norm::gate(&device, NAME, "cs_mv_gelu_fwd", &x);
    }
    with_real!(x.dtype(), NAME, T => {
        let values = x.as_slice::<T>()?;
        Array::build::<T>(x.shape(), &x.device(), |out| {
            split::planes(blades, CHUNK, out).into_par_iter().flushed_for_each(|(start, out)| {
                dispatch(Gate { x: values, grad: None, start, out });
            });
        })
    })
}

/// The gradient of `x` for the cotangent `grad` of the result.
///
/// # Errors
/// As [`forward`]; a gradient of another shape, dtype or device.
pub fn backward(x: &Array, grad: &Array) -> Result<Array> {
    let blades = check(x)?;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return gate_norm::gate_gradient(&device, NAME, "cs_mv_gelu_bwd", &x, &grad);
    }
    with_real!(dtype, NAME, T => {
        let (values, grad) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        Array::build::<T>(x.shape(), &x.device(), |out| {
            split::planes(blades, CHUNK, out).into_par_iter().flushed_for_each(|(start, out)| {
                dispatch(Gate { x: values, grad: Some(grad), start, out });
            });
        })
    })
}

/// One piece of the result, or, where there is `grad`, of the gradient.
struct Gate<'a, T> {
    x: &'a [T],
    grad: Option<&'a [T]>,
    start: usize,
    out: Vec<&'a mut [T]>,
}

impl<T: Real> Kernel for Gate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { x, grad, start, mut out } = self;
        let (blades, len) = (out.len(), out.first().map_or(0, |line| line.len()));
        let plane = x.len() / blades;
        for position in (0..len).step_by(LANES) {
            let count = LANES.min(len - position);
            let at = |values: &[T], blade: usize| load(&values[blade * plane + start + position..][..count]);
            let (scalar, mut factor) = (at(x, 0), [T::zero(); LANES]);
            for lane in 0..LANES {
                factor[lane] = gate::<T, FMA>(scalar[lane]);
            }
            let mut extra = [T::zero(); LANES];
            if let Some(grad) = grad {
                for blade in 0..blades {
                    accumulate::<T, FMA>(&mut extra, &at(x, blade), &at(grad, blade));
                }
                for lane in 0..LANES {
                    extra[lane] *= slope::<T, FMA>(scalar[lane], factor[lane]);
                }
            }
            for (blade, line) in out.iter_mut().enumerate() {
                let mut part: Lanes<T> = at(grad.unwrap_or(x), blade);
                for lane in 0..LANES {
                    part[lane] *= factor[lane];
                }
                if grad.is_some() && blade == 0 {
                    for lane in 0..LANES {
                        part[lane] += extra[lane];
                    }
                }
                store(&mut line[position..position + count], &part);
            }
        }
    }
}

#[inline(always)]
fn gate<T: Real, const FMA: bool>(u: T) -> T {
    (T::narrow(SCALE) * mul_add::<T, FMA>(T::narrow(CUBIC) * u * u, u, u)).sigmoid::<FMA>()
}

/// The derivative of the gate where its value is `value`: 0 where it is flat, also where u² is beyond the range of `T`. NaN stays NaN.
#[inline(always)]
fn slope<T: Real, const FMA: bool>(u: T, value: T) -> T {
    let flat = value * (T::one() - value);
    let steep = flat * T::narrow(SCALE) * mul_add::<T, FMA>(T::narrow(3.0 * CUBIC) * u, u, T::one());
    if flat == T::zero() { flat } else { steep }
}

#[cfg(test)]
mod tests {
    use super::{backward, forward};
    use crate::{Array, DType, Device};

    fn array(values: &[f64], shape: [usize; 2]) -> Array {
        Array::from_f64(values, shape, DType::F32, &Device::Cpu).unwrap()
    }

    /// Every position by itself in f64, for planes shorter than a group of lanes, as long as a piece of work, and longer.
    #[test]
    fn each_position_is_gated_by_its_scalar_part() {
        use rand::SeedableRng;
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for plane in [1, 63, 65, 1024, 1025, 3000] {
            let mut draw = || Array::randn([4, plane], DType::F64, &Device::Cpu, &mut rng).unwrap();
            let (x, grad) = (draw(), draw());
            let (y, dx) = (forward(&x).unwrap(), backward(&x, &grad).unwrap());
            let [x, grad, y, dx] = [&x, &grad, &y, &dx].map(|array| array.to_f64_vec().unwrap());
            for at in 0..plane {
                let root = (2.0 / std::f64::consts::PI).sqrt();
                let tanh = (root * (x[at] + 0.044715 * x[at].powi(3))).tanh();
                let inner = root * (1.0 + 3.0 * 0.044715 * x[at] * x[at]);
                let slope = 0.5 * (1.0 - tanh * tanh) * inner;
                let dot: f64 = (0..4).map(|blade| x[blade * plane + at] * grad[blade * plane + at]).sum();
                for blade in 0..4 {
                    let (place, gate) = (blade * plane + at, 0.5 * (1.0 + tanh));
                    let pull = if blade == 0 { slope * dot } else { 0.0 };
                    assert!((y[place] - gate * x[place]).abs() < 1e-14, "{plane} {place}");
                    assert!((dx[place] - gate * grad[place] - pull).abs() < 1e-13, "{plane} {place}");
                }
            }
        }
    }

    /// A far scalar part opens or closes the gate, whose derivative is 0 there; a square beyond the range of `f32` is no NaN.
    #[test]
    fn far_scalars_are_gated_without_nan() {
        let x = array(&[1e30, -1e30, 30.0, -30.0, 2.0, 3.0, 4.0, 5.0], [2, 4]);
        let y = forward(&x).unwrap().to_f64_vec().unwrap();
        assert_eq!(y[4..], [2.0, 0.0, 4.0, 0.0]);
        let grad = backward(&x, &array(&[1.0; 8], [2, 4])).unwrap().to_f64_vec().unwrap();
        assert_eq!(grad, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn nan_stays_nan() {
        let x = array(&[f64::NAN, 0.5, 1.0, 2.0], [2, 2]);
        let y = forward(&x).unwrap().to_f64_vec().unwrap();
        assert!(y[0].is_nan() && y[2].is_nan() && !y[1].is_nan());
        let grad = backward(&x, &array(&[1.0; 4], [2, 2])).unwrap().to_f64_vec().unwrap();
        assert!(grad[0].is_nan() && grad[2].is_nan() && !grad[3].is_nan());
    }

    #[test]
    fn shapes_without_blades_are_refused_by_name() {
        let flat = Array::zeros([3], DType::F64, &Device::Cpu).unwrap();
        assert!(forward(&flat).unwrap_err().to_string().contains("cs_mv_gelu"));
        let (x, other) = (array(&[1.0; 4], [2, 2]), array(&[1.0; 6], [2, 3]));
        assert!(backward(&x, &other).unwrap_err().to_string().contains("grad"));
        let empty = Array::zeros([4, 0, 3], DType::F64, &Device::Cpu).unwrap();
        assert_eq!(forward(&empty).unwrap().elements(), 0);
    }
}
