//! Text of a page whose markup comes from literals alone: everything else is escaped when it is added.

use serde::Serialize;
use std::fmt::{Display, Write};

/// A piece of a page.
#[derive(Clone, Default, Debug)]
pub struct Html(String);

/// A value for an attribute.
type Attribute<'a> = (&'static str, &'a dyn Display);

impl Html {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text, escaped.
    pub fn of(text: impl Display) -> Self {
        let mut html = Self::new();
        html.text(text);
        html
    }

    /// Markup of this program, which as a literal holds nothing that was read from somewhere.
    pub fn markup(&mut self, literal: &'static str) -> &mut Self {
        self.0.push_str(literal);
        self
    }

    /// Adds text, escaped.
    pub fn text(&mut self, text: impl Display) -> &mut Self {
        for c in text.to_string().chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Other control characters are not allowed in HTML.
                c if c.is_control() && c != '\n' && c != '\t' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Adds a piece.
    pub fn add(&mut self, other: Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// Adds an element around a piece.
    pub fn put(&mut self, tag: &'static str, attributes: &[Attribute<'_>], content: Self) -> &mut Self {
        self.open(tag, attributes).add(content);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "</{tag}>");
        self
    }

    /// Adds the beginning of an element, or one without an end.
    pub fn open(&mut self, tag: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        let _ = write!(self.0, "<{tag}");
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"");
            self.text(value);
            self.0.push('"');
        }
        self.0.push('>');
        self
    }

    /// Adds a drawing as an image. Scripts in images do not run and links in them do not load, whatever the file holds.
    pub fn drawing(&mut self, svg: &str, about: &str) -> &mut Self {
        self.open(
            "img",
            &[
                ("alt", &about),
                ("src", &format_args!("data:image/svg+xml;base64,{}", base64(svg.as_bytes()))),
            ],
        )
    }

    /// Adds data for scripts, as JSON in an element that a script finds by `id`.
    pub fn data(&mut self, id: &'static str, value: &impl Serialize) -> &mut Self {
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.open("script", &[("type", &"application/json"), ("id", &id)]);
        // In JSON these occur within strings alone.
        self.0.push_str(&json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
        self.markup("</script>\n")
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The finished text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Base 64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = word >> (18 - 6 * digit) & 63;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literals_are_markup() {
        let hostile = "</script><script>alert('1')</script>\" onload=\"x\u{0}";
        let mut page = Html::new();
        page.put("p", &[("title", &hostile)], Html::of(hostile));
        page.data("data", &serde_json::json!({ "name": hostile }));
        page.drawing("<svg><script>alert(1)</script></svg>", hostile);
        let text = page.into_text();
        assert_eq!(text.matches("<script").count(), 1, "{text}");
        assert_eq!(text.matches('<').count(), 5, "p and script with their ends, and img: {text}");
        assert!(!text.contains('\u{0}'), "{text}");
        for tag in [text.split('>').next().unwrap(), text.rsplit('<').next().unwrap()] {
            assert!(!tag.contains("\" onload"), "{tag}");
        }
        let json = text.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(value["name"], hostile);
    }

    #[test]
    fn base_64_is_that_of_the_standard() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
