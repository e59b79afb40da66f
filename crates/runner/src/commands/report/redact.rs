//! Redaction of private information.

use crate::run::environment::names_secret;
use std::{env, path::Path};

/// Prefixes of well-known kinds of tokens.
const SECRET_BEGINNINGS: [&str; 10] =
    ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "sk-", "xoxb-", "AKIA", "eyJ"];
/// Words of letters and digits of at least this length are treated as secrets.
const LONG: usize = 32;
/// Paths that are kept: every system has them, and errors of dynamic loaders refer to them.
const SYSTEM: [&str; 6] = ["/usr/", "/lib/", "/lib64/", "/proc/", "/dev/", "/etc/"];

/// Replaces secrets, names, addresses and paths by placeholders.
pub struct Redactor {
    /// The absolute path of the run folder.
    run: Option<String>,
    /// Names, and their placeholders.
    names: Vec<(String, &'static str)>,
    /// The number of replacements so far.
    pub replaced: usize,
}

impl Redactor {
    /// For a report about the run in a folder, on this machine.
    pub fn new(run: Option<&Path>) -> Self {
        let run = run.and_then(|run| run.canonicalize().ok()).map(|run| run.display().to_string());
        let variable = |name: &str| env::var(name).ok();
        let user = variable("USER").or_else(|| variable("USERNAME"));
        let named = [(user, "<user>"), (gradewise_distributed::host_name(), "<host>")];
        let names = named.into_iter().filter_map(|(name, instead)| Some((name?, instead)));
        // Names like `root` are not private, and names of two letters occur in many words.
        let telling =
            |(name, _): &(String, _)| name.len() > 2 && !["root", "localhost"].contains(&name.as_str());
        Self { run, names: names.filter(telling).collect(), replaced: 0 }
    }

    /// Redacts text, with placeholders such as `<path>` and `<secret>`.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        // Whether the previous word names a secret, with only separators in between, so that this word may be the secret.
        let mut secret_next = false;
        while !rest.is_empty() {
            let end = rest
                .char_indices()
                .find(|&(at, c)| !is_separator(c, &rest[at..]))
                .map_or(rest.len(), |(at, _)| at);
            let (separators, after) = rest.split_at(end);
            out.push_str(separators);
            if separators.contains('\n') || separators.contains(',') {
                secret_next = false;
            }
            let end = after
                .char_indices()
                .find(|&(at, c)| is_separator(c, &after[at..]))
                .map_or(after.len(), |(at, _)| at);
            let (word, after) = after.split_at(end);
            // Environments are written with their secrets replaced already.
            let is_placeholder = word == "secret" && separators.ends_with('<') && after.starts_with('>');
            let instead = if is_placeholder {
                None
            } else if secret_next && !word.is_empty() {
                Some("<secret>".to_owned())
            } else {
                self.instead_of(word)
            };
            // `Authorization: Bearer …`
            secret_next = names_secret(word)
                || (secret_next && ["bearer", "basic"].contains(&word.to_ascii_lowercase().as_str()));
            match instead {
                Some(instead) if instead != word => {
                    self.replaced += 1;
                    out.push_str(&instead);
                }
                _ => out.push_str(word),
            }
            rest = after;
        }
        out
    }

    /// Redacts JSON or JSON lines. Strings are unescaped first, so that an escape such as `\n` is not taken for a path. Everything else is
    /// unchanged.
    pub fn json(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        // Whether the next value belongs to a name such as `token`.
        let mut secret_next = false;
        while let Some(start) = rest.find('"') {
            let (before, from) = rest.split_at(start);
            out.push_str(&self.unquoted(before, secret_next));
            let Some(end) = end_of_string(from) else {
                // A truncated string.
                rest = from;
                break;
            };
            let (literal, after) = from.split_at(end);
            let value: String = serde_json::from_str(literal).unwrap_or_else(|_| literal.to_owned());
            // If a number or a table comes first, it is the value instead.
            let is_secret =
                secret_next && !value.is_empty() && before.trim_matches([':', ',', ' ', '\n']).is_empty();
            let redacted = match is_secret {
                true => "<secret>".to_owned(),
                false => self.text(&value),
            };
            if redacted == value {
                out.push_str(literal);
            } else {
                self.replaced += usize::from(is_secret);
                out.push_str(&serde_json::Value::from(redacted).to_string());
            }
            // `"token": …`, and `"--token", …` among arguments.
            let is_name = after.trim_start().starts_with(':') || value.starts_with('-');
            secret_next = is_name && names_secret(&value);
            rest = after;
        }
        out + &self.text(rest)
    }

    /// Redacts the text between two JSON strings, because a number may be a secret, too.
    fn unquoted(&mut self, text: &str, is_secret: bool) -> String {
        let value = text.trim_start_matches([':', ',', ' ', '\n']);
        let end = value.find([',', '}', ']', '\n']).unwrap_or(0);
        if !is_secret || end == 0 || value.starts_with(['{', '[']) {
            return text.to_owned();
        }
        self.replaced += 1;
        format!("{}\"<secret>\"{}", &text[..text.len() - value.len()], &value[end..])
    }

