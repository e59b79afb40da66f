// Sizes of launches of clifford/transformer/channel_norm.cu, clifford/transformer/channel_norm_16.cu and clifford/transformer/joint_norm.cu.
#pragma once

#include "gradewise/host_device.cuh"

namespace channel_norm_tile {
/// Rows of a tile, and warps of a block.
constexpr int TILE = 32, WARPS = 16;
}  // namespace channel_norm_tile

namespace sixteen_planes {
/// Rows of a block, threads of each row at least (those of a warp), and scalars of a row that a thread keeps.
constexpr int ROWS = 16, LEAST = 2, SCALARS = 2;
/// Threads of each row in a block of gates without a norm.
constexpr int GATES = 16;
/// The most channels of a norm, a thread of each row for each, of elements of so many bytes: what registers a thread may have follows from it.
GW_HOST_DEVICE constexpr int most(int size) { return size > 4 ? 32 : 64; }
}  // namespace sixteen_planes

namespace joint_norm_tile {
/// Rows of a tile, and warps of a block.
constexpr int TILE = 32, WARPS = 8;
}  // namespace joint_norm_tile
