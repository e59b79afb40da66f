//! Loss and learning rate over the steps of a run.

use super::{
    BLUE, FONT, GRAY, INK, VERMILION,
    axis::Axis,
    header::{Entry, FAINT, Mark, header},
    paper::{Drawing, Paper},
    range, styled,
};
use plotters::{coord::Shift, prelude::*};
use serde::{Deserialize, Serialize};

/// The data of `loss.svg`: (step, value) pairs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LossHistory {
    /// Mean loss of the batches since the previous entry.
    pub train: Vec<(u64, f64)>,
    /// The loss on the valid split.
    pub valid: Vec<(u64, f64)>,
    /// The error on the test split, after the last step.
    pub test: Option<f64>,
    /// Learning rate.
    pub lr: Vec<(u64, f64)>,
}

/// The number of points above which a curve is drawn pale, with its running median.
const MANY: usize = 300;

/// The part of the learning rate, in pixels.
const STRIP: u32 = 112;

/// The median of each entry with those around it, a fiftieth of all to each side. Mini-batches vary by far more than a curve falls.
pub fn running_median(series: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let around = series.len() / 50;
    let middle = |position: usize| {
        // Smaller windows at the ends, so that they stay centred.
        let reach = around.min(position).min(series.len() - 1 - position);
        let window = &series[position - reach..=position + reach];
        let mut values: Vec<f64> = window.iter().map(|&(_, value)| value).collect();
        values.sort_by(f64::total_cmp);
        (series[position].0, values[values.len() / 2])
    };
    (0..series.len()).map(middle).collect()
}

