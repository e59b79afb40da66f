//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864).

mod cuda;

use crate::{
    Array, Device, Element, Error, Result,
    array::require_axis,
    cpu::{
        element::{with_element, with_storage},
        split,
    },
    runtime::memory::within_operator,
};
use gradewise_core::{DType, Error as CoreError};

const NAME: &str = "rotary";

/// Cosines and sines of the angles position·base^(−2i/features), i < features/2: two arrays `[positions, features/2]`.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    cos: Array,
    sin: Array,
}

impl RotaryTable {
    /// For positions 0 to `positions` − 1 of arrays of this dtype; the usual base is 10000. Computed in double precision.
    ///
    /// # Errors
    /// An odd number of features, a base that is not positive; if the device does not serve the dtype or has no memory.
    pub fn new(positions: usize, features: usize, base: f64, dtype: DType, device: &Device) -> Result<Self> {
        let refuse = |argument, actual: String, expected| {
            Err(Error::Argument { operation: NAME, argument, actual, expected })
        };
        if !features.is_multiple_of(2) {
            return refuse("features", features.to_string(), "an even number: pairs are turned");
        }
        if !(base > 0.0 && base.is_finite()) {
            return refuse("base", base.to_string(), "more than 0, finite");
        }
        let pairs = features / 2;
        let angle = |at: usize| (at / pairs) as f64 * base.powf(-2.0 * (at % pairs) as f64 / features as f64);
        let table = |function: fn(f64) -> f64| {
            let _account = within_operator(NAME);
            with_storage!(dtype.accumulator(), T => {
                Array::build([positions, pairs], device, |out: &mut [T]| {
                    out.iter_mut().enumerate().for_each(|(at, out)| *out = T::narrow(function(angle(at))));
                })
            })
        };
        Ok(Self { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// The positions `start..end`.
    ///
    /// # Errors
    /// A range that the table does not have.
    pub fn slice(&self, positions: std::ops::Range<usize>) -> Result<Self> {
        Ok(Self { cos: self.cos.slice(0, positions.clone())?, sin: self.sin.slice(0, positions)? })
    }

    /// A table of these cosines and sines, each of the shape `[positions, pairs]`, row-major, for arrays of this dtype.
    ///
    /// # Errors
    /// Another number of values than the shape has; from the device.
    pub fn of_parts(
        [cos, sin]: [&[f64]; 2],
        shape: [usize; 2],
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let part = |values: &[f64]| Array::from_f64(values, shape, dtype.accumulator(), device);
        Ok(Self { cos: part(cos)?, sin: part(sin)? })
    }

    /// The cosines and the sines, row-major.
    ///
    /// # Errors
    /// From the device.
    pub fn parts(&self) -> Result<[Vec<f64>; 2]> {
        Ok([self.cos.to_f64_vec()?, self.sin.to_f64_vec()?])
    }

    /// The same table on the device of `array`, in its dtype.
    ///
    /// # Errors
    /// From the device.
    pub fn beside(&self, array: &Array) -> Result<Self> {
        let part = |part: &Array| part.to_device(&array.device())?.cast(array.dtype().accumulator());
        Ok(Self { cos: part(&self.cos)?, sin: part(&self.sin)? })
    }

    /// The device of the table.
    pub fn device(&self) -> Device {
        self.cos.device()
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.cos.dims()[0]
    }

    /// Number of pairs of features.
    pub fn pairs(&self) -> usize {
        self.cos.dims()[1]
    }
}

/// Turns each pair `(x[i], x[i + features/2])` of `x` `[…, positions, features]` by the angle of its position; by the opposite one if
/// `inverse`, which is also the transpose.
///
/// # Errors
/// An odd number of features, another number of positions or pairs than the table has, another dtype or device.
pub fn rotary(x: &Array, table: &RotaryTable, inverse: bool) -> Result<Array> {
    require_axis(NAME, 1, x.shape())?;
    let (positions, features) = (x.dims()[x.rank() - 2], x.dims()[x.rank() - 1]);
    if [positions, features / 2] != table.cos.dims() || !features.is_multiple_of(2) {
        let dims = table.cos.dims();
        return Err(CoreError::Shape {
            operation: NAME,
            argument: "x",
            actual: x.shape().clone(),
            expected: format!("[…, {}, {}]", dims[0], 2 * dims[1]),
            reason: "the table has an angle for each position and pair of features".to_owned(),
        }
        .into());
    }
    for (argument, angles) in [("cos", &table.cos), ("sin", &table.sin)] {
        let (actual, expected) = (angles.dtype(), x.dtype().accumulator());
        if actual != expected {
            return Err(CoreError::DType { operation: NAME, argument, actual, expected }.into());
        }
        x.require_beside(&angles.device(), NAME, argument)?;
    }
    let (x, cos, sin) = (x.contiguous()?, table.cos.contiguous()?, table.sin.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::run(&device, &x, &cos, &sin, inverse);
    }
    with_element!(x.dtype(), NAME, T => {
        let (source, cos, sin) = (x.as_slice::<T>()?, cos.as_slice::<T>()?, sin.as_slice::<T>()?);
        Array::build(x.shape(), &Device::Cpu, |out: &mut [T]| {
            if features == 0 {
                return;
            }
            split::for_chunks(out, split::rows_per_chunk(features) * features, |start, out| {
                for (index, out) in out.chunks_exact_mut(features).enumerate() {
                    let row = start / features + index;
                    let angles = row % positions * (features / 2);
                    turn(&source[row * features..], &cos[angles..], &sin[angles..], inverse, out);
                }
            });
        })
    })
}

fn turn<T: Element>(x: &[T], cos: &[T], sin: &[T], inverse: bool, out: &mut [T]) {
    let pairs = out.len() / 2;
    let (first, second) = out.split_at_mut(pairs);
    for pair in 0..pairs {
        let (a, b, c) = (x[pair], x[pair + pairs], cos[pair]);
        let s = if inverse { -sin[pair] } else { sin[pair] };
        (first[pair], second[pair]) = (a * c - b * s, b * c + a * s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_turned_vectors_depend_on_the_distance_alone() {
        let table = RotaryTable::new(9, 6, 100.0, DType::F64, &Device::Cpu).unwrap();
        let x: Vec<f64> = (0..6).map(|i| (i as f64 * 1.7).sin()).collect();
        let y: Vec<f64> = (0..6).map(|i| (i as f64 * 0.9).cos()).collect();
        let turned = |x: &[f64]| {
            let rows = Array::from_slice(x, [1, 6], &Device::Cpu).unwrap().broadcast_to([9, 6]).unwrap();
            let turned = rotary(&rows, &table, false).unwrap();
            let back = rotary(&turned, &table, true).unwrap().to_vec::<f64>().unwrap();
            assert!(back.iter().zip(rows.to_vec::<f64>().unwrap()).all(|(a, b)| (a - b).abs() < 1e-14));
            turned.to_vec::<f64>().unwrap()
        };
        let (x, y) = (turned(&x), turned(&y));
        let dot = |m: usize, n: usize| -> f64 { (0..6).map(|i| x[m * 6 + i] * y[n * 6 + i]).sum() };
        for (m, n) in [(0, 0), (1, 3), (5, 2)] {
            for shift in 1..3 {
                assert!((dot(m, n) - dot(m + shift, n + shift)).abs() < 1e-12);
            }
        }
        assert!((dot(0, 0) - dot(1, 0)).abs() > 1e-3, "and on that it does depend");
    }
}
