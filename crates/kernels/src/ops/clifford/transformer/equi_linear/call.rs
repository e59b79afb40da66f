//! A map on a CUDA device: its sizes, parameters and the list of its entries, as kernels take them.

use super::{Entry, Maps, NAME, Operands, Sizes};
use crate::{Array, CudaDevice, DType, Device, Error, Result};

/// `EquiSizes` of csrc/clifford/transformer/equi_linear.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct KernelSizes {
    scalars_in: u32,
    scalars_out: u32,
    channels_in: u32,
    channels_out: u32,
    pairs: u32,
    maps: u32,
    mixed: u32,
    entries: u32,
}

/// `EquiParameters` there: the addresses of the weight and of the operands that [`Operands::others`] lists, but for the scalars.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Parameters(pub [u64; 7]);

/// A map on a device.
pub(super) struct Call<'a> {
    pub device: &'a CudaDevice,
    pub maps: &'a Maps,
    pub sizes: Sizes,
    pub dtype: DType,
}

impl Call<'_> {
    /// The sizes as the kernels count, in 32 bits.
    pub fn kernel_sizes(&self) -> Result<KernelSizes> {
        let Sizes { blades, scalars_in, scalars_out, channels_in, channels_out, .. } = self.sizes;
        let elements = self.elements().max(channels_in * channels_out * self.maps.maps).max(scalars_in);
        // Strided loops go beyond the last element by less than a grid.
        if elements >= 1 << 31 {
            return Err(Error::Argument {
                operation: NAME,
                argument: "weight",
                actual: format!("{elements} coefficients"),
                expected: "less than 2³¹ of them",
            });
        }
        let sizes = [
            scalars_in,
            scalars_out,
            channels_in,
            channels_out,
            blades / 2,
            self.maps.maps,
            self.maps.mixed(),
        ];
        let [scalars_in, scalars_out, channels_in, channels_out, pairs, maps, mixed] =
            sizes.map(|size| size as u32);
        let entries = self.maps.entries.len() as u32;
        Ok(KernelSizes { scalars_in, scalars_out, channels_in, channels_out, pairs, maps, mixed, entries })
    }

    /// The entries by the cells of the pairs and by the maps, as the kernels read them.
    pub fn table(&self) -> Result<Array> {
        let Maps { blades, maps, entries, .. } = self.maps;
        let cell = |entry: &Entry| 2 * entry.row + entry.column % 2;
        let mut table = Vec::new();
        let mut list = |count: usize, of: &dyn Fn(&Entry) -> usize, other: &dyn Fn(&Entry) -> usize| {
            let mut sorted: Vec<&Entry> = entries.iter().collect();
            sorted.sort_by_key(|entry| of(entry));
            table.extend((0..=count).map(|key| sorted.partition_point(|entry| of(entry) < key) as f64));
            table.extend(sorted.iter().flat_map(|entry| [other(entry) as f64, entry.value]));
        };
        list(2 * blades, &cell, &|entry| entry.map);
        list(*maps, &|entry| entry.map, &cell);
        Array::constant(&table, [table.len()], DType::F64, &Device::Cuda(self.device.clone()))
    }

    pub fn elements(&self) -> usize {
        self.sizes.first() + self.sizes.others() * self.sizes.other()
    }
}

/// The addresses of the parameters.
pub(super) fn parameters(operands: &Operands<'_>) -> Parameters {
    let mut addresses = [0; 7];
    addresses[0] = operands.weight.cuda_address();
    for (address, (_, operand)) in addresses[1..].iter_mut().zip(&operands.others()[1..]) {
        *address = operand.map_or(0, Array::cuda_address);
    }
    Parameters(addresses)
}