/// Draws the history on a logarithmic scale, the learning rate in a strip below. Values that such a scale cannot show (not positive, not
/// finite) are left out; without any value nothing is drawn.
pub fn draw(history: &LossHistory, title: &str, axis: &str, paper: Paper) -> Drawing {
    let shown = |series: &[(u64, f64)]| -> Vec<(f64, f64)> {
        let positive = series.iter().filter(|(_, value)| value.is_finite() && *value > 0.0);
        positive.map(|&(step, value)| (step as f64, value)).collect()
    };
    let (train, valid, lr) = (shown(&history.train), shown(&history.valid), shown(&history.lr));
    let test = history.test.filter(|test| test.is_finite() && *test > 0.0);
    if train.is_empty() && valid.is_empty() {
        return Ok(None);
    }
    let last = train.iter().chain(&valid).map(|&(step, _)| step).fold(1.0, f64::max);
    let mut svg = String::new();
    {
        let height = 470 + if lr.is_empty() { 0 } else { STRIP };
        let root = SVGBackend::with_string(&mut svg, paper.size((860, height))).into_drawing_area();
        root.fill(&WHITE)?;
        let body = header(&root, paper.title(title), &entries(&train, &valid, test))?;
        let strip = if lr.is_empty() { 0 } else { STRIP as i32 };
        let (main, below) = body.split_vertically(body.dim_in_pixel().1 as i32 - strip);
        let across = Axis::linear((0.0, last), paper.ticks(4));
        losses(&main, (&train, &valid, test), (across.clone(), axis), lr.is_empty())?;
        if !lr.is_empty() {
            rate(&below, &lr, across)?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

fn entries(train: &[(f64, f64)], valid: &[(f64, f64)], test: Option<f64>) -> Vec<Entry<'static>> {
    let mut entries = Vec::new();
    match train.len() {
        0 => {}
        1 => entries.push(Entry { label: "train, mean over batches", color: BLUE, mark: Mark::Dots }),
        2..=MANY => {
            entries.push(Entry { label: "train, mean over batches", color: BLUE, mark: Mark::Line(1) })
        }
        _ => entries.extend([
            Entry { label: "train, mean over batches", color: BLUE, mark: Mark::Faint },
            Entry { label: "its running median", color: BLUE, mark: Mark::Line(2) },
        ]),
    }
    if !valid.is_empty() {
        entries.push(Entry { label: "valid", color: VERMILION, mark: Mark::Dotted(2) });
    }
    if test.is_some() {
        entries.push(Entry { label: "test, at the end", color: INK, mark: Mark::Dashed });
    }
    entries
}

type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Series = [(f64, f64)];

/// The width of the labels of the vertical axes, the same in both parts, so that steps stand above each other.
const LABELS: u32 = 84;

/// Draws the losses, and names the steps unless the learning rate below does.
fn losses(
    area: &Area<'_>,
    (train, valid, test): (&Series, &Series, Option<f64>),
    (across, axis): (Axis, &str),
    names_steps: bool,
) -> Drawn {
    let (low, high) = range(train.iter().chain(valid).map(|&(_, value)| value).chain(test));
    let last = across.end();
    let up = Axis::log((low / 1.4, high * 1.4), 10);
    let mut chart = ChartBuilder::on(area)
        .margin_left(12)
        .margin_right(24)
        .margin_bottom(8)
        .x_label_area_size(if names_steps { 48 } else { 0 })
        .y_label_area_size(LABELS)
        .build_cartesian_2d(across, up)?;
    styled(&mut chart.configure_mesh()).x_desc("optimiser step").y_desc(axis).draw()?;
    match train.len() {
        1 => drop(chart.draw_series(train.iter().map(|&point| Circle::new(point, 3, BLUE.filled())))?),
        0..=MANY => drop(chart.draw_series(LineSeries::new(train.to_vec(), BLUE.stroke_width(1)))?),
        _ => {
            chart.draw_series(LineSeries::new(train.to_vec(), BLUE.mix(FAINT).stroke_width(1)))?;
            chart.draw_series(LineSeries::new(running_median(train), BLUE.stroke_width(2)))?;
        }
    }
    chart.draw_series(LineSeries::new(valid.to_vec(), VERMILION.stroke_width(2)))?;
    chart.draw_series(valid.iter().map(|&point| Circle::new(point, 3, VERMILION.filled())))?;
    if let Some(test) = test {
        chart.draw_series(DashedLineSeries::new([(0.0, test), (last, test)], 6, 5, INK.stroke_width(1)))?;
    }
    Ok(())
}

/// Draws the learning rate.
fn rate(area: &Area<'_>, lr: &Series, across: Axis) -> Drawn {
    let top = lr.iter().map(|&(_, value)| value).fold(0f64, f64::max) * 1.12;
    let up = Axis::linear((0.0, top), 3);
    let mut chart = ChartBuilder::on(area)
        .margin_left(12)
        .margin_right(24)
        .margin_top(4)
        .x_label_area_size(48)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(across, up)?;
    styled(&mut chart.configure_mesh())
        .x_desc("optimiser step")
        .y_desc("learning rate")
        .axis_desc_style((FONT, 14).into_font().color(&INK))
        .y_label_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    chart.draw_series(LineSeries::new(lr.to_vec(), GRAY.stroke_width(2)))?;
    if let [only] = lr {
        chart.draw_series([Circle::new(*only, 3, GRAY.filled())])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_labels_and_survives_hopeless_values() {
        let history = LossHistory {
            train: (1..50).map(|i| (i, if i == 7 { f64::NAN } else { 1.0 / i as f64 })).collect(),
            valid: vec![(10, 0.2), (20, f64::INFINITY), (40, 0.0)],
            test: Some(0.03),
            lr: (1..50).map(|i| (i, 1e-3)).collect(),
        };
        let svg = draw(&history, "n-body", "mean squared error", Paper::Screen).unwrap().unwrap();
        for label in
            ["n-body", "mean squared error", "optimiser step", "valid", "learning rate", "test, at the end"]
        {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let nothing = LossHistory { train: vec![(1, f64::NAN)], ..Default::default() };
        assert!(draw(&nothing, "x", "y", Paper::Screen).unwrap().is_none());
    }

    /// The runs of beginners: losses within less than a decade, and only one record.
    #[test]
    fn short_runs_have_numbers_on_their_axes_and_visible_data() {
        let numbers = |svg: &str| {
            let texts =
                svg.split("<text").skip(1).filter_map(|text| text.split_once('>')?.1.split('<').next());
            texts.filter(|text| text.trim().replace(',', "").parse::<f64>().is_ok()).count()
        };
        for (first, last) in [(2.31, 2.29), (0.9, 0.7), (5.5, 4.0), (0.061, 0.012), (1e-3, 1e-9)] {
            let train = vec![(1, first), (20, last)];
            let history = LossHistory { train, ..Default::default() };
            // At least four steps, in a column three, and three losses.
            for (paper, least) in [(Paper::Screen, 7), (Paper::Column, 6)] {
                let svg = draw(&history, "t", "y", paper).unwrap().unwrap();
                assert!(numbers(&svg) >= least, "{first} to {last}: {svg}");
            }
        }
        let one = LossHistory { train: vec![(1, 0.5)], ..Default::default() };
        let svg = draw(&one, "one", "y", Paper::Screen).unwrap().unwrap();
        assert!(svg.matches("<circle").count() >= 2, "the sample and the point");
    }

    #[test]
    fn the_median_ignores_spikes_and_keeps_ends() {
        let series: Vec<(f64, f64)> = (0..400)
            .map(|k| (f64::from(k), if k % 50 == 25 { 1e3 } else { 1.0 - f64::from(k) / 500.0 }))
            .collect();
        let median = running_median(&series);
        assert_eq!((median[0], median[399], median.len()), (series[0], series[399], 400));
        assert!(median.iter().all(|&(_, value)| value <= 1.0));
    }
}
