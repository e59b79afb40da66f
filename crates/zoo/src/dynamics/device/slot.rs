//! Arrays that captured work reads and writes.

use crate::data::atoms::Vector;
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};
use gradewise_nn::Result;

/// An array that captured work reads and writes at one address. On the host it is replaced instead.
pub struct Slot(pub Tensor);

impl Slot {
    pub fn new(values: &Array, device: &Device) -> Result<Self> {
        // A copy, for nothing else may share the memory that is written.
        Ok(Self(Tensor::new(values.to_device(device)?.copy()?)))
    }

    pub fn array(&self) -> &Array {
        self.0.array()
    }

    pub fn set(&mut self, values: &Array) -> Result<()> {
        match self.0.device() {
            Device::Cpu => self.0 = Tensor::new(values.clone()),
            Device::Cuda(_) => self.array().overwrite_shared(values)?,
        }
        Ok(())
    }
}

/// Vectors as `[3, atoms, 1]`, on the host.
pub fn by_axis(vectors: &[Vector]) -> Result<Array> {
    let values: Vec<f64> = (0..3).flat_map(|axis| vectors.iter().map(move |vector| vector[axis])).collect();
    Ok(Array::from_vec(values, [3, vectors.len(), 1], &Device::Cpu)?)
}

/// The elements of `[3, atoms, 1]` as vectors.
pub fn by_atom(values: &[f64]) -> Vec<Vector> {
    let atoms = values.len() / 3;
    (0..atoms).map(|atom| [0, 1, 2].map(|axis| values[axis * atoms + atom])).collect()
}
