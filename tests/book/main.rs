//! The book and the READMEs: every link leads somewhere, the table of contents has every page, and what stands between backticks is there.

#[path = "../common/program.rs"]
mod program;
mod references;
mod repository;

use repository::Repository;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Where links into the sources lead that are not of a page: what follows is a path of the repository.
const SOURCES: [&str; 2] = [
    "https://github.com/gradewise/gradewise/blob/main/",
    "https://github.com/gradewise/gradewise/tree/main/",
];

fn root() -> &'static Path {
    static ROOT: std::sync::LazyLock<PathBuf> =
        std::sync::LazyLock::new(|| gradewise_testing::manifest_dir!());
    &ROOT
}

/// The text without what is code: blocks between fences, and words between backticks.
fn prose(markdown: &str) -> String {
    let mut text = String::new();
    let mut fence = None;
    for line in markdown.lines() {
        let start = line.trim_start();
        let mark = start.chars().take_while(|&c| c == '`').count();
        match fence {
            Some(open) if mark >= open && start.trim_end().len() == mark => fence = None,
            Some(_) => {}
            None if mark >= 3 => fence = Some(mark),
            None => {
                for (position, part) in line.split('`').enumerate() {
                    if position % 2 == 0 {
                        text.push_str(part);
                    }
                }
                text.push('\n');
            }
        }
    }
    text
}

/// What the links and images of a page lead to.
fn links(markdown: &str) -> Vec<String> {
    let text = prose(markdown);
    let targets = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')'));
    targets.map(|(target, _)| target.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// The names under which the headings of a page can be linked to.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut fenced = false;
    for line in markdown.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}

/// What is wrong with a link of a page, if anything is.
fn fault(page: &Path, target: &str) -> Option<String> {
    for sources in SOURCES {
        if let Some(path) = target.strip_prefix(sources) {
            return (!root().join(path).exists()).then(|| "no such file in the repository".to_owned());
        }
    }
    if target.starts_with("https://") || target.starts_with("http://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_owned() } else { page.parent()?.join(path) };
    if !file.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor?;
    let text = fs::read_to_string(&file).ok()?;
    (!anchors(&text).contains(anchor)).then(|| format!("{} has no heading #{anchor}", file.display()))
}

/// The pages of the repository: the book, the READMEs, and those beside them. `docs/lab` has dated notebooks, which are no part of the book.
fn all_pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["docs", "docs/kernels", ""].iter().flat_map(|folder| pages(&root().join(folder))).collect();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        found.extend(pages(&entry.unwrap().path()));
    }
    found
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut checked = all_pages();
    checked.extend(pages(&root().join("docs/lab")));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &checked {
        for target in links(&fs::read_to_string(page).unwrap()) {
            count += 1;
            if let Some(why) = fault(page, &target) {
                wrong.push(format!("{}: {target}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} links were found: the pages are not read as they should be");
}

/// The pages of the book, and how a link begins that leaves the book from there.
fn book_pages() -> impl Iterator<Item = (PathBuf, &'static str)> {
    let of = |folder: &str, above| pages(&root().join(folder)).into_iter().map(move |page| (page, above));
    of("docs", "../").chain(of("docs/kernels", "../../"))
}

/// In the book a link out of the folder of its sources leads nowhere.
#[test]
fn pages_of_the_book_stay_in_the_book() {
    for (page, above) in book_pages() {
        let out: Vec<String> = links(&fs::read_to_string(&page).unwrap())
            .into_iter()
            .filter(|target| {
                target.starts_with(above) || target.starts_with('/') || target.starts_with("lab/")
            })
            .collect();
        assert!(out.is_empty(), "{}: {out:?}; link to the repository by its address", page.display());
    }
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let docs = root().join("docs");
    let listed = links(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    let names: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(names.len(), listed.len(), "a page is listed twice");
    let there: BTreeSet<String> = book_pages()
        .filter_map(|(page, _)| page.strip_prefix(&docs).ok()?.to_str().map(|name| name.replace('\\', "/")))
        .filter(|name| name != "SUMMARY.md")
        .collect();
    assert_eq!(names, there);
}

/// Blocks of code: what stands behind the fence, and the lines.
fn blocks(markdown: &str) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), None);
    for line in markdown.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, code)), None) => code.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    found
}

