// Sizes of launches of clifford/linear/few_to_many.cuh.
#pragma once

#include "gradewise/host_device.cuh"

namespace few_features {
/// Threads of a block, and those that share a row of many features in `many_to_few`.
constexpr int THREADS = 256, LANES = 8;
/// Most grades.
constexpr int MOST_GRADES = 15;
/// Bytes of dynamic shared memory of `many_to_few`: the matrix of a group, with a width of few features.
GW_HOST_DEVICE constexpr int matrix(int width, int many) { return width * many * 4; }
/// The same of `weight_grad`: the sums of each of the rows that a block takes at a time, of its columns and of the bias.
GW_HOST_DEVICE constexpr int sums(int lanes, int few, int columns, int bias) { return lanes * (few * columns + bias) * 4; }
}  // namespace few_features
