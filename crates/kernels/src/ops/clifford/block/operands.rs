//! Sizes of blocks, and their operands as kernels take them.

use crate::Array;

/// Sizes of a block.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    /// Features of the input of the first map; 0 where there is none.
    pub inputs: usize,
    pub features: usize,
}

/// Parameters of a block: the matrices and bias of the first map, a and b of the silu, the matrices of the right factor and its normalisation,
/// the product's weights, matrices and bias of the map that is added, the gain.
pub(super) const PARAMETERS: usize = 10;

/// `BlockOperands` of the kernels (csrc/clifford/block/definition.cuh).
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Weights {
    parameters: [u64; PARAMETERS],
    sizes: [u64; 5],
}

impl Weights {
    /// `groups` are those of a block that have rows, where rows go to groups of lanes; `is_wide` says that the parameters are `f32`. The
    /// kernels read the arrays' memory.
    pub fn new<'a>(
        sizes: Sizes,
        groups: usize,
        is_wide: bool,
        parameters: impl IntoIterator<Item = Option<&'a Array>>,
    ) -> Self {
        let Sizes { batch, inputs, features } = sizes;
        let mut addresses = [0; PARAMETERS];
        for (address, array) in addresses.iter_mut().zip(parameters) {
            *address = array.map_or(0, Array::cuda_address);
        }
        let sizes = [batch, inputs, features, groups, usize::from(is_wide)].map(|size| size as u64);
        Self { parameters: addresses, sizes }
    }
}
