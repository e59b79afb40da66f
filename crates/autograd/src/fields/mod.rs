//! Differentiable operators on multivector fields `[blades, batch, *space, channels]` over grids of 1 to 3 axes.
//!
//! Four primitives carry them: the convolution of fields with its two adjoints ([`correlate`]), a constant matrix on the blades, the
//! truncated Fourier transform, and the inverse Cholesky factor. Everything else is a composition of these with ordinary operations, so that it has gradients of every order.
//! The definitions are those of Brandstetter et al. 2022 (arXiv:2209.04934), Ruhe et al. 2023 (arXiv:2302.06594) and Zhdanov et al. 2024
//! (arXiv:2402.14730).

mod activation;
mod blocks;
mod cholesky;
mod conditioned;
mod conjugate;
mod convolution;
mod fourier;
mod matrix;
mod norm;
mod operators;
mod pad;
mod registered;
mod representation;
mod rotation;
mod spectral;
mod spectrum;
mod steerable;
mod steerable_norms;
mod steerable_weights;

pub use activation::{Aggregation, g3_vsilu, mv_act};
pub use blocks::{clifford_kernel, clifford_kernel_between, clifford_kernel_transposed};
pub use cholesky::inverse_cholesky;
pub use conditioned::{cs_condition, cs_conv_conditioned, cs_kernel_conditioned};
pub use conjugate::{ConjugateLinear, pga_conjugate_linear};
pub use convolution::{ConvolutionOptions, correlate, correlate_transposed};
pub use fourier::{fourier_crop, fourier_extend};
pub use gradewise_kernels::ops::fields::fourier::{Modes, Sign};
pub use norm::{
    BatchNorm, NormOptions, Statistics, Whitening, clifford_batch_norm, clifford_group_norm, g3_group_norm,
};
pub use operators::{clifford_conv, clifford_conv_transpose, clifford_linear, pool_mean, upsample};
pub use pad::{Padding, pad};
pub use rotation::{g3_kernel, g3_kernel_transposed, rotation_kernel};
pub use spectral::{Pairing, Side, SpectralOptions, clifford_spectral_conv};
pub use steerable::{SteerablePadding, cs_conv, cs_correlate, cs_kernel, cs_kernel_at};
pub use steerable_norms::{cs_grade_norm, cs_layer_norm, cs_mv_gelu};
pub use steerable_weights::{SteerableKernel, SteerableLayerWeights};

use crate::entry::Entry;

/// The operations of this folder.
pub(crate) static OPERATIONS: &[Entry] = &[
    Entry::of::<cholesky::InverseCholesky>(),
    Entry::of::<convolution::Convolution<{ convolution::FORWARD }>>(),
    Entry::of::<convolution::Convolution<{ convolution::ADJOINT }>>(),
    Entry::of::<convolution::Convolution<{ convolution::KERNEL }>>(),
    Entry::of::<fourier::Fourier<true>>(),
    Entry::of::<fourier::Fourier<false>>(),
    Entry::of::<matrix::BladeMatrix>(),
    Entry::of::<registered::CliffordBatchNorm>(),
    Entry::of::<registered::CliffordConv>(),
    Entry::of::<registered::CliffordConvTranspose>(),
    Entry::of::<registered::CliffordGroupNorm>(),
    Entry::of::<registered::CliffordLinear>(),
    Entry::of::<registered::CliffordSpectralConv>(),
    Entry::of::<registered::G3Conv>(),
    Entry::of::<registered::G3GroupNorm>(),
    Entry::of::<registered::MvAct>(),
    Entry::of::<registered::PgaConjugateLinear>(),
    Entry::of::<registered::SteerableGate>(),
    Entry::of::<steerable_norms::CsGradeNorm>(),
    Entry::of::<steerable_norms::CsLayerNorm>(),
    Entry::of::<steerable_norms::CsMvGelu>(),
];

/// What every file of this folder uses.
mod prelude {
    pub(super) use crate::{
        BackwardContext, Cost, Derivative, Error, Forward, Input, Operand, Operation, Result, Rule, Sample,
        Sizes, Tensor,
    };
    pub(super) use gradewise_core::OrderedMetric;
    pub(super) use gradewise_kernels::{Array, DType, Device, Index};
    pub(super) use serde::{Deserialize, Serialize};

    /// Numbers that an operator is derived from, where `like` is and in its dtype.
    pub(super) fn constant(values: &[f64], shape: &[usize], like: &Tensor) -> Result<Tensor> {
        Ok(Tensor::new(Array::constant(values, shape, like.dtype(), &like.device())?))
    }

    /// Positions below `bound` that an operator is derived from, where `like` is.
    pub(super) fn positions(values: &[usize], bound: usize, like: &Tensor) -> Result<Index> {
        Ok(Index::constant(values, bound, &like.device())?)
    }

    /// The refusal of an argument.
    pub(super) fn refuse<T>(operation: &'static str, message: impl Into<String>) -> Result<T> {
        Err(Error::Argument { operation, message: message.into() })
    }

    /// Refuses a tensor of another shape.
    pub(super) fn require_shape(
        operation: &'static str,
        argument: &'static str,
        tensor: &Tensor,
        expected: &[usize],
        reason: &str,
    ) -> Result<()> {
        if tensor.shape()[..] == *expected {
            return Ok(());
        }
        let actual = tensor.shape();
        refuse(operation, format!("`{argument}` has shape {actual}, expected {expected:?} ({reason})"))
    }

    /// The spatial extents of a field `[blades, batch, *space, channels]` with this many axes of space, or with 1 to 3 if that is free.
    pub(super) fn space<'a>(
        operation: &'static str,
        x: &'a Tensor,
        blades: usize,
        axes: Option<usize>,
    ) -> Result<&'a [usize]> {
        if let [first, _, space @ .., _] = x.shape().dims()
            && *first == blades
            && axes.map_or((1..=3).contains(&space.len()), |axes| axes == space.len())
        {
            return Ok(space);
        }
        let axes = axes.map_or("1 to 3".to_owned(), |axes| axes.to_string());
        refuse(
            operation,
            format!(
                "`x` has shape {}, expected [{blades}, batch, *space, channels] with {axes} axes of space",
                x.shape()
            ),
        )
    }

    /// A bias `[blades, channels]` added to a field.
    pub(super) fn add_bias(operation: &'static str, y: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let Some(bias) = bias else { return Ok(y.clone()) };
        let (rank, sizes) = (y.shape().rank(), y.shape().dims());
        let (blades, channels) = (sizes[0], sizes[rank - 1]);
        require_shape(
            operation,
            "bias",
            bias,
            &[blades, channels],
            "one entry for each blade and channel of the output",
        )?;
        let mut shape = vec![1; rank];
        (shape[0], shape[rank - 1]) = (blades, channels);
        y.add(&bias.reshape(shape)?)
    }
}
