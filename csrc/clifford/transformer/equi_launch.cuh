// Sizes of launches of clifford/transformer/equi_direct.cu.
#pragma once

namespace equi_direct {
/// Threads of a block.
constexpr int THREADS = 512;
/// Lines of a pair's results, and rows of features, that a block of `equi_product` has.
constexpr int LINES = 16, ROWS = 32;
/// Lines of results and of features that a block of `equi_outer` has.
constexpr int SIDE = 16;
}  // namespace equi_direct
