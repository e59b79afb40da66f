//! Every operator of gradewise-kernels and gradewise-autograd with random arguments: any shape and layout, sizes of 0, every dtype,
//! options that are NaN, negative or huge. None panics, and views give what their copies give.
//!
//! `PROPTEST_CASES=5000 cargo test --release --test fuzz` looks longer.

mod kernels;
mod registry;
mod source;
mod tensors;

use gradewise_autograd::registry::entries;
use gradewise_kernels::Array;
use proptest::prelude::*;
use source::{Layout, Source, Values};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Shapes and elements of what an operator gives, or its error's text.
type Outcome = Result<Vec<(Vec<usize>, Vec<f64>)>, String>;

fn values(arrays: impl IntoIterator<Item = Array>) -> Outcome {
    let value = |array: Array| {
        let values = array.to_f64_vec().map_err(|error| error.to_string())?;
        assert_eq!(values.len(), array.elements());
        Ok((array.dims().to_vec(), values))
    };
    arrays.into_iter().map(value).collect()
}

/// Runs `work`; a panic becomes a text that names the operator and how to see it again.
fn guarded<R>(name: &str, seed: u64, work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| format!("`{name}` panics with the arguments of seed {seed}"))
}

/// Every operator that fails, not only the first.
fn all_hold(checks: impl Iterator<Item = Result<(), String>>) -> Result<(), TestCaseError> {
    let failures: Vec<String> = checks.filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(TestCaseError::fail(failures.join("\n"))) }
}

/// Whether a difference is rounding: reductions add up the elements of a view in another order. The norm is over the elements that
/// are finite in both.
fn agree(a: &[f64], b: &[f64]) -> bool {
    let finite = |(a, b): &(&f64, &f64)| a.is_finite() && b.is_finite();
    let same = |(a, b): (&f64, &f64)| (a.is_nan() && b.is_nan()) || a == b || finite(&(a, b));
    let (difference, size) = a
        .iter()
        .zip(b)
        .filter(finite)
        .fold((0.0, 0.0), |(difference, size), (a, b)| (difference + (a - b) * (a - b), size + b * b));
    a.len() == b.len() && a.iter().zip(b).all(same) && difference.sqrt() <= 1e-4 * size.sqrt() + 1e-5
}

fn compare(name: &str, seed: u64, views: &Outcome, copies: &Outcome) -> Result<(), String> {
    let same = match (views, copies) {
        (Ok(views), Ok(copies)) => {
            views.len() == copies.len()
                && views.iter().zip(copies).all(|(view, copy)| view.0 == copy.0 && agree(&view.1, &copy.1))
        }
        // The text may tell strides.
        (views, copies) => views.is_err() && copies.is_err(),
    };
    if same {
        Ok(())
    } else {
        Err(format!("`{name}`, seed {seed}: {views:?} of views, {copies:?} of copies"))
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300);
    // A smaller seed is no simpler.
    ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn kernels_never_panic(seed: u64) {
        all_hold(kernels::all().into_iter().map(|(name, case)| {
            guarded(name, seed, || drop(case(&Source::new(seed, Values::Any, Layout::Views))))
        }))?;
    }

    #[test]
    fn kernels_take_views_for_their_copies(seed: u64) {
        all_hold(kernels::all().into_iter().map(|(name, case)| {
            let run = |layout| guarded(name, seed, || case(&Source::new(seed, Values::Moderate, layout)));
            compare(name, seed, &run(Layout::Views)?, &run(Layout::Copies)?)
        }))?;
    }

    #[test]
    fn tensors_never_panic(seed: u64) {
        all_hold(tensors::all().into_iter().map(|(name, case)| {
            guarded(name, seed, || drop(tensors::run(case, &Source::new(seed, Values::Any, Layout::Views))))
        }))?;
    }

    #[test]
    fn operations_never_panic(seed: u64) {
        all_hold(entries().iter().map(|entry| {
            let source = Source::new(seed, Values::Any, Layout::Views);
            guarded(entry.name(), seed, || drop(registry::run(entry, &source, true)))
        }))?;
    }

    #[test]
    fn operations_take_views_for_their_copies(seed: u64) {
        all_hold(entries().iter().map(|entry| {
            let run = |layout| {
                let source = Source::new(seed, Values::Moderate, layout);
                guarded(entry.name(), seed, || registry::run(entry, &source, false))
            };
            compare(entry.name(), seed, &run(Layout::Views)?, &run(Layout::Copies)?)
        }))?;
    }

    #[test]
    fn tensors_take_views_for_their_copies(seed: u64) {
        all_hold(tensors::all().into_iter().map(|(name, case)| {
            let run =
                |layout| guarded(name, seed, || tensors::run(case, &Source::new(seed, Values::Moderate, layout)));
            compare(name, seed, &run(Layout::Views)?, &run(Layout::Copies)?)
        }))?;
    }
}

/// The suite means something only if operators get arguments that they take.
#[test]
fn most_arguments_fit() {
    let fitting = |name: &str, least: usize, run: &dyn Fn(&Source) -> bool| {
        let fits = (0..200).filter(|&seed| run(&Source::new(seed, Values::Moderate, Layout::Views))).count();
        assert!(fits >= least, "`{name}` takes {fits} of 200 arguments");
    };
    for (name, case) in tensors::all() {
        fitting(name, 60, &|source| case(source).is_ok());
    }
    for (name, case) in kernels::all() {
        fitting(name, 60, &|source| case(source).is_ok());
    }
    for entry in entries() {
        fitting(entry.name(), 120, &|source| registry::run(&entry, source, false).is_ok());
        fitting(entry.name(), 60, &|source| registry::run(&entry, source, true).is_ok());
    }
}

/// Views of more elements than any memory holds.
#[test]
fn absurd_sizes_are_errors() {
    use gradewise_kernels::{DType, Device, ops};
    let one = Array::ones([1, 1], DType::F32, &Device::Cpu).unwrap();
    for sizes in [[1 << 31, 1 << 20], [usize::MAX, 1], [usize::MAX, 2], [1 << 40, 1 << 40]] {
        let Ok(huge) = one.broadcast_to(sizes) else { continue };
        assert!(huge.to_f64_vec().is_err());
        assert!(huge.contiguous().is_err());
        assert!(ops::neg(&huge).is_err());
        assert!(ops::add(&huge, &one).is_err());
        assert!(huge.cast(DType::F64).is_err());
        assert!(!format!("{huge}").is_empty() && !format!("{huge:?}").is_empty());
    }
    assert!(Array::zeros([1 << 31, 1 << 31], DType::F32, &Device::Cpu).is_err());
    assert!(Array::zeros([usize::MAX, usize::MAX], DType::F64, &Device::Cpu).is_err());
}
