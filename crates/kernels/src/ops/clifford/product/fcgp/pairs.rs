//! The pairwise sums of the fully connected product on CUDA, and the gradients through them: by kernels unrolled for the algebra
//! (csrc/clifford/product/fcgp.cuh) where there are some, else by tables.

use super::{NAME, Needs};
use crate::{
    Array, CudaDevice, Result,
    ops::{
        self,
        clifford::{
            algebra::{
                contract::Planes,
                device_algebra::{DevicePairing, Terms, zeros},
            },
            product::{
                gate_norm::{gate_backward, gated},
                sgp::{ProductOptions, unrolled},
            },
        },
    },
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;
use std::{ops::Range, sync::Arc};

/// Both operands `[blades, batch, in]` as given, and how their sums are formed.
pub(super) struct Pairs<'a> {
    device: &'a CudaDevice,
    pairing: Arc<DevicePairing>,
    operands: [&'a Array; 2],
    options: ProductOptions,
    form: Form,
}

enum Form {
    /// Kernels, with the number of adjacent positions a thread works on.
    Unrolled { forward: (usize, Kernel), backward: (usize, Kernel) },
    /// Tables, for the operands after the gate.
    Tables([Array; 2]),
}

/// Kernels by the number of adjacent positions, widest first.
const FORWARD: [(usize, &str); 3] = [(4, "fcgp_sums_v4"), (2, "fcgp_sums_v2"), (1, "fcgp_sums_v1")];
const BACKWARD: [(usize, &str); 2] = [(2, "fcgp_sums_bwd_v2"), (1, "fcgp_sums_bwd_v1")];

/// The rows of a stretch, contiguous.
fn rows(array: &Array, stretch: &Range<usize>) -> Result<Array> {
    array.slice(1, stretch.clone())?.contiguous()
}

impl<'a> Pairs<'a> {
    pub fn new(
        device: &'a CudaDevice,
        algebra: &Algebra,
        pairing: Arc<DevicePairing>,
        operands: [&'a Array; 2],
        options: ProductOptions,
    ) -> Result<Self> {
        let [x, y] = operands;
        // Stretches start at whole rows, so a kernel that serves the operands serves their stretches.
        let find = |kernels: &[(usize, &'static str)]| unrolled::kernel(device, algebra, kernels, &operands);
        let form = match (find(&FORWARD), find(&BACKWARD)) {
            (Some(forward), Some(backward)) => Form::Unrolled { forward, backward },
            _ => Form::Tables([gated(device, NAME, options, x)?, gated(device, NAME, options, y)?]),
        };
        Ok(Self { device, pairing, operands, options, form })
    }

    /// The sums `[groups, rows, in]` of a stretch of rows.
    pub fn sums(&self, stretch: &Range<usize>) -> Result<Array> {
        let (device, [x, y]) = (self.device, self.operands);
        match &self.form {
            Form::Tables([x, y]) => {
                let (x, y) = (rows(x, stretch)?, rows(y, stretch)?);
                self.pairing.sums.product(device, NAME, &Terms::plain(&x, &y))
            }
            Form::Unrolled { forward: (width, kernel), .. } => {
                let Planes { rows: batch, features, .. } = Planes::of(NAME, x)?;
                let count = stretch.len() * features;
                let shape = [self.pairing.groups, stretch.len(), features];
                let sums = Array::for_kernel(NAME, shape, x.dtype(), device)?;
                if count > 0 {
                    let at = |array: &Array| array.cuda_address() + self.offset(stretch);
                    let args = Args::new()
                        .pointer(at(x))
                        .pointer(at(y))
                        .array(&sums)
                        .size(count)
                        .size(batch * features)
                        .int(self.options.gate.into());
                    // SAFETY: 1: a stretch of the rows of x and y, which are contiguous and of one shape; `sums` has room for all groups.
                    // 2: `sums` is new. 3: linear, a thread for `width` positions. 4: both operands are borrowed.
                    unsafe { device.launch(NAME, *kernel, Grid::linear(count / width), args)? };
                }
                Ok(sums)
            }
        }
    }

    /// Where in a blade of an operand a stretch starts, in bytes.
    fn offset(&self, stretch: &Range<usize>) -> u64 {
        let x = self.operands[0];
        (stretch.start * x.dims()[2] * x.dtype().size()) as u64
    }

    /// Allocates the requested gradients of the operands.
    pub fn gradients(&self, needs: Needs) -> Result<Gradients> {
        let x = self.operands[0];
        let whole = |needed: bool| {
            let unrolled = matches!(self.form, Form::Unrolled { .. });
            let room = || Array::for_kernel(NAME, x.shape(), x.dtype(), self.device);
            (needed && unrolled).then(room).transpose()
        };
        let needs = [needs.x, needs.y];
        Ok(Gradients { needs, whole: [whole(needs[0])?, whole(needs[1])?], parts: [Vec::new(), Vec::new()] })
    }

    /// The gradients of a stretch of rows, given that of its sums. To be called for all stretches in order.
    pub fn backward(&self, stretch: &Range<usize>, sums: &Array, gradients: &mut Gradients) -> Result<()> {
        let (device, [x, y]) = (self.device, self.operands);
        match &self.form {
            Form::Tables([gated_x, gated_y]) => {
                let programs = [(&self.pairing.grad_left, gated_y), (&self.pairing.grad_right, gated_x)];
                for (which, (program, other)) in programs.into_iter().enumerate() {
                    if gradients.needs[which] {
                        let other = rows(other, stretch)?;
                        let part = program.product(device, NAME, &Terms::plain(sums, &other))?;
                        gradients.parts[which].push(part);
                    }
                }
                Ok(())
            }
            Form::Unrolled { backward: (width, kernel), .. } => {
                let Planes { rows: batch, features, .. } = Planes::of(NAME, x)?;
                let count = stretch.len() * features;
                if count == 0 {
                    return Ok(());
                }
                let at = |array: &Array| array.cuda_address() + self.offset(stretch);
                let args = Args::new()
                    .pointer(at(x))
                    .pointer(at(y))
                    .array(sums)
                    .pointer(gradients.whole[0].as_ref().map_or(0, at))
                    .pointer(gradients.whole[1].as_ref().map_or(0, at))
                    .size(count)
                    .size(batch * features)
                    .int(self.options.gate.into());
                // SAFETY: 1: as in `sums`; `sums` has the shape that it has there, as the caller made it by the same stretch. 2: the
                // gradients are this call's own, and stretches are written one after the other. 3: linear, a thread for `width` positions.
                // 4: operands and gradients are borrowed.
                unsafe { device.launch(NAME, *kernel, Grid::linear(count / width), args) }
            }
        }
    }

    /// The gradients of whole operands, after the last stretch.
    pub fn finish(&self, gradients: Gradients) -> Result<[Option<Array>; 2]> {
        let Gradients { needs, whole, parts } = gradients;
        let [whole_x, whole_y] = whole;
        let join = |which: usize, whole: Option<Array>| -> Result<Option<Array>> {
            if !needs[which] || whole.is_some() {
                return Ok(whole);
            }
            let raw = self.operands[which];
            let gradient = match &parts[which][..] {
                [] => zeros(self.device, raw.shape(), raw.dtype())?,
                [part] => part.clone(),
                parts => ops::concat(&parts.iter().collect::<Vec<_>>(), 1)?,
            };
            let through = || gate_backward(self.device, NAME, raw, &gradient);
            if self.options.gate { through().map(Some) } else { Ok(Some(gradient)) }
        };
        Ok([join(0, whole_x)?, join(1, whole_y)?])
    }
}

/// Gradients of the operands while they are being computed: whole arrays that stretches are written into, or the stretches.
pub(super) struct Gradients {
    needs: [bool; 2],
    whole: [Option<Array>; 2],
    parts: [Vec<Array>; 2],
}
