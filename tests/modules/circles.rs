//! No files use each other in a circle: a type lies below all its users, not beside the first of them.
//!
//! Names are followed through `use` and re-exports to the file that defines them. A module and the modules inside of it count as one
//! direction only: children see their parent's names, and parents call their children. The error type of a crate carries values of any of
//! its types, whose constructors return it: what `error.rs` uses is not followed. Tests may use anything.

use super::source::{code, sources};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A module or an item by its names from the root of the crate.
type Names = Vec<String>;

/// A source: the names that `use` binds in it, with what they stand for, and all paths that it mentions.
#[derive(Default)]
struct Source {
    file: PathBuf,
    bound: BTreeMap<String, Names>,
    mentioned: Vec<Names>,
}

type Sources = BTreeMap<Names, Source>;

/// Which modules each one uses, and by which names.
type Arrows = BTreeMap<Names, BTreeMap<Names, BTreeSet<String>>>;

/// The module that a file of `folder` is.
fn module(folder: &Path, file: &Path) -> Names {
    let path = file.strip_prefix(folder).unwrap().with_extension("");
    let mut names: Names = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| last == "mod" || names.len() == 1 && (last == "lib" || last == "main"))
    {
        names.pop();
    }
    names
}

/// What is left of a source after the end of a word, and the word.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], &text[end..])
}

/// The paths of a `use` tree, each with the name that it binds; the rest of the text behind the tree.
fn tree<'a>(text: &'a str, before: &[String], found: &mut Vec<(String, Names)>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        text = list;
        loop {
            text = text.trim_start();
            if let Some(rest) = text.strip_prefix('}') {
                return rest;
            }
            let rest = tree(text, before, found).trim_start();
            if rest.len() == text.len() {
                return "";
            }
            text = rest.strip_prefix(',').unwrap_or(rest);
        }
    }
    if let Some(rest) = text.strip_prefix('*') {
        found.push(("*".to_owned(), before.to_vec()));
        return rest;
    }
    let (name, rest) = word(text);
    let mut path = before.to_vec();
    if name != "self" || before.is_empty() {
        path.push(name.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return tree(rest, &path, found);
    }
    let (mut bound, mut behind) = (path.last().cloned().unwrap_or_default(), rest);
    if let Some(alias) = rest.trim_start().strip_prefix("as ") {
        let (name, rest) = word(alias.trim_start());
        (bound, behind) = (name.to_owned(), rest);
    }
    found.push((bound, path));
    behind
}

/// A path from the root of the crate; none for those of other crates.
fn absolute(path: &[String], module: &[String]) -> Option<Names> {
    let (mut base, mut rest) = match path.first().map(String::as_str)? {
        "crate" => (Names::new(), &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        "super" => (module.to_vec(), path),
        _ => return None,
    };
    while rest.first().is_some_and(|name| name == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The paths of two names or more in an expression or a type.
fn paths(text: &str) -> Vec<Names> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_alphabetic() || c == '_') {
        rest = &rest[start..];
        let mut path = Names::new();
        loop {
            let (name, behind) = word(rest);
            if name.is_empty() {
                break;
            }
            path.push(name.to_owned());
            rest = behind;
            match rest.strip_prefix("::") {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        found.extend((path.len() > 1).then_some(path));
    }
    found
}

fn read(folder: &Path) -> Sources {
    let mut all = Sources::new();
    for file in sources(folder, "rs") {
        let text = code(&fs::read_to_string(&file).unwrap());
        let module = module(folder, &file);
        let mut source = Source { file, ..Source::default() };
        let mut others = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("use ") {
            let is_statement = rest[..at].chars().next_back().is_none_or(|c| c.is_whitespace());
            others.push_str(&rest[..at]);
            rest = &rest[at + 4..];
            if !is_statement {
                continue;
            }
            let mut found = Vec::new();
            rest = tree(rest, &[], &mut found);
            for (name, path) in found {
                let Some(path) = absolute(&path, &module).or_else(|| child(folder, &module, &path)) else {
                    continue;
                };
                source.mentioned.push(path.clone());
                source.bound.insert(name, path);
            }
        }
        others.push_str(rest);
        for path in paths(&others) {
            let bound = || {
                let mut of = source.bound.get(&path[0])?.clone();
                of.extend_from_slice(&path[1..]);
                Some(of)
            };
            source.mentioned.extend(absolute(&path, &module).or_else(bound));
        }
        all.insert(module, source);
    }
    all
}

/// A path that begins with a module inside of this one.
fn child(folder: &Path, module: &[String], path: &[String]) -> Option<Names> {
    let inside: PathBuf = [folder.to_owned()].into_iter().chain(module.iter().map(PathBuf::from)).collect();
    let own = inside.join(&path[0]);
    let is_module = own.with_extension("rs").exists() || own.join("mod.rs").exists();
    is_module.then(|| module.iter().chain(path).cloned().collect())
}

/// The module that defines what a path names.
fn definer(sources: &Sources, path: &[String], depth: usize) -> Names {
    let mut module = Names::new();
    for (place, name) in path.iter().enumerate() {
        module.push(name.clone());
        if sources.contains_key(&module) {
            continue;
        }
        module.pop();
        let source = sources.get(&module);
        return match source.and_then(|source| source.bound.get(name)) {
            Some(target) if depth < 16 => {
                let path: Names = target.iter().chain(&path[place + 1..]).cloned().collect();
                definer(sources, &path, depth + 1)
            }
            _ => module,
        };
    }
    module
}

fn arrows(sources: &Sources) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, source) in sources.iter().filter(|(module, _)| module[..] != ["error"]) {
        for path in &source.mentioned {
            let used = definer(sources, path, 0);
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
