//! The Clifford Fourier layer.

use super::{
    fourier::{fourier_crop, fourier_extend},
    prelude::*,
    spectrum,
};
use crate::without_autocast;
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
    let channels = x.shape()[axes + 2];
    let modes = modes(extents, options)?;
    let pairs = Pairs::new(metric, options.pairing)?;
    if let Some(weights) = weights {
        let kept = modes.iter().map(Modes::kept);
        let expected: Vec<usize> = [blades, weights.shape().get(1).copied().unwrap_or(0), channels]
            .into_iter()
            .chain(kept)
            .collect();
        require_shape(NAME, "weights", weights, &expected, "[blades, out, in, *2·modes]")?;
    }
    let layer = Spectral { metric, pairs, modes, options };
    match x.device() {
        Device::Cpu => layer.by_transforms(x, weights),
        Device::Cuda(_) => layer.by_matrices(x, weights),
    }
}

/// A layer for fields of some extents.
struct Spectral<'a> {
    metric: &'a OrderedMetric,
    pairs: Pairs,
    modes: Vec<Modes>,
    options: &'a SpectralOptions,
}

impl Spectral<'_> {
    /// The layer by the fast transform of complex fields.
    fn by_transforms(&self, x: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let (Pairs { order, signs }, modes) = (&self.pairs, &self.modes);
        let [blades, batch] = [x.shape()[0], x.shape()[1]];
        let (extents, channels) = (x.shape()[2..2 + modes.len()].to_vec(), x.shape()[2 + modes.len()]);
        let shape = |extents: &[usize], channels| [&[2, blades / 2 * batch], extents, &[channels]].concat();
        let factors: Vec<f64> = signs.iter().map(|&sign| f64::from(sign)).collect();
        let mut sign_shape = vec![1; modes.len() + 3];
        sign_shape[0] = blades;
        let sign = |like: &Tensor| constant(&factors, &sign_shape, like);
        let z = x.index_select(0, &positions(order, blades, x)?)?.mul(&sign(x)?)?;
        let z = fourier_crop(&z.reshape(shape(&extents, channels))?, modes, Sign::Minus)?;
        let z = z.reshape([blades, batch, self.volume(), channels])?;
        let product = match weights {
            None => z,
            Some(weights) => self.multiply(&z, weights)?,
        };
        let out = product.shape()[3];
        let kept: Vec<usize> = modes.iter().map(Modes::kept).collect();
        let product = self.octants(&product)?.reshape(shape(&kept, out))?;
        let y = fourier_extend(&product, modes, Sign::Plus)?.mul_scalar(self.scale())?;
        let mut back = vec![0; blades];
        order.iter().enumerate().for_each(|(place, &blade)| back[blade] = place);
        let y = y.reshape([&[blades, batch], &extents[..], &[out]].concat())?;
        y.mul(&sign(&y)?)?.index_select(0, &positions(&back, blades, x)?)
    }

    /// The layer by products with matrices of cosines and sines, in few passes over the field. Blades are transformed as the real fields
    /// that they are; pairs are formed at the frequencies that are kept. 16-bit fields are transformed in `f32`: the sums grow with the grid.
    fn by_matrices(&self, x: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let [blades, batch] = [x.shape()[0], x.shape()[1]];
        let (volume, channels) = (self.volume(), x.shape()[2 + self.modes.len()]);
        let wide = x.cast(x.dtype().accumulator())?;
        let pairs = self.pairs.of_spectra();
        // [blades, batch, volume, part, channels] → [blades and part, …].
        let spectra = without_autocast(|| spectrum::analyse(&wide, &self.modes))?;
        let spectra = spectra.permute(&[0, 3, 1, 2, 4])?.reshape([2 * blades, batch * volume * channels])?;
        let product = match weights {
            None => {
                let pairs = constant(&pairs, &[blades, 2 * blades], &spectra)?;
                let z = without_autocast(|| pairs.matmul(&spectra))?;
                z.reshape([blades, batch, volume, channels])?
            }
            Some(weights) => {
                let (from, factors) = self.factors();
                let gathered: Vec<f64> = from
                    .iter()
                    .zip(&factors)
                    .flat_map(|(&place, factor)| {
                        pairs[2 * blades * place..][..2 * blades].iter().map(move |entry| factor * entry)
                    })
                    .collect();
                let gathered = constant(&gathered, &[blades * blades, 2 * blades], &spectra)?;
                let rows = without_autocast(|| gathered.matmul(&spectra))?.cast(x.dtype())?;
                self.product(&rows.reshape([blades, blades, batch, volume, channels])?, weights)?
            }
        };
        let out = product.shape()[3];
        let product = self.octants(&product)?.reshape([blades, batch * volume * out])?.cast(wide.dtype())?;
        let scaled: Vec<f64> = pairs.iter().map(|entry| entry * self.scale()).collect();
        let scaled = constant(&scaled, &[blades, 2 * blades], &product)?;
        without_autocast(|| {
            let spectra = scaled.matmul_transposed(&product, true, false)?;
            let spectra = spectra.reshape([blades, 2, batch, volume, out])?.permute(&[0, 2, 3, 1, 4])?;
            spectrum::synthesise(&spectra, &self.modes)
        })?
        .cast(x.dtype())
    }

    /// How many frequencies are kept.
    fn volume(&self) -> usize {
        self.modes.iter().map(Modes::kept).product()
    }

    /// Of the inverse transform.
    fn scale(&self) -> f64 {
        1.0 / self.modes.iter().map(|axis| axis.size as f64).product::<f64>()
    }

    /// For each pair of a result j and a weight r, in the order of the pairs: the place of the factor that is multiplied with the weight,
    /// and its sign.
    fn factors(&self) -> (Vec<usize>, Vec<f64>) {
        let (metric, Pairs { order, signs }) = (self.metric, &self.pairs);
        let blades = order.len();
        let mut place = vec![0; blades];
        order.iter().enumerate().for_each(|(at, &blade)| place[blade] = at);
        // Result j takes, for each weight r, the blade i with e_i·e_r = ±e_j, or e_r·e_i = ±e_j.
        let pairs = order.iter().zip(signs).flat_map(|(&j, &sign)| (0..blades).map(move |r| (j, sign, r)));
        pairs
            .map(|(j, sign, r)| {
                let i = metric.factor(r, j);
                let product = match self.options.side {
                    Side::Right => metric.product(i, r).1,
                    Side::Left => metric.product(r, i).1,
                };
                (place[i], f64::from(product * sign * signs[place[i]]))
            })
            .unzip()
    }

    /// The geometric product with the weights at each frequency: `z` `[I, batch, volume, in]` in the order and with the signs of the pairs,
    /// weights `[I, out, in, *modes]`.
    fn multiply(&self, z: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let &[blades, batch, volume, channels] = z.shape().dims() else {
            return refuse(NAME, format!("`z` has shape {}", z.shape()));
        };
        let (from, factors) = self.factors();
        let factors = constant(&factors, &[blades * blades, 1, 1, 1], z)?;
        let gathered = z.index_select(0, &positions(&from, blades, z)?)?.mul(&factors)?;
        self.product(&gathered.reshape([blades, blades, batch, volume, channels])?, weights)
    }

    /// One matrix product for each frequency, of all results' factors `[J, R, batch, volume, in]` side by side with the weights as they are:
    /// weights are more numbers than the few samples of a batch. Gives `[J, batch, volume, out]`.
    fn product(&self, factors: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let &[blades, _, batch, volume, channels] = factors.shape().dims() else {
            return refuse(NAME, format!("factors have shape {}", factors.shape()));
        };
        let out = weights.shape()[1];
        let rows = factors.permute(&[3, 2, 0, 1, 4])?;
        let rows = rows.reshape([volume, batch * blades, blades * channels])?;
        let matrices = weights.reshape([blades, out, channels, volume])?.permute(&[3, 0, 2, 1])?;
        let matrices = matrices.reshape([volume, blades * channels, out])?;
        rows.matmul(&matrices)?.reshape([volume, batch, blades, out])?.permute(&[2, 1, 0, 3])
    }

    /// The product `[I, batch, volume, out]`, with the wrong octant if the options ask for it.
    fn octants(&self, product: &Tensor) -> Result<Tensor> {
        if !self.options.octant_bug || self.modes.len() != 3 {
            return Ok(product.clone());
        }
        let kept: Vec<usize> = self.modes.iter().map(Modes::kept).collect();
        product.index_select(2, &positions(&octants(&kept), self.volume(), product)?)
    }
}

