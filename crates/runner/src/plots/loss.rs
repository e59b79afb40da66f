//! Loss and learning rate over the steps of a run.

use super::{BLUE, FONT, GRAY, INK, VERMILION, failed, legend, range, save, significant, styled, swatch};
use crate::error::Result;
use plotters::prelude::*;
use std::path::Path;

/// The data of `loss.svg`: (step, value) pairs.
#[derive(Clone, Debug, Default)]
pub struct LossHistory {
    /// Mean loss of the batches since the previous entry.
    pub train: Vec<(u64, f64)>,
    /// The loss on the valid split.
    pub valid: Vec<(u64, f64)>,
    /// Learning rate.
    pub lr: Vec<(u64, f64)>,
}

/// Draws the history on a logarithmic scale. Values that such a scale cannot show (not positive, not finite) are left
/// out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn loss(path: &Path, history: &LossHistory, title: &str, axis: &str) -> Result<()> {
    let shown = |series: &[(u64, f64)]| -> Vec<(f64, f64)> {
        let positive = series.iter().filter(|(_, value)| value.is_finite() && *value > 0.0);
        positive.map(|&(step, value)| (step as f64, value)).collect()
    };
    let (train, valid, lr) = (shown(&history.train), shown(&history.valid), shown(&history.lr));
    let losses = || train.iter().chain(&valid).map(|&(_, value)| value);
    let (low, high) = range(losses());
    if !low.is_finite() {
        return Ok(());
    }
    let last = train.iter().chain(&valid).map(|&(step, _)| step).fold(1.0, f64::max);
    let top_lr = lr.iter().map(|&(_, value)| value).fold(0f64, f64::max).max(f64::MIN_POSITIVE) * 1.08;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (860, 500)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 20).into_font().color(&INK))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .right_y_label_area_size(76)
            .build_cartesian_2d(0.0..last, (low / 1.4..high * 1.4).log_scale())
            .map_err(failed(path))?
            .set_secondary_coord(0.0..last, 0.0..top_lr);
        styled(&mut chart.configure_mesh())
            .x_desc("optimiser step")
            .y_desc(axis)
            .x_labels(8)
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|value| significant(*value))
            .draw()
            .map_err(failed(path))?;
        if !lr.is_empty() {
            chart
                .configure_secondary_axes()
                .y_desc("learning rate")
                .y_label_formatter(&|value| {
                    if *value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
                })
                .label_style((FONT, 14).into_font().color(&GRAY))
                .axis_desc_style((FONT, 16).into_font().color(&GRAY))
                .axis_style(GRAY)
                .draw()
                .map_err(failed(path))?;
            chart
                .draw_secondary_series(DashedLineSeries::new(lr, 5, 4, GRAY.stroke_width(1)))
                .map_err(failed(path))?
                .label("learning rate (right)")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], GRAY));
        }
        chart
            .draw_series(LineSeries::new(train, BLUE.mix(0.75).stroke_width(1)))
            .map_err(failed(path))?
            .label("train, mean over batches")
            .legend(swatch(BLUE));
        if !valid.is_empty() {
            chart
                .draw_series(LineSeries::new(valid.clone(), VERMILION.stroke_width(2)))
                .map_err(failed(path))?
                .label("valid")
                .legend(swatch(VERMILION));
            chart
                .draw_series(valid.into_iter().map(|point| Circle::new(point, 3, VERMILION.filled())))
                .map_err(failed(path))?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight).map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_labels_and_survives_hopeless_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loss.svg");
        let history = LossHistory {
            train: (1..50).map(|i| (i, if i == 7 { f64::NAN } else { 1.0 / i as f64 })).collect(),
            valid: vec![(10, 0.2), (20, f64::INFINITY), (40, 0.0)],
            lr: (1..50).map(|i| (i, 1e-3)).collect(),
        };
        loss(&path, &history, "n-body", "mean squared error").unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["n-body", "mean squared error", "optimiser step", "valid", "learning rate"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let nothing = folder.path().join("nothing.svg");
        loss(&nothing, &LossHistory { train: vec![(1, f64::NAN)], ..Default::default() }, "x", "y").unwrap();
        assert!(!nothing.exists());
        loss(&path, &LossHistory { train: vec![(1, 0.5)], ..Default::default() }, "one point", "y").unwrap();
    }
}
