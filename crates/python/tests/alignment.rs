//! Aligned blocks of an allocator that promises less.

// The library itself needs an interpreter to run in.
#[path = "../src/jax/alignment.rs"]
mod alignment;

use alignment::{Block, allocate_aligned};
use std::cell::RefCell;

const ALIGNMENT: usize = 256;
const PROMISED: usize = 16;

/// The block, the sizes asked for, and the address and the size of what was freed.
type Outcome = (Result<Block, String>, Vec<usize>, Option<(usize, usize)>);

/// Allocates `bytes` bytes where successive requests get these addresses.
fn from(bytes: usize, addresses: &[usize]) -> Outcome {
    let (asked, freed) = (RefCell::new(Vec::new()), RefCell::new(None));
    let allocate = |size: usize| {
        asked.borrow_mut().push(size);
        addresses.get(asked.borrow().len() - 1).copied().ok_or_else(|| format!("no {size} bytes"))
    };
    let free = |address, size| *freed.borrow_mut() = Some((address, size));
    let block = allocate_aligned(bytes, ALIGNMENT, PROMISED, allocate, free);
    (block, asked.into_inner(), freed.into_inner())
}

#[test]
fn an_aligned_block_is_taken_as_it_is() {
    let (block, asked, freed) = from(3840, &[0x7000_0100]);
    let block = block.unwrap();
    assert_eq!((block.address, block.bytes, block.aligned), (0x7000_0100, 3840, 0x7000_0100));
    assert_eq!((asked, freed), (vec![3840], None));
}

#[test]
fn another_is_exchanged_for_one_with_an_aligned_part_of_the_size() {
    for bytes in [1, 4, 240, 256, 3840] {
        for offset in (0..ALIGNMENT).step_by(PROMISED) {
            let second = 0x9000_0000 + offset;
            let (block, asked, freed) = from(bytes, &[0x7000_0010, second]);
            let block = block.unwrap();
            assert_eq!(block.address, second);
            assert!(block.aligned.is_multiple_of(ALIGNMENT) && block.aligned >= block.address);
            assert!(block.aligned + bytes <= block.address + block.bytes, "{bytes} bytes at offset {offset}");
            assert_eq!((asked, freed), (vec![bytes, block.bytes], Some((0x7000_0010, bytes))));
        }
    }
}

#[test]
fn errors_of_the_allocator_are_passed_on_and_nothing_is_kept() {
    let (block, _, freed) = from(100, &[]);
    assert_eq!((block.err(), freed), (Some("no 100 bytes".to_owned()), None));
    let (block, asked, freed) = from(100, &[0x7000_0010]);
    assert_eq!(block.err(), Some(format!("no {} bytes", asked[1])));
    assert_eq!(freed, Some((0x7000_0010, 100)));
}
