//! Order along an axis: sorting, the first few, the greatest and the least.

mod cpu;
mod cuda;

use crate::{Array, Device, Error, Positions, Result, array::require_axis, cpu::element::with_element_exact};

/// Which elements come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The least first; NaN last.
    Ascending,
    /// The greatest first; NaN before all.
    Descending,
}

/// The elements along `axis` in order, and their positions. Equal ones, 0 and −0 among them, stay in the order of their positions.
///
/// # Errors
/// An axis out of range.
pub fn sort(x: &Array, axis: usize, order: Order) -> Result<(Array, Positions)> {
    let count = x.dims().get(axis).copied().unwrap_or(0);
    first("sort", x, axis, count, order)
}

/// The first `count` elements of [`sort()`] along `axis`: with [`Order::Descending`] the greatest, in order.
///
/// # Errors
/// An axis out of range, or more elements than there are along it.
pub fn top_k(x: &Array, axis: usize, count: usize, order: Order) -> Result<(Array, Positions)> {
    first("top_k", x, axis, count, order)
}

/// Where along `axis` the greatest element is, the first of several. NaN is greater than every number.
///
/// # Errors
/// An axis that is out of range or empty.
pub fn argmax(x: &Array, axis: usize) -> Result<Positions> {
    extremum("argmax", x, axis, true)
}

/// Where along `axis` the least element is, the first of several. NaN is less than every number here, as in
/// [`min_over`](super::min_over).
///
/// # Errors
/// An axis that is out of range or empty.
pub fn argmin(x: &Array, axis: usize) -> Result<Positions> {
    extremum("argmin", x, axis, false)
}

fn require_countable(name: &'static str, size: usize) -> Result<()> {
    // The greatest word stands for no position.
    if size < u32::MAX as usize {
        return Ok(());
    }
    let actual = size.to_string();
    Err(Error::Argument {
        operation: name,
        argument: "x",
        actual,
        expected: "less than 2³² − 1 along the axis",
    })
}

fn first(
    name: &'static str,
    x: &Array,
    axis: usize,
    count: usize,
    order: Order,
) -> Result<(Array, Positions)> {
    require_axis(name, axis, x.shape())?;
    let (last, size) = (x.rank() - 1, x.dims()[axis]);
    if count > size {
        let shape = x.shape().clone();
        return Err(Error::Range { operation: name, start: 0, end: count, axis, shape });
    }
    if axis != last {
        let (values, positions) = first(name, &x.transpose(axis, last)?, last, count, order)?;
        let back = |array: &Array| array.transpose(axis, last)?.contiguous();
        return Ok((back(&values)?, positions.map(back)?));
    }
    require_countable(name, size)?;
    let source = x.contiguous()?;
    let mut shape = x.dims().to_vec();
    shape[last] = count;
    if let Device::Cuda(device) = x.device() {
        return cuda::first(&device, name, &source, &shape, order);
    }
    with_element_exact!(x.dtype(), name, T => {
        let rows = source.elements().checked_div(size).unwrap_or(0);
        let found = cpu::sorted(source.as_slice::<T>()?, size, order);
        let kept = || (0..rows).flat_map(|row| &found[row * size..row * size + count]);
        let values: Vec<T> = kept().map(|(value, _)| *value).collect();
        let positions = Positions::build(shape.clone(), (size, true), |words| {
            words.iter_mut().zip(kept()).for_each(|(word, (_, position))| *word = *position);
        })?;
        Ok((Array::from_vec(values, shape, &Device::Cpu)?, positions))
    })
}

fn extremum(name: &'static str, x: &Array, axis: usize, greatest: bool) -> Result<Positions> {
    require_axis(name, axis, x.shape())?;
    let (last, size) = (x.rank() - 1, x.dims()[axis]);
    if size == 0 {
        let reason = "is an empty one, which has no extremum";
        return Err(Error::Axes { operation: name, axes: vec![axis], reason, shape: x.shape().clone() });
    }
    require_countable(name, size)?;
    if axis != last {
        // Without its axis, the rest of the result has the order of the axes again.
        let mut axes: Vec<usize> = (0..x.rank()).filter(|&other| other != axis).collect();
        axes.push(axis);
        return extremum(name, &x.permute(&axes)?, last, greatest);
    }
    let source = x.contiguous()?;
    let shape = &x.dims()[..last];
    if let Device::Cuda(device) = x.device() {
        return cuda::extremum(&device, name, &source, shape, greatest);
    }
    with_element_exact!(x.dtype(), name, T => {
        let source = source.as_slice::<T>()?;
        Positions::build(shape, (size, false), |words| cpu::extremum(source, size, greatest, words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f64 = f64::NAN;

    fn row(values: &[f64]) -> Array {
        Array::from_slice(values, [values.len()], &Device::Cpu).unwrap()
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_has_its_place() {
        let x = row(&[2.0, NAN, -0.0, 2.0, 0.0, -1.0]);
        let order = |order| sort(&x, 0, order).unwrap().1.to_vec().unwrap();
        assert_eq!(order(Order::Ascending), [5, 2, 4, 0, 3, 1]);
        assert_eq!(order(Order::Descending), [1, 0, 3, 2, 4, 5]);
        let (values, _) = top_k(&x, 0, 3, Order::Descending).unwrap();
        assert!(values.to_vec::<f64>().unwrap()[0].is_nan());
        assert_eq!(values.to_vec::<f64>().unwrap()[1..], [2.0, 2.0]);
        assert_eq!(argmax(&x, 0).unwrap().to_vec().unwrap(), [1]);
        assert_eq!(argmin(&x, 0).unwrap().to_vec().unwrap(), [1]);
        let x = row(&[3.0, 1.0, 3.0, 1.0]);
        assert_eq!(argmax(&x, 0).unwrap().to_vec().unwrap(), [0]);
        assert_eq!(argmin(&x, 0).unwrap().to_vec().unwrap(), [1]);
    }

    #[test]
    fn any_axis_and_what_is_refused() {
        let x = Array::from_slice(&[1.0f32, 5.0, 3.0, 4.0, 2.0, 6.0], [2, 3], &Device::Cpu).unwrap();
        assert_eq!(argmax(&x, 0).unwrap().to_vec().unwrap(), [1, 0, 1]);
        assert_eq!(argmax(&x, 1).unwrap().to_vec().unwrap(), [1, 2]);
        let (values, positions) = sort(&x, 0, Order::Descending).unwrap();
        assert_eq!(values.to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(positions.to_vec().unwrap(), [1, 0, 1, 0, 1, 0]);
        assert!(top_k(&x, 1, 4, Order::Ascending).is_err() && sort(&x, 2, Order::Ascending).is_err());
        assert!(argmax(&Array::zeros([2, 0], crate::DType::F32, &Device::Cpu).unwrap(), 1).is_err());
    }
}