/// The complex numbers that pairs of blades make: real parts first, then imaginary ones. Blade `order[k]` lies at k, with sign `signs[k]`.
struct Pairs {
    order: Vec<usize>,
    signs: Vec<i8>,
}

impl Pairs {
    fn new(metric: &OrderedMetric, pairing: Pairing) -> Result<Self> {
        let blades = metric.blade_count();
        let imaginary = (0..blades / 2).map(|blade| blades - 1 - blade);
        Ok(Self { order: (0..blades / 2).chain(imaginary).collect(), signs: pair_signs(metric, pairing)? })
    }

    /// The matrix, by rows, that takes the spectra of the blades, `[blade, real or imaginary]`, to those of the pairs, `[place]`: the spectrum
    /// of s·a + i·t·b is s·â + i·t·b̂. Its transpose takes spectra of pairs to those whose inverse transforms have the blades as real parts.
    fn of_spectra(&self) -> Vec<f64> {
        let (blades, half) = (self.order.len(), self.order.len() / 2);
        let mut matrix = vec![0.0; 2 * blades * blades];
        let mut set = |place: usize, blade: usize, part: usize, value: i8| {
            matrix[(place * blades + blade) * 2 + part] = f64::from(value);
        };
        for pair in 0..half {
            let [a, b] = [self.order[pair], self.order[half + pair]];
            let [s, t] = [self.signs[pair], self.signs[half + pair]];
            set(pair, a, 0, s);
            set(pair, b, 1, -t);
            set(half + pair, a, 1, s);
            set(half + pair, b, 0, t);
        }
        matrix
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn matrices_give_what_fast_transforms_give() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let cases: [(&str, &[usize], &[usize]); 5] = [
            ("1,1", &[9, 6], &[3, 3]),
            ("-1,-1", &[64, 33], &[2, 5]),
            ("1,-1", &[4, 1100], &[2, 2]),
            ("1,1,1", &[3, 4, 5], &[1, 2, 2]),
            ("1,1,1", &[12, 40, 30], &[2, 2, 1]),
        ];
        for (text, extents, modes) in cases {
            let metric: OrderedMetric = text.parse().unwrap();
            let blades = metric.blade_count();
            for (options, weighted) in [
                (SpectralOptions::reference(modes), true),
                (SpectralOptions { octant_bug: true, ..SpectralOptions::reference(modes) }, true),
                (SpectralOptions { side: Side::Left, ..SpectralOptions::reference(modes) }, true),
                (SpectralOptions::reference(modes), false),
                (SpectralOptions { pairing: Pairing::Dual, ..SpectralOptions::reference(modes) }, true),
            ] {
                let Ok(pairs) = Pairs::new(&metric, options.pairing) else { continue };
                let mut randn = |shape: Vec<usize>| {
                    Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap().requires_grad()
                };
                let x = randn([&[blades, 2], extents, &[3]].concat());
                let kept = modes.iter().map(|m| 2 * m);
                let weights = randn([blades, 2, 3].into_iter().chain(kept).collect());
                let layer = Spectral {
                    metric: &metric,
                    pairs,
                    modes: super::modes(extents, &options).unwrap(),
                    options: &options,
                };
                let weights = weighted.then_some(&weights);
                let [fast, plain] =
                    [layer.by_transforms(&x, weights).unwrap(), layer.by_matrices(&x, weights).unwrap()];
                assert_eq!(fast.shape(), plain.shape());
                let seed = Tensor::randn(fast.shape(), DType::F64, &Device::Cpu, &mut rng).unwrap();
                let gradients = |y: &Tensor| y.mul(&seed).unwrap().sum_all().unwrap().backward().unwrap();
                let close = |a: &Tensor, b: &Tensor| {
                    let error = a.array().relative_error(b.array()).unwrap();
                    assert!(error < 1e-12, "{text} {extents:?} {options:?}: {error}");
                };
                close(&plain, &fast);
                let [of_fast, of_plain] = [gradients(&fast), gradients(&plain)];
                for leaf in [Some(&x), weights].into_iter().flatten() {
                    close(of_plain.get(leaf).unwrap(), of_fast.get(leaf).unwrap());
                }
            }
        }
    }
}
