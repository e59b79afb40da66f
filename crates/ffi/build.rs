//! With the feature `linked`: finds, or makes, a library to link with. Without it there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "linked")]
    linked::main();
}

#[cfg(feature = "linked")]
mod linked {
    use std::{
        env, fs,
        path::{Path, PathBuf},
    };

    pub fn main() {
        let variables = ["CUDA_LIB_DIR", "CUDA_HOME", "CUDA_PATH"];
        for variable in variables {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let [given, toolkits @ ..] = variables.map(|name| env::var_os(name).map(PathBuf::from));
        let file = if cfg!(windows) { "cuda.lib" } else { "libcuda.so" };
        if let Some(folder) = &given {
            assert!(folder.join(file).is_file(), "CUDA_LIB_DIR={}: there is no {file}", folder.display());
        }
        let inside = |root: &PathBuf| {
            ["lib64/stubs", "lib/stubs", "lib64", "lib/x64", "lib"].map(|part| root.join(part))
        };
        let places = given.into_iter().chain(toolkits.iter().flatten().flat_map(inside));
        let folder = places.into_iter().find(|folder| folder.join(file).is_file()).unwrap_or_else(stand_in);
        println!("cargo::rustc-link-search=native={}", folder.display());
    }

    /// An empty library under the driver's name: what the linker notes is that name, and the loader finds the driver by it.
    fn stand_in() -> PathBuf {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let source = out.join("cuda.c");
        fs::write(&source, "int cuInit(unsigned flags) { return flags ? 1 : 34; }\n")
            .expect("OUT_DIR can be written");
        build(&source, &out.join("libcuda.so"));
        out
    }

    fn build(source: &Path, library: &Path) {
        let mut compile = cc::Build::new().get_compiler().to_command();
        compile.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(library).arg(source);
        let status = compile.status();
        let made = status.as_ref().is_ok_and(|status| status.success());
        assert!(made, "{compile:?}: {status:?}; set CUDA_LIB_DIR to a folder that has the driver's library");
    }
}
