//! Lists of strings as PyTables stores them in attributes: pickled with the text protocol.

/// The strings of a list of strings pickled in protocol 0, which is text; `None` for anything else. Nothing is executed.
pub(super) fn list_of_strings(pickle: &[u8]) -> Option<Vec<String>> {
    // MARK, LIST.
    let mut rest = std::str::from_utf8(pickle).ok()?.trim_end_matches('\0').strip_prefix("(l")?;
    let mut strings = Vec::new();
    loop {
        let code = rest.chars().next()?;
        rest = &rest[code.len_utf8()..];
        match code {
            // STOP.
            '.' => return rest.is_empty().then_some(strings),
            // APPEND.
            'a' => continue,
            'p' | 'V' | 'S' => {}
            _ => return None,
        }
        let (argument, after) = rest.split_once('\n')?;
        rest = after;
        match code {
            // UNICODE.
            'V' => strings.push(argument.to_owned()),
            // STRING, of Python 2, in quotes.
            'S' => {
                let quote = argument.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
                strings.push(argument.strip_prefix(quote)?.strip_suffix(quote)?.to_owned());
            }
            // PUT memoises a value; nothing here reads it back.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_both_pythons_are_read_and_nothing_else() {
        let names = vec!["E_0".to_owned(), "PX_0".to_owned()];
        for pickle in ["(lp0\nVE_0\np1\naVPX_0\np2\na.", "(lp1\nS'E_0'\np2\naS\"PX_0\"\np3\na.\0"] {
            assert_eq!(list_of_strings(pickle.as_bytes()).as_ref(), Some(&names), "{pickle}");
        }
        assert_eq!(list_of_strings(b"(lp0\n."), Some(Vec::new()));
        for other in [
            "integer",
            "N.",
            "",
            "(lp0\nVE_0\np1\na",
            "(lp0\nVE_0\np1\na.x",
            "(lp0\nS'E_0\np1\na.",
            "(lp0\nS'\np1\na.",
            "(lp0\ncos\nsystem\np1\n(S'ls'\np2\ntp3\nRp4\na.",
            "(lp0\nVE_0",
        ] {
            assert_eq!(list_of_strings(other.as_bytes()), None, "{other}");
        }
        assert_eq!(list_of_strings(b"(lp0\nV\xff\np1\na."), None);
    }
}
