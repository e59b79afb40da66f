// Sizes of launches of kernels that hold a row in registers (gradewise/group.cuh), or stream rows through shared memory
// (gradewise/stream.cuh).
#pragma once

#include "gradewise/host_device.cuh"

namespace held_rows {
/// Most threads of a block for elements of so many bytes and packs of 16 bytes of a thread. In single precision, the longest rows are a few
/// packs in each of many threads.
GW_HOST_DEVICE constexpr int threads(int size, int packs) { return size == 4 && packs < 8 ? 1024 : 256; }
}  // namespace held_rows

namespace streamed_rows {
/// Threads of a block with so many packs of 16 bytes of a thread.
GW_HOST_DEVICE constexpr int threads(int packs) { return packs <= 4 ? 128 : 512; }
/// Blocks that fit on a multiprocessor: 512 threads of 128 registers either way.
GW_HOST_DEVICE constexpr int blocks(int packs) { return 512 / threads(packs); }
/// Bytes of dynamic shared memory: the packs of each thread for each array that is streamed, and what the kernel keeps besides.
GW_HOST_DEVICE constexpr int shared(int arrays, int packs, int kept) { return arrays * threads(packs) * packs * 16 + kept; }
}  // namespace streamed_rows
