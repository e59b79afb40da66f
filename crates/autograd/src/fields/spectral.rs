//! The Clifford Fourier layer.

use super::{
    fourier::{fourier_crop, fourier_extend},
    prelude::*,
};
use gradewise_kernels::ops::fields::fourier::{Modes, Sign};

/// Which blades make a complex number, and with which sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// x_b + i·x_{b*} with b* the complementary blade: as published, and as trained weights expect.
    #[default]
    Reference,
    /// x_b + i·s·x_{b*} with b·e_{1…n} = s·b*: multiplication by i is that by the pseudoscalar on the right.
    Dual,
}

/// On which side of the feature the weight is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// feature·weight, as published.
    #[default]
    Right,
    /// weight·feature: in two dimensions of metric (1,1) it makes the layer commute with shifts.
    Left,
}

/// The variants of [`clifford_spectral_conv`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpectralOptions {
    /// Frequencies kept along each axis, as many positive (with 0) as negative: 0…m−1 and −m…−1.
    pub modes: Vec<usize>,
    /// Which blades make a complex number.
    pub pairing: Pairing,
    /// On which side the weight is.
    pub side: Side,
    /// Whether one octant of a 3D field takes the product of another, as the released implementation has it: for weights that were
    /// trained so.
    pub octant_bug: bool,
}

impl SpectralOptions {
    /// What makes the layer commute with shifts of a periodic grid: in three dimensions of metric (1,1,1) the dual pairing, in two of (1,1)
    /// the weight on the left.
    pub fn new(modes: &[usize]) -> Self {
        let dual = modes.len() == 3;
        Self {
            modes: modes.to_vec(),
            pairing: if dual { Pairing::Dual } else { Pairing::Reference },
            side: if dual { Side::Right } else { Side::Left },
            octant_bug: false,
        }
    }

    /// As published.
    pub fn reference(modes: &[usize]) -> Self {
        Self { modes: modes.to_vec(), pairing: Pairing::Reference, side: Side::Right, octant_bug: false }
    }
}

const NAME: &str = "clifford_spectral_conv";

/// The Clifford Fourier layer on a field `x` `[I, batch, *space, in]` of 2 or 3 axes: pairs of blades are complex numbers, whose Fourier
/// transforms are multiplied, at the low frequencies that `options` keeps, by weights `[I, out, in, *2·modes]` in the geometric product;
/// without weights they are only kept. Gives `[I, batch, *space, out]`.
///
/// # Errors
/// Shapes that do not fit the options; more frequencies than the grid has; a dual pairing where the pseudoscalar squares to +1 or 0.
pub fn clifford_spectral_conv(
    metric: &OrderedMetric,
    x: &Tensor,
    weights: Option<&Tensor>,
    options: &SpectralOptions,
) -> Result<Tensor> {
    let (axes, blades) = (metric.dimension(), metric.blade_count());
    let extents = space(NAME, x, blades, Some(axes))?;
    let (batch, channels) = (x.shape()[1], x.shape()[axes + 2]);
    let modes = modes(extents, options)?;
    let kept: Vec<usize> = modes.iter().map(Modes::kept).collect();
    let volume: usize = kept.iter().product();
    let signs = pair_signs(metric, options.pairing)?;
    // Real parts first, then imaginary ones: blade `order[k]` lies at k, with sign `signs[k]`.
    let order: Vec<usize> = (0..blades / 2).chain((0..blades / 2).map(|blade| blades - 1 - blade)).collect();
    let shape = |extents: &[usize], channels| [&[2, blades / 2 * batch], extents, &[channels]].concat();
    let field = |extents: &[usize], channels| [&[blades, batch], extents, &[channels]].concat();
    let factors: Vec<f64> = signs.iter().map(|&sign| f64::from(sign)).collect();
    let mut sign_shape = vec![1; axes + 3];
    sign_shape[0] = blades;
    let sign = |like: &Tensor| constant(&factors, &sign_shape, like);
    let z = x.index_select(0, &positions(&order, blades, x)?)?.mul(&sign(x)?)?;
    let z = fourier_crop(&z.reshape(shape(extents, channels))?, &modes, Sign::Minus)?;
    let (product, out) = match weights {
        None => (z, channels),
        Some(weights) => {
            let expected: Vec<usize> =
                [&[blades, weights.shape().get(1).copied().unwrap_or(0), channels], &kept[..]].concat();
            require_shape(NAME, "weights", weights, &expected, "[blades, out, in, *2·modes]")?;
            let z = z.reshape([blades, batch, volume, channels])?;
            let product = multiply(metric, &z, weights, (&order, &signs), options.side)?;
            let out = weights.shape()[1];
            (product.reshape(shape(&kept, out))?, out)
        }
    };
    let product = if options.octant_bug && axes == 3 {
        let rows = field(&[volume], out);
        let index = positions(&octants(&kept), volume, x)?;
        product.reshape(rows)?.index_select(2, &index)?.reshape(shape(&kept, out))?
    } else {
        product
    };
    let scale = 1.0 / extents.iter().map(|&extent| extent as f64).product::<f64>();
    let y = fourier_extend(&product, &modes, Sign::Plus)?.mul_scalar(scale)?;
    let mut back = vec![0; blades];
    order.iter().enumerate().for_each(|(place, &blade)| back[blade] = place);
    let y = y.reshape(field(extents, out))?;
    y.mul(&sign(&y)?)?.index_select(0, &positions(&back, blades, x)?)
}

