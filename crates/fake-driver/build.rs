//! Compiles the stand-in into a shared library under the name of the driver's.

use std::{env, path::Path};

const SOURCES: [&str; 7] = ["control.c", "device.c", "graph.c", "memory.c", "module.c", "op.c", "stream.c"];

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let library = Path::new(&out).join("libcuda.so.1");
    let mut compile = cc::Build::new().std("gnu11").opt_level(1).get_compiler().to_command();
    compile.args([
        "-shared",
        "-fPIC",
        "-pthread",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
    ]);
    compile.arg(&library).args(SOURCES.map(|file| Path::new("csrc").join(file)));
    let status =
        compile.status().unwrap_or_else(|error| panic!("{compile:?}: {error}; install a C compiler"));
    assert!(status.success(), "{compile:?}: {status}");
    // Under the name that the linker asks for, too.
    std::fs::copy(&library, Path::new(&out).join("libcuda.so")).expect("OUT_DIR can be written");
    println!("cargo::rustc-env=FAKE_DRIVER={}", library.display());
    println!("cargo::rustc-env=FAKE_DRIVER_FOLDER={out}");
}
