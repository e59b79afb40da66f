//! The launch on CUDA of operators that scale each grade by parameters of its own, `[features, grades]` each: mv_silu, mv_normalization and
//! cs_grade_norm.

use crate::{
    Array, CudaDevice, Result,
    array::rows::{Chunks, sum_partials},
    ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra},
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// An operator and its kernels, which read x and the parameters in order.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops::clifford) struct ByGrade {
    pub operation: &'static str,
    pub forward: &'static str,
    pub backward: &'static str,
}

/// As many arrays as there are parameters.
fn each<const N: usize>(mut make: impl FnMut(usize) -> Result<Array>) -> Result<[Array; N]> {
    let mut failure = None;
    let made = std::array::from_fn(|index| make(index).map_err(|error| failure = Some(error)).ok());
    match failure {
        Some(error) => Err(error),
        None => Ok(made.map(|array| array.unwrap_or_else(|| unreachable!("nothing failed")))),
    }
}

impl ByGrade {
    /// Of contiguous arguments that were compared with the planes.
    pub fn forward(
        self,
        device: &CudaDevice,
        algebra: &Algebra,
        planes: Planes,
        x: &Array,
        parameters: &[&Array],
    ) -> Result<Array> {
        let tables = DeviceAlgebra::of(device, algebra)?;
        let out = Array::for_kernel(self.operation, x.shape(), x.dtype(), device)?;
        if planes.plane() > 0 {
            let mut args = Args::new().array(x);
            for parameter in parameters {
                args = args.array(parameter);
            }
            let args = args
                .array(&out)
                .pointer(tables.first.address())
                .pointer(tables.metric.address())
                .size(planes.plane())
                .size(planes.features);
            let grid = Grid::linear_by(planes.plane(), tables.grade_count);
            // SAFETY: 1: `check` where the operator is entered compared x and the parameters with the planes; all are contiguous. 2: `out`
            // is new. 3: linear, with the grades along y. 4: the device keeps the algebra's tables.
            unsafe { device.launch(self.operation, Kernel::new(self.forward, x.dtype()), grid, args)? };
        }
        Ok(out)
    }

    /// The gradients of x and of the parameters, of the same arguments and a gradient of the shape of x.
    pub fn backward<const N: usize>(
        self,
        device: &CudaDevice,
        algebra: &Algebra,
        planes: Planes,
        x: &Array,
        parameters: [&Array; N],
        grad: &Array,
    ) -> Result<(Array, [Array; N])> {
        let tables = DeviceAlgebra::of(device, algebra)?;
        let Planes { rows, features, .. } = planes;
        let (dtype, results) = (x.dtype(), features * tables.grade_count);
        let chunks = Chunks::new(rows, features, tables.grade_count);
        let out = Array::for_kernel(self.operation, x.shape(), dtype, device)?;
        let partials: [Array; N] = each(|_| chunks.partials(self.operation, results, dtype, device))?;
        if results > 0 {
            let mut args = Args::new().array(x);
            for parameter in parameters {
                args = args.array(parameter);
            }
            args = args.array(grad).array(&out);
            for partial in &partials {
                args = args.array(partial);
            }
            let args = args
                .pointer(tables.first.address())
                .pointer(tables.metric.address())
                .size(rows)
                .size(features)
                .size(chunks.rows);
            let grid = chunks.grid(features, tables.grade_count);
            // SAFETY: 1: as in the forward pass, with a gradient of the shape of x; each chunk of rows writes its sums for all features and
            // grades. 2: results and sums are new. 3: the chunks' grid, grades along y. 4: the device keeps the algebra's tables.
            unsafe { device.launch(self.operation, Kernel::new(self.backward, dtype), grid, args)? };
        }
        let sums = each(|index| {
            let shape = parameters[index].shape();
            sum_partials(device, self.operation, &partials[index], shape, dtype, 1.0)
        })?;
        Ok((out, sums))
    }
}
