//! A map on a CUDA device: its sizes, parameters and the list of its entries, as kernels take them.

use super::{Entry, Maps, NAME, Operands, Sizes};
use crate::{Array, CudaDevice, DType, Device, Error, Result, csrc::feature_planes::MOST_PLANES};

/// `EquiSizes` of csrc/clifford/transformer/equi/equi_linear.cu.
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

/// Cells of the most pairs that there are.
const CELLS: usize = 2 * MOST_PLANES;

/// `EquiCells` of csrc/clifford/transformer/equi/equi_regions.cuh.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Cells {
    map: [i32; CELLS],
    factor: [f64; CELLS],
    several: u32,
    padding: u32,
}

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

    /// The first entry of each cell of the pairs.
    pub fn cells(&self) -> Cells {
        let mut cells = Cells { map: [-1; CELLS], factor: [0.0; CELLS], several: 0, padding: 0 };
        for entry in &self.maps.entries {
            let cell = 2 * entry.row + entry.column % 2;
            if cells.map[cell] >= 0 {
                cells.several = 1;
                continue;
            }
            // As the table lists them: the first of the entries.
            cells.map[cell] = entry.map as i32;
            cells.factor[cell] = entry.value;
        }
        cells
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

    /// The features, and results or the gradient of them.
    pub fn sides(&self, operands: &Operands<'_>, results: &Array) -> (Side, Side) {
        let Sizes { rows, scalars_in, scalars_out, .. } = self.sizes;
        let features = Side::new(operands.x, operands.scalars, scalars_in, rows);
        (features, Side::new(results, None, scalars_out, rows))
    }

    /// The elements of all matrices.
    pub fn elements(&self) -> usize {
        self.sizes.first() + self.sizes.others() * self.sizes.other()
    }
}

/// Whether something is added to results.
pub(super) fn has_bias(operands: &Operands<'_>) -> bool {
    operands.bias.is_some() || operands.to_planes_bias.is_some() || operands.to_scalars_bias.is_some()
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

/// `EquiSide` of the kernels: the addresses of scalars and planes.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Side(pub [u64; 2]);

impl Side {
    /// Features whose scalars are apart, or the first rows of the planes' array.
    pub fn new(planes: &Array, apart: Option<&Array>, scalars: usize, rows: usize) -> Self {
        let begin = planes.cuda_address();
        match apart {
            Some(apart) => Self([apart.cuda_address(), begin]),
            None => Self([begin, begin + (scalars * rows * planes.dtype().size()) as u64]),
        }
    }
}

/// Blocks along the results: tiles of so many lines of the first pair, then those of the others.
pub(super) fn tiles_of(lines: usize, of_first: usize, of_others: usize, others: usize) -> usize {
    of_first.div_ceil(lines) + others * of_others.div_ceil(lines)
}

/// The gradients of the matrices, the first and the others, and of what is added to the first pair's results if something is. Each may have
/// several parts, of stretches of rows.
pub(super) struct OfMatrices {
    pub first: Array,
    /// After the first if it is not apart.
    pub others: Option<Array>,
    pub bias: Option<Array>,
    /// How many parts there are, and elements of both matrices from one to the next.
    pub count: usize,
    pub stride: usize,
    /// The elements of the first matrix.
    pub of_first: usize,
}

/// `EquiParts` of csrc/clifford/transformer/equi/equi_linear.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Parts {
    addresses: [u64; 3],
    stride: u64,
    count: u32,
    padding: u32,
}

impl OfMatrices {
    /// In one part, and apart from each other.
    pub fn whole(sizes: Sizes, first: Array, others: Array, bias: Option<Array>) -> Self {
        Self { first, others: Some(others), bias, count: 1, stride: 0, of_first: sizes.first() }
    }

    pub fn parts(&self) -> Parts {
        let first = self.first.cuda_address();
        let after = first + (self.of_first * self.first.dtype().size()) as u64;
        let others = self.others.as_ref().map_or(after, Array::cuda_address);
        let bias = self.bias.as_ref().map_or(0, Array::cuda_address);
        let count = self.count as u32;
        Parts { addresses: [first, others, bias], stride: self.stride as u64, count, padding: 0 }
    }
}
