//! Chunks of rows of feature planes, each of which stays in cache.

/// The lines of each chunk of `size` rows of a matrix `[…, rows]`.
pub(super) fn chunks<T>(matrix: &mut [T], rows: usize, size: usize) -> Vec<Vec<&mut [T]>> {
    let mut chunks: Vec<Vec<&mut [T]>> = (0..rows.div_ceil(size)).map(|_| Vec::new()).collect();
    for line in matrix.chunks_mut(rows.max(1)) {
        for (chunk, part) in chunks.iter_mut().zip(line.chunks_mut(size)) {
            chunk.push(part);
        }
    }
    chunks
}
