//! Arrays of the crate `ndarray`, without a copy where the memory can be shared.

use super::{Array, Borrowed};
use crate::{Device, Element, Result};
use ndarray::{ArcArray, ArrayD, ArrayView, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder};

impl Array {
    /// The elements as a view of `ndarray`, without a copy, whatever the strides.
    ///
    /// ```
    /// use gradewise_kernels::{Array, Device};
    ///
    /// let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu)?;
    /// let turned = a.transpose(0, 1)?;
    /// let view = turned.view_ndarray::<f32>()?;
    /// assert_eq!((view.shape(), view[[2, 1]]), (&[3, 2][..], 6.0));
    /// # Ok::<(), gradewise_kernels::Error>(())
    /// ```
    ///
    /// # Errors
    /// `T` is not the dtype; the array is not on the host.
    pub fn view_ndarray<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        const NAME: &str = "view_ndarray";
        let storage = self.storage_slice::<T>(NAME)?;
        // An empty view may begin past the end of its storage.
        let first = if self.elements() == 0 { 0 } else { self.offset };
        let shape = IxDyn(self.dims()).strides(IxDyn(self.strides()));
        match ArrayViewD::from_shape(shape, &storage[first..]) {
            Ok(view) => Ok(view),
            Err(_) => unreachable!("the strides of an array reach elements of its storage alone"),
        }
    }

    /// The elements as a view of `ndarray` to write to, in row-major order. As [`as_mut_slice`](Self::as_mut_slice), it
    /// copies first what others share, or show as another view.
    ///
    /// # Errors
    /// As [`as_mut_slice`](Self::as_mut_slice).
    pub fn view_ndarray_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        let shape = IxDyn(self.dims());
        match ArrayViewMutD::from_shape(shape, self.as_mut_slice::<T>()?) {
            Ok(view) => Ok(view),
            Err(_) => unreachable!("an array has as many elements as its shape"),
        }
    }

    /// The elements as an array of `ndarray` of its own, in row-major order.
    ///
    /// # Errors
    /// `T` is not the dtype; no memory.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        match ArrayD::from_shape_vec(IxDyn(self.dims()), self.to_vec::<T>()?) {
            Ok(array) => Ok(array),
            Err(_) => unreachable!("an array has as many elements as its shape"),
        }
    }

    /// An array over the elements of an array of `ndarray`, which is shared, not copied, and stays as it is: writing to
    /// either copies. Layouts with an axis that runs backwards are copied.
    ///
    /// ```
    /// use gradewise_kernels::{Array, ops};
    ///
    /// let theirs = ndarray::arr2(&[[1.0f64, 2.0], [3.0, 4.0]]).into_shared();
    /// let ours = Array::share_ndarray(theirs.clone())?;
    /// assert_eq!(ours.address(), theirs.as_ptr().addr() as u64);
    /// assert_eq!(ops::square(&ours)?.to_ndarray::<f64>()?, (&theirs * &theirs).into_dyn());
    /// # Ok::<(), gradewise_kernels::Error>(())
    /// ```
    ///
    /// # Errors
    /// No memory for a copy.
    pub fn share_ndarray<T: Element, D: Dimension + 'static>(array: ArcArray<T, D>) -> Result<Self> {
        let owner = array.clone();
        // SAFETY: the owner keeps the elements, and an `ArcArray` that others share copies before it writes.
        unsafe { Self::lent(array.view(), Box::new(owner)) }
    }

    /// An array over the elements of a view of `ndarray`, without a copy. Layouts with an axis that runs backwards are
    /// copied.
    ///
    /// # Safety
    /// What the view shows must stay where it is, and unchanged, until the result and all views of it are gone. Where that
    /// cannot be promised, use [`share_ndarray`](Self::share_ndarray).
    ///
    /// # Errors
    /// No memory for a copy.
    pub unsafe fn borrow_ndarray<T: Element, D: Dimension>(view: ArrayView<'_, T, D>) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::lent(view, Box::new(())) }
    }

    /// An array with the elements of an array of `ndarray`, in whose memory it stays if they lie in row-major order.
    ///
    /// # Errors
    /// No memory.
    pub fn from_ndarray<T: Element, D: Dimension>(array: ndarray::Array<T, D>) -> Result<Self> {
        let shape = array.shape().to_vec();
        if !array.is_standard_layout() {
            return Self::from_vec(array.iter().copied().collect(), shape, &Device::Cpu);
        }
        let elements = array.len();
        let (mut values, first) = array.into_raw_vec_and_offset();
        // Of what was sliced the vector has more than the array shows.
        values.drain(..first.unwrap_or(0));
        values.truncate(elements);
        Self::from_vec(values, shape, &Device::Cpu)
    }

    /// # Safety
    /// `owner` must keep what the view shows where it is, and unchanged.
    unsafe fn lent<T: Element, D: Dimension>(
        view: ArrayView<'_, T, D>,
        owner: crate::runtime::external::Owner,
    ) -> Result<Self> {
        let forward: Option<Vec<usize>> =
            view.strides().iter().map(|&stride| usize::try_from(stride).ok()).collect();
        let Some(strides) = forward else {
            return Self::from_vec(view.iter().copied().collect(), view.shape(), &Device::Cpu);
        };
        let borrowed = Borrowed {
            address: view.as_ptr().expose_provenance() as u64,
            dtype: T::DTYPE,
            shape: view.shape(),
            strides: &strides,
            owner,
            is_known: true,
        };
        // SAFETY: the view's strides reach its elements alone, which stay as the caller says.
        unsafe { Self::borrow(borrowed, &Device::Cpu) }
    }
}
