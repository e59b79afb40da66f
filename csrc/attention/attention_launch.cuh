// Tiles of attention, and what its kernels are launched with: attention/simt.cuh, attention/warp.cuh, attention/hopper.cuh and
// attention/hopper_backward.cuh. Heads have FEATURES features, rounded up to 32, 64 or 128; of f32 by warp-wide instructions also to 48 or
// 96.
#pragma once

#include "gradewise/host_device.cuh"

namespace attention_simt {
constexpr int THREADS = 256;
/// Threads that share a row of delta.
constexpr int DELTA_GROUP = 8;
/// Tokens of a tile for sums of so many bytes.
GW_HOST_DEVICE constexpr int rows(int backward, int size) { return backward == 0 && size == 4 ? 32 : 16; }
/// Elements of so many tiles, and of the weights.
GW_HOST_DEVICE constexpr int elements(int tiles, int rows, int features) { return tiles * rows * (features + 1) + rows * (rows + 1); }
/// Bytes of dynamic shared memory: of queries and keys or values; backward of the gradient, too.
GW_HOST_DEVICE constexpr int shared(int backward, int features, int size) {
    return elements(backward == 0 ? 2 : 3, rows(backward, size), features) * size;
}
}  // namespace attention_simt

namespace attention_warp {
/// Threads of a block, and tokens of a tile that stays.
constexpr int THREADS = 128, ROWS = 64;
/// Tokens of a tile that passes by, of elements of so many bytes: forward, and at most backward.
GW_HOST_DEVICE constexpr int keys(int size) { return size == 2 ? 64 : 32; }
GW_HOST_DEVICE constexpr int few(int features, int size) { return size == 2 || features <= 48 ? 32 : 16; }
/// Elements from one token to the next: 16 bytes more than a token has, so that the eight tokens which a fragment reads start in different
/// banks.
GW_HOST_DEVICE constexpr int pitch(int features, int size) { return features + 16 / size; }
/// Bytes of dynamic shared memory: what stays, and two pairs of tiles that pass by.
GW_HOST_DEVICE constexpr int forward(int features, int size) {
    return (ROWS + 4 * keys(size)) * pitch(features, size) * size;
}
GW_HOST_DEVICE constexpr int backward(int features, int size) {
    return (2 * ROWS + 4 * few(features, size)) * pitch(features, size) * size;
}
}  // namespace attention_warp

namespace attention_hopper {
/// Tokens of a tile that stays and of one that passes by, and pairs that pass by, forward; warpgroups that multiply.
constexpr int ROWS = 128, KEYS = 128, STAGES = 2, CONSUMERS = 2;
/// Barriers, and room to spare.
constexpr int MORE = 2048;
/// Threads of so many warpgroups that multiply, and of one that loads.
GW_HOST_DEVICE constexpr int threads(int consumers) { return 128 * (consumers + 1); }
/// Bytes of dynamic shared memory: one pair of tiles that stay, and `stages` pairs that pass by, of 16-bit elements.
GW_HOST_DEVICE constexpr int shared(int rows, int columns, int stages, int features) {
    return 2 * (rows + stages * columns) * features * 2 + MORE;
}
/// Backward: warpgroups that multiply, 64 tokens for each that stay, tokens that pass by, and pairs of those.
GW_HOST_DEVICE constexpr int backward_consumers(int of_keys, int features) { return of_keys == 0 && features == 64 ? 3 : 2; }
GW_HOST_DEVICE constexpr int backward_rows(int of_keys, int features) { return 64 * backward_consumers(of_keys, features); }
constexpr int BACKWARD_COLUMNS = 64, BACKWARD_STAGES = 3;
}  // namespace attention_hopper
