//! Compiles the stand-in into a shared library under the name of the driver's.

use std::{env, path::Path};

/// From the ground up: each uses those before it.
const SOURCES: [&str; 10] = [
    "handles.c",
    "call.c",
    "device.c",
    "op.c",
    "stream.c",
    "graph.c",
    "memory.c",
    "copy.c",
    "module.c",
    "control.c",
];

/// Stand-ins for other libraries, each a file of its own: its name, and the name under which it is looked for.
const OTHERS: [(&str, &str); 4] = [
    ("others/nvml.c", "libnvidia-ml.so.1"),
    ("others/nvtx.c", "libfake-nvtx.so"),
    ("others/cublaslt.c", "libcublasLt.so.13"),
    ("others/nccl.c", "libnccl.so.2"),
];

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let (library, linked) = (Path::new(&out).join("libcuda.so.1"), Path::new(&out).join("libcuda.so"));
    compile(&SOURCES, &library);
    // Under the name that the linker asks for, too; one file, so that a process which opens both has one driver.
    let _ = std::fs::remove_file(&linked);
    std::fs::hard_link(&library, &linked).expect("a second name for the library");
    for (source, name) in OTHERS {
        compile(&[source], &Path::new(&out).join(name));
    }
    println!("cargo::rustc-env=FAKE_DRIVER_FOLDER={out}");
}

fn compile(sources: &[&str], library: &Path) {
    let name = library.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let mut compile = cc::Build::new().std("gnu11").opt_level(1).get_compiler().to_command();
    compile.args(["-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]);
    compile.arg(format!("-Wl,-soname,{name}")).arg("-o").arg(library);
    compile.args(sources.iter().map(|file| Path::new("csrc").join(file)));
    let status =
        compile.status().unwrap_or_else(|error| panic!("{compile:?}: {error}; install a C compiler"));
    assert!(status.success(), "{compile:?}: {status}");
}
