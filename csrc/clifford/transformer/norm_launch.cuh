// Sizes of launches of clifford/transformer/channel_norm.cu and clifford/transformer/joint_norm.cu.
#pragma once

namespace channel_norm_tile {
/// Rows of a tile, and warps of a block.
constexpr int TILE = 32, WARPS = 16;
}  // namespace channel_norm_tile

namespace joint_norm_tile {
/// Rows of a tile, and warps of a block.
constexpr int TILE = 32, WARPS = 8;
}  // namespace joint_norm_tile