/// All Rust below a folder of the repository, joined.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            all += &sources(&path);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all += &fs::read_to_string(&path).unwrap();
        }
    }
    all
}

/// The pages that crates include as documentation.
fn tested() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src/lib.rs");
        let text = fs::read_to_string(&source).unwrap();
        for (_, included) in text.lines().filter_map(|line| line.split_once("#[doc = include_str!(\"")) {
            let page = source.with_file_name(included.split('"').next().unwrap());
            found.insert(fs::canonicalize(page).unwrap());
        }
    }
    found
}

/// Rust of the book and the READMEs is a documentation test, or part of an example that is built.
#[test]
fn every_block_of_rust_is_compiled() {
    let checked = all_pages();
    let examples =
        ["examples", "crates/autograd/examples"].map(|folder| sources(&root().join(folder))).concat();
    let (tested, mut count) = (tested(), 0);
    for page in checked {
        let name = page.strip_prefix(root()).unwrap().display();
        for (info, code) in blocks(&fs::read_to_string(&page).unwrap()) {
            if info.split(',').next() != Some("rust") {
                continue;
            }
            count += 1;
            if info.contains("ignore") {
                assert!(examples.contains(&code), "{name}: this is in no example:\n{code}");
            } else {
                assert!(
                    tested.contains(&fs::canonicalize(&page).unwrap()),
                    "{name} is no documentation test of a crate"
                );
            }
        }
    }
    assert!(count > 20, "only {count} blocks were found: the pages are not read as they should be");
}

/// Paths, names, tests and commands; all that is missing is listed at once.
#[test]
fn all_between_backticks_is_there() {
    let repository = Repository::read(root());
    let (mut count, mut wrong) = (0, Vec::new());
    for page in all_pages() {
        let name = page.strip_prefix(root()).unwrap().display();
        let text = fs::read_to_string(&page).unwrap();
        count += references::pieces(&text).len();
        for missing in references::missing(&repository, &text) {
            wrong.push(format!("{name}:{}: {}", missing.line, missing.what));
        }
    }
    assert!(count > 1000, "only {count} pieces were found: the pages are not read as they should be");
    assert!(wrong.is_empty(), "{} names that are not there:\n{}", wrong.len(), wrong.join("\n"));
}

/// Comments and help that send a reader to a page.
#[test]
fn pages_that_sources_name_are_there() {
    let repository = Repository::read(root());
    let dead: Vec<String> = repository
        .named_pages
        .iter()
        // The tests of this folder name pages of their own making.
        .filter(|(place, page)| !place.starts_with("tests/book/") && !root().join(page).exists())
        .map(|(place, page)| format!("{place}: {page}"))
        .collect();
    assert!(dead.is_empty(), "pages that are not there:\n{}", dead.join("\n"));
    let count = repository.named_pages.len();
    assert!(count > 20, "only {count} were found: the sources are not read as they should be");
}

#[test]
fn dead_links_are_noticed() {
    let page = root().join("docs/gpu.md");
    for (target, dead) in [
        ("rotor.md", false),
        ("rotor.md#motions", false),
        ("#gpus", false),
        ("https://example.org", false),
        ("https://github.com/gradewise/gradewise/tree/main/crates/core", false),
        ("https://github.com/gradewise/gradewise/tree/main/crates/nowhere", true),
        ("rotors.md", true),
        ("rotor.md#emotions", true),
    ] {
        assert_eq!(fault(&page, target).is_some(), dead, "{target}");
    }
    let text = "[a](b.md) `[c](d.md)`\n```sh\n[e](f.md)\n```\n![g](h.svg \"title\")";
    assert_eq!(links(text), ["b.md", "h.svg"]);
}
