//! Multivectors as notebooks show them.

use super::values::Mv;
use std::fmt::Write;

/// Significant digits of a coefficient; `repr` has all.
const DIGITS: usize = 6;

/// Where a multivector is shown.
#[derive(Clone, Copy)]
pub enum Markup {
    Html,
    Latex,
}

/// The sum of the terms that are not zero, such as 1 + 2 e₁₂.
pub fn sum(x: &Mv, markup: Markup) -> String {
    let mut text = String::new();
    for (blade, &value) in x.coefficients().iter().enumerate().filter(|(_, value)| **value != 0.0) {
        let sign = match (text.is_empty(), value.is_sign_negative(), markup) {
            (true, false, _) => "",
            (false, false, _) => " + ",
            (true, true, Markup::Latex) => "-",
            (true, true, Markup::Html) => "−",
            (false, true, Markup::Latex) => " - ",
            (false, true, Markup::Html) => " − ",
        };
        let name = x.algebra().blade_name(blade);
        let generators = name.strip_prefix('e').filter(|_| blade > 0).unwrap_or_default();
        let number = number(value.abs(), markup);
        let is_left_out = number == "1" && blade > 0;
        // Writing to a string cannot fail.
        let _ = match (markup, is_left_out, blade) {
            (_, _, 0) => write!(text, "{sign}{number}"),
            (Markup::Latex, true, _) => write!(text, "{sign}e_{{{generators}}}"),
            (Markup::Latex, false, _) => write!(text, "{sign}{number}\\,e_{{{generators}}}"),
            (Markup::Html, true, _) => write!(text, "{sign}<i>e</i><sub>{generators}</sub>"),
            (Markup::Html, false, _) => write!(text, "{sign}{number}&thinsp;<i>e</i><sub>{generators}</sub>"),
        };
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// A number of no sign with [`DIGITS`] digits, with a power of ten where it is large or small.
fn number(value: f64, markup: Markup) -> String {
    if !value.is_finite() {
        return match (value.is_nan(), markup) {
            (true, Markup::Html) => "NaN",
            (true, Markup::Latex) => "\\mathrm{NaN}",
            (false, Markup::Html) => "∞",
            (false, Markup::Latex) => "\\infty",
        }
        .to_owned();
    }
    let written = format!("{value:.*e}", DIGITS - 1);
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS as i32).contains(&power) {
        let decimals = usize::try_from(DIGITS as i32 - 1 - power).unwrap_or(0);
        return trimmed(&format!("{value:.decimals$}")).to_owned();
    }
    let digits = trimmed(digits);
    match markup {
        Markup::Html => format!("{digits}·10<sup>{}</sup>", exponent.replace('-', "−")),
        Markup::Latex => format!("{digits} \\cdot 10^{{{exponent}}}"),
    }
}

/// A decimal number without zeros at its end.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}
