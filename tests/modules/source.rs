//! Reading sources as text.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The source without comments and without what is compiled for tests alone.
pub fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = line.len() - line.trim_start().len();
            let end = |line: &str| {
                line.len() - line.trim_start().len() == indent && line.ends_with(['}', ';', ','])
            };
            // The item, to its last line.
            while lines.next().is_some_and(|line| !end(line)) {}
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// The files of a folder and the folders in it with this extension, in order.
pub fn sources(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
