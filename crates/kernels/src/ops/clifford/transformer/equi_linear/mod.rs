//! The equivariant linear map of multivectors and scalars of a geometric-algebra transformer (Brehmer et al. 2023, arXiv:2305.18415, and
//! Spinner et al. 2024, arXiv:2405.14806), on feature planes `[scalars + blades · channels, rows]`.
//!
//! An equivariant map of multivectors is a sum of a few fixed [`Maps`] of blades, each with a coefficient for each pair of channels. The maps
//! join blades in pairs, which are adjacent planes. So the map of multivectors is a matrix `[2 · out, 2 · in]` for each pair of planes. The
//! scalars mix with the first pair alone, the scalar and the blade joined to it: one matrix `[scalars + 2 · out, in scalars + 2 · in]` for
//! both.

mod call;
mod cpu;
mod cuda;
mod direct;
mod products;
mod tiles;

use crate::{
    Array, Device, Result,
    csrc::feature_planes::MOST_PLANES,
    ops::{
        self,
        clifford::algebra::contract::{alike, exact, with_real},
    },
};
use gradewise_core::{DType, Error as CoreError};

const NAME: &str = "equi_linear";

/// An entry of a map of blades.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The map.
    pub map: usize,
    /// The plane of the result.
    pub row: usize,
    /// The plane that is mapped there.
    pub column: usize,
    /// The factor.
    pub value: f64,
}

/// The equivariant maps of multivectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Maps {
    blades: usize,
    maps: usize,
    mixes: bool,
    entries: Vec<Entry>,
}

impl Maps {
    /// The maps with these entries, in which planes 2k and 2k + 1 are joined with each other alone. `mixes` says whether scalars are mapped to
    /// and from the second plane too.
    ///
    /// # Errors
    /// An odd number of blades, or more than 32; entries beyond the maps, the blades or the pairs.
    pub fn new(blades: usize, maps: usize, mixes: bool, entries: Vec<Entry>) -> Result<Self> {
        let fits =
            |e: &Entry| e.map < maps && e.row < blades && e.column < blades && e.row / 2 == e.column / 2;
        if blades == 0 || !blades.is_multiple_of(2) || blades > MOST_PLANES || !entries.iter().all(fits) {
            return Err(CoreError::Undefined {
                operation: NAME,
                reason: "maps join planes 2k and 2k + 1, of at most 32 blades: put the blades that they join next to each other",
            }
            .into());
        }
        Ok(Self { blades, maps, mixes, entries })
    }

    /// The number of blades.
    pub const fn blades(&self) -> usize {
        self.blades
    }

    /// The number of maps.
    pub const fn count(&self) -> usize {
        self.maps
    }

    /// Whether scalars are mapped to and from the second plane of the first pair.
    pub const fn mixes(&self) -> bool {
        self.mixes
    }

    /// Their entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// For each map, the values of all pairs: `[maps, pairs, row of the pair, column of the pair]`.
    pub fn table(&self) -> Vec<f64> {
        let mut table = vec![0.0; self.maps * 2 * self.blades];
        for &Entry { map, row, column, value } in &self.entries {
            table[map * 2 * self.blades + 2 * row + column % 2] = value;
        }
        table
    }

    /// How many of the planes of the first pair mix with scalars.
    const fn mixed(&self) -> usize {
        if self.mixes { 2 } else { 1 }
    }
}

/// What is mapped and by what.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a, T = Array> {
    /// The features `[in scalars + blades · in, rows]`; without scalars if `scalars` has them.
    pub x: &'a T,
    /// The coefficients `[out, in, maps]`.
    pub weight: &'a T,
    /// The scalars `[in scalars, rows]`, if they are not part of `x`.
    pub scalars: Option<&'a T>,
    /// What is added to the scalars of multivectors, `[out, 1]`. Not beside `to_planes_bias`.
    pub bias: Option<&'a T>,
    /// From scalars to the first planes, `[mixed · out, in scalars]`: the planes of a channel follow each other.
    pub to_planes: Option<&'a T>,
    /// What is added there, `[mixed · out]`.
    pub to_planes_bias: Option<&'a T>,
    /// From the first planes to scalars, `[scalars, mixed · in]`.
    pub to_scalars: Option<&'a T>,
    /// What is added there, `[scalars]`.
    pub to_scalars_bias: Option<&'a T>,
    /// From scalars to scalars, `[scalars, in scalars]`.
    pub between: Option<&'a T>,
}

impl<'a, T> Operands<'a, T> {
    /// The operands of which some may be absent, by their names, in order.
    pub fn others(&self) -> [(&'static str, Option<&'a T>); 7] {
        [
            ("scalars", self.scalars),
            ("bias", self.bias),
            ("to_planes", self.to_planes),
            ("to_planes_bias", self.to_planes_bias),
            ("to_scalars", self.to_scalars),
            ("to_scalars_bias", self.to_scalars_bias),
            ("between", self.between),
        ]
    }
}

