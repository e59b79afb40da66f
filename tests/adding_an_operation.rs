//! docs/adding-an-operation.md tells how one operation came in. The files that its table lists are those that name the operation.

use std::{collections::BTreeSet, fs, path::Path};

const FOLDERS: [&str; 6] = ["crates", "csrc", "src", "tests", "benches", "examples"];

fn files(folder: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        // A crate may link to folders of the repository that its package needs.
        if entry.file_type().unwrap().is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !path.ends_with("target") {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs" || end == "cu" || end == "cuh") {
            found.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
}

#[test]
fn the_files_of_the_table_are_those_that_name_the_operation() {
    let root = &gradewise_testing::manifest_dir!();
    let page = fs::read_to_string(root.join("docs/adding-an-operation.md")).unwrap();
    // Rows of the first table: | 1 | what | `path` |
    let numbered = page
        .lines()
        .filter(|line| line.strip_prefix("| ").is_some_and(|l| l.starts_with(|c: char| c.is_ascii_digit())));
    let listed: Vec<String> = numbered.map(|line| line.split('`').nth(1).unwrap().to_owned()).collect();
    assert!(!listed.is_empty() && listed.len() <= 9, "{} files", listed.len());
    let mut all = Vec::new();
    FOLDERS.iter().for_each(|folder| files(&root.join(folder), &mut all));
    let own = Path::new(file!()).file_name().unwrap().to_string_lossy();
    let naming: BTreeSet<String> = all
        .into_iter()
        .filter(|path| !path.ends_with(&*own))
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.contains("traceless::")
                || text.contains("traceless_product")
                || text.contains("mod traceless")
        })
        .map(|path| path.strip_prefix(&format!("{}/", root.display())).unwrap().to_owned())
        .chain(listed.iter().filter(|path| path.ends_with("cpu.rs")).cloned())
        .collect();
    assert_eq!(naming, listed.into_iter().collect::<BTreeSet<_>>());
}
