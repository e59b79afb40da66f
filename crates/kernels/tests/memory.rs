//! The pool's counters. Alone in its process: other tests' arrays would be counted too.

use gradewise_kernels::{Array, DType, Device, memory};

#[test]
fn blocks_come_back_are_reused_and_can_be_trimmed() {
    memory::trim();
    let start = memory::stats();
    memory::reset_peak();
    assert_eq!(memory::stats().peak, start.allocated);

    const BYTES: usize = 3 << 20;
    let make = || Array::zeros([BYTES / 4], DType::F32, &Device::Cpu).unwrap();
    let (a, b) = (make(), make());
    let view = a.slice(0, 10..20).unwrap();
    assert_eq!(memory::stats().allocated, start.allocated + 2 * BYTES);
    drop(a);
    assert_eq!(memory::stats().allocated, start.allocated + 2 * BYTES, "a view keeps the block");
    drop((view, b));
    let kept = memory::stats();
    assert_eq!(kept.allocated, start.allocated, "dropping the last holder returns it");
    assert_eq!(kept.reserved, start.reserved + 2 * BYTES, "the pool keeps it");
    assert_eq!(kept.peak, start.allocated + 2 * BYTES);

    let again = make();
    assert_eq!(memory::stats().reserved, kept.reserved, "and hands it out again");
    assert_eq!(memory::trim(), BYTES, "what is in use stays");
    assert_eq!(memory::stats().reserved, start.reserved + BYTES);
    assert_eq!(again.to_vec::<f32>().unwrap(), vec![0.0; BYTES / 4]);
    drop(again);
    assert_eq!(memory::trim(), BYTES);
    assert_eq!(memory::stats().reserved, start.reserved);

    let across = make();
    std::thread::spawn(move || drop(across)).join().unwrap();
    assert_eq!(memory::stats().allocated, start.allocated, "a block may die on another thread");
}
