// Sizes of launches of ops/order.cu.
#pragma once

namespace order {
/// Elements of a tile that is sorted in shared memory, and threads that sort it.
constexpr int TILE = 1024, SORTERS = TILE / 2;
}  // namespace order
