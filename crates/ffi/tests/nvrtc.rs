//! The run-time compiler. Where the library is not found, a test says so and passes, unless `GRADEWISE_REQUIRE_NVRTC=1`.

use gradewise_ffi::{
    Error, Nvrtc,
    nvrtc::{Compiled, Source},
};

fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::load() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(std::env::var_os("GRADEWISE_REQUIRE_NVRTC").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

const SCALE: Source<'_> = Source {
    name: "scale.cu",
    text: r#"#include "tools/factor.cuh"
extern "C" __global__ void scale(float *x, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) x[i] *= FACTOR;
}"#,
    headers: &[("tools/factor.cuh", "#define FACTOR 2.0f\n")],
};

#[test]
fn a_real_architecture_gives_machine_code_and_a_virtual_one_ptx() {
    let Some(nvrtc) = nvrtc() else { return };
    let Compiled { image, log } = nvrtc.compile(&SCALE, &["-arch=sm_90a"]).unwrap();
    assert!(image.starts_with(b"\x7fELF"), "{:?}", &image[..16]);
    assert_eq!(log, "");
    let ptx = nvrtc.compile(&SCALE, &["-arch=compute_80"]).unwrap().image;
    assert_eq!(ptx.last(), Some(&0));
    let text = String::from_utf8(ptx).unwrap();
    assert!(text.contains(".target sm_80") && text.contains(".entry scale"), "{text}");
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    let Some(nvrtc) = nvrtc() else { return };
    let compile = || nvrtc.compile(&SCALE, &["-arch=sm_80", "-std=c++17"]).unwrap();
    assert_eq!(compile(), compile());
}

#[test]
fn errors_are_in_the_words_of_the_compiler() {
    let Some(nvrtc) = nvrtc() else { return };
    let wrong = Source { name: "wrong.cu", text: "__global__ void f() { undeclared = 1; }", headers: &[] };
    match nvrtc.compile(&wrong, &[]) {
        Err(Error::Compile { name, log }) => {
            assert_eq!(name, "wrong.cu");
            assert!(log.contains("wrong.cu(1)") && log.contains("undeclared"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    let missing = Source { headers: &[], ..SCALE };
    let error = nvrtc.compile(&missing, &[]).unwrap_err().to_string();
    assert!(error.contains("tools/factor.cuh"), "{error}");
    match nvrtc.compile(&SCALE, &["--no-such-option"]) {
        Err(error @ Error::Status { code: 5, .. }) => {
            assert!(error.to_string().contains("no-such-option"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let zero = Source { text: "int a;\0int b;", ..wrong };
    assert!(matches!(nvrtc.compile(&zero, &[]), Err(Error::Argument { .. })));
}

#[test]
fn version_and_architectures() {
    let Some(nvrtc) = nvrtc() else { return };
    assert!(nvrtc.version().unwrap() >= (12, 0), "{:?}", nvrtc.version());
    let architectures = nvrtc.architectures().unwrap();
    assert!(architectures.contains(&75) && architectures.contains(&90), "{architectures:?}");
    assert!(architectures.is_sorted());
}
