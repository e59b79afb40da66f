//! Products by a table on CUDA.

use super::{NAME, Table};
use crate::{Array, CudaDevice, Result, ops::clifford::device::DeviceProgram};

pub(super) fn forward(device: &CudaDevice, table: &Table, a: &Array, b: &Array) -> Result<Array> {
    let key = || {
        let terms = table.terms().map(|t| (t.a, t.b, t.out, t.sign)).collect::<Vec<_>>();
        format!("{}x{}x{} {terms:?}", table.a, table.b, table.out)
    };
    let program = device.constant(key, || DeviceProgram::from_table(device, table))?;
    program.product(device, NAME, (a, b), None, (None, 1.0))
}