/// The sizes of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub blades: usize,
    pub rows: usize,
    pub scalars_in: usize,
    pub scalars_out: usize,
    pub channels_in: usize,
    pub channels_out: usize,
}

impl Sizes {
    /// Rows of the result in the product of the first pair.
    const fn top_out(self) -> usize {
        self.scalars_out + 2 * self.channels_out
    }

    /// Rows of the features in the product of the first pair.
    const fn top_in(self) -> usize {
        self.scalars_in + 2 * self.channels_in
    }

    /// Pairs of planes besides the first.
    const fn others(self) -> usize {
        self.blades / 2 - 1
    }

    /// The elements of the first matrix.
    const fn first(self) -> usize {
        self.top_out() * self.top_in()
    }

    /// The elements of each of the others.
    const fn other(self) -> usize {
        4 * self.channels_out * self.channels_in
    }

    const fn rows_out(self) -> usize {
        self.scalars_out + self.blades * self.channels_out
    }
}

fn refused(argument: &'static str, array: &Array, expected: String, reason: &str) -> crate::Error {
    let (actual, reason) = (array.shape().clone(), reason.to_owned());
    CoreError::Shape { operation: NAME, argument, actual, expected, reason }.into()
}

fn check(maps: &Maps, operands: &Operands<'_>) -> Result<(Sizes, DType)> {
    let Operands { x, weight, scalars, to_planes, to_scalars, between, .. } = *operands;
    let &[channels_out, channels_in, count] = weight.dims() else {
        return Err(refused(
            "weight",
            weight,
            "[out, in, maps]".to_owned(),
            "there is a coefficient for each map",
        ));
    };
    if count != maps.maps {
        let expected = format!("[{channels_out}, {channels_in}, {}]", maps.maps);
        return Err(refused("weight", weight, expected, "there is a coefficient for each map"));
    }
    if channels_in == 0 || channels_out == 0 {
        let expected = format!("[1 or more, 1 or more, {}]", maps.maps);
        return Err(refused("weight", weight, expected, "a map has multivectors on both sides"));
    }
    let &[height, rows] = x.dims() else {
        return Err(refused(
            "x",
            x,
            "[scalars + blades · channels, rows]".to_owned(),
            "feature planes have two axes",
        ));
    };
    let planes = maps.blades * channels_in;
    let scalars_in = match scalars {
        Some(scalars) => scalars.dims().first().copied().unwrap_or(0),
        None => height.saturating_sub(planes),
    };
    let above = if scalars.is_some() { 0 } else { scalars_in };
    exact(NAME, "x", x, &[above + planes, rows], || {
        format!("{channels_in} multivectors of {} blades, as the weight says, below the scalars", maps.blades)
    })?;
    let scalars_out = to_scalars.or(between).and_then(|w| w.dims().first().copied()).unwrap_or(0);
    let sizes = Sizes { blades: maps.blades, rows, scalars_in, scalars_out, channels_in, channels_out };
    let mixed = maps.mixed();
    let shapes: [&[usize]; 7] = [
        &[scalars_in, rows],
        &[channels_out, 1],
        &[mixed * channels_out, scalars_in],
        &[mixed * channels_out],
        &[scalars_out, mixed * channels_in],
        &[scalars_out],
        &[scalars_out, scalars_in],
    ];
    let mut all = vec![("x", x), ("weight", weight)];
    for ((name, operand), shape) in operands.others().into_iter().zip(shapes) {
        if let Some(operand) = operand {
            exact(NAME, name, operand, shape, || {
                "the channels are those of the features and the weight".to_owned()
            })?;
            all.push((name, operand));
        }
    }
    if operands.bias.is_some() && operands.to_planes_bias.is_some() {
        let bias = operands.bias.unwrap_or(x);
        return Err(refused("bias", bias, "none".to_owned(), "the map of scalars has a bias of its own"));
    }
    if operands.to_planes_bias.is_some() && to_planes.is_none() {
        return Err(refused(
            "to_planes_bias",
            x,
            "none".to_owned(),
            "it is the bias of a map that is not there",
        ));
    }
    Ok((sizes, alike(NAME, &all)?))
}

