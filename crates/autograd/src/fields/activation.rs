//! Gates of multivector fields.

use super::prelude::*;

/// What the argument of a gate is made of.
#[derive(Clone, Copy, Debug)]
pub enum Aggregation<'a> {
    /// `Σ_k weight[c, k]·v_k + bias[c]`.
    Linear {
        /// `[channels, blades of the kernel]`.
        weight: &'a Tensor,
        /// `[channels]`.
        bias: &'a Tensor,
    },
    /// Σ_k v_k.
    Sum,
    /// The mean of the v_k, of which absent ones count as 0.
    Mean,
}

/// x·σ(t) for a field `x` `[blades, …, channels]` that holds the blades `input_blades`, where t is made of the blades `kernel_blades`;
/// those that the field lacks are 0. Equivariant only if the kernel is the scalar alone.
///
/// # Errors
/// Shapes that do not fit together.
pub fn mv_act(
    x: &Tensor,
    input_blades: &[usize],
    kernel_blades: &[usize],
    aggregation: Aggregation<'_>,
) -> Result<Tensor> {
    gated("mv_act", x, input_blades, kernel_blades, aggregation)
}

/// x·σ(t) for a field of vectors `x` `[3, …, channels]`, where t is made of its three components.
///
/// # Errors
/// Shapes that do not fit together.
pub fn g3_vsilu(x: &Tensor, aggregation: Aggregation<'_>) -> Result<Tensor> {
    gated("g3_vsilu", x, &[0, 1, 2], &[0, 1, 2], aggregation)
}

fn gated(
    operation: &'static str,
    x: &Tensor,
    input_blades: &[usize],
    kernel_blades: &[usize],
    aggregation: Aggregation<'_>,
) -> Result<Tensor> {
    let [blades, .., channels] = x.shape().dims() else {
        return refuse(operation, format!("`x` has shape {}, expected [blades, …, channels]", x.shape()));
    };
    let (blades, channels, rank) = (*blades, *channels, x.shape().rank());
    if blades != input_blades.len() || kernel_blades.is_empty() {
        let (inputs, kernel) = (input_blades.len(), kernel_blades.len());
        return refuse(
            operation,
            format!(
                "`x` is {}, expected [{inputs}, …, {channels}], for {inputs} blades are named; the kernel names {kernel}",
                x.shape()
            ),
        );
    }
    // Columns of the weight whose blades the field has, and where these are.
    let place = |blade: &usize| input_blades.iter().position(|have| have == blade);
    let (columns, places): (Vec<usize>, Vec<usize>) =
        kernel_blades.iter().enumerate().filter_map(|(at, blade)| Some((at, place(blade)?))).unzip();
    let found = x.index_select(0, &positions(&places, blades, x)?)?;
    let t = match aggregation {
        Aggregation::Linear { weight, bias } => {
            let kernel = kernel_blades.len();
            require_shape(
                operation,
                "weight",
                weight,
                &[channels, kernel],
                "one entry for each channel and blade",
            )?;
            require_shape(operation, "bias", bias, &[channels], "one entry for each channel")?;
            let mut shape = vec![1; rank];
            (shape[0], shape[rank - 1]) = (places.len(), channels);
            let weight = weight.index_select(1, &positions(&columns, kernel, x)?)?.transpose(0, 1)?;
            found.mul(&weight.reshape(shape)?)?.sum(&[0], true)?.add(bias)?
        }
        Aggregation::Sum => found.sum(&[0], true)?,
        Aggregation::Mean => found.sum(&[0], true)?.mul_scalar(1.0 / kernel_blades.len() as f64)?,
    };
    x.mul(&t.sigmoid()?)
}
