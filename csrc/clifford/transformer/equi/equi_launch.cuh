// Sizes of launches of equivariant linear maps: clifford/transformer/equi/equi_direct.cu and equi_tiles.cu.
#pragma once

#include "gradewise/host_device.cuh"

namespace equi_direct {
/// Threads of a block.
constexpr int THREADS = 512;
/// Lines of a pair's results, and rows of features, that a block of `equi_product` has.
constexpr int LINES = 16, ROWS = 32;
/// Lines of results and of features that a block of `equi_outer` has.
constexpr int SIDE = 16;
}  // namespace equi_direct

namespace equi_tiles {
/// Threads of a block.
constexpr int THREADS = 128;
/// Lines of a pair's results that a block of a product has, and of the gradient in a tile of a sum over rows.
constexpr int LINES = 32;
/// Lines of features in a tile of a sum over rows.
constexpr int ACROSS = 32;
/// Columns of a block's results, which are rows of features: so many for each warp.
constexpr int COLUMNS = 128;
/// Rows that a block adds up at a time.
constexpr int STEP = 64;
/// Lines and terms of a fragment, the part of a matrix that a warp's instruction takes, and its elements.
constexpr int FRAGMENT_LINES = 16, FRAGMENT_TERMS = 8, FRAGMENT = 128;
/// Elements of a matrix in fragments, which end with zeros.
GW_HOST_DEVICE constexpr int fragments(int lines, int terms) {
    return (lines + FRAGMENT_LINES - 1) / FRAGMENT_LINES * ((terms + FRAGMENT_TERMS - 1) / FRAGMENT_TERMS) * FRAGMENT;
}
/// Fragments along the terms that a block has in shared memory at a time.
constexpr int CHUNK = 16;
/// Steps of features that a block of a product has under way.
constexpr int AHEAD = 2;
/// Stretches of the rows, each with a part of the gradients of the matrices: at most, and blocks that there are about.
constexpr int STRETCHES = 32, BLOCKS = 528;
/// Threads of a block that adds the parts, and how many of them share the parts of an element.
constexpr int SUM_THREADS = 256, SUM_GROUPS = 8;
}  // namespace equi_tiles
