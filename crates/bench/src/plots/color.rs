//! Colours of values.

use plotters::style::RGBColor;

/// Categorical colours that colour-blind readers can distinguish: Okabe and Ito's, with brown for their yellow, which is faint on white.
pub const KINDS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 86, 75),
    RGBColor(40, 40, 40),
];

const WHITE: [f64; 3] = [255.0, 255.0, 255.0];
const BLUE: [f64; 3] = [0.0, 114.0, 178.0];
const VERMILION: [f64; 3] = [213.0, 94.0, 0.0];

fn mix(from: [f64; 3], to: [f64; 3], share: f64) -> RGBColor {
    let share = share.clamp(0.0, 1.0);
    let channel = |index: usize| (from[index] + share * (to[index] - from[index])).round() as u8;
    RGBColor(channel(0), channel(1), channel(2))
}

/// The colour of a ratio: white at 1, blue above and vermilion below, full at 8 and 1/8.
pub fn ratio(value: f64) -> RGBColor {
    let strength = value.log2() / 3.0;
    if strength >= 0.0 { mix(WHITE, BLUE, strength) } else { mix(WHITE, VERMILION, -strength) }
}

/// The colour of a value between the smallest and the largest of its figure, on a logarithmic scale from white to blue.
pub fn amount(value: f64, (least, largest): (f64, f64)) -> RGBColor {
    let range = (largest / least).ln();
    let share = if range > 0.0 { (value / least).ln() / range } else { 0.0 };
    mix(WHITE, BLUE, 0.1 + 0.8 * share)
}

/// Whether text on this colour should be white.
pub fn is_dark(RGBColor(red, green, blue): RGBColor) -> bool {
    // Approximate relative luminance.
    0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue) < 140.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_is_white_and_both_directions_differ() {
        assert_eq!(ratio(1.0), RGBColor(255, 255, 255));
        assert_eq!(ratio(100.0), RGBColor(0, 114, 178));
        assert_eq!(ratio(0.01), RGBColor(213, 94, 0));
        assert!(is_dark(ratio(8.0)) && !is_dark(ratio(1.5)));
        assert_eq!(amount(2.0, (2.0, 2.0)), amount(2.0, (2.0, 20.0)));
        assert!(is_dark(amount(20.0, (2.0, 20.0))));
    }
}
