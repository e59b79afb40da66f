//! The names that the sources of a crate mention, followed through `use` and re-exports to the file that defines them.

use super::source::{code, sources};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A module or an item by its names from the root of the crate.
pub type Names = Vec<String>;

/// A source: the names that `use` binds in it, with what they stand for, and all paths that it mentions.
#[derive(Default)]
pub struct Source {
    pub file: PathBuf,
    bound: BTreeMap<String, Names>,
    pub mentioned: Vec<Names>,
}

pub type Sources = BTreeMap<Names, Source>;

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

/// Whether a file is a module `tests` that is compiled for tests alone.
fn is_for_tests(file: &Path) -> bool {
    let parent = file.with_file_name("mod.rs");
    file.file_name().is_some_and(|name| name == "tests.rs")
        && fs::read_to_string(parent).is_ok_and(|text| text.contains("#[cfg(test)]\nmod tests;"))
}

/// All sources of a crate, by their modules.
pub fn read(folder: &Path) -> Sources {
    let mut all = Sources::new();
    for file in sources(folder, "rs").into_iter().filter(|file| !is_for_tests(file)) {
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
pub fn definer(sources: &Sources, path: &[String]) -> Names {
    followed(sources, path, 0)
}

fn followed(sources: &Sources, path: &[String], depth: usize) -> Names {
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
                followed(sources, &path, depth + 1)
            }
            _ => module,
        };
    }
    module
}
