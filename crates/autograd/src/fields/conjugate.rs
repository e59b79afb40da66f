//! Linear maps by conjugation in projective geometric algebra.

use super::{
    convolution::{ConvolutionOptions, correlate},
    prelude::*,
};

/// The operands of [`pga_conjugate_linear`].
#[derive(Clone, Copy, Debug)]
pub struct ConjugateLinear<'a> {
    /// `[input blades, …, in]`.
    pub x: &'a Tensor,
    /// The multivectors k, `[out, in, action blades]`.
    pub action: &'a Tensor,
    /// `[out, in]`.
    pub weight: &'a Tensor,
    /// What the blade e123 of the input is, `[in, 1]`: the homogeneous coordinate of points.
    pub embed: &'a Tensor,
}

/// The blade e123 of the metric (0,1,1,1), which holds the homogeneous coordinate.
const HOMOGENEOUS: usize = 14;

/// `y[o] = Σ_c weight[o, c]·k_{oc}·x_c·reverse(k_{oc})` in the metric (0,1,1,1), on the blades `input_blades`, where `k` is on the blades
/// `action_blades` and blade e123 of x is what `embed` says, whatever x has there. Gives `[input blades, …, out]`. Motions of space are not
/// a symmetry of it: k is fixed in space.
///
/// # Errors
/// Shapes that do not fit together, blades beyond the algebra's 16.
pub fn pga_conjugate_linear(
    operands: &ConjugateLinear<'_>,
    input_blades: &[usize],
    action_blades: &[usize],
) -> Result<Tensor> {
    const NAME: &str = "pga_conjugate_linear";
    let ConjugateLinear { x, action, weight, embed } = *operands;
    let metric = OrderedMetric::new(&[0, 1, 1, 1]).map_err(gradewise_kernels::Error::from)?;
    let blades = metric.blade_count();
    if input_blades.iter().chain(action_blades).any(|&blade| blade >= blades) {
        return refuse(
            NAME,
            format!("blades {input_blades:?} and {action_blades:?}: there are {blades}, counted from 0"),
        );
    }
    let ([first, lead @ .., channels], &[out, inputs, actions]) = (x.shape().dims(), action.shape().dims())
    else {
        return refuse(
            NAME,
            format!("`x` has shape {}, `action` {}, expected [out, in, blades]", x.shape(), action.shape()),
        );
    };
    if *first != input_blades.len() || *channels != inputs || actions != action_blades.len() {
        return refuse(
            NAME,
            format!(
                "`x` has shape {} and `action` {}, expected [{}, …, {inputs}] and [out, in, {}]",
                x.shape(),
                action.shape(),
                input_blades.len(),
                action_blades.len()
            ),
        );
    }
    require_shape(NAME, "weight", weight, &[out, inputs], "one entry for each pair of channels")?;
    require_shape(NAME, "embed", embed, &[inputs, 1], "one entry for each channel of the input")?;
    let (lead, rows) = (lead.to_vec(), lead.iter().product::<usize>());
    // The matrices of x ↦ k·x and x ↦ x·reverse(k), linear in k: [actions, 16·16].
    let mut left = vec![0.0; actions * blades * blades];
    let mut right = left.clone();
    for (at, &k) in action_blades.iter().enumerate() {
        for blade in 0..blades {
            let (to, sign) = metric.product(k, blade);
            left[(at * blades + to) * blades + blade] = f64::from(sign);
            let (to, sign) = metric.product(blade, k);
            right[(at * blades + to) * blades + blade] = f64::from(sign * metric.reverse_sign(k));
        }
    }
    let rows_of_k = action.reshape([out * inputs, actions])?;
    let matrix = |table: &[f64]| -> Result<Tensor> {
        let table = constant(table, &[actions, blades * blades], x)?;
        rows_of_k.matmul(&table)?.reshape([out * inputs, blades, blades])
    };
    let sandwich = matrix(&right)?.matmul(&matrix(&left)?)?.mul(&weight.reshape([out * inputs, 1, 1])?)?;
    // [out·in, to, from] → the kernel [to, out, from, 1, in].
    let sandwich = sandwich.index_select(1, &positions(input_blades, blades, x)?)?;
    let count = input_blades.len();
    let of_blades = |from: &[usize]| -> Result<Tensor> {
        let kernel = sandwich.index_select(2, &positions(from, blades, x)?)?;
        kernel.reshape([out, inputs, count, from.len()])?.permute(&[2, 0, 3, 1])
    };
    // The blade that `embed` replaces adds a constant.
    let constant_part =
        of_blades(&[HOMOGENEOUS])?.reshape([count * out, inputs])?.matmul(embed)?.reshape([count, out])?;
    let (kept, places): (Vec<usize>, Vec<usize>) = input_blades
        .iter()
        .enumerate()
        .filter(|(_, blade)| **blade != HOMOGENEOUS)
        .map(|(at, &blade)| (blade, at))
        .unzip();
    let field = x.index_select(0, &positions(&places, count, x)?)?.reshape([kept.len(), 1, rows, inputs])?;
    let y = correlate(&field, &of_blades(&kept)?.unsqueeze(3)?, &ConvolutionOptions::new(1))?;
    add_bias(NAME, &y, Some(&constant_part))?.reshape([&[count], &lead[..], &[out]].concat())
}
