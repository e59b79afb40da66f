//! The equivariant linear map of multivectors and scalars.

use super::super::prelude::*;
use crate::concat;
use gradewise_kernels::ops::clifford::equi_linear::{self as kernel, Entry, Maps, Operands};

/// The equivariant linear map of feature planes `[in scalars + blades · in, rows]`: `[scalars + blades · out, rows]`. Each pair of multivector
/// channels has a coefficient for each of the maps; scalars mix with the scalar parts of multivectors, and with the blade that the maps join to
/// the scalar where the maps say so (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn equi_linear(maps: &Maps, operands: Operands<'_, Tensor>) -> Result<Tensor> {
    let others = operands.others().map(|(_, operand)| operand);
    let given = PARTS.into_iter().zip(others).filter_map(|(part, operand)| operand.map(|_| part)).collect();
    let inputs: Vec<&Tensor> =
        [operands.x, operands.weight].into_iter().chain(others.into_iter().flatten()).collect();
    Tensor::apply(EquiLinear { maps: maps.clone(), given }, &inputs)
}

/// An operand that may be absent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Scalars,
    Bias,
    ToPlanes,
    ToPlanesBias,
    ToScalars,
    ToScalarsBias,
    Between,
}

/// All of them, in the order of the inputs.
const PARTS: [Part; 7] = [
    Part::Scalars,
    Part::Bias,
    Part::ToPlanes,
    Part::ToPlanesBias,
    Part::ToScalars,
    Part::ToScalarsBias,
    Part::Between,
];

/// Inputs: the features, the coefficients, and the operands that the attributes list.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct EquiLinear {
    maps: Maps,
    given: Vec<Part>,
}

/// The attributes in records.
#[derive(Serialize, Deserialize)]
struct Written {
    blades: usize,
    maps: usize,
    mixes: bool,
    /// Map, row, column and value.
    entries: Vec<(usize, usize, usize, f64)>,
    /// The operands that are there, in the order of the inputs.
    given: Vec<Part>,
}

impl TryFrom<Written> for EquiLinear {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { blades, maps, mixes, entries, given } = written;
        let entry = |(map, row, column, value)| Entry { map, row, column, value };
        let maps = Maps::new(blades, maps, mixes, entries.into_iter().map(entry).collect())?;
        if !given.is_sorted_by(|a, b| a < b) {
            let message =
                format!("`given` is {given:?}, expected each operand once, in the order of the inputs");
            return Err(Error::Argument { operation: Self::NAME, message });
        }
        Ok(Self { maps, given })
    }
}

impl From<EquiLinear> for Written {
    fn from(EquiLinear { maps, given }: EquiLinear) -> Self {
        Self {
            blades: maps.blades(),
            maps: maps.count(),
            mixes: maps.mixes(),
            entries: maps.entries().iter().map(|e| (e.map, e.row, e.column, e.value)).collect(),
            given,
        }
    }
}

impl EquiLinear {
    fn operands<'a, T>(&self, inputs: &'a [T]) -> Result<Operands<'a, T>> {
        let [x, weight, others @ ..] = inputs else { return Err(miscounted::<Self>(inputs.len())) };
        if others.len() != self.given.len() {
            return Err(miscounted::<Self>(inputs.len()));
        }
        let part =
            |part: Part| self.given.iter().position(|&given| given == part).map(|place| &others[place]);
        Ok(Operands {
            x,
            weight,
            scalars: part(Part::Scalars),
            bias: part(Part::Bias),
            to_planes: part(Part::ToPlanes),
            to_planes_bias: part(Part::ToPlanesBias),
            to_scalars: part(Part::ToScalars),
            to_scalars_bias: part(Part::ToScalarsBias),
            between: part(Part::Between),
        })
    }
}

/// Rows `[mixed · channels, …]` whose planes follow each other in each channel, plane by plane: `[2 · channels, …]`, with zeros for a plane that
/// does not mix.
fn by_plane(rows: &Tensor, channels: usize) -> Result<Tensor> {
    let width = rows.shape()[1];
    let mixed = rows.shape()[0].checked_div(channels).unwrap_or(1);
    if mixed == 2 {
        return rows.reshape([channels, 2, width])?.transpose(0, 1)?.reshape([2 * channels, width]);
    }
    let zeros = Tensor::new(Array::zeros([channels, width], rows.dtype(), &rows.device())?);
    concat(&[rows, &zeros], 0)
}

