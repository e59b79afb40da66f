//! Compiles the CUDA kernels in `csrc` (with the feature `cuda`) and embeds them, their sources' headers included, by
//! way of `$OUT_DIR/images.rs`. Needs nvcc, but no GPU. What it reads from the environment is in `docs/gpu.md`.

// `mod build` alone would name this very file.
#[path = "build/mod.rs"]
mod build;

fn main() {
    if let Err(error) = build::run() {
        for line in error.lines() {
            println!("cargo::error={line}");
        }
    }
}
