//! Figures as PDF, with text that can be selected and searched. They look the same everywhere: the font is our own.

use super::failed;
use crate::error::{Error, Result};
use std::{path::Path, sync::Arc};
use svg2pdf::{
    ConversionOptions, PageOptions, to_pdf,
    usvg::{Options, Tree, fontdb},
};

/// Of the Bitstream Vera licence, which stands beside it; about as wide as the sans-serif fonts that browsers have.
static FONT: &[u8] = include_bytes!("../../assets/font/DejaVuSansCondensed.ttf");

/// Writes a figure as PDF of a page as wide as `points` of 1/72 inch. Of animations it shows the first moment. `path` is for messages.
///
/// # Errors
/// What is not SVG.
pub fn pdf(path: &Path, svg: &str, points: f32) -> Result<Vec<u8>> {
    let tree = tree(path, svg)?;
    let page = PageOptions { dpi: 72.0 * tree.size().width() / points };
    to_pdf(&tree, ConversionOptions::default(), page).map_err(failed(path))
}

/// A figure with our font.
fn tree(path: &Path, svg: &str) -> Result<Tree> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    let name = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    let name = name.ok_or_else(|| Error::Output {
        path: path.to_owned(),
        reason: "the font of figures cannot be read".to_owned(),
    })?;
    fonts.set_sans_serif_family(&name);
    let options = Options { fontdb: Arc::new(fonts), font_family: name, ..Options::default() };
    Tree::from_str(svg, &options).map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_width_and_real_text_without_fonts_of_the_machine() {
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"440\" height=\"220\"><text x=\"9\" y=\"40\" \
                   font-family=\"sans-serif\" font-size=\"14\">σ ± 10⁻³</text></svg>";
        let path = Path::new("figure.pdf");
        let file = pdf(path, svg, 245.0).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(file.starts_with(b"%PDF-1.") && text.contains("DejaVuSansCondensed"), "{text}");
        let page = text.split("/MediaBox [").nth(1).unwrap().split(']').next().unwrap();
        let page: Vec<f64> = page.split_whitespace().map(|x| x.parse().unwrap()).collect();
        assert!((page[2] - 245.0).abs() < 0.01 && (page[3] - 122.5).abs() < 0.01, "{page:?}");
        assert_eq!(file, pdf(path, svg, 245.0).unwrap(), "the same bytes");
        assert!(pdf(path, "<svg", 245.0).is_err());
    }

    /// The characters of figures: a font without one draws an empty box, its first glyph.
    #[test]
    fn the_font_has_the_characters_of_figures() {
        let has = |text: char| {
            let svg = format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"><text font-family=\"sans-serif\">{text}</text></svg>"
            );
            let tree = tree(Path::new("x"), &svg).unwrap();
            let Some(svg2pdf::usvg::Node::Text(text)) = tree.root().children().first() else { return false };
            let mut glyphs = text.layouted().iter().flat_map(|span| &span.positioned_glyphs);
            glyphs.all(|glyph| glyph.id.0 != 0)
        };
        for c in "aZ09äéñøß±−×·–—…⁻⁰¹²³₀₉αβγεσΔΣµÅ°≤≥∞√∂∇→‖∧".chars()
        {
            assert!(has(c), "{c}");
        }
        assert!(!has('漢'), "the test sees what is missing");
    }
}
