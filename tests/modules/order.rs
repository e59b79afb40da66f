//! The order of modules that the `lib.rs` of a crate states is the one that its sources keep.
//!
//! A `lib.rs` states it after the line `// The order of modules:` and an empty comment: a line of comment for each step, the modules of a
//! step separated by commas. A module uses only modules of earlier steps. `error` may name any: error types carry what all modules define.
//! Tests may use anything. Circles of files are looked for in `circles`.

use super::names::{definer, read};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The crates that state an order, by their sources.
const STATED: [&str; 10] = [
    "crates/core/src",
    "crates/ffi/src",
    "crates/kernels/src",
    "crates/autograd/src",
    "crates/emit/src",
    "crates/nn/src",
    "crates/transformers/src",
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
    let sources = read(folder);
    let mut wrong = BTreeSet::new();
    for (names, source) in &sources {
        let Some(module) = names.first().filter(|module| *module != "error") else { continue };
        for path in &source.mentioned {
            let definer = definer(&sources, path);
            let Some(used) = definer.first().filter(|used| *used != "error" && *used != module) else {
                continue;
            };
            if order[used] >= order[module] {
                let file = source.file.strip_prefix(folder).unwrap().display();
                wrong.insert(format!("{file}: {module} uses {used} ({})", path[0]));
            }
        }
    }
    wrong.into_iter().collect()
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
    write("d.rs", "use crate::a::Y;");
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
