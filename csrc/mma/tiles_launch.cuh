// Tiles of products, and what their kernels are launched with: mma/simt.cuh, mma/warp.cuh, mma/hopper.cuh, and those of fields.
#pragma once

#include "gradewise/host_device.cuh"

namespace simt_tile {
/// Threads of a block; rows and columns of the small and of the large tile.
constexpr int THREADS = 128, SMALL = 32, LARGE = 64;
}  // namespace simt_tile

namespace warp_tile {
constexpr int THREADS = 128;
/// Rows and columns of the small and of the large tile, and steps of the sum that are under way.
constexpr int SMALL_ROWS = 64, SMALL_COLUMNS = 32, LARGE_ROWS = 128, LARGE_COLUMNS = 64, STAGES = 4;
/// Terms of a step, of elements of so many bytes.
GW_HOST_DEVICE constexpr int terms(int size) { return 64 / size; }
/// Elements by which lines along the terms are longer, and lines across them: threads of a warp then find different banks.
GW_HOST_DEVICE constexpr int pad_along(int size) { return 16 / size; }
constexpr int PAD_ACROSS = 8;
/// Elements of a step's part of an operand with so many rows (of A) or columns (of B), whose lines run across the terms or along them.
GW_HOST_DEVICE constexpr int part(int across, int lines, int size) {
    return across > 0 ? terms(size) * (lines + PAD_ACROSS) : lines * (terms(size) + pad_along(size));
}
/// Bytes of dynamic shared memory of a tile of so many rows and columns; A transposed has lines across the terms, and B transposed along them.
GW_HOST_DEVICE constexpr int shared(int rows, int columns, int a_transposed, int b_transposed, int size) {
    return STAGES * (part(a_transposed, rows, size) + part(b_transposed > 0 ? 0 : 1, columns, size)) * size;
}
}  // namespace warp_tile

namespace hopper_tile {
/// Threads of a block: a warpgroup that loads, beside two that multiply.
constexpr int THREADS = 384;
/// Bytes of the results of both warpgroups on their way out, and of the barriers.
constexpr int RESULTS = 32768, BARRIERS = 1024;
/// Bytes of dynamic shared memory of a tile with so many steps under way, each of 128 bytes of a row or column; the columns are there so
/// many times.
GW_HOST_DEVICE constexpr int shared(int rows, int columns, int stages, int copies) {
    return stages * (rows + copies * columns) * 128 + RESULTS + BARRIERS;
}
/// Steps of exact products, and how often they have their columns.
constexpr int EXACT_STAGES = 4, EXACT_COPIES = 2;
}  // namespace hopper_tile

namespace field_tile {
/// Rows and columns of tiles of ordinary arithmetic and of exact products; those by matrix instructions have twice the rows.
constexpr int SIDE = 64, WARP_ROWS = 128;
}  // namespace field_tile
