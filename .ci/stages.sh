# The stages of .ci/run and .ci/full: functions that each check one thing. Sourced by both, with the repository as the current folder.
# Needs a Rust toolchain, a crate registry, pip and a C++ compiler; no GPU. Builds into target/ like any other build.
# Without line tables, which a log does not need.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_DEBUG=false RUSTC_WRAPPER=$PWD/.ci/rustc
target=${CARGO_TARGET_DIR:-$PWD/target}
# The program and what is around it is not optimised: what computes is in the crates below, and to optimise the trainers of all tasks took
# 280 s of a processor for the program's library, and as long again for its tests; 26 s without. Likewise of the registry what
# only tests, benches, command lines and figures use (126 s, and 80 s of figures). Gradients and layers are optimised: without, their tests take longer than that saves.
unoptimised=()
for package in gradewise-{cli,runner,bench,distributed} syn criterion clap_builder regex-automata regex-syntax usvg rustybuzz \
    ttf-parser fontdb roxmltree svgtypes tiny-skia tiny-skia-path resvg subsetter svg2pdf pdf-writer; do
    unoptimised+=(--config "profile.release.package.$package.opt-level=0")
done

# cargo [+TOOLCHAIN] …: with these settings.
cargo() {
    local toolchain=()
    case $1 in +*) toolchain=("$1") && shift ;; esac
    command cargo ${toolchain[@]+"${toolchain[@]}"} "${unoptimised[@]}" "$@"
}

program=$target/release/gradewise
skipped=()

# stage NAME COMMAND…: runs a command and prints how long it took.
stage() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name: $*"
    "$@"
    echo "== $name: $((SECONDS - start)) s"
}

# begin NAME COMMAND…: a stage beside those that follow, which one process alone does not keep busy.
# finish NAME: waits for it, and prints what it printed.
declare -A begun
begin() {
    mkdir -p "$target"
    stage "$@" >"$target/$1.log" 2>&1 &
    begun[$1]=$!
}
finish() {
    local status=0
    wait "${begun[$1]}" || status=$?
    cat "$target/$1.log"
    return "$status"
}
# A gate that ends early, or by Ctrl-C, which a shell's background does not see, leaves nothing behind.
trap 'for pid in "${begun[@]}"; do pkill -P "$pid" || true; done' EXIT

# skip STAGE REASON: what this machine cannot check; the last line of a gate lists it.
skip() {
    echo "not checked: $1: $2"
    skipped+=("$1")
}

