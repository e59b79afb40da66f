#!/bin/sh
# Runs tests/providers.rs with every provider over the stand-in for the driver: no toolkit, no GPU.
set -eu
cd "$(dirname "$0")/.."
folder=$(cargo run -q -p gradewise-fake-driver --example folder)
toolkit=$(mktemp -d)
trap 'rm -r "$toolkit"' EXIT
# What the two crates look for and link with: lib64 of a toolkit, and libraries of which nothing is called.
mkdir "$toolkit/lib64"
# A link, so that whoever opens either has one and the same library.
ln -s "$(realpath "$folder")/libcuda.so" "$toolkit/lib64/"
for name in cudart cublas; do
    : | "${CC:-cc}" -shared -x c - -o "$toolkit/lib64/lib$name.so"
done
export CUDA_LIB_DIR="$folder" CUDA_LIBRARY_PATH="$toolkit:$toolkit/lib64"
export LD_LIBRARY_PATH="$folder:$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# The version of CUDA whose functions cudarc declares.
export CUDARC_CUDA_VERSION=12080
cargo test -p gradewise-ffi --features "${1:-linked,cuda-sys,cust,cudarc}" --test providers
