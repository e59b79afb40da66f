//! Sets `book` where the pages whose examples are tested lie beside this package: in the repository, not in the published crate.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(book)");
    println!("cargo::rerun-if-changed=build.rs");
    if Path::new("../../docs/rotor.md").exists() {
        println!("cargo::rustc-cfg=book");
    }
}
