//! The compensated sum of squares of the kernels (csrc/clifford/pointwise/square_sum.cuh), compiled for the host, against double precision.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{
    io::{ErrorKind, Write},
    process::{Command, Stdio},
    thread,
};

/// Signs and values of one sum.
type Terms = Vec<(i32, f32)>;

/// Up to 32 terms of both signs. In every second case each square is followed by one that nearly cancels it.
fn cases(rng: &mut ChaCha8Rng) -> Vec<Terms> {
    (0..2000)
        .map(|case| {
            let mut terms = Terms::new();
            for _ in 0..rng.random_range(1..=16) {
                let value = rng.random_range(-1.0_f32..1.0) * 2.0_f32.powi(rng.random_range(-8..8));
                let sign = rng.random_range(-1..=1);
                terms.push((sign, value));
                if case % 2 == 1 {
                    terms.push((-sign, value * (1.0 + 2.0_f32.powi(rng.random_range(-23..-4)))));
                }
            }
            terms
        })
        .collect()
}

/// The sums by the header; `None` without a C++ compiler.
fn sums(cases: &[Terms]) -> Option<Vec<f32>> {
    let here = &gradewise_testing::manifest_dir!();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("square_sum");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let compiled = Command::new(&compiler)
        // Without contraction: the header leaves none to the device's compiler either.
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("../../csrc"))
        .arg(here.join("tests/square_sum.cpp"))
        .arg("-o")
        .arg(&program)
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: no C++ compiler ({compiler:?})");
            return None;
        }
        Err(error) => panic!("{compiler:?}: {error}"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let input: String = cases
        .iter()
        .map(|terms| {
            let pairs: String =
                terms.iter().map(|(sign, value)| format!(" {sign} {:x}", value.to_bits())).collect();
            format!("{}{pairs}\n", terms.len())
        })
        .collect();
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| f32::from_bits(u32::from_str_radix(line, 16).unwrap())).collect())
}

#[test]
fn squares_that_cancel_keep_their_digits() {
    let cases = cases(&mut ChaCha8Rng::seed_from_u64(5));
    let Some(sums) = sums(&cases) else { return };
    assert_eq!(sums.len(), cases.len());
    let mut cancelled = 0;
    for (terms, &sum) in cases.iter().zip(&sums) {
        // Squares of f32 are exact in f64, and so few sums of them all but exact.
        let squares = || terms.iter().map(|&(sign, value)| f64::from(sign) * f64::from(value).powi(2));
        let (exact, size) = (squares().sum::<f64>(), squares().map(f64::abs).sum::<f64>());
        #[allow(clippy::cast_precision_loss)]
        let bound = exact.abs() * 2_f64.powi(-24) + terms.len() as f64 * size * 2_f64.powi(-45);
        assert!((f64::from(sum) - exact).abs() <= bound, "{sum} for {exact}, of squares that sum to {size}");
        cancelled += usize::from(exact.abs() < 1e-3 * size);
    }
    assert!(cancelled > 100, "{cancelled} of the sums cancel");
}
