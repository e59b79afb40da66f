//! The order of modules that the `lib.rs` of a crate states is the one that its sources keep.
//!
//! A `lib.rs` states it after the line `// The order of modules:` and an empty comment: a line of comment for each step, the modules of a
//! step separated by commas. A module uses only modules of earlier steps. `error` may name any: error types carry what all modules define.
//! Tests may use anything. Circles of files are looked for in `circles`.

use super::source::{code, sources};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The crates that state an order, by their sources.
const STATED: [&str; 8] = [
    "crates/core/src",
    "crates/ffi/src",
    "crates/kernels/src",
    "crates/autograd/src",
    "crates/nn/src",
    "crates/zoo/src",
    "crates/distributed/src",
    "crates/runner/src",
];

/// Position of each module in the order.
type Order = BTreeMap<String, usize>;

fn identifier(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

fn order(lib: &str) -> Option<Order> {
    let (_, stated) = lib.split_once("// The order of modules:")?;
    let steps = stated.lines().skip_while(|line| line.trim() != "//").skip(1);
    let mut order = Order::new();
    for (step, line) in steps.map_while(|line| line.strip_prefix("//")).enumerate() {
        for name in line.split(',').map(str::trim) {
            assert!(order.insert(name.to_owned(), step).is_none(), "{name} is stated twice");
        }
    }
    Some(order)
}

/// The first names of a `use` tree or a path: those of `a::b`, `{a::b, c}` or `{self, a}`.
fn first_names(tree: &str) -> Vec<&str> {
    let Some(list) = tree.strip_prefix('{') else { return vec![identifier(tree)] };
    let (mut depth, mut names, mut begins) = (0, Vec::new(), true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && (c.is_alphanumeric() || c == '_') => {
                names.push(identifier(&list[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// What each name at the root of a crate is defined in: modules are themselves, re-exports are of a module.
fn roots(lib: &str, modules: &Order) -> BTreeMap<String, String> {
    let mut roots: BTreeMap<String, String> =
        modules.keys().map(|name| (name.clone(), name.clone())).collect();
    for rest in lib.split("\npub use ").skip(1).chain(lib.split("\npub(crate) use ").skip(1)) {
        let Some((tree, _)) = rest.split_once(';') else { continue };
        let Some((module, items)) = tree.split_once("::") else { continue };
        for item in items.trim_matches(['{', '}']).split(',') {
            let name = item.rsplit(" as ").next().unwrap_or(item).trim();
            roots.insert(name.to_owned(), module.to_owned());
        }
    }
    roots
}

/// The names at the root of the crate that a source mentions; `depth` is how many modules it is in.
fn mentioned(code: &str, depth: usize) -> BTreeSet<&str> {
    let root = "super::".repeat(depth);
    let mut names = BTreeSet::new();
    for start in ["crate::", root.as_str()] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | ':')) {
                names.extend(first_names(&code[at + start.len()..]));
            }
        }
    }
    names
}

/// Arrows of a crate against its order, each with the file that has it.
fn against(folder: &Path) -> Vec<String> {
    let lib = fs::read_to_string(folder.join("lib.rs")).unwrap();
    let order = order(&lib).unwrap_or_else(|| panic!("{} states no order of modules", folder.display()));
    let declared = lib.lines().filter_map(|line| {
        line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").strip_prefix("mod ")
    });
    let declared: BTreeSet<&str> = declared.map(identifier).collect();
    assert_eq!(
        declared,
        order.keys().map(String::as_str).collect(),
        "{}: modules and their order",
        folder.display()
    );
    let roots = roots(&lib, &order);
    let mut wrong = Vec::new();
    for file in sources(folder, "rs") {
        let path = file.strip_prefix(folder).unwrap();
        let inside: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let module = inside[0].trim_end_matches(".rs");
        let Some(step) = order.get(module).filter(|_| module != "error") else { continue };
        let own = usize::from(!path.ends_with("mod.rs"));
        let text = fs::read_to_string(&file).unwrap();
        for name in mentioned(&code(&text), inside.len() - 1 + own) {
            // Names of other crates that this one gives on are of no module.
            let Some((used, of)) = roots.get(name).and_then(|used| order.get_key_value(used)) else {
                continue;
            };
            if of >= step && used != "error" && used != module {
                wrong.push(format!("{}: {module} uses {used} ({name})", path.display()));
            }
        }
    }
    wrong
}

#[test]
fn modules_use_only_those_before_them() {
    for folder in STATED {
        let wrong = against(&gradewise_testing::manifest_dir!().join(folder));
        assert!(wrong.is_empty(), "{folder}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn an_arrow_against_the_order_is_found_wherever_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let lib = "mod a;\npub mod b;\nmod c;\nmod d;\nmod error;\n\n// The order of modules: as told.\n//\n// error, a\n// b\n// d\n// c\n\npub use c::{Of as Thing, X};\n";
    write("lib.rs", lib);
    write("error.rs", "use crate::c::X;");
    write(
        "a.rs",
        "// crate::b is fine here\nuse std::fmt;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
    );
    write("b/mod.rs", "use super::a;\nmod deep;");
    write("b/deep.rs", "use super::super::a::Y;");
    write("c.rs", "use crate::{a, b::{self, Z}, d};");
    write("d.rs", "use crate::a::X;");
    assert_eq!(against(folder.path()), [""; 0]);
    for (path, text, expected) in [
        ("a.rs", "use crate::{error::Error, b};", "a.rs: a uses b (b)"),
        ("a.rs", "fn f() { let x = crate::Thing::new(); }", "a.rs: a uses c (Thing)"),
        ("a.rs", "use super::X;", "a.rs: a uses c (X)"),
        ("b/deep.rs", "use super::super::d;", "b/deep.rs: b uses d (d)"),
        ("b/deep.rs", "macro_rules! m { () => { $crate::c::f() } }", "b/deep.rs: b uses c (c)"),
    ] {
        let before = fs::read_to_string(folder.path().join(path)).unwrap();
        write(path, text);
        assert_eq!(against(folder.path()), [expected], "{text}");
        write(path, &before);
    }
}
