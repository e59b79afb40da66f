//! Detects exploding and vanishing gradients by comparing the norm of each layer with its recent values.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

/// Length of the running median, in steps.
const WINDOW: usize = 64;
/// Steps before anything is reported: the first steps of a run change the most.
const LEAST: usize = 10;

/// Compares the gradient norm of each layer with the median of its last steps. It reads only norms, so it is cheap enough for every step.
#[derive(Debug, Default)]
pub struct GradientWatch {
    layers: BTreeMap<String, VecDeque<f64>>,
    /// Norms of all gradients together.
    totals: VecDeque<f64>,
    told: bool,
    /// Steps in which a layer was beyond [`FACTOR`](Self::FACTOR).
    steps: u64,
}

/// A layer whose gradient norm is far from its recent median.
#[derive(Clone, PartialEq, Debug)]
pub struct Excursion {
    /// The number of the step, given by the caller.
    pub step: u64,
    /// The common prefix of the names of the layer's parameters.
    pub layer: String,
    /// The norm of the layer's gradients in this step.
    pub norm: f64,
    /// The median of its norms in the previous steps.
    pub median: f64,
}

impl GradientWatch {
    /// The largest ratio of a norm and the median, above or below, that is not reported.
    pub const FACTOR: f64 = 100.0;
    /// A layer counts only if its norm, or its median, is at least this share of the median of the total norm. Weight decay can switch off
    /// whole branches of a network, whose tiny gradients then vary by any factor without meaning.
    pub const SHARE: f64 = 0.1;

    /// Checks the norms of a step, one for each parameter. Returns the layer with the largest deviation the first time there is one; later
    /// ones are only counted ([`steps`](Self::steps)). Norms that are not finite are ignored: such steps are skipped elsewhere.
    pub fn see<'a>(
        &mut self,
        step: u64,
        norms: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Option<Excursion> {
        let mut squares: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, norm) in norms {
            let layer = name.rsplit_once('.').map_or(name, |(layer, _)| layer);
            *squares.entry(layer).or_default() += norm * norm;
        }
        let total = squares.values().sum::<f64>().sqrt();
        let least = if self.totals.is_empty() { 0.0 } else { Self::SHARE * median(&self.totals) };
        if total.is_finite() {
            push(&mut self.totals, total);
        }
        let mut furthest: Option<(f64, Excursion)> = None;
        for (layer, square) in squares {
            let norm = square.sqrt();
            if !norm.is_finite() {
                continue;
            }
            let past = match self.layers.get_mut(layer) {
                Some(past) => past,
                None => self.layers.entry(layer.to_owned()).or_default(),
            };
            if past.len() >= LEAST {
                let median = median(past);
                let factor = if norm > median { norm / median } else { median / norm };
                // A layer without gradients so far has no median to compare with.
                if median > 0.0
                    && norm.max(median) >= least
                    && factor > Self::FACTOR
                    && furthest.as_ref().is_none_or(|(largest, _)| factor > *largest)
                {
                    let layer = layer.to_owned();
                    furthest = Some((factor, Excursion { step, layer, norm, median }));
                }
            }
            push(past, norm);
        }
        let (_, found) = furthest?;
        self.steps += 1;
        (!std::mem::replace(&mut self.told, true)).then_some(found)
    }

    /// Steps so far in which a layer was beyond the factor, including the one that was reported.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// Appends a value; drops the oldest if the window is full.
fn push(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == WINDOW {
        values.pop_front();
    }
    values.push_back(value);
}

fn median(values: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    let middle = sorted.len() / 2;
    *sorted.select_nth_unstable_by(middle, f64::total_cmp).1
}

impl fmt::Display for Excursion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, layer, norm, median } = self;
        let (what, factor, next) = if norm > median {
            let next = "lower train.lr, or set train.clip_norm or train.clip_value";
            (format!("{:.0} times", norm / median), "explode", next)
        } else {
            let next = "look for saturated or dead layers, a learning rate that is too high, or f16 without a loss scale";
            let share =
                if *norm == 0.0 { "0 times".to_owned() } else { format!("1/{:.0} of", median / norm) };
            (share, "vanish", next)
        };
        write!(
            f,
            "step {step}: the gradient norm of `{layer}` is {norm:.1e}, {what} the median of the steps before ({median:.1e}): gradients \
             may {factor}; {next}; runtime.detect_anomaly=true names the operation if numbers stop being finite"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The norms of a step of two layers with two parameters each.
    fn step(first: f64, second: f64) -> [(&'static str, f64); 4] {
        [("a.0.weight", 0.6 * first), ("a.0.bias", 0.8 * first), ("b.weight", second), ("b.bias", 0.0)]
    }

    #[test]
    fn a_layer_that_leaves_its_past_is_told_once_and_counted() {
        let mut watch = GradientWatch::default();
        for number in 0..100 {
            // Noise by a factor of ten, and a slow decay by four orders of magnitude.
            let noise = [1.0, 3.0, 0.4, 10.0][number % 4];
            let fall = 10f64.powf(-(number as f64) / 25.0);
            assert_eq!(watch.see(number as u64, step(noise, noise * fall)), None, "step {number}");
        }
        let found = watch.see(100, step(1.0e4, 1e-4)).unwrap();
        assert_eq!((found.layer.as_str(), found.step), ("a.0", 100));
        assert!((found.norm - 1e4).abs() < 1e-6 && (1.0..=3.0).contains(&found.median), "{found:?}");
        let text = found.to_string();
        for part in ["step 100", "`a.0` is 1.0e4", "times the median", "may explode", "train.clip_norm"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert!(text.contains("runtime.detect_anomaly=true"), "{text}");
        for number in 101..110 {
            assert_eq!(watch.see(number, step(1e5, 1e-4)), None, "once");
        }
        assert_eq!(watch.steps(), 10);
    }

    #[test]
    fn a_layer_with_a_small_share_of_the_gradients_is_not_told() {
        let mut watch = GradientWatch::default();
        for number in 0..200 {
            // A branch switched off by weight decay: tiny gradients that vary by orders of magnitude.
            let dead = [1e-12, 1e-30, 1e-3, 1e-20][number % 4];
            assert_eq!(watch.see(number as u64, step(1.0, dead)), None, "step {number}");
        }
        let found = watch.see(200, step(1.0, 50.0)).unwrap();
        assert_eq!(found.layer, "b", "once it counts, it is told");
    }

    #[test]
    fn a_gradient_that_vanishes_is_told_and_one_that_never_was_is_not() {
        let mut watch = GradientWatch::default();
        for number in 0..LEAST as u64 {
            assert_eq!(watch.see(number, step(0.0, 1.0)), None);
        }
        let found = watch.see(LEAST as u64, step(5.0, 1e-3)).unwrap();
        assert_eq!((found.layer.as_str(), found.median), ("b", 1.0));
        assert!(found.to_string().contains("1/1000 of the median") && found.to_string().contains("vanish"));
        let zero = Excursion { norm: 0.0, ..found };
        assert!(zero.to_string().contains("0 times the median"), "{zero}");
        let mut watch = GradientWatch::default();
        for number in 0..30 {
            assert_eq!(watch.see(number, step(f64::NAN, f64::INFINITY)), None, "those are skipped steps");
        }
    }
}
