// Sizes of launches of clifford/transformer/equi_direct.cu.
#pragma once

#include "clifford/transformer/planes_launch.cuh"

namespace equi_direct {
/// Rows and columns of a tile, terms that are in shared memory at a time, and warps of a block.
constexpr int TILE = 32, DEPTH = 64, WARPS = 8, THREADS = 32 * WARPS;
/// Most pairs of planes, and most entries of the maps, whose lists are in shared memory.
constexpr int MOST_PAIRS = feature_planes::MOST_PLANES / 2, MOST_ENTRIES = 128;
}  // namespace equi_direct
