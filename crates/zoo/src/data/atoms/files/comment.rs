//! The second line of a frame of extended XYZ: `key=value` pairs.

/// The pairs in their order; a key without a value has the value `T`.
///
/// Values may be quoted by `"` or `'`, or stand in braces or brackets.
///
/// # Errors
/// A quotation that does not end.
pub fn pairs(line: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut found = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(value) = after.strip_prefix('=') else {
            // Comments of plain XYZ are words without values.
            found.push((key, "T"));
            rest = after.trim_start();
            continue;
        };
        let (value, after) = take_value(value).ok_or_else(|| format!("the value of `{key}` does not end"))?;
        found.push((key, value));
        rest = after.trim_start();
    }
    Ok(found)
}

/// The value at the start of `text`, and what follows it.
fn take_value(text: &str) -> Option<(&str, &str)> {
    let close = match text.chars().next() {
        Some('"') => '"',
        Some('\'') => '\'',
        Some('{') => '}',
        Some('[') => {
            // Brackets may nest, as in [[1, 0], [0, 1]].
            let mut depth = 0usize;
            for (at, c) in text.char_indices() {
                match c {
                    '[' => depth += 1,
                    ']' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return Some((&text[1..at], &text[at + 1..]));
                }
            }
            return None;
        }
        _ => return Some(text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))),
    };
    let inner = &text[1..];
    let end = inner.find(close)?;
    Some((&inner[..end], &inner[end + 1..]))
}

/// Numbers separated by blanks, commas or brackets.
///
/// # Errors
/// What is no number.
pub fn numbers(text: &str) -> Result<Vec<f64>, String> {
    text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']'))
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| format!("`{word}` is no number")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_in_several_ways() {
        let line =
            r#"Lattice="1 0 0 0 1 0 0 0 1" energy=-1.5 pbc='T T F' note={a b} m=[[1, 2], [3, 4]] lone e="""#;
        let found = pairs(line).unwrap();
        let expected = [
            ("Lattice", "1 0 0 0 1 0 0 0 1"),
            ("energy", "-1.5"),
            ("pbc", "T T F"),
            ("note", "a b"),
            ("m", "[1, 2], [3, 4]"),
            ("lone", "T"),
            ("e", ""),
        ];
        assert_eq!(found, expected);
        assert_eq!(numbers(found[4].1).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert!(pairs("a=\"b").unwrap_err().contains("`a`"));
        assert!(pairs("a=[1").is_err() && numbers("1 x").unwrap_err().contains("`x`"));
    }
}
