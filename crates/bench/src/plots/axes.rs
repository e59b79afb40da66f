//! Ticks of axes, and their labels: plotters chooses none or one where a logarithmic axis spans less than a decade.

/// The number of ticks that an axis has room for, and needs to be read.
const LEAST: usize = 3;

/// `mantissa`·10^`exponent`, correctly rounded, so that its shortest decimal is the one meant.
fn decimal(mantissa: i64, exponent: i32) -> f64 {
    format!("{mantissa}e{exponent}").parse().unwrap_or(f64::NAN)
}

/// Ticks of a linear axis at multiples of 1, 2 or 5 times a power of ten: at least `least`, at most about two and a half times as many.
/// Empty for a range that has no interior in f64, or is not finite.
pub fn linear_ticks(low: f64, high: f64, least: usize) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return Vec::new();
    }
    let top = span.log10().ceil() as i32;
    let steps = (top - 3..=top).rev().flat_map(|exponent| [5, 2, 1].map(|digit| (digit, exponent)));
    for (digit, exponent) in steps {
        let step = decimal(digit, exponent);
        let (first, last) = ((low / step).ceil(), (high / step).floor());
        // Beyond, neighbouring multiples are no longer different numbers.
        if first.abs().max(last.abs()) < 1e15 && last - first + 1.0 >= least as f64 {
            return (first as i64..=last as i64)
                .map(|multiple| decimal(multiple * digit, exponent))
                .collect();
        }
    }
    Vec::new()
}

/// Ticks of a logarithmic axis, of which `most` fit beside each other: powers of ten; where fewer than three are in the range, also twice
/// and five times these, then all digits; within a factor of 5, multiples as on a linear axis. Empty for a range that a logarithmic axis
/// cannot show.
pub fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let ratio = high / low;
    if !(low > 0.0 && ratio > 1.0 && ratio.is_finite()) {
        return Vec::new();
    }
    let apart = ratio.ln() / most.max(LEAST + 1) as f64;
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let mut ticks: Vec<f64> = Vec::new();
    for digits in [&[1][..], &[2, 5], &[3, 4, 6, 7, 8, 9]] {
        if ticks.len() >= LEAST || ratio <= 5.0 {
            break;
        }
        for tick in decades.clone().flat_map(|decade| digits.iter().map(move |&digit| decimal(digit, decade)))
        {
            let is_free = |other: &f64| (tick / other).ln().abs() >= apart;
            if (low..=high).contains(&tick) && ticks.iter().all(is_free) {
                ticks.push(tick);
            }
        }
    }
    if ticks.len() < LEAST {
        ticks = linear_ticks(low, high, LEAST);
    }
    ticks.sort_by(f64::total_cmp);
    ticks
}

/// Formats the ticks of an axis in one notation: decimals, with commas from 10,000 on, or powers of ten.
pub fn tick_labels(ticks: &[f64]) -> impl Fn(&f64) -> String + use<> {
    let sizes = || ticks.iter().map(|tick| tick.abs()).filter(|size| *size > 0.0);
    let (least, greatest) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let is_decimal = greatest < 1e7 && least >= 1e-4 && greatest / least < 1e6;
    move |&value| match () {
        () if value == 0.0 => "0".to_owned(),
        () if is_decimal => with_commas(&format!("{value}")),
        () => format!("{value:e}"),
    }
}

/// A decimal with a comma between thousands, from five digits on.
pub fn with_commas(text: &str) -> String {
    let (whole, fraction) = text.find('.').map_or((text, ""), |point| text.split_at(point));
    let digits = whole.trim_start_matches('-');
    if digits.len() < 5 {
        return text.to_owned();
    }
    let mut grouped = text[..whole.len() - digits.len()].to_owned();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges from a hundredth of a percent to twelve orders of magnitude, at all positions within a decade.
    fn ranges() -> impl Iterator<Item = (f64, f64)> {
        let factors =
            [1.0001, 1.01, 1.2, 1.5, 2.0, 2.9, 3.1, 4.9, 5.1, 6.0, 9.9, 10.1, 30.0, 99.0, 1e3, 1e5, 1e12];
        let starts = (0..60).map(|k| 1e-7 * 10f64.powf(f64::from(k) * 0.23));
        starts.flat_map(move |low| factors.map(|factor| (low, low * factor)))
    }

    #[test]
    fn every_logarithmic_axis_has_three_ticks_or_more_and_none_overlap() {
        for (low, high) in ranges() {
            for most in [4, 6, 9, 12] {
                let ticks = log_ticks(low, high, most);
                assert!((3..=14).contains(&ticks.len()), "{low} to {high}, at most {most}: {ticks:?}");
                assert!(ticks.iter().all(|tick| (low..=high).contains(tick)), "{low} to {high}: {ticks:?}");
                let closest =
                    ticks.windows(2).map(|pair| (pair[1] / pair[0]).ln()).fold(f64::INFINITY, f64::min);
                assert!(closest > 0.07 * (high / low).ln(), "{low} to {high}, at most {most}: {ticks:?}");
                let label = tick_labels(&ticks);
                let labels: Vec<String> = ticks.iter().map(label).collect();
                assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{labels:?}");
                let powers = labels.iter().filter(|label| label.contains('e')).count();
                assert!(powers == 0 || powers == labels.len(), "one notation: {labels:?}");
            }
        }
    }

    #[test]
    fn every_linear_axis_has_as_many_ticks_as_it_needs() {
        for (low, high) in ranges().map(|(low, high)| (low - 0.3, high)) {
            let ticks = linear_ticks(low, high, 4);
            assert!((4..=12).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (low..=high).contains(tick)), "{low} to {high}: {ticks:?}");
        }
        assert_eq!(linear_ticks(-0.25, 1.0, 3), [0.0, 0.5, 1.0]);
        assert!(linear_ticks(1.0, 1.0, 3).is_empty() && linear_ticks(0.0, f64::NAN, 3).is_empty());
        assert!(log_ticks(0.0, 1.0, 5).is_empty() && log_ticks(2.0, 1.0, 5).is_empty());
    }

    #[test]
    fn labels_are_short_decimals() {
        let labels = |ticks: &[f64]| ticks.iter().map(tick_labels(ticks)).collect::<Vec<_>>();
        assert_eq!(labels(&log_ticks(4000.0, 10_000.0, 9)), ["4000", "6000", "8000", "10,000"]);
        let steps = ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"];
        assert_eq!(labels(&log_ticks(2e-3, 0.3, 12)), steps);
        assert_eq!(labels(&[1e-6, 1e-3, 1.0]), ["1e-6", "1e-3", "1e0"]);
        assert_eq!(labels(&[-20_000.0, 0.0, 1_234_567.5]), ["-20,000", "0", "1,234,567.5"]);
    }
}