impl Operation for EquiLinear {
    const NAME: &'static str = "equi_linear";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::array("x"), Operand::parameter("weight"), Operand::array("others").repeated()];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let blades = sizes.algebra.blade_count().max(2);
        let (channels_in, channels_out, scalars_in, scalars_out) = (sizes.features, sizes.features + 1, 3, 2);
        let sample = |mixes: bool, given: &[Part]| -> Result<Sample<Self>> {
            // The planes themselves, those of a pair exchanged, and the first pair alone.
            let mut entries: Vec<(usize, usize, usize, f64)> = (0..blades).map(|b| (0, b, b, 1.0)).collect();
            entries.extend((0..blades).map(|b| (1, b, b ^ 1, if b % 2 == 0 { 0.5 } else { -0.5 })));
            entries.extend([(2, 0, 0, 1.0), (2, 1, 0, 2.0)]);
            let operation =
                EquiLinear::try_from(Written { blades, maps: 3, mixes, entries, given: given.to_vec() })?;
            let mixed = if mixes { 2 } else { 1 };
            let own = if given.contains(&Part::Scalars) || !given.contains(&Part::ToPlanes) {
                0
            } else {
                scalars_in
            };
            let shape = |part: &Part| match part {
                Part::Scalars => vec![scalars_in, sizes.batch],
                Part::Bias => vec![channels_out, 1],
                Part::ToPlanes => vec![mixed * channels_out, scalars_in],
                Part::ToPlanesBias => vec![mixed * channels_out],
                Part::ToScalars => vec![scalars_out, mixed * channels_in],
                Part::ToScalarsBias => vec![scalars_out],
                Part::Between => vec![scalars_out, scalars_in],
            };
            let mut inputs = vec![
                Input::normal([own + blades * channels_in, sizes.batch]),
                Input::normal([channels_out, channels_in, 3]),
            ];
            inputs.extend(given.iter().map(|part| Input::normal(shape(part))));
            Ok(Sample::new(operation, inputs))
        };
        use Part::{Between, Bias, Scalars, ToPlanes, ToPlanesBias, ToScalars, ToScalarsBias};
        Ok(vec![
            sample(true, &[ToPlanes, ToPlanesBias, ToScalars, ToScalarsBias, Between])?,
            sample(true, &[Scalars, ToPlanes, ToPlanesBias, ToScalars, ToScalarsBias, Between])?,
            sample(false, &[ToPlanes, ToScalars, Between])?,
            sample(false, &[Bias, ToScalars, ToScalarsBias])?,
            sample(true, &[])?,
        ])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.maps, &self.operands(inputs)?)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let operands = self.operands(context.arrays())?;
        let kernel::Gradients { x, weight, others } = kernel::backward(&self.maps, &operands, grad.array())?;
        let given = PARTS.into_iter().zip(others).filter(|(part, _)| self.given.contains(part));
        Ok([x, weight]
            .into_iter()
            .chain(given.map(|(_, gradient)| gradient))
            .map(|g| g.map(Tensor::new))
            .collect())
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let operands = self.operands(inputs)?;
        let Operands {
            x,
            weight,
            scalars,
            bias,
            to_planes,
            to_planes_bias,
            to_scalars,
            to_scalars_bias,
            between,
        } = operands;
        let (blades, maps) = (self.maps.blades(), self.maps.count());
        let (out, in_, rows) = (weight.shape()[0], weight.shape()[1], x.shape()[1]);
        let pairs = blades / 2;
        let zeros = |shape: [usize; 2]| -> Result<Tensor> {
            Ok(Tensor::new(Array::zeros(shape, x.dtype(), &x.device())?))
        };
        let table = Array::constant(&self.maps.table(), [maps, 4 * pairs], x.dtype(), &x.device())?;
        let blocks = weight.reshape([out * in_, maps])?.matmul(&Tensor::new(table))?;
        let blocks = blocks.reshape([out, in_, pairs, 2, 2])?.permute(&[2, 3, 0, 4, 1])?;
        let blocks = blocks.reshape([pairs, 2 * out, 2 * in_])?;
        let mut first = blocks.slice(0, 0..1)?.reshape([2 * out, 2 * in_])?;
        let height = x.shape()[0];
        let own = height - blades * in_;
        let above = match scalars {
            Some(scalars) => scalars.clone(),
            None => x.slice(0, 0..own)?,
        };
        let scalars_in = above.shape()[0];
        let upper = match to_planes {
            Some(to_planes) => by_plane(to_planes, out)?,
            None => zeros([2 * out, scalars_in])?,
        };
        first = concat(&[&upper, &first], 1)?;
        let scalars_out = to_scalars.or(between).map_or(0, |map| map.shape()[0]);
        let lower = match to_scalars {
            Some(to_scalars) => by_plane(&to_scalars.transpose(0, 1)?, in_)?.transpose(0, 1)?,
            None => zeros([scalars_out, 2 * in_])?,
        };
        let between = match between {
            Some(between) => between.clone(),
            None => zeros([scalars_out, scalars_in])?,
        };
        first = concat(&[&concat(&[&between, &lower], 1)?, &first], 0)?;
        let top = concat(&[&above, &x.slice(0, own..own + 2 * in_)?], 0)?;
        let mut top = first.matmul(&top)?;
        let column = |bias: &Tensor| bias.reshape([bias.shape().elements(), 1]);
        let of_planes = match (bias, to_planes_bias) {
            (Some(bias), _) => Some(concat(&[bias, &zeros([out, 1])?], 0)?),
            (_, Some(bias)) => Some(by_plane(&column(bias)?, out)?),
            _ => None,
        };
        if of_planes.is_some() || to_scalars_bias.is_some() {
            let of_planes = of_planes.map_or_else(|| zeros([2 * out, 1]), Ok)?;
            let of_scalars = to_scalars_bias.map_or_else(|| zeros([scalars_out, 1]), column)?;
            top = top.add(&concat(&[&of_scalars, &of_planes], 0)?)?;
        }
        let rest = x.slice(0, own + 2 * in_..height)?.reshape([pairs - 1, 2 * in_, rows])?;
        let rest = blocks.slice(0, 1..pairs)?.matmul(&rest)?;
        concat(&[&top, &rest.reshape([2 * (pairs - 1) * out, rows])?], 0)
    }

    /// Two operations for each product of a matrix's element and a row's.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let (rows, weight) = (inputs[0][1] as u64, inputs[1]);
        let maps: u64 = inputs[2..]
            .iter()
            .filter(|shape| shape.len() == 2)
            .map(|shape| shape.iter().product::<usize>() as u64)
            .sum();
        let blocks = (2 * self.maps.blades() * weight[0] * weight[1]) as u64;
        Cost { matrix_flops: 2 * rows * (blocks + maps), element_flops: 0 }
    }
}