# closing: the last line of a gate.
closing() {
    [ ${#skipped[@]} = 0 ] || printf 'not checked on this machine: %s\n' "${skipped[@]}"
    echo "== all stages passed in $SECONDS s"
}

# Tests without optimisation take more of the stack.
tests() { RUST_MIN_STACK=16777216 cargo test --workspace --release; }

# The tests, which are built; until the first of them starts, Cargo lets nothing else into its folder. Most of them take one thread.
begin_tests() {
    begin tests tests
    until grep -q Running "$target/tests.log" || ! kill -0 "${begun[tests]}" 2>/dev/null; do sleep 1; done
}

# In the profile of the tests, as lints and all checks are: macros and build scripts are built once, and what crates of the registry
# declare is read once.
rustdoc() { RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps "$@"; }

# The algebra as its own users build it: without a standard library, for a processor without compare-and-swap, and with its strategies for
# property tests.
core_alone() {
    local target
    cargo check --release -p gradewise-core --no-default-features --features libm,serde
    for target in thumbv6m-none-eabi riscv32imc-unknown-none-elf; do
        if rustup target list --installed 2>/dev/null | grep -q "$target" || rustup target add "$target" 2>/dev/null; then
            cargo check --release -p gradewise-core --no-default-features --features libm,serde --target "$target"
        else
            skip "gradewise-core for $target" "rustup does not fetch it"
        fi
    done
    # Their tests run with those of the workspace.
    cargo check --release -p gradewise-core --features serde,proptest --tests
}

# The same with all of its tests and examples.
core_alone_whole() {
    core_alone
    cargo test --release -p gradewise-core --features serde,proptest
}

# Layers and transformers without files; the number of crates is what README.md of nn says.
nn_alone() {
    local crates
    cargo check --release -p gradewise-nn -p gradewise-transformers --no-default-features
    crates=$(cargo tree -p gradewise-nn --no-default-features -e normal --prefix none | sed 's/ (\*)//' | sort -u | grep -vc '^gradewise')
    echo "gradewise-nn without files: $crates crates"
    [ "$crates" -le 59 ]
}

# The kernels for one architecture, and the Rust code that launches them.
kernels_of_one_architecture() {
    scripts/get-nvcc
    GRADEWISE_CUDA_ARCHS=90a cargo clippy --workspace --all-targets --features cuda -- -D warnings
}

# The kernels for every architecture, none of which may spill registers.
kernels_of_all_architectures() {
    scripts/get-nvcc
    cargo clippy --workspace --all-targets --features cuda -- -D warnings
}

# A short run of the program that the tests built: data, training, plots, resume, evaluation.
smoke() {
    local run
    run=$(mktemp -d)
    "$program" train nbody train.steps=60 data.train=300 data.valid=100 data.test=100 --out "$run/first"
    for file in config.toml metrics.jsonl checkpoint.safetensors loss.svg trajectories.svg; do
        test -s "$run/first/$file"
    done
    "$program" eval --checkpoint "$run/first/checkpoint.safetensors"
    "$program" verify tests/golden --dtype f64
    "$program" verify tests/golden --dtype f32
    rm -r "$run"
}

# The tutorial's network learns, and has the same error wherever its input is turned.
tutorial() {
    "$target/release/examples/inertia" | tee "$target/inertia.txt"
    python3 - "$target/inertia.txt" <<'CHECK'
import re, sys
errors = [float(number) for number in re.findall(r"error (\S+)", open(sys.argv[1]).read())]
*trained, unseen, moved = errors
assert trained[-1] < 0.02 * trained[0] and unseen < 0.1 * trained[0] and abs(unseen - moved) <= 1e-6 * unseen, errors
CHECK
}

# A project of one's own as its author has it, outside of the workspace.
own_task_compiles() {
    (cd examples/own_task && cargo fmt --check && CARGO_TARGET_DIR=$target cargo check --release)
    [ "$(wc -l <examples/own_task/src/main.rs)" -le 150 ]
}

# Its data, training and evaluation.
own_task() {
    local run
    run=$(mktemp -d)
    own_task_compiles
    (cd examples/own_task && CARGO_TARGET_DIR=$target cargo build --release)
    "$target/release/own_task" train area --out "$run/area"
    "$target/release/own_task" eval --checkpoint "$run/area/checkpoint.safetensors" --json | tee "$run/eval.json"
    # Predictions of zero have the relative error 1.
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["relative"] < 0.1' "$run/eval.json"
    rm -r "$run"
}

# The operators in candle, and arrays of ndarray: a workspace of its own, unoptimised, because its crates are built for this alone.
# The tests train the example's network.
candle() { (cd crates/candle && cargo fmt --check && CARGO_TARGET_DIR=$target cargo test --quiet); }

# Operators on memory of cudarc: a workspace of its own as well, of which CI has neither the kernels nor a GPU. What it does on one
# is tests/gpu.rs; recorded work runs over the stand-in for the driver.
cudarc() {
    (
        cd examples/cudarc
        cargo fmt --check
        CARGO_TARGET_DIR=$target cargo clippy --quiet --all-targets -- -D warnings
        CARGO_TARGET_DIR=$target cargo test --quiet --test replay
    )
}

# The oldest compiler that Cargo.toml promises: a check of every crate, in a folder of its own.
oldest_compiler() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)
    if cargo "+$version" --version 2>/dev/null ||
        timeout 300 rustup toolchain install "$version" --profile minimal --no-self-update; then
        cargo "+$version" check --workspace --target-dir "$target/oldest"
        rm -rf "$target/oldest"
    else
        skip "oldest compiler" "no Rust $version here, and rustup does not fetch it"
    fi
}

# The libraries that the Python package serves, in an environment of their own. PyTorch brings 3 GB: uv unpacks them in a third of pip's
# time, and links them from its cache where there is one. Fetching mostly waits, so it runs beside the first stages.
python_environment() {
    local venv=$target/python-venv
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" -r crates/python/requirements-ci.txt
}