/// The map of feature planes: `[scalars + blades · out, rows]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(maps: &Maps, operands: &Operands<'_>) -> Result<Array> {
    let (sizes, dtype) = check(maps, operands)?;
    let kept = contiguous(operands)?;
    let operands = kept.operands();
    if let Device::Cuda(device) = operands.x.device() {
        return cuda::forward(&device, maps, sizes, &operands);
    }
    let matrices = with_real!(dtype, NAME, T => cpu::matrices::<T>(maps, sizes, &operands)?);
    let (above, below) = features(sizes, &operands)?;
    let mut top = ops::matmul(&matrices.first, &above, false, false)?;
    if let Some(bias) = &matrices.bias {
        top = ops::add(&top, &bias.reshape([sizes.top_out(), 1])?)?;
    }
    let rest = ops::matmul(&matrices.others, &below, false, false)?;
    ops::concat(&[&top, &rest.reshape([2 * sizes.others() * sizes.channels_out, sizes.rows])?], 0)
}

/// What the first matrix is applied to, and the other pairs of planes.
fn features(sizes: Sizes, operands: &Operands<'_>) -> Result<(Array, Array)> {
    let own = if operands.scalars.is_some() { 0 } else { sizes.scalars_in };
    let split = own + 2 * sizes.channels_in;
    let above = operands.x.slice(0, 0..split)?;
    let above = match operands.scalars {
        Some(scalars) => ops::concat(&[scalars, &above], 0)?,
        None => above,
    };
    let below = operands.x.slice(0, split..own + sizes.blades * sizes.channels_in)?;
    Ok((above, below.reshape([sizes.others(), 2 * sizes.channels_in, sizes.rows])?))
}

/// Gradients of [`forward`], `None` for operands that are absent.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// Of `x`.
    pub x: Option<Array>,
    /// Of `weight`.
    pub weight: Option<Array>,
    /// Of the operands that [`Operands::others`] lists.
    pub others: [Option<Array>; 7],
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(maps: &Maps, operands: &Operands<'_>, grad: &Array) -> Result<Gradients> {
    let (sizes, dtype) = check(maps, operands)?;
    exact(NAME, "grad", grad, &[sizes.rows_out(), sizes.rows], || {
        "the gradient has the shape of the output".to_owned()
    })?;
    alike(NAME, &[("x", operands.x), ("grad", grad)])?;
    let (kept, grad) = (contiguous(operands)?, grad.contiguous()?);
    let operands = kept.operands();
    if let Device::Cuda(device) = operands.x.device() {
        return cuda::backward(&device, maps, sizes, &operands, &grad);
    }
    let matrices = with_real!(dtype, NAME, T => cpu::matrices::<T>(maps, sizes, &operands)?);
    let (above, below) = features(sizes, &operands)?;
    let top = grad.slice(0, 0..sizes.top_out())?;
    let rest = grad.slice(0, sizes.top_out()..sizes.rows_out())?;
    let rest = rest.reshape([sizes.others(), 2 * sizes.channels_out, sizes.rows])?;
    let of_matrices = cpu::Matrices {
        first: ops::matmul(&top, &above, false, true)?,
        others: ops::matmul(&rest, &below, false, true)?,
        bias: matrices.bias.is_some().then(|| ops::sum(&top, &[1], false)).transpose()?,
    };
    let down = ops::matmul(&matrices.first, &top, true, false)?;
    let of_rest = ops::matmul(&matrices.others, &rest, true, false)?;
    let of_rest = of_rest.reshape([2 * sizes.others() * sizes.channels_in, sizes.rows])?;
    let (of_scalars, down) = match operands.scalars {
        Some(_) => (
            Some(down.slice(0, 0..sizes.scalars_in)?.contiguous()?),
            down.slice(0, sizes.scalars_in..sizes.top_in())?,
        ),
        None => (None, down),
    };
    let mut gradients =
        with_real!(dtype, NAME, T => cpu::gradients::<T>(maps, sizes, &operands, &of_matrices)?);
    gradients.x = Some(ops::concat(&[&down, &of_rest], 0)?);
    gradients.others[0] = of_scalars;
    Ok(gradients)
}

/// Operands that are contiguous.
struct Kept([Option<Array>; 9]);

fn contiguous(operands: &Operands<'_>) -> Result<Kept> {
    let mut kept: [Option<Array>; 9] = Default::default();
    (kept[0], kept[1]) = (Some(operands.x.contiguous()?), Some(operands.weight.contiguous()?));
    for (place, (_, operand)) in kept[2..].iter_mut().zip(operands.others()) {
        *place = operand.map(Array::contiguous).transpose()?;
    }
    Ok(Kept(kept))
}

impl Kept {
    fn operands(&self) -> Operands<'_> {
        let [x, weight, others @ ..] = &self.0;
        let (Some(x), Some(weight)) = (x, weight) else { unreachable!("two operands are always there") };
        let [scalars, bias, to_planes, to_planes_bias, to_scalars, to_scalars_bias, between] =
            others.each_ref().map(Option::as_ref);
        Operands { x, weight, scalars, bias, to_planes, to_planes_bias, to_scalars, to_scalars_bias, between }
    }
}
