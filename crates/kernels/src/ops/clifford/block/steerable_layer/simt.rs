//! The layer on CUDA as one kernel for each pass (csrc/clifford/block/simt_steerable.cuh): at most 32 features of f32.

use super::{Gradients, NAME, Operands};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    ops::clifford::{
        algebra::contract::Planes,
        block::{
            operands::{Sizes, Weights},
            simt::{MOST_FEATURES, Shape, THREADS},
        },
    },
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// How the layer runs.
pub(super) struct Plan {
    shape: Shape,
    sizes: Sizes,
    kernels: [Kernel; 2],
    blocks: [usize; 2],
    shared: [usize; 2],
}

/// `None` if no kernel serves these sizes in this dtype. There is a left map if `maps` is 2.
pub(super) fn plan(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    dtype: DType,
    maps: usize,
) -> Option<Plan> {
    let sizes = Sizes { batch: planes.rows, inputs: 0, features: planes.features };
    if [sizes.batch, sizes.features].contains(&0) || sizes.features > MOST_FEATURES || dtype != DType::F32 {
        return None;
    }
    let shape = Shape::choose(device, algebra, sizes, maps, [1, 1])?;
    let names = match shape.lanes {
        16 => ["steerable_simt_fwd_l16", "steerable_simt_bwd_l16"],
        _ => ["steerable_simt_fwd_l32", "steerable_simt_bwd_l32"],
    };
    let kernels = names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    let are_there = kernels.iter().all(|kernel| device.has_kernel(kernel));
    are_there.then(|| Plan {
        blocks: shape.blocks(device, sizes.batch),
        shared: shape.shared(algebra, sizes, maps),
        shape,
        sizes,
        kernels,
    })
}

impl Plan {
    fn grid(&self, pass: usize) -> Grid {
        Grid::blocks(self.blocks[pass], THREADS as u32).shared(self.shared[pass])
    }

    fn weights(&self, operands: &Operands<'_>) -> Weights {
        let Operands { x: _, right, a, w, left } = *operands;
        let (left, bias) = left.unzip();
        let none = [None; 4];
        let parameters = none.into_iter().chain([Some(right), Some(a), Some(w), left, bias, None]);
        Weights::new(self.sizes, self.shape.groups, true, parameters)
    }
}

/// All operands are contiguous.
pub(super) fn forward(device: &CudaDevice, plan: &Plan, operands: &Operands<'_>) -> Result<Array> {
    let out = Array::for_kernel(NAME, operands.x.shape(), DType::F32, device)?;
    let args = Args::new().value(&plan.weights(operands)).array(operands.x).array(&out);
    // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous; `out` has the shape of x. 2: it is new. 3: the
    // plan's grid is the kernel's. 4: the operands, of which the weights are addresses, are borrowed.
    unsafe { device.launch(NAME, plan.kernels[0], plan.grid(0), args)? };
    Ok(out)
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    plan: &Plan,
    operands: &Operands<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let Operands { x, right, a, w, left } = *operands;
    let n = plan.sizes.features;
    // In the order of `BlockGradientLayout` without inputs, each from a multiple of 4 on: what a layer alone has no parameter for is zero.
    let of_left = left.map_or(0, |(left, _)| left.elements());
    let sizes = [n, a.elements(), a.elements(), right.elements(), a.elements(), w.elements()];
    let last = [of_left, n, n];
    let places: Vec<usize> = sizes
        .into_iter()
        .chain(last)
        .scan(0, |next, size| Some(std::mem::replace(next, *next + size.next_multiple_of(4))))
        .collect();
    let count = places[8] + n.next_multiple_of(4);
    let grad_x = Array::for_kernel(NAME, x.shape(), DType::F32, device)?;
    let partials = Array::for_kernel(NAME, [plan.blocks[1], count], DType::F32, device)?;
    let args =
        Args::new().value(&plan.weights(operands)).array(x).array(grad).array(&grad_x).array(&partials);
    // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous, as is the gradient, which has the shape of x;
    // each block writes its sums of all parameters. 2: results are new. 3: the plan's grid is the kernel's. 4: the operands, of which the
    // weights are addresses, are borrowed.
    unsafe { device.launch(NAME, plan.kernels[1], plan.grid(1), args)? };
    let sums = sum_partials(device, NAME, &partials, [count], DType::F32, 1.0)?;
    let part = |place: usize, like: &Array| {
        sums.slice(0, places[place]..places[place] + like.elements())?.reshape(like.shape())
    };
    Ok(Gradients {
        x: grad_x,
        right: part(3, right)?,
        a: part(4, a)?,
        w: part(5, w)?,
        left: left.map(|(left, bias)| Ok::<_, crate::Error>((part(6, left)?, part(7, bias)?))).transpose()?,
    })
}
