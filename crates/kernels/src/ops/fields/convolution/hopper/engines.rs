//! The kernels, and which of them a problem gets: the one whose tiles take the fewest cycles.

use super::super::geometry::Gather;
use super::boxes::Boxes;
use crate::{
    Compute, CudaDevice, DType,
    ops::matmul::hopper::{self as product, plan},
    runtime::{
        cuda::{Grid, Kernel},
        tuning::Tile,
    },
};
use gradewise_ffi::tensor_map;

/// A kernel: its name without dtype, and its tile. If `turned`, the tile's columns are the target's channels, otherwise its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Engine {
    name: &'static str,
    pub tile: Tile,
    pub turned: bool,
    exact: bool,
}

const fn engine(name: &'static str, tile: Tile, turned: bool) -> Engine {
    Engine { name, tile, turned, exact: false }
}

const fn exact(name: &'static str, tile: Tile, turned: bool) -> Engine {
    Engine { name, tile, turned, exact: true }
}

const FORWARD: [Engine; 2] = [
    engine("field_hopper_forward", Tile::ALL[1], false),
    engine("field_hopper_forward_192", Tile::alone(256, 192, 3), true),
];
const FORWARD_EXACT: [Engine; 2] = [
    exact("field_hopper_exact_forward", Tile::EXACT, false),
    exact("field_hopper_exact_forward_96", Tile::alone(128, 96, 4), true),
];
/// In f32 the second operand has its k along rows: all are turned.
const GRADIENT: [Engine; 3] = [
    engine("field_hopper_gradient", Tile::ALL[2], true),
    engine("field_hopper_gradient_192", Tile::alone(128, 192, 4), true),
    engine("field_hopper_gradient_96", Tile::alone(256, 96, 4), true),
];
const GRADIENT_EXACT: [Engine; 2] = [
    exact("field_hopper_exact_gradient", Tile::EXACT, true),
    exact("field_hopper_exact_gradient_96", Tile::alone(128, 96, 4), true),
];
const GRADIENT_16: [Engine; 2] = [
    engine("field_hopper_gradient", Tile::ALL[1], false),
    engine("field_hopper_gradient_192", Tile::alone(256, 192, 3), true),
];

fn is_exact(dtype: DType) -> bool {
    dtype == DType::F32 && Compute::current() != Compute::Tf32
}

/// The type as which the copy engine reads operands: f32 is rounded to TF32, unless products are to be exact.
pub(super) fn element(dtype: DType) -> u32 {
    if dtype == DType::F32 && !is_exact(dtype) { tensor_map::TFLOAT32 } else { product::element(dtype) }
}

/// Dynamic shared memory of a kernel such as `gw_field_hopper_forward_f32`.
pub(crate) fn shared_bytes_of_kernel(kernel: &str) -> Option<usize> {
    let (name, dtype) = kernel.strip_prefix("gw_")?.rsplit_once('_')?;
    let gradient: &[Engine] = if dtype == "f32" { &GRADIENT } else { &GRADIENT_16 };
    let lists = [&FORWARD[..], &FORWARD_EXACT, &GRADIENT_EXACT, gradient];
    lists.into_iter().flatten().find(|engine| engine.name == name).map(|engine| engine.shared())
}

impl Engine {
    /// The convolution's kernel for as many positions in boxes, and those boxes; `None` if no kernel's tiles are filled, or if there are too
    /// few of them.
    pub fn forward(gather: &Gather, dtype: DType, multiprocessors: usize) -> Option<(Self, Boxes)> {
        let channels = gather.target[0] * gather.target[1];
        let all = if is_exact(dtype) { &FORWARD_EXACT } else { &FORWARD };
        let candidates = all.iter().filter_map(|engine| {
            let boxes = Boxes::new(gather.target_extents, gather.sizes.batch, engine.positions_of_tile(), 1)?;
            let units = engine.units(channels, boxes.count);
            // Fewer tiles than an eighth of the multiprocessors: smaller ones occupy more of them.
            let serves = boxes.filled(gather.rows()) && 8 * units >= multiprocessors;
            let cycles = units.div_ceil(multiprocessors) * plan::step_cycles(engine.tile);
            serves.then_some((cycles, (*engine, boxes)))
        });
        candidates.min_by_key(|(cycles, _)| *cycles).map(|(_, chosen)| chosen)
    }

