//! Bars across, with their names before them and their numbers behind.

use super::{
    BLUE, FONT, GRAY, INK,
    axis::Axis,
    paper::{Drawing, Paper},
    styled,
};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::{Deserialize, Serialize};

/// A bar.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// What it is of, on its left.
    pub name: String,
    /// Its length.
    pub length: f64,
    /// What stands behind it.
    pub text: String,
    /// A part of the length, drawn dark, as a share of it; a bar without any is gray.
    pub share: Option<f64>,
}

/// The colours of what is not dark, of bars with a share and of others.
const PALE: RGBColor = RGBColor(178, 212, 232);
const NEUTRAL: RGBColor = RGBColor(188, 188, 188);

/// The most letters of a name beside the bars of a column.
const LETTERS: usize = 27;

/// What stands before and behind a bar; in a column shorter names, and the text up to its first comma.
fn words(bar: &Bar, paper: Paper) -> (String, String) {
    if paper == Paper::Screen {
        return (bar.name.clone(), bar.text.clone());
    }
    let name = match bar.name.chars().count() {
        0..=LETTERS => bar.name.clone(),
        _ => bar.name.chars().take(LETTERS - 1).chain(['…']).collect(),
    };
    (name, bar.text.split(',').next().unwrap_or_default().to_owned())
}

/// The height of a bar with the space below it, in pixels.
const ROW: u32 = 26;

/// Draws bars in the order given. Without any whose length is finite and positive nothing is drawn.
pub fn draw(bars: &[Bar], (title, below): (&str, &str), axis: &str, paper: Paper) -> Drawing {
    let bars: Vec<&Bar> = bars.iter().filter(|bar| bar.length.is_finite() && bar.length > 0.0).collect();
    let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
    if bars.is_empty() {
        return Ok(None);
    }
    let title = paper.title(title);
    let top = if title.is_empty() { 14 } else { 78 };
    let (width, _) = paper.size((860, 0));
    let mut svg = String::new();
    {
        let size = (width, top + ROW * bars.len() as u32 + 60);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        if !title.is_empty() {
            root.draw(&Text::new(title.to_owned(), (20, 16), (FONT, 20).into_font().color(&INK)))?;
            root.draw(&Text::new(below.to_owned(), (20, 46), (FONT, 15).into_font().color(&GRAY)))?;
        }
        let shown: Vec<(String, String)> = bars.iter().map(|bar| words(bar, paper)).collect();
        let widest =
            |of: fn(&(String, String)) -> usize| shown.iter().map(of).max().unwrap_or(0) as u32 * 7 + 16;
        let names = widest(|(name, _)| name.chars().count());
        // The texts stand behind the bars, the longest of which ends where the axis does.
        let texts = widest(|(_, text)| text.chars().count());
        let (_, body) = root.split_vertically(top);
        let mut chart = ChartBuilder::on(&body)
            .margin_left(12)
            .margin_right(texts)
            .x_label_area_size(48)
            .y_label_area_size(names)
            .build_cartesian_2d(Axis::linear((0.0, longest), paper.ticks(4)), 0.0..bars.len() as f64)?;
        styled(&mut chart.configure_mesh()).disable_y_mesh().y_labels(0).x_desc(axis).draw()?;
        for (place, (bar, (name, behind))) in bars.iter().zip(&shown).enumerate() {
            let middle = bars.len() as f64 - place as f64 - 0.5;
            let ends = |length: f64| [(0.0, middle - 0.36), (length, middle + 0.36)];
            let color = if bar.share.is_some() { PALE } else { NEUTRAL };
            chart.draw_series([Rectangle::new(ends(bar.length), color.filled())])?;
            if let Some(share) = bar.share {
                let dark = bar.length * share.clamp(0.0, 1.0);
                chart.draw_series([Rectangle::new(ends(dark), BLUE.filled())])?;
            }
            let text = |side| (FONT, 15).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
            let name = EmptyElement::at((0.0, middle)) + Text::new(name.clone(), (-8, 0), text(HPos::Right));
            let end =
                EmptyElement::at((bar.length, middle)) + Text::new(behind.clone(), (8, 0), text(HPos::Left));
            chart.plotting_area().draw(&name)?;
            chart.plotting_area().draw(&end)?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_names_and_texts_and_lengths_in_proportion() {
        let bar = |name: &str, length: f64, share: Option<f64>| Bar {
            name: name.to_owned(),
            length,
            text: format!("{length} ms"),
            share,
        };
        let bars = [bar("long <one>", 2.0, Some(0.25)), bar("other", 1.0, None), bar("none", f64::NAN, None)];
        for paper in [Paper::Screen, Paper::Column] {
            let svg = draw(&bars, ("profile", "on a cpu"), "milliseconds", paper).unwrap().unwrap();
            for part in ["long &lt;one&gt;", "2 ms", "other", "1 ms", "milliseconds"] {
                assert!(svg.contains(part), "{part}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("none\n"));
            assert_eq!(svg.contains("profile"), paper == Paper::Screen);
            let widths: Vec<f64> = svg
                .split("<rect ")
                .skip(2)
                .map(|rect| {
                    rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
                })
                .collect();
            // The first bar, its dark part, the second bar; pixels are whole.
            let [first, dark, second] = widths[..] else { panic!("{widths:?}") };
            assert!((first / dark - 4.0).abs() < 0.1 && (first / second - 2.0).abs() < 0.1, "{widths:?}");
        }
        assert!(draw(&bars[2..], ("", ""), "", Paper::Screen).unwrap().is_none());
    }
}
