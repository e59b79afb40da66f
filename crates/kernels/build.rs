//! Compiles the CUDA kernels in `csrc` (with the feature `cuda`) and embeds them, their sources' headers included, by
//! way of `$OUT_DIR/images.rs`. Needs nvcc, but no GPU. What it reads from the environment is in `docs/gpu.md`.

// `mod build` alone would name this very file.
#[path = "build/mod.rs"]
mod build;

fn main() {
    // How the straight-line products of src/ops/clifford/straight.rs know that they were not optimised.
    println!("cargo::rustc-check-cfg=cfg(gradewise_unoptimised)");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo::rustc-cfg=gradewise_unoptimised");
    }
    if let Err(error) = build::run() {
        for line in error.lines() {
            println!("cargo::error={line}");
        }
    }
}
