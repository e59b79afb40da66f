//! A roofline plot: achieved rate over operations per byte, with the measured ceilings.

use super::{FONT, GRAY, GRID, INK, color, failed, log_ticks, origin, tick_labels};
use crate::{Op, Pass, Report, Result, Row};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

/// The roofline of a report as SVG: `None` if it has no operations or no ceilings. `path` is for messages.
///
/// The bytes and operations of a point are the minimum ones ([`Work`](crate::Work)), so its distance from the roof is the whole potential
/// gain, including traffic of intermediate results.
///
/// # Errors
/// The figure cannot be drawn.
pub fn roofline(path: &Path, report: &Report) -> Result<Option<String>> {
    // Training steps are omitted: their bytes are unknown, because they depend on what stays in caches between operators.
    let shown = |row: &&Row| {
        let replaced = row.pass == Pass::Both && report.fastest(&row.case, Pass::Graph).is_some();
        row.flops > 0 && !replaced && row.case.op != Op::NBody
    };
    let points: Vec<&Row> = report.rows.iter().filter(shown).collect();
    let ceilings = &report.ceilings;
    let Some(copy) =
        ceilings.copy_bytes_per_s.filter(|_| !points.is_empty() && !ceilings.products.is_empty())
    else {
        return Ok(None);
    };
    let intensity = |row: &Row| row.flops as f64 / row.bytes as f64;
    let rate = |row: &Row| row.flops as f64 / row.ms * 1e3;
    let top = ceilings.products.values().map(|rate| rate.best()).fold(0.0, f64::max);
    let extent = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ridge = top / copy;
    let (left, right) = extent(&mut points.iter().map(|row| intensity(row)).chain([ridge]));
    let (low, high) = extent(&mut points.iter().map(|row| rate(row)).chain([top]));
    let (x, y) = (left / 2.0..right * 4.0, low / 2.0..high * 2.0);
    let (across, up) = (log_ticks(x.start, x.end, 12), log_ticks(y.start, y.end, 12));
    let (ratio, tera) =
        (tick_labels(&across), tick_labels(&up.iter().map(|rate| rate / 1e12).collect::<Vec<_>>()));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (980, 620)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let text = |size: u32, color: &RGBColor| (FONT, size).into_font().color(color);
        let right = |size, color| text(size, color).pos(Pos::new(HPos::Right, VPos::Bottom));
        root.draw(&Text::new(format!("Roofline: {}", report.library), (20, 14), text(19, &INK)))
            .map_err(failed(path))?;
        root.draw(&Text::new(origin(report), (20, 40), text(13, &GRAY))).map_err(failed(path))?;
        let (_, body) = root.split_vertically(56);
        let mut chart = ChartBuilder::on(&body)
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(
                x.clone().log_scale().with_key_points(across.clone()),
                y.clone().log_scale().with_key_points(up.clone()),
            )
            .map_err(failed(path))?;
        chart
            .configure_mesh()
            .x_desc("operations per byte that cannot be avoided")
            .y_desc("TFLOP/s")
            .x_label_formatter(&ratio)
            .y_label_formatter(&|value| tera(&(value / 1e12)))
            .label_style(text(13, &INK))
            .axis_desc_style(text(15, &INK))
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(GRAY)
            .draw()
            .map_err(failed(path))?;
        // The bandwidth slope up to the highest ceiling, and each ceiling from its intersection with the slope.
        let start = x.start.max(y.start / copy);
        let slope = [(start, start * copy), (ridge, top)];
        chart.draw_series(LineSeries::new(slope, INK.stroke_width(2))).map_err(failed(path))?;
        let label = format!("copy {:.2} TB/s", copy / 1e12);
        let middle = (start * ridge).sqrt();
        let place = (middle * 0.92, middle * copy * 1.05);
        chart.draw_series([Text::new(label, place, right(13, &INK))]).map_err(failed(path))?;
        for (name, product) in &ceilings.products {
            let height = product.best();
            if height <= y.start {
                continue;
            }
            let line = [(height / copy, height), (x.end, height)];
            chart.draw_series(LineSeries::new(line, INK.stroke_width(1))).map_err(failed(path))?;
            let label = format!("{name} {:.0} TFLOP/s", height / 1e12);
            chart
                .draw_series([Text::new(label, (x.end, height * 1.04), right(13, &INK))])
                .map_err(failed(path))?;
        }
        let shown = |op: &Op| points.iter().any(|row| row.case.op == *op);
        for (op, color) in Op::ALL.into_iter().filter(shown).zip(color::KINDS.into_iter().cycle()) {
            let of = |narrow: bool| {
                points.iter().filter(move |row| row.case.op == op && (row.case.dtype.size() == 2) == narrow)
            };
            let style = move |row: &Row| {
                if row.pass == Pass::Forward { color.stroke_width(1) } else { color.filled() }
            };
            chart
                .draw_series(of(false).map(|row| Circle::new((intensity(row), rate(row)), 4, style(row))))
                .map_err(failed(path))?
                .label(op.to_string())
                .legend(move |(x, y)| Circle::new((x + 10, y), 4, color.filled()));
            chart
                .draw_series(
                    of(true).map(|row| TriangleMarker::new((intensity(row), rate(row)), 6, style(row))),
                )
                .map_err(failed(path))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .margin(12)
            .legend_area_size(24)
            .label_font(text(13, &INK))
            .background_style(WHITE.mix(0.9))
            .border_style(GRID)
            .draw()
            .map_err(failed(path))?;
        let note =
            "hollow: forward; full: forward and backward, as a graph if measured; triangles: 16-bit storage";
        root.draw(&Text::new(note, (964, 48), right(13, &GRAY))).map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    Ok(Some(svg))
}
