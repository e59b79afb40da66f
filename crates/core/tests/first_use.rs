//! What an algebra costs at its first use: a program of its own, so that no other test has made the tables.

use gradewise_core::{Algebra, Signature};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Counts the bytes that each thread allocates.
struct Counting;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller keeps the contract of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Eight dimensions are no reason to wait: the tables of all products have 65,536 terms each, and the first product makes those that it
/// needs alone. Their size stands for the time that they take.
#[test]
fn the_first_regressive_product_in_eight_dimensions_makes_few_tables() {
    let before = BYTES.get();
    let algebra = Algebra::new(Signature::new(5, 2, 1)).unwrap();
    let values: Vec<f64> = (0..algebra.blade_count()).map(|blade| (blade % 7) as f64 - 3.0).collect();
    let x = algebra.multivector(&values).unwrap();
    let product = x.regressive_product(&x).unwrap();
    let bytes = BYTES.get() - before;
    assert!(product.coefficients().iter().any(|&c| c != 0.0));
    assert!(bytes <= LIMIT, "{bytes} bytes");
}

/// Twice what it takes.
const LIMIT: usize = 160 << 10;
