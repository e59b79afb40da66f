//! What recording and differentiating an operation costs the host, in allocations: small models are as fast as that.

use gradewise_autograd::Tensor;
use gradewise_kernels::{DType, Device};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
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

fn counted<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = COUNT.get();
    let result = work();
    (COUNT.get() - before, result)
}

/// A reshape and its gradient compute nothing and allocate no array: what is counted is the host's work on the history.
#[test]
fn an_operation_costs_few_allocations() {
    const OPERATIONS: usize = 100;
    let x = Tensor::ones([6], DType::F32, &Device::Cpu).unwrap().requires_grad();
    let run = || {
        let shapes: [&[usize]; 2] = [&[2, 3], &[6]];
        (0..OPERATIONS).fold(x.clone(), |x, index| x.reshape(shapes[index % 2]).unwrap())
    };
    let seed =
        gradewise_autograd::BackwardOptions::seed(Tensor::ones([6], DType::F32, &Device::Cpu).unwrap());
    drop(run().backward_with(&seed).unwrap());
    let (forward, y) = counted(run);
    let (backward, gradients) = counted(|| y.backward_with(&seed).unwrap());
    assert_eq!(gradients.get(&x).unwrap().shape(), x.shape());
    // The operation and the tensor; the rule's list of gradients and the gradient.
    assert!(forward <= 2 * OPERATIONS, "{forward} allocations of {OPERATIONS} operations");
    // Room for the tensors that were passed grows a few times.
    assert!(backward <= 2 * OPERATIONS + 20, "{backward} allocations of {OPERATIONS} gradients");
}
