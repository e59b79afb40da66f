//! The sources of the published fields, reproduced from their seeds.

use super::yee::Source;
use crate::data::numpy::RandomState;

/// Speed of light, m/s.
const LIGHT: f64 = 299_792_458.0;
/// Length of a cell, m.
const SPACING: f64 = 5e-7;
/// The unit of wavelengths, m.
const WAVELENGTH: f64 = 1e-5;
/// cΔt/Δx.
pub(super) const COURANT: f64 = 0.99 / 1.732_050_807_568_877_2;
/// Sheets across each axis.
const SHEETS: usize = 6;

/// Six sheets across z, six across y and six across x, in a corner of `corner` cells along each axis.
pub(super) fn draw(random: &mut RandomState, corner: usize) -> Vec<Source> {
    let mut sources = Vec::with_capacity(3 * SHEETS);
    for across in [2, 1, 0] {
        for _ in 0..SHEETS {
            sources.push(sheet(random, across, corner));
        }
    }
    sources
}

fn sheet(random: &mut RandomState, across: usize, corner: usize) -> Source {
    let (mut start, mut extent) = ([0; 3], [1; 3]);
    let below = |random: &mut RandomState, bound: usize| random.below_or_at(bound as u32 - 1) as usize;
    for axis in 0..3 {
        if axis != across {
            extent[axis] = 2 + below(random, 4);
        }
        let room = if axis == across { corner } else { corner - extent[axis] };
        start[axis] = below(random, room);
    }
    let amplitude = random.uniform();
    let phase = 2.0 * std::f64::consts::PI * random.uniform();
    let second = below(random, 2);
    let length = WAVELENGTH / LIGHT * (1e-3 + (1e3 - 1e-3) * random.uniform());
    let step = COURANT * SPACING / LIGHT;
    let mut along = (0..3).filter(|&axis| axis != across);
    let (first, other) = (along.next().unwrap_or(0), along.next().unwrap_or(0));
    let (electric, magnetic) = if second == 0 { (first, other) } else { (other, first) };
    // The shortest periods round down to 0 steps, so 1 is the minimum.
    let period = ((length / step + 0.5) as u32).max(1);
    Source { start, extent, electric, magnetic, amplitude, period, phase }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fields::seeds::seeds;
    use gradewise_nn::data::Split;

    #[test]
    fn sources_are_those_of_the_first_published_trajectory() {
        let seed = seeds(Split::Train, 1, 64).unwrap()[0];
        let sources = draw(&mut RandomState::new(seed), 16);
        let periods: Vec<u32> = sources.iter().map(|source| source.period).collect();
        assert_eq!((periods.len(), &periods[..4]), (18, &[31241, 3353, 20536, 33798][..]));
        assert!((COURANT - 0.5715767664977295).abs() < 1e-16);
        for (source, across) in sources.iter().zip([2, 1, 0].map(|axis| [axis; SHEETS]).as_flattened()) {
            assert!(source.extent[*across] == 1 && source.electric != *across && source.magnetic != *across);
            assert!((0..3).all(|axis| source.start[axis] + source.extent[axis] <= 16));
        }
    }
}
