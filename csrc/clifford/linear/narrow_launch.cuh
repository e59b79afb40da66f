// Sizes of launches of clifford/linear/narrow.cuh.
#pragma once

#include "gradewise/host_device.cuh"

namespace narrow_map {
/// Threads of a block of products and of one of sums, and most rows of a tile.
constexpr int PRODUCT_THREADS = 128, SUM_THREADS = 256, MOST_ROWS = 256;
/// Most features of either side, and most groups of rows.
constexpr int MOST_FEATURES = 32, MOST_GROUPS = 15;
/// Elements of a pack of 16 bytes, and of a side of the patch of a matrix that a thread of a sum has.
constexpr int PACK = 4;
/// So many features in whole packs.
GW_HOST_DEVICE constexpr int padded(int features) { return (features + PACK - 1) / PACK * PACK; }
/// Elements from a row in shared memory to the next: an odd number of packs, so that eight threads, which read a pack of eight adjacent rows
/// at a time, find them in different banks.
GW_HOST_DEVICE constexpr int pitch(int features) { return ((features + PACK - 1) / PACK | 1) * PACK; }
/// Rows of a thread of a product of up to `width` results to a row: as many as there are registers for.
GW_HOST_DEVICE constexpr int rows_of_thread(int is_short, int width) { return is_short > 0 && width > 16 ? 1 : 2; }
GW_HOST_DEVICE constexpr int longer(int a, int b) { return a < b ? b : a; }
/// Bytes of dynamic shared memory of a product: a tile of x, in its place that of the results; the matrix, of entries of so many bytes; the
/// bias.
GW_HOST_DEVICE constexpr int product(int rows, int terms, int results, int width, int entry) {
    return rows * longer(pitch(terms), pitch(results)) * 4 + padded(terms) * width * entry + width * 4;
}
/// The same of sums over tiles of so many rows: two pairs of tiles; later a patch of each thread.
GW_HOST_DEVICE constexpr int sums(int rows, int inputs, int outputs) {
    return longer(2 * rows * (pitch(inputs) + pitch(outputs)), SUM_THREADS * PACK * PACK) * 4;
}
}  // namespace narrow_map
