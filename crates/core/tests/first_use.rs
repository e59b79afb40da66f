//! What an algebra costs at its first use: a program of its own, so that no other test has made the tables.

use gradewise_core::{Algebra, Signature};
use std::time::{Duration, Instant};

/// The tables of a product in eight dimensions have 65,536 terms.
#[test]
fn the_first_regressive_product_in_eight_dimensions_takes_less_than_50_ms() {
    let began = Instant::now();
    let algebra = Algebra::new(Signature::new(5, 2, 1)).unwrap();
    let values: Vec<f64> = (0..algebra.blade_count()).map(|blade| (blade % 7) as f64 - 3.0).collect();
    let x = algebra.multivector(&values).unwrap();
    let product = x.regressive_product(&x).unwrap();
    let took = began.elapsed();
    assert!(product.coefficients().iter().any(|&c| c != 0.0));
    assert!(took <= Duration::from_millis(50), "{took:?}");
}
