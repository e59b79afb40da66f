// Sizes of launches of ops/edges.cu and ops/edge_difference.cu.
#pragma once

#include "gradewise/host_device.cuh"

namespace edges {
/// Adjacent elements, of so many bytes each, that a thread of a wide kernel takes: 16 bytes, but at most 4 elements.
GW_HOST_DEVICE constexpr int wide(int size) { return size == 8 ? 2 : 4; }
/// The same for means: sums in double precision take twice as many registers.
GW_HOST_DEVICE constexpr int wide_of_means(int size) { return size == 2 ? 4 : 2; }
/// Nodes of a tile of `concat_segment_mean`.
constexpr int NODES = 32;
/// Columns that a thread of `edge_difference_rows` takes, and elements of the rows of a block, which are in shared memory.
constexpr int COLUMNS = 4, STAGED = 1024;
/// Adjacent results of a block for nodes of many edges, and edges of a node that it takes at a time.
constexpr int LONG_RESULTS = 32, LONG_EDGES = 8;
}  // namespace edges