fn modes(extents: &[usize], options: &SpectralOptions) -> Result<Vec<Modes>> {
    let fits = |(&extent, &kept): (&usize, &usize)| kept.checked_mul(2).is_some_and(|both| both <= extent);
    if options.modes.len() != extents.len() || !extents.iter().zip(&options.modes).all(fits) {
        let kept = &options.modes;
        return refuse(
            NAME,
            format!("modes {kept:?} for a grid of {extents:?}: 2·modes positions are needed along each axis"),
        );
    }
    Ok(extents
        .iter()
        .zip(&options.modes)
        .map(|(&size, &kept)| Modes { size, low: kept, high: kept })
        .collect())
}

/// The sign of each blade in its pair, in the order of real parts, then imaginary parts.
fn pair_signs(metric: &OrderedMetric, pairing: Pairing) -> Result<Vec<i8>> {
    let (half, last) = (metric.blade_count() / 2, metric.blade_count() - 1);
    let of_pairs: Vec<i8> = match pairing {
        Pairing::Reference => vec![1; half],
        Pairing::Dual if metric.product(last, last).1 == -1 => {
            (0..half).map(|blade| metric.product(blade, last).1).collect()
        }
        Pairing::Dual => {
            return refuse(
                NAME,
                format!(
                    "the dual pairing needs a pseudoscalar that squares to −1, which that of the metric {metric} does not"
                ),
            );
        }
    };
    Ok([vec![1; half], of_pairs].concat())
}

/// The geometric product with the weights at each frequency: `z` `[I, batch, volume, in]` in the order and with the signs of the pairs,
/// weights `[I, out, in, *modes]`. One matrix product for each frequency, of all results' factors side by side with the weights as they
/// are: weights are more numbers than the few samples of a batch.
fn multiply(
    metric: &OrderedMetric,
    z: &Tensor,
    weights: &Tensor,
    (order, signs): (&[usize], &[i8]),
    side: Side,
) -> Result<Tensor> {
    let &[blades, batch, volume, channels] = z.shape().dims() else {
        return refuse(NAME, format!("`z` has shape {}", z.shape()));
    };
    let out = weights.shape()[1];
    let mut place = vec![0; blades];
    order.iter().enumerate().for_each(|(at, &blade)| place[blade] = at);
    // Result j takes, for each weight r, the blade i with e_i·e_r = ±e_j, or e_r·e_i = ±e_j.
    let pairs = order.iter().zip(signs).flat_map(|(&j, &sign)| (0..blades).map(move |r| (j, sign, r)));
    let (from, factors): (Vec<usize>, Vec<f64>) = pairs
        .map(|(j, sign, r)| {
            let i = metric.factor(r, j);
            let product = if side == Side::Right { metric.product(i, r).1 } else { metric.product(r, i).1 };
            (place[i], f64::from(product * sign * signs[place[i]]))
        })
        .unzip();
    let factors = constant(&factors, &[blades * blades, 1, 1, 1], z)?;
    let gathered = z.index_select(0, &positions(&from, blades, z)?)?.mul(&factors)?;
    let rows = gathered
        .reshape([blades, blades, batch, volume, channels])?
        .permute(&[3, 2, 0, 1, 4])?
        .reshape([volume, batch * blades, blades * channels])?;
    let matrices = weights.reshape([blades, out, channels, volume])?.permute(&[3, 0, 2, 1])?.reshape([
        volume,
        blades * channels,
        out,
    ])?;
    rows.matmul(&matrices)?.reshape([volume, batch, blades, out])?.permute(&[2, 1, 0, 3])
}

/// Which frequency the released implementation multiplies at each: where k₁ is negative, k₂ is not and k₃ is, that of the other half of the
/// first axis.
fn octants(kept: &[usize]) -> Vec<usize> {
    let [n0, n1, n2] = [kept[0], kept[1], kept[2]];
    let mut source = Vec::with_capacity(n0 * n1 * n2);
    for a in 0..n0 {
        for b in 0..n1 {
            for c in 0..n2 {
                let wrong = a >= n0 / 2 && b < n1 / 2 && c >= n2 / 2;
                let a = if wrong { a - n0 / 2 } else { a };
                source.push((a * n1 + b) * n2 + c);
            }
        }
    }
    source
}
