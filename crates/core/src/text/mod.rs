//! Multivectors as text: `1 + 2e1 − e12`, written and read back.

mod display;
mod parse;
