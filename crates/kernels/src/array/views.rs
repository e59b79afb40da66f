//! Views: new shapes and strides over the same storage.

use super::{Array, require_axis};
use crate::{
    Device, Error, Result,
    array::{copy, layout},
};
use gradewise_core::{PerAxis, Shape};
use std::ops::Range;

impl Array {
    /// The same elements in another shape. Shares the storage where the strides allow it, copies otherwise.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.elements() != self.elements() {
            return Err(Error::Length { operation: "reshape", shape, actual: self.elements() });
        }
        match self.strides_as(&shape) {
            Some(strides) => Ok(self.with_layout(shape, strides, self.offset)),
            None => copy::contiguous(self)?.reshape(shape),
        }
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]` of this array.
    ///
    /// # Errors
    /// If `axes` is not a permutation of the axes.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        let mut seen = vec![false; self.rank()];
        let valid = axes.len() == self.rank()
            && axes.iter().all(|&axis| seen.get_mut(axis).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !valid {
            return Err(Error::Axes {
                operation: "permute",
                axes: axes.to_vec(),
                reason: "are not a permutation of the axes",
                shape: self.shape.clone(),
            });
        }
        let shape = axes.iter().map(|&axis| self.shape[axis]).collect::<Shape>();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(self.with_layout(shape, strides, self.offset))
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// If an axis is out of range.
    pub fn transpose(&self, first: usize, second: usize) -> Result<Self> {
        require_axis("transpose", first, &self.shape)?;
        require_axis("transpose", second, &self.shape)?;
        let (mut shape, mut strides) = (PerAxis::from(self.dims()), self.strides.clone());
        shape.swap(first, second);
        strides.swap(first, second);
        Ok(self.with_layout(shape.into(), strides, self.offset))
    }

    /// The part of the array with positions `range` along `axis`.
    ///
    /// # Errors
    /// If the axis or the range is out of range.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Self> {
        const NAME: &str = "slice";
        require_axis(NAME, axis, &self.shape)?;
        let Range { start, end } = range;
        if start > end || end > self.shape[axis] {
            return Err(Error::Range { operation: NAME, start, end, axis, shape: self.shape.clone() });
        }
        let mut shape = PerAxis::from(self.dims());
        shape[axis] = end - start;
        Ok(self.with_layout(shape.into(), self.strides.clone(), self.offset + start * self.strides[axis]))
    }

    /// Repeats the array, without copying, to a shape that it broadcasts to.
    ///
    /// # Errors
    /// If a size is neither equal to the target's nor 1; if the target has more elements than can be counted.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Self> {
        const NAME: &str = "broadcast_to";
        let shape = shape.into();
        if shape == self.shape {
            return Ok(self.clone());
        }
        let mismatch = || gradewise_core::Error::Broadcast {
            operation: NAME,
            left: self.shape.clone(),
            right: shape.clone(),
        };
        // Zero sizes among others still let products of the others overflow.
        let extent = shape.iter().try_fold(1usize, |extent, &size| extent.checked_mul(size.max(1)));
        if extent.is_none_or(|extent| extent > isize::MAX as usize) {
            let (actual, expected) = (shape.to_string(), "a shape of fewer than 2⁶³ elements");
            return Err(Error::Argument { operation: NAME, argument: "shape", actual, expected });
        }
        let missing = shape.rank().checked_sub(self.rank()).ok_or_else(mismatch)?;
        let mut strides = PerAxis::from_elem(0, shape.rank());
        for axis in 0..self.rank() {
            strides[missing + axis] = match (self.shape[axis], shape[missing + axis]) {
                (own, target) if own == target => self.strides[axis],
                (1, _) => 0,
                _ => return Err(mismatch().into()),
            };
        }
        Ok(self.with_layout(shape, strides, self.offset))
    }

    /// With a new axis of size 1 before `axis`, which may be the rank.
    ///
    /// # Errors
    /// If `axis` is greater than the rank.
    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        if axis > self.rank() {
            require_axis("unsqueeze", axis, &self.shape)?;
        }
        let (mut shape, mut strides) = (PerAxis::from(self.dims()), self.strides.clone());
        shape.insert(axis, 1);
        strides.insert(axis, 1);
        Ok(self.with_layout(shape.into(), strides, self.offset))
    }

    /// Without `axis`, which must have size 1.
    ///
    /// # Errors
    /// If the axis is out of range or has another size.
    pub fn squeeze(&self, axis: usize) -> Result<Self> {
        const NAME: &str = "squeeze";
        require_axis(NAME, axis, &self.shape)?;
        if self.shape[axis] != 1 {
            return Err(gradewise_core::Error::Shape {
                operation: NAME,
                argument: "self",
                actual: self.shape.clone(),
                expected: format!("size 1 along axis {axis}"),
                reason: "only an axis of one element can be left out".to_owned(),
            }
            .into());
        }
        let (mut shape, mut strides) = (PerAxis::from(self.dims()), self.strides.clone());
        shape.remove(axis);
        strides.remove(axis);
        Ok(self.with_layout(shape.into(), strides, self.offset))
    }

    /// The same values, adjacent in row-major order: this array itself if it already is, a copy otherwise.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() { Ok(self.clone()) } else { copy::contiguous(self) }
    }

    /// [`contiguous`](Self::contiguous) of each array. On a GPU, small arrays that have to be copied go several to a launch, where a launch
    /// for each takes longer than the copies: their copies are parts of one piece of memory, apart from each other.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn contiguous_all(arrays: &[Self]) -> Result<Vec<Self>> {
        const NAME: &str = "contiguous";
        let mut found = arrays.to_vec();
        let is_small = |array: &Self| {
            !array.is_contiguous() && array.elements() > 0 && array.elements() <= copy::cuda::MOST_FLAT
        };
        let mut open: Vec<usize> = (0..arrays.len()).filter(|&place| is_small(&arrays[place])).collect();
        while let Some(&first) = open.first() {
            let alike = |place: &usize| {
                arrays[*place].dtype == arrays[first].dtype
                    && arrays[*place].device() == arrays[first].device()
            };
            let (mut together, mut others): (Vec<usize>, Vec<usize>) = open.into_iter().partition(alike);
            others.splice(..0, together.split_off(copy::cuda::JOINED.min(together.len())));
            open = others;
            let Device::Cuda(device) = arrays[first].device() else { continue };
            if together.len() < 2 {
                continue;
            }
            let mut length = 0;
            let mut places = Vec::with_capacity(together.len());
            for &place in &together {
                places.push((&arrays[place], length));
                // Each from a multiple of 64 bytes on, as kernels read whole vectors.
                length += (arrays[place].elements() * arrays[place].dtype.size()).next_multiple_of(64)
                    / arrays[place].dtype.size();
            }
            let out = Self::for_kernel(NAME, [length], arrays[first].dtype, &device)?;
            copy::cuda::gather_flat(&device, NAME, &out, &places)?;
            for (&place, &(array, start)) in together.iter().zip(&places) {
                found[place] =
                    out.slice(0, start..start + array.elements())?.reshape(array.shape().clone())?;
            }
        }
        found.iter().map(Self::contiguous).collect()
    }

    /// The same values in memory of its own, adjacent in row-major order.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn copy(&self) -> Result<Self> {
        match self.device() {
            // By the driver, which needs no kernel.
            Device::Cuda(device) if self.is_contiguous() && self.elements() > 0 => {
                let copy = Self::for_kernel("copy", self.shape(), self.dtype, &device)?;
                copy.overwrite_shared(self)?;
                Ok(copy)
            }
            _ => copy::contiguous(self),
        }
    }

    fn with_layout(&self, shape: Shape, strides: PerAxis, offset: usize) -> Self {
        Self { storage: self.storage.clone(), dtype: self.dtype, shape, strides, offset }
    }

    /// Strides that show the same elements in another shape, if there are any: each stretch of equal steps must be
    /// covered exactly by some of the new axes.
    fn strides_as(&self, shape: &Shape) -> Option<PerAxis> {
        if self.is_contiguous() {
            return Some(shape.contiguous_strides());
        }
        let (sizes, [steps]) = layout::collapse(self.dims(), [&self.strides]);
        let mut strides = PerAxis::from_elem(1, shape.rank());
        let mut axis = shape.rank();
        for (&size, &step) in sizes.iter().zip(&steps).rev() {
            let (mut covered, mut stride) = (1, step);
            while covered < size {
                axis = axis.checked_sub(1)?;
                strides[axis] = stride;
                covered *= shape[axis];
                stride *= shape[axis];
            }
            if covered != size {
                return None;
            }
        }
        Some(strides)
    }
}
