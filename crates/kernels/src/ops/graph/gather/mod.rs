//! Elements by their position along an axis, and their transpose: addition at positions.

mod cuda;

use crate::{
    Array, Device, Element, Positions, Result,
    array::require_axis,
    cpu::{element::with_element, parallel::Flushed},
};
use gradewise_core::{Error as CoreError, Shape};
use rayon::prelude::*;

/// The product of the sizes before an axis, of those after it, the axis's size in the array, and its size in the positions.
#[derive(Clone, Copy)]
struct Layout {
    outer: usize,
    size: usize,
    count: usize,
    inner: usize,
}

/// Compares an array that has `size` entries along `axis`, and those of `positions` along all others.
fn layout(
    name: &'static str,
    array: &Array,
    size: usize,
    axis: usize,
    positions: &Positions,
    expected: &[usize],
) -> Result<Layout> {
    let reason =
        || format!("the positions {} and the array agree in all axes but axis {axis}", positions.shape());
    array.require_shape(name, "x", expected, reason)?;
    if positions.bound() > size {
        return Err(CoreError::Shape {
            operation: name,
            argument: "positions",
            actual: positions.shape().clone(),
            expected: format!("positions below {size}"),
            reason: format!("their bound {} is past the end of axis {axis}", positions.bound()),
        }
        .into());
    }
    array.require_beside(&positions.device(), name, "positions")?;
    let dims = positions.shape().dims();
    Ok(Layout {
        outer: dims[..axis].iter().product(),
        size,
        count: dims[axis],
        inner: dims[axis + 1..].iter().product(),
    })
}

fn resized(shape: &Shape, axis: usize, size: usize) -> Vec<usize> {
    let mut sizes = shape.to_vec();
    sizes[axis] = size;
    sizes
}

/// The elements of `x` at `positions` along `axis`: out[…, p, …] = x[…, positions[…, p, …], …]. All other sizes agree.
///
/// # Errors
/// An axis out of range, sizes that differ, positions past the end, another device.
pub fn gather(x: &Array, axis: usize, positions: &Positions) -> Result<Array> {
    const NAME: &str = "gather";
    require_axis(NAME, axis, x.shape())?;
    require_axis(NAME, axis, positions.shape())?;
    let size = x.dims()[axis];
    let layout = layout(NAME, x, size, axis, positions, &resized(positions.shape(), axis, size))?;
    let (x, words) = (x.contiguous()?, positions.words().contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::gather(&device, NAME, &x, &words, positions.shape(), layout);
    }
    let words: &[u32] = bytemuck::cast_slice(words.as_slice::<f32>()?);
    with_element!(x.dtype(), NAME, T => {
        let x = x.as_slice::<T>()?;
        Array::build(positions.shape(), &Device::Cpu, |out: &mut [T]| {
            let Layout { size, count, inner, .. } = layout;
            for (at, (out, &word)) in out.iter_mut().zip(words).enumerate() {
                *out = x[(at / (count * inner) * size + word as usize) * inner + at % inner];
            }
        })
    })
}

/// Zeros with `size` entries along `axis`, plus each element of `x` at its position: the transpose of [`gather`]. Elements at one place are
/// added in ascending order.
///
/// # Errors
/// As [`gather`], with the shape of `x` that of the positions.
pub fn scatter_add(x: &Array, axis: usize, positions: &Positions, size: usize) -> Result<Array> {
    const NAME: &str = "scatter_add";
    require_axis(NAME, axis, positions.shape())?;
    let layout = layout(NAME, x, size, axis, positions, positions.shape().dims())?;
    let shape = resized(positions.shape(), axis, size);
    let (x, words) = (x.contiguous()?, positions.words().contiguous()?);
    if let Device::Cuda(device) = x.device() {
        // Sums are rounded to the storage once, at the end.
        let dtype = if positions.are_distinct() { x.dtype() } else { x.dtype().accumulator() };
        let sums = cuda::scatter(&device, NAME, &x.cast(dtype)?, &words, layout, positions, &shape)?;
        return sums.cast(x.dtype());
    }
    let words: &[u32] = bytemuck::cast_slice(words.as_slice::<f32>()?);
    with_element!(x.dtype(), NAME, T => {
        let x = x.as_slice::<T>()?;
        Array::build(shape, &Device::Cpu, |out: &mut [T]| scatter(x, words, layout, out))
    })
}

fn scatter<T: Element>(x: &[T], words: &[u32], layout: Layout, out: &mut [T]) {
    let Layout { size, count, inner, .. } = layout;
    out.fill(T::zero());
    if size * inner == 0 || count == 0 {
        return;
    }
    let blocks = x.par_chunks(count * inner).zip(words.par_chunks(count * inner));
    out.par_chunks_mut(size * inner).zip(blocks).flushed_for_each(|(out, (x, words))| {
        for (at, (&value, &word)) in x.iter().zip(words).enumerate() {
            out[word as usize * inner + at % inner] += value;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use proptest::prelude::*;
    use rand::SeedableRng;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn gather_and_scatter_are_transposes(
            outer in 1usize..4, inner in 1usize..4, size in 1usize..6, count in 0usize..6, picks: u64, axis in 0usize..3,
        ) {
            let mut shape = vec![outer, inner, 2];
            shape[axis] = count;
            let values: Vec<usize> = (0..shape.iter().product::<usize>() as u64)
                .map(|i| (picks.wrapping_mul(2 * i + 1) >> 33) as usize % size)
                .collect();
            let positions = Positions::new(&values, shape.clone(), size, &Device::Cpu).unwrap();
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(picks);
            let y = Array::randn(shape.clone(), DType::F64, &Device::Cpu, &mut rng).unwrap();
            shape[axis] = size;
            let x = Array::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap();
            let dot = |a: &Array, b: &Array| -> f64 {
                let (a, b) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
                assert_eq!(a.len(), b.len());
                a.iter().zip(&b).map(|(a, b)| a * b).sum()
            };
            let gathered = dot(&gather(&x, axis, &positions).unwrap(), &y);
            prop_assert!((gathered - dot(&x, &scatter_add(&y, axis, &positions, size).unwrap())).abs() < 1e-10);
        }
    }

    #[test]
    fn positions_that_do_not_fit_are_named() {
        let x = Array::zeros([2, 3], DType::F32, &Device::Cpu).unwrap();
        let positions = |shape: [usize; 2], bound| {
            Positions::new(&vec![0; shape[0] * shape[1]], shape, bound, &Device::Cpu).unwrap()
        };
        assert!(gather(&x, 1, &positions([2, 7], 3)).is_ok());
        let message = |shape, bound| gather(&x, 1, &positions(shape, bound)).unwrap_err().to_string();
        assert!(message([3, 7], 3).contains("[3, 3]"));
        assert!(message([2, 7], 4).contains("past the end of axis 1"));
        assert!(Positions::new(&[0, 3], [2], 3, &Device::Cpu).is_err());
    }
}
