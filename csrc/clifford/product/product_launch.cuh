// Sizes of launches of the weighted product of whole rows: clifford/product/persistent.cuh, clifford/product/sm90_persistent.cuh and
// clifford/product/four_lanes.cuh. BLADES are those of the algebra.
#pragma once

#include "gradewise/host_device.cuh"

namespace product_persistent {
/// Adjacent features of a thread, and most threads of a block.
GW_HOST_DEVICE constexpr int width(int blades) { return blades <= 8 ? 2 : 1; }
GW_HOST_DEVICE constexpr int threads(int blades) { return blades <= 16 ? 256 : 128; }
/// Blocks that fit on a multiprocessor.
GW_HOST_DEVICE constexpr int blocks(int blades, int backward) { return backward > 0 ? 1 : blades <= 16 ? 2 : 3; }
/// Most rows in flight; rows that a block gathers before it writes them transposed, and those in flight then.
constexpr int MOST_STAGES = 4, GROUP = 8, TRANSPOSED_STAGES = 2;
/// Elements of a block's row of all blades.
GW_HOST_DEVICE constexpr int row(int blades) { return blades * threads(blades) * width(blades); }
/// Bytes that backward passes keep beside the rows in flight: gathered rows of elements of so many bytes, or the weights of more than 16
/// blades and the sums of their gradients.
GW_HOST_DEVICE constexpr int gathered(int blades, int size) { return GROUP * row(blades) * size; }
GW_HOST_DEVICE constexpr int weights(int blades, int paths) { return blades > 16 ? 2 * paths * threads(blades) * width(blades) * 4 : 0; }
/// At least the bytes of static shared memory.
constexpr int STATIC = 3072;
}  // namespace product_persistent

namespace product_sm90 {
/// Adjacent features of a thread, and threads that compute; the gradients of 32 blades need more registers than a thread can have.
GW_HOST_DEVICE constexpr int width(int blades) { return blades <= 8 ? 2 : 1; }
GW_HOST_DEVICE constexpr int threads(int blades, int backward) { return backward > 0 || blades > 16 ? 256 : 512; }
/// Threads that load rows and sum over them, and most rows in flight.
constexpr int HELPING = 128, MOST_STAGES = 4;
/// Elements of a block's row of all blades.
GW_HOST_DEVICE constexpr int row(int blades, int backward) { return blades * threads(blades, backward) * width(blades); }
/// Bytes beside the rows in flight: backward, the products of the row before.
GW_HOST_DEVICE constexpr int kept(int blades, int backward) { return backward > 0 ? row(blades, backward) * 4 : 0; }
/// At least the bytes of static shared memory.
constexpr int STATIC = 6144;
}  // namespace product_sm90

namespace product_four_lanes {
/// Blades, threads of a block, and how many of them share a feature.
constexpr int BLADES = 32, THREADS = 512, LANES = 4;
/// Elements from one blade to the next in a row in flight, and how many rows are at least and at most.
constexpr int PITCH = THREADS / LANES + 8, LEAST_STAGES = 3, MOST_STAGES = 4;
/// Elements of a row of one array.
constexpr int ROW = BLADES * PITCH;
/// At least the bytes of static shared memory, and bytes that all kernels have enough with.
constexpr int STATIC = 3072, MOST_SHARED = 163840;
}  // namespace product_four_lanes
