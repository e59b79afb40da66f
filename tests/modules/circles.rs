//! No files use each other in a circle: a type lies below all its users, not beside the first of them.
//!
//! A module and the modules inside of it count as one
//! direction only: children see their parent's names, and parents call their children. The error type of a crate carries values of any of
//! its types, whose constructors return it: what `error.rs` uses is not followed. Tests may use anything.

use super::{
    names::{Names, Sources, definer, read},
    source::sources,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Which modules each one uses, and by which names.
type Arrows = BTreeMap<Names, BTreeMap<Names, BTreeSet<String>>>;

fn arrows(sources: &Sources) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, source) in sources.iter().filter(|(module, _)| module[..] != ["error"]) {
        for path in &source.mentioned {
            let used = definer(sources, path);
            if !used.starts_with(module) && !module.starts_with(&used) {
                let names = arrows.entry(module.clone()).or_default().entry(used).or_default();
                names.extend(path.last().cloned());
            }
        }
    }
    arrows
}

/// All that can be reached from a module.
fn reached<'a>(arrows: &'a Arrows, from: &'a Names) -> BTreeSet<&'a Names> {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(module) = open.pop() {
        for next in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

/// The arrows of circles, files under the names that `file` gives them.
fn circular(arrows: &Arrows, file: impl Fn(&Names) -> String) -> Vec<String> {
    let reach: BTreeMap<&Names, BTreeSet<&Names>> =
        arrows.keys().map(|module| (module, reached(arrows, module))).collect();
    let in_circle = |a: &Names, b: &Names| {
        reach.get(a).is_some_and(|set| set.contains(b)) && reach.get(b).is_some_and(|set| set.contains(a))
    };
    let mut found = Vec::new();
    for (module, uses) in arrows {
        for (used, names) in uses.iter().filter(|(used, _)| in_circle(module, used)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            found.push(format!("{} uses {}: {}", file(module), file(used), names.join(", ")));
        }
    }
    found
}

/// The arrows of each circle of files of a crate.
fn circles(folder: &Path) -> Vec<String> {
    let sources = read(folder);
    let file = |names: &Names| sources[names].file.strip_prefix(folder).unwrap().display().to_string();
    circular(&arrows(&sources), file)
}

/// The arrows of each circle of the C files of a folder, which name functions and variables `fake_…` for each other.
fn c_circles(folder: &Path) -> Vec<String> {
    let names_in = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("fake_")).map(str::to_owned).collect()
    };
    let mut files = Vec::new();
    for path in sources(folder, "c") {
        // The macro `CALL` of the header is the body of the exported functions.
        let text = fs::read_to_string(&path).unwrap().replace("CALL(", "fake_enter(");
        // What stands before the arguments, body or value of an item.
        let items = text.lines().filter(|line| line.starts_with(|c: char| c.is_alphabetic()));
        let defined: String =
            items.map(|line| line.split(['{', '=']).next().unwrap().to_owned() + "\n").collect();
        files.push((
            path.file_name().unwrap().to_string_lossy().into_owned(),
            names_in(&defined),
            names_in(&text),
        ));
    }
    let mut arrows = Arrows::new();
    for (user, _, mentioned) in &files {
        for (used, defined, _) in files.iter().filter(|(used, ..)| used != user) {
            let names: BTreeSet<String> = mentioned.intersection(defined).cloned().collect();
            if !names.is_empty() {
                arrows.entry(vec![user.clone()]).or_default().insert(vec![used.clone()], names);
            }
        }
    }
    circular(&arrows, |file| file[0].clone())
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let root = gradewise_testing::manifest_dir!();
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut found = Vec::new();
    for folder in crates.filter(|folder| folder.is_dir()).chain([root.join("src")]) {
        let name = folder.strip_prefix(&root).unwrap().display().to_string();
        found.extend(circles(&folder).into_iter().map(|arrow| format!("{name}: {arrow}")));
    }
    assert!(found.is_empty(), "files in circles:\n{}", found.join("\n"));
}

#[test]
fn no_c_files_of_the_fake_driver_use_each_other_in_a_circle() {
    let found = c_circles(&gradewise_testing::manifest_dir!().join("crates/fake-driver/csrc"));
    assert!(found.is_empty(), "files in circles:\n{}", found.join("\n"));
}

/// A folder of these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn circles_of_c_files_are_found() {
    let of = |files: &[(&str, &str)]| c_circles(folder(files).path());
    let low = (
        "low.c",
        "int fake_state = 1;\nstatic int own(void) {\n    return fake_state;\n}\nvoid *fake_low(int x) { return 0; }\n",
    );
    let middle = "int fake_middle(void) {\n    return fake_low(fake_state);\n}\n";
    let high = ("high.c", "int fake_high(void) { return fake_middle(); }\n");
    assert!(of(&[low, ("middle.c", middle), high]).is_empty());
    let calls_up = middle.replace("fake_state", "fake_high()");
    let circle = ["high.c uses middle.c: fake_middle", "middle.c uses high.c: fake_high"];
    assert_eq!(of(&[low, ("middle.c", &calls_up), high]), circle);
}

#[test]
fn circles_are_found_however_names_are_reached() {
    let of = |files: &[(&str, &str)]| circles(folder(files).path());
    let parent = ("x/mod.rs", "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{self as other, B};\n");
    let root = ("lib.rs", "mod x;\nmod y;\npub use x::A;\n");
    let circle = ["x/a.rs uses x/b.rs: B", "x/b.rs uses x/a.rs: A"];
    for (a, b) in [
        ("use super::b::B;", "use super::a::A;"),
        ("use crate::x::B;", "use crate::A;"),
        ("use super::{B};", "fn f() -> super::A { }"),
        ("use crate::x;\nfn f() -> x::B { }", "use crate::{x::{A}};"),
    ] {
        assert_eq!(of(&[root, parent, ("y.rs", ""), ("x/a.rs", a), ("x/b.rs", b)]), circle, "{a} {b}");
    }
    // One direction; a parent and its child; tests.
    let one = [root, parent, ("y.rs", "use crate::A;"), ("x/a.rs", "use super::B;")];
    let below = [("x/b.rs", "use super::*;\n#[cfg(test)]\nmod tests {\n    use crate::x::a::A;\n}\n")];
    assert!(of(&[&one[..], &below].concat()).is_empty());
    // Three files.
    let three =
        [("lib.rs", "mod a;\nmod b;\nmod c;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;")];
    assert_eq!(of(&[&three[..], &[("c.rs", "use crate::a::A;")]].concat()).len(), 3);
}
