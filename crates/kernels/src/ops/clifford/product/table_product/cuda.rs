//! Products by a table on CUDA.

use super::{NAME, Table};
use crate::{
    Array, CudaDevice, Result,
    ops::clifford::algebra::device_algebra::{DeviceProgram, Terms},
    runtime::cuda::Key,
};

pub(super) fn forward(device: &CudaDevice, table: &Table, a: &Array, b: &Array) -> Result<Array> {
    let program = device.constant(Key::Table(table.number()), || DeviceProgram::from_table(device, table))?;
    program.product(device, NAME, &Terms::plain(a, b))
}