    /// The replacement of a word, if it needs one.
    fn instead_of(&self, word: &str) -> Option<String> {
        if let Some(run) = &self.run
            && let Some(inside) = word
                .strip_prefix(run.as_str())
                .filter(|rest| rest.is_empty() || rest.starts_with(['/', '\\']))
        {
            return Some(format!("<run>{inside}"));
        }
        let windows = word.get(1..3).is_some_and(|drive| drive == ":\\" || drive == ":/");
        let path = word.starts_with(['/', '~', '\\']) || word.starts_with("../") || windows;
        if path && word.len() > 1 && !SYSTEM.iter().any(|system| word.starts_with(system)) {
            return Some("<path>".to_owned());
        }
        if let Some((_, instead)) = self.names.iter().find(|(name, _)| word == name) {
            return Some((*instead).to_owned());
        }
        let alphabet = |c: char| c.is_ascii_alphanumeric() || "+/_-".contains(c);
        let mixed = word.chars().any(|c| c.is_ascii_digit()) && word.chars().any(|c| c.is_ascii_alphabetic());
        let long = word.len() >= LONG && mixed && word.chars().all(alphabet);
        if long || (word.len() > 12 && SECRET_BEGINNINGS.iter().any(|start| word.starts_with(start))) {
            return Some("<secret>".to_owned());
        }
        let numbers: Vec<&str> = word.split('.').collect();
        let is_address = numbers.len() == 4 && numbers.iter().all(|number| number.parse::<u8>().is_ok());
        let is_mail = word.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
        (is_mail || (is_address && word != "127.0.0.1")).then(|| "<address>".to_owned())
    }
}

/// The length of the JSON string at the start of a text, quotes included.
fn end_of_string(text: &str) -> Option<usize> {
    let mut escaped = false;
    let mut characters = text.char_indices().skip(1);
    let end = characters.find(|&(_, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// Word separators. The colon in `C:\` is part of the word.
fn is_separator(c: char, from: &str) -> bool {
    c.is_whitespace() || "\"'`()[]{},;=<>|".contains(c) || (c == ':' && !from.starts_with(":\\"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor() -> Redactor {
        let names = vec![("someone".to_owned(), "<user>"), ("box7".to_owned(), "<host>")];
        Redactor { run: Some("/data/runs/nbody-1".to_owned()), names, replaced: 0 }
    }

    #[test]
    fn what_is_nobodys_business_is_left_out_and_the_rest_stays() {
        for (text, expected) in [
            ("cannot open /home/someone/data/loc.npy: no such file", "cannot open <path>: no such file"),
            ("source = \"/mnt/customer-x/set\"", "source = \"<path>\""),
            ("/data/runs/nbody-1/metrics.jsonl and /data/runs/nbody-10", "<run>/metrics.jsonl and <path>"),
            ("C:\\Users\\someone\\x.npy", "<path>"),
            ("~/x ../y ./z", "<path> <path> ./z"),
            ("tried /usr/lib/libcuda.so.1", "tried /usr/lib/libcuda.so.1"),
            ("GRADEWISE_TOKEN=of-the-run", "GRADEWISE_TOKEN=<secret>"),
            ("GRADEWISE_TOKEN=<secret>", "GRADEWISE_TOKEN=<secret>"),
            ("{\"api_key\": \"abc\", \"lr\": 0.1}", "{\"api_key\": \"<secret>\", \"lr\": 0.1}"),
            ("Authorization: Bearer abc", "Authorization: <secret> <secret>"),
            ("--password hunter2 --lr 1", "--password <secret> --lr 1"),
            ("with ghp_0123456789abcdef", "with <secret>"),
            ("d41d8cd98f00b204e9800998ecf8427e", "<secret>"),
            ("rank 1 (box7, process 12) by someone", "rank 1 (<host>, process 12) by <user>"),
            ("10.0.0.7:29500 and 127.0.0.1:29500", "<address>:29500 and 127.0.0.1:29500"),
            ("a@example.org", "<address>"),
            (
                "layers.0.edge.0.weight 1.2345678901234567e-12",
                "layers.0.edge.0.weight 1.2345678901234567e-12",
            ),
            ("loss 1/2, n/a, 3.5 / 2", "loss 1/2, n/a, 3.5 / 2"),
            ("driver 580.65.06, CUDA 13.0", "driver 580.65.06, CUDA 13.0"),
            ("", ""),
        ] {
            assert_eq!(redactor().text(text), expected);
        }
        for (json, expected) in [
            // An escape does not begin a path, and it separates words.
            (r#"{"error": "(step 8)\ngo on at 3\t\"x\""}"#, r#"{"error": "(step 8)\ngo on at 3\t\"x\""}"#),
            (r#"{"error": "read:\n/home/someone/x\nthere"}"#, r#"{"error": "read:\n<path>\nthere"}"#),
            (r#"["--token", "abc", "train.lr=0.1"]"#, r#"["--token", "<secret>", "train.lr=0.1"]"#),
            (
                r#"{"api_key": 12, "lr": 0.1000000000000000055}"#,
                r#"{"api_key": "<secret>", "lr": 0.1000000000000000055}"#,
            ),
            (
                "{\"a\": 1}\n{\"token\": {\"b\": \"C:\\\\Users\\\\x\"}}\n",
                "{\"a\": 1}\n{\"token\": {\"b\": \"<path>\"}}\n",
            ),
            (r#"{"cut": "/home/some"#, r#"{"cut": "<path>"#),
        ] {
            assert_eq!(redactor().json(json), expected);
        }
        let mut counting = redactor();
        counting.text("/a /b someone plain");
        assert_eq!(counting.replaced, 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_keeps_a_private_path_and_none_panics(before in "\\PC{0,30}", after in "[ -~]{0,30}") {
            let text = format!("{before} /home/private/place {after}");
            prop_assert!(!redactor().text(&text).contains("/home/private/place"));
            let json = serde_json::json!({"error": text, "other": [before, after]}).to_string();
            let redacted = redactor().json(&json);
            prop_assert!(!redacted.contains("/home/private/place"));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&redacted).is_ok(), "{redacted}");
        }
    }
}
