// Sizes of launches of clifford/transformer/heads.cu and clifford/transformer/heads_short.cu. A head has WIDTH elements.
#pragma once

#include "gradewise/host_device.cuh"

namespace heads {
/// Threads of a block, and sums that the threads of a row add up at once.
constexpr int THREADS = 256, SUMS = 4;
/// Elements from a row of a tile to the next, an odd number: threads along rows and threads along a row both meet different banks.
GW_HOST_DEVICE constexpr int pitch(int width) { return width | 1; }
/// Bytes of dynamic shared memory for tiles of so many rows, of numbers of so many bytes: where each row begins; the tiles, a part of each
/// sum for each thread and three numbers for each row; a line for each element. See `Block` of heads.cu.
GW_HOST_DEVICE constexpr int shared(int tiles, int rows, int width, int size) {
    return rows * 8 + (tiles * rows * pitch(width) + SUMS * THREADS + 3 * rows) * size + width * 4;
}
}  // namespace heads

namespace short_heads {
/// Rows and threads of a warp, and most warps of a block.
constexpr int LANES = 32, MOST_WARPS = 8;
/// Bytes of dynamic shared memory of a warp: a row of each tile for each of its threads.
GW_HOST_DEVICE constexpr int shared(int tiles, int width, int size) { return tiles * LANES * heads::pitch(width) * size; }
/// The same for the gradient of heads of 16 planes with a norm: a row of the gradient for each thread, and the planes' elements.
GW_HOST_DEVICE constexpr int shared_16(int width, int size) { return LANES * (heads::pitch(width) + width) * size; }
}  // namespace short_heads
