//! The matrices of an equivariant linear map on the CPU.

use super::{Entry, Gradients, Maps, Operands, Sizes};
use crate::{Array, Result, cpu::simd::Real};

/// What is applied to features, or the gradients of it.
pub(super) struct Matrices {
    /// `[scalars + 2 · out, in scalars + 2 · in]`.
    pub first: Array,
    /// `[pairs − 1, 2 · out, 2 · in]`.
    pub others: Array,
    /// `[scalars + 2 · out]`, if something is added.
    pub bias: Option<Array>,
}

/// Where the coefficients of the maps are in the matrices: the place in the first matrix or in the others, of each entry and pair of channels.
fn each_block(maps: &Maps, sizes: Sizes, mut visit: impl FnMut(&Entry, usize, bool, usize)) {
    let Sizes { scalars_in, scalars_out, channels_in, channels_out, .. } = sizes;
    for entry in &maps.entries {
        let (pair, row, column) = (entry.row / 2, entry.row % 2, entry.column % 2);
        for out in 0..channels_out {
            for in_ in 0..channels_in {
                let weight = (out * channels_in + in_) * maps.maps + entry.map;
                let [down, across] = [row * channels_out + out, column * channels_in + in_];
                if pair == 0 {
                    visit(entry, weight, true, (scalars_out + down) * sizes.top_in() + scalars_in + across);
                } else {
                    visit(entry, weight, false, (pair - 1) * sizes.other() + down * 2 * channels_in + across);
                }
            }
        }
    }
}

/// Where the elements of the maps of scalars are in the first matrix: the operand's place among the others, its element, and the place.
fn each_scalar_map(
    maps: &Maps,
    sizes: Sizes,
    operands: &Operands<'_>,
    mut visit: impl FnMut(usize, usize, usize),
) {
    let Sizes { scalars_in, scalars_out, channels_in, channels_out, .. } = sizes;
    let mixed = maps.mixed();
    if operands.to_planes.is_some() {
        for row in 0..mixed * channels_out {
            let down = scalars_out + row % mixed * channels_out + row / mixed;
            (0..scalars_in).for_each(|s| visit(2, row * scalars_in + s, down * sizes.top_in() + s));
        }
    }
    if operands.to_scalars.is_some() {
        for column in 0..mixed * channels_in {
            let across = scalars_in + column % mixed * channels_in + column / mixed;
            (0..scalars_out)
                .for_each(|s| visit(4, s * mixed * channels_in + column, s * sizes.top_in() + across));
        }
    }
    if operands.between.is_some() {
        for (row, column) in (0..scalars_out).flat_map(|row| (0..scalars_in).map(move |column| (row, column)))
        {
            visit(6, row * scalars_in + column, row * sizes.top_in() + column);
        }
    }
}

/// Where the elements of the biases are added, as above.
fn each_bias(maps: &Maps, sizes: Sizes, operands: &Operands<'_>, mut visit: impl FnMut(usize, usize, usize)) {
    let Sizes { scalars_out, channels_out, .. } = sizes;
    let mixed = maps.mixed();
    if operands.bias.is_some() {
        (0..channels_out).for_each(|out| visit(1, out, scalars_out + out));
    }
    if operands.to_planes_bias.is_some() {
        (0..mixed * channels_out)
            .for_each(|row| visit(3, row, scalars_out + row % mixed * channels_out + row / mixed));
    }
    if operands.to_scalars_bias.is_some() {
        (0..scalars_out).for_each(|s| visit(5, s, s));
    }
}

/// The matrices of these operands.
pub(super) fn matrices<T: Real>(maps: &Maps, sizes: Sizes, operands: &Operands<'_>) -> Result<Matrices> {
    let device = operands.x.device();
    let weight = operands.weight.as_slice::<T>()?;
    let others = operands.others();
    let mut first = vec![T::zero(); sizes.first()];
    let mut rest = vec![T::zero(); sizes.others() * sizes.other()];
    each_block(maps, sizes, |entry, from, is_first, to| {
        let target = if is_first { &mut first[to] } else { &mut rest[to] };
        *target += T::narrow(entry.value) * weight[from];
    });
    let mut parts: [&[T]; 7] = [&[]; 7];
    for (part, (_, operand)) in parts.iter_mut().zip(others) {
        if let Some(operand) = operand {
            *part = operand.as_slice()?;
        }
    }
    each_scalar_map(maps, sizes, operands, |part, from, to| first[to] = parts[part][from]);
    let has_bias = [1, 3, 5].iter().any(|&part| others[part].1.is_some());
    let mut bias = vec![T::zero(); sizes.top_out()];
    each_bias(maps, sizes, operands, |part, from, to| bias[to] += parts[part][from]);
    Ok(Matrices {
        first: Array::from_vec(first, [sizes.top_out(), sizes.top_in()], &device)?,
        others: Array::from_vec(
            rest,
            [sizes.others(), 2 * sizes.channels_out, 2 * sizes.channels_in],
            &device,
        )?,
        bias: has_bias.then(|| Array::from_vec(bias, [sizes.top_out()], &device)).transpose()?,
    })
}

/// The gradients of the operands from those of the matrices.
pub(super) fn gradients<T: Real>(
    maps: &Maps,
    sizes: Sizes,
    operands: &Operands<'_>,
    of: &Matrices,
) -> Result<Gradients> {
    let device = operands.x.device();
    let (first, rest) = (of.first.as_slice::<T>()?, of.others.as_slice::<T>()?);
    let mut weight = vec![T::zero(); operands.weight.elements()];
    each_block(maps, sizes, |entry, to, is_first, from| {
        let value = if is_first { first[from] } else { rest[from] };
        weight[to] += T::narrow(entry.value) * value;
    });
    let mut others =
        operands.others().map(|(_, operand)| vec![T::zero(); operand.map_or(0, Array::elements)]);
    each_scalar_map(maps, sizes, operands, |part, to, from| others[part][to] = first[from]);
    if let Some(bias) = &of.bias {
        let bias = bias.as_slice::<T>()?;
        each_bias(maps, sizes, operands, |part, to, from| others[part][to] = bias[from]);
    }
    let mut gradients = Gradients {
        weight: Some(Array::from_vec(weight, operands.weight.shape(), &device)?),
        ..Gradients::default()
    };
    for (place, (values, (_, operand))) in others.into_iter().zip(operands.others()).enumerate().skip(1) {
        if let Some(operand) = operand {
            gradients.others[place] = Some(Array::from_vec(values, operand.shape(), &device)?);
        }
    }
    Ok(gradients)
}