# The wheel for the CPU, and the tests of the package.
python_wheel() {
    local venv=$target/python-venv wheel size seconds
    rm -rf "$target/wheels"
    PATH=$venv/bin:$PATH maturin build --quiet --release "${unoptimised[@]}" --manifest-path crates/python/Cargo.toml --out "$target/wheels"
    wheel=$(ls "$target"/wheels/gradewise-*.whl)
    size=$(wc -c <"$wheel")
    echo "$(basename "$wheel"): $((size >> 10)) KiB"
    # The program in it is larger here than where it is optimised.
    [ "$size" -le $((18 << 20)) ]
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --reinstall "$wheel"
    # Of five, so that another process of the machine does not count.
    seconds=$("$venv/bin/python" crates/python/tests/import_time.py gradewise)
    echo "import gradewise: $seconds s"
    # Outside of the sources, so that the installed package is what is tested. Two processes, each of one thread of PyTorch (conftest.py).
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -n 2 --dist worksteal --durations 10 crates/python/tests
}

# The sweeps of which the tests of every change take samples.
python_sweeps() {
    local tests=("$target/python-venv/bin/python" -m pytest -q -p no:cacheprovider -n 2 --whole)
    "${tests[@]}" crates/python/tests -m whole
    # Of these, the samples take fewer inputs without --whole.
    "${tests[@]}" crates/python/tests/test_jax.py -k third_order -m "not whole"
}

# soak ROUNDS: runs that are killed at random moments and go on.
soak() { scripts/soak --rounds "$1" --program "$program"; }

# Every crate as it would be published, and the recipe for conda.
packages() {
    scripts/publish
    scripts/check-conda
}

# The reference as docs.rs builds it, where that asks for more features than the stage "documentation".
docs_rs() {
    local name features
    cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    features = ((package["metadata"] or {}).get("docs", {}).get("rs", {}).get("features", []))
    if features:
        print(package["name"], ",".join(features))' >"$target/docs-rs.txt"
    [ -s "$target/docs-rs.txt" ]
    while read -r name features; do
        RUSTDOCFLAGS="-D warnings" cargo doc --release --no-deps -p "$name" --features "$features" </dev/null
    done <"$target/docs-rs.txt"
}

# The source distribution is packed, and other platforms are checked. What is built and run on them takes the better part of an hour more:
# scripts/platforms, before a release.
platforms() {
    scripts/wheels sdist
    scripts/platforms aarch64-apple-darwin wasm32-unknown-unknown
}

# The book with the reference beside it, in target/book, where mdBook is installed; tests/book checks its links everywhere.
book() {
    if command -v mdbook >/dev/null; then
        mdbook build --dest-dir "$target/book"
        rm -rf "$target/book/api"
        cp -r "$target/doc" "$target/book/api"
        scripts/check-links "$target/book" "*.html"
        test -s "$target/book/rotor.html" && test -s "$target/book/api/gradewise_core/index.html"
    else
        skip book "no mdbook (cargo install mdbook)"
    fi
}

# What measures on a GPU starts and says so where there is none.
benches() {
    # The whole workspace, so that what the tests built serves.
    cargo bench --workspace --bench gpu --bench gpu_criterion
    python3 benches/compare_gpu.py --help >/dev/null
    scripts/profile-gpu --help >/dev/null
}

# Licences, duplicates and sources of all dependencies, and known vulnerabilities where the database of advisories can be fetched.
dependencies() {
    cargo deny --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-deny || {
        skip dependencies "no cargo-deny (cargo install cargo-deny)"
        return
    }
    cargo deny --workspace check licenses bans sources
    if cargo deny --workspace fetch db; then
        cargo deny --workspace check advisories
    else
        skip advisories "the database of advisories cannot be fetched"
    fi
}

# The public interfaces against those of the last release.
compatibility() {
    local last
    last=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || {
        skip compatibility "there is no release to compare with (no tag v*)"
        return
    }
    cargo semver-checks --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-semver-checks
    cargo semver-checks --workspace --exclude gradewise-python --exclude gradewise-capi --baseline-rev "$last"
}

# The algebra under Miri, which finds undefined behaviour.
miri() {
    if cargo +nightly miri --version >/dev/null 2>&1 ||
        timeout 300 rustup toolchain install nightly --profile minimal --component miri,rust-src --no-self-update; then
        MIRIFLAGS="-Zmiri-deterministic-floats -Zmiri-disable-isolation" PROPTEST_CASES=2 \
            cargo +nightly miri test -p gradewise-core --lib --target-dir "$target/miri"
    else
        skip Miri "no nightly toolchain with Miri here, and rustup does not fetch it"
    fi
}

# Spelling, of identifiers too.
typos() {
    local venv=$target/typos-venv
    [ -x "$venv/bin/typos" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check typos; }
    "$venv/bin/typos"
}
