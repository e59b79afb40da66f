// Sizes of launches of clifford/transformer/channel_norm.cu and clifford/transformer/joint_norm.cu.
#pragma once

namespace channel_norm_tile {
/// Rows of a tile, warps of a block, and most blades.
constexpr int TILE = 32, WARPS = 16, MOST_BLADES = 32;
}  // namespace channel_norm_tile

namespace joint_norm_tile {
/// Rows of a tile, warps of a block, and most planes.
constexpr int TILE = 32, WARPS = 8, MOST_PLANES = 32;
}  // namespace joint_norm_tile
