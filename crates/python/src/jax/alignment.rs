//! Blocks of an allocator that promises a smaller alignment than they need.

/// A block, and the aligned bytes within it.
pub struct Block {
    /// What the allocator gave, and how many bytes of it.
    pub address: usize,
    pub bytes: usize,
    /// The first aligned address in the block, from which on there are as many bytes as asked.
    pub aligned: usize,
}

/// Allocates `bytes` bytes at a multiple of `alignment`, a power of two, from an allocator that promises multiples of `promised`. Mostly it
/// gives more than it promises; where it does not, the block is exchanged for one that is large enough to have an aligned part.
pub fn allocate_aligned<E>(
    bytes: usize,
    alignment: usize,
    promised: usize,
    mut allocate: impl FnMut(usize) -> Result<usize, E>,
    free: impl FnOnce(usize, usize),
) -> Result<Block, E> {
    let address = allocate(bytes)?;
    if address.is_multiple_of(alignment) {
        return Ok(Block { address, bytes, aligned: address });
    }
    free(address, bytes);
    let larger = bytes.saturating_add(alignment.saturating_sub(promised));
    let address = allocate(larger)?;
    Ok(Block { address, bytes: larger, aligned: address.next_multiple_of(alignment) })
}
