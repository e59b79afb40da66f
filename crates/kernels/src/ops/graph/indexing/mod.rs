//! Selection along an axis by index, and its transpose, summation by segment.

mod cuda;

use crate::cpu::parallel::Flushed;
use crate::{Array, Device, Element, Index, Result, array::require_axis, cpu::element::with_element};
use gradewise_core::{Error as CoreError, Shape};
use rayon::prelude::*;

/// Sizes of the axes before and after the indexed one, multiplied.
fn inner_size(
    operation: &'static str,
    array: &Array,
    axis: usize,
    index: &Index,
    expected: usize,
    what: &str,
) -> Result<usize> {
    require_axis(operation, axis, array.shape())?;
    let dims = array.dims();
    if dims[axis] != expected {
        return Err(CoreError::Shape {
            operation,
            argument: "x",
            actual: array.shape().clone(),
            expected: Shape::from(resized(array, axis, expected)).to_string(),
            reason: format!("axis {axis} has the size of {what}"),
        }
        .into());
    }
    array.require_beside(index.device(), operation, "index")?;
    Ok(dims[axis + 1..].iter().product())
}

fn resized(array: &Array, axis: usize, size: usize) -> Vec<usize> {
    let mut sizes = array.dims().to_vec();
    sizes[axis] = size;
    sizes
}

/// Calls `work(row, out)` for each row of `inner` elements.
fn for_rows<T: Element>(out: &mut [T], inner: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if inner == 0 {
        return;
    }
    const PARALLEL: usize = 1 << 16;
    if out.len() < PARALLEL {
        out.chunks_exact_mut(inner).enumerate().for_each(|(row, out)| work(row, out));
    } else {
        let rows = (16_384 / inner).max(1);
        out.par_chunks_mut(rows * inner).enumerate().flushed_for_each(|(piece, out)| {
            for (row, out) in out.chunks_exact_mut(inner).enumerate() {
                work(piece * rows + row, out);
            }
        });
    }
}

/// The entries of `axis` that `index` names, in its order: `[outer, bound, inner]` → `[outer, index.len(), inner]`.
///
/// # Errors
/// An axis out of range, or whose size is not the bound of `index`.
pub fn index_select(x: &Array, axis: usize, index: &Index) -> Result<Array> {
    const NAME: &str = "index_select";
    let inner = inner_size(NAME, x, axis, index, index.bound(), "the bound of the index")?;
    let source = x.contiguous()?;
    let (count, bound) = (index.len(), index.bound());
    if let (Device::Cuda(device), Some(lists)) = (x.device(), index.resident()) {
        let shape = resized(x, axis, count);
        return cuda::select(&device, NAME, &source, inner, index, lists, shape);
    }
    let lists = index.lists()?;
    with_element!(x.dtype(), NAME, T => {
        let source = source.as_slice::<T>()?;
        Array::build::<T>(resized(x, axis, count), &x.device(), |out| {
            for_rows(out, inner, |row, out| {
                let (block, position) = (row / count, row % count);
                let entry = block * bound + lists.values[position] as usize;
                out.copy_from_slice(&source[entry * inner..][..inner]);
            });
        })
    })
}

/// Adds the entries of `axis` with the same segment number: `[outer, segments.len(), inner]` →
/// `[outer, segments.bound(), inner]`; an empty segment gives zeros. Entries are added in ascending order, so the result
/// does not depend on the number of threads.
///
/// # Errors
/// An axis out of range, or whose size is not the length of `segments`.
pub fn segment_sum(x: &Array, axis: usize, segments: &Index) -> Result<Array> {
    const NAME: &str = "segment_sum";
    let inner = inner_size(NAME, x, axis, segments, segments.len(), "the list of segments")?;
    let source = x.contiguous()?;
    let (count, bound) = (segments.len(), segments.bound());
    if let (Device::Cuda(device), Some(lists)) = (x.device(), segments.resident()) {
        let shape = resized(x, axis, bound);
        return cuda::sum(&device, NAME, &source, inner, segments, lists, shape);
    }
    let lists = segments.lists()?;
    let groups = lists.groups(bound);
    with_element!(x.dtype(), NAME, T => {
        let source = source.as_slice::<T>()?;
        Array::build::<T>(resized(x, axis, bound), &x.device(), |out| {
            for_rows(out, inner, |row, out| {
                let (block, segment) = (row / bound, row % bound);
                out.fill(T::default());
                let members = groups.starts[segment] as usize..groups.starts[segment + 1] as usize;
                for &position in &groups.order[members] {
                    let entry = block * count + position as usize;
                    for (sum, &value) in out.iter_mut().zip(&source[entry * inner..][..inner]) {
                        *sum += value;
                    }
                }
            });
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{index_select, segment_sum};
    use crate::{Array, DType, Device, Index};
    use proptest::prelude::*;
    use rand::SeedableRng;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn selection_and_segment_sum_are_transposes(
            outer in 1usize..4, inner in 0usize..5, bound in 1usize..6,
            picks in prop::collection::vec(0usize..100, 0..12), axis in 0usize..3, seed: u64,
        ) {
            // ⟨select(x), y⟩ = ⟨x, segment_sum(y)⟩ for every x and y.
            let picks: Vec<usize> = picks.into_iter().map(|pick| pick % bound).collect();
            let index = Index::new(&picks, bound, &Device::Cpu).unwrap();
            let mut x_shape = vec![outer, inner, 3];
            x_shape[axis] = bound;
            let mut y_shape = x_shape.clone();
            y_shape[axis] = picks.len();
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let x = Array::randn(x_shape.clone(), DType::F64, &Device::Cpu, &mut rng).unwrap();
            let y = Array::randn(y_shape, DType::F64, &Device::Cpu, &mut rng).unwrap();
            let selected = index_select(&x, axis, &index).unwrap();
            let summed = segment_sum(&y, axis, &index).unwrap();
            prop_assert_eq!(summed.dims(), &x_shape[..]);
            let dot = |a: &Array, b: &Array| -> f64 {
                let (a, b) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
                a.iter().zip(&b).map(|(a, b)| a * b).sum()
            };
            prop_assert!((dot(&selected, &y) - dot(&x, &summed)).abs() < 1e-10);
        }
    }

    #[test]
    fn views_are_read_as_they_are_seen() {
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu).unwrap();
        let index = Index::new(&[2, 0, 2], 3, &Device::Cpu).unwrap();
        let rows = index_select(&x.transpose(0, 1).unwrap(), 0, &index).unwrap();
        assert_eq!(rows.to_vec::<f32>().unwrap(), [3.0, 6.0, 1.0, 4.0, 3.0, 6.0]);
        let error = index_select(&x, 0, &index).unwrap_err().to_string();
        assert!(error.contains("[3, 3]") && error.contains("bound of the index"), "{error}");
    }
}
