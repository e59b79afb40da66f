//! The header: a Python dictionary literal of fixed form.

#[derive(PartialEq, Debug)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// Parses `{'descr': '<f8', 'fortran_order': False, 'shape': (40, 49, 3, 5), }`, keys in any order.
pub(super) fn parse_header(text: &str) -> Result<Header, String> {
    let malformed = |what: &str| format!("its header is malformed ({what})");
    let mut rest =
        text.trim_ascii().strip_prefix('{').ok_or_else(|| malformed("no opening brace"))?.trim_ascii_start();
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    loop {
        if let Some(end) = rest.strip_prefix('}') {
            if !end.trim_ascii().is_empty() {
                return Err(malformed("text after the closing brace"));
            }
            break;
        }
        let (key, after) = quoted(rest).ok_or_else(|| malformed("a key is not a string"))?;
        let after =
            after.trim_ascii_start().strip_prefix(':').ok_or_else(|| malformed("no colon after a key"))?;
        let after = after.trim_ascii_start();
        rest = match key {
            "descr" if descr.is_none() => {
                let (value, after) = quoted(after)
                    .ok_or("its elements are structured records; save each field as an array of its own")?;
                descr = Some(value.to_owned());
                after
            }
            "fortran_order" if fortran_order.is_none() => {
                let (value, after) = if let Some(after) = after.strip_prefix("True") {
                    (true, after)
                } else {
                    (false, after.strip_prefix("False").ok_or_else(|| malformed("fortran_order"))?)
                };
                fortran_order = Some(value);
                after
            }
            "shape" if shape.is_none() => {
                let (inner, after) = after
                    .strip_prefix('(')
                    .and_then(|inner| inner.split_once(')'))
                    .ok_or_else(|| malformed("shape is not a tuple"))?;
                shape = Some(parse_sizes(inner).ok_or_else(|| malformed("shape"))?);
                after
            }
            _ => return Err(malformed("an unknown or repeated key")),
        }
        .trim_ascii_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_ascii_start();
        } else if !rest.starts_with('}') {
            return Err(malformed("no comma between entries"));
        }
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
        _ => Err(malformed("descr, fortran_order or shape is missing")),
    }
}

/// NumPy arrays have at most 64 axes.
const MAX_RANK: usize = 64;

fn parse_sizes(text: &str) -> Option<Vec<usize>> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let text = text.strip_suffix(',').unwrap_or(text);
    // Files written by Python 2 carry sizes such as 40L.
    let size = |part: &str| part.trim_ascii().trim_end_matches('L').parse().ok();
    (text.split(',').count() <= MAX_RANK).then(|| text.split(',').map(size).collect())?
}

/// Splits off a leading quoted string without escapes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}