    /// The kernels that compute gradients of convolutions' kernels.
    pub fn gradients(dtype: DType) -> &'static [Self] {
        match dtype {
            DType::F32 if is_exact(dtype) => &GRADIENT_EXACT,
            DType::F32 => &GRADIENT,
            _ => &GRADIENT_16,
        }
    }

    /// Positions of a tile of the convolution.
    fn positions_of_tile(&self) -> usize {
        if self.turned { self.tile.rows } else { self.tile.columns }
    }

    /// Channels of a tile of the convolution.
    pub fn channels_of_tile(&self) -> usize {
        if self.turned { self.tile.columns } else { self.tile.rows }
    }

    /// Tiles of a convolution.
    pub fn units(&self, channels: usize, boxes: usize) -> usize {
        channels.div_ceil(self.channels_of_tile()) * boxes
    }

    fn shared(&self) -> usize {
        if self.exact { self.tile.exact_shared_bytes() } else { self.tile.shared_bytes() }
    }

    pub fn kernel(&self, dtype: DType) -> Kernel {
        Kernel::new(self.name, dtype)
    }

    pub fn grid(&self, device: &CudaDevice, units: usize) -> Grid {
        let blocks = units.min(device.info().multiprocessors as usize);
        Grid::blocks(blocks, Tile::THREADS).shared(self.shared())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::geometry::{Axis, Geometry, Sizes};
    use super::*;

    const MULTIPROCESSORS: usize = 132;

    /// The convolution's kernel at these sizes, with 5 taps along each axis.
    fn name(extents: &[usize], batch: usize, channels: usize, dtype: DType) -> Option<&'static str> {
        let axes: Vec<Axis> =
            extents.iter().map(|&extent| Axis::convolution(extent, 5, 1, 1, [2, 2])).collect();
        let geometry = Geometry::new(&axes, 1).unwrap();
        let gather = Sizes::new(&geometry, batch, [1, 64, 1, channels]).forward(&geometry);
        Engine::forward(&gather, dtype, MULTIPROCESSORS).map(|(engine, boxes)| {
            assert_eq!(boxes.positions(), engine.positions_of_tile());
            engine.name
        })
    }

    #[test]
    fn tiles_are_chosen_by_the_channels_and_the_number_of_them() {
        const WIDE: Option<&str> = Some("field_hopper_forward");
        const FITTING: Option<&str> = Some("field_hopper_forward_192");
        for (extents, batch, channels, expected) in [
            (&[64, 64], 8, 192, FITTING),
            (&[64, 64], 8, 136, FITTING),
            (&[64, 64], 8, 96, WIDE),
            (&[64, 64], 8, 128, WIDE),
            (&[64, 64], 8, 256, WIDE),
            // Five tiles of 128 take longer than three of 192.
            (&[64, 64], 32, 576, FITTING),
            // So few positions that every tile has a multiprocessor of its own: the smaller ones finish first.
            (&[32, 32], 8, 192, WIDE),
            (&[8, 8], 8, 192, None),
        ] {
            for dtype in [DType::BF16, DType::F16] {
                assert_eq!(name(extents, batch, channels, dtype), expected, "{extents:?} {batch} {channels}");
            }
            let tf32 = Compute::Tf32.scope(|| name(extents, batch, channels, DType::F32));
            assert_eq!(tf32, expected, "{extents:?} {batch} {channels}");
        }
        for (channels, expected) in [
            (96, "field_hopper_exact_forward_96"),
            (192, "field_hopper_exact_forward_96"),
            (128, "field_hopper_exact_forward"),
            (256, "field_hopper_exact_forward"),
        ] {
            let chosen = Compute::Exact.scope(|| name(&[64, 64], 8, channels, DType::F32));
            assert_eq!(chosen, Some(expected), "{channels}");
        }
    }

    #[test]
    fn kernels_state_the_shared_memory_of_their_tiles() {
        for (kernel, bytes) in [
            ("gw_field_hopper_forward_bf16", Some(230_400)),
            ("gw_field_hopper_forward_192_f32", Some(205_824)),
            ("gw_field_hopper_gradient_f32", Some(197_632)),
            ("gw_field_hopper_gradient_192_f32", Some(197_632)),
            ("gw_field_hopper_gradient_192_f16", Some(205_824)),
            ("gw_field_hopper_gradient_96_f32", Some(214_016)),
            ("gw_field_hopper_exact_gradient_96_f32", Some(197_632)),
            ("gw_field_hopper_exact_forward_f32", Some(230_400)),
            ("gw_field_gather_warp_f32", None),
        ] {
            assert_eq!(shared_bytes_of_kernel(kernel), bytes, "{kernel}");
        }
    }
}
