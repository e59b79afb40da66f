// Sizes of launches of blocks (clifford/block/definition.cuh) that do not depend on the algebra alone: of the kernels by ordinary arithmetic,
// and of the rows that those for sm_90a take. What depends on the algebra alone is in clifford/block/launch.cuh.
#pragma once

#include "gradewise/host_device.cuh"

namespace block_simt {
/// Threads of a block, of which the groups without rows help with the matrices; most features, one for each lane of a warp.
constexpr int THREADS = 256, MOST_FEATURES = 32;
/// So many features, or inputs, in packs of four.
GW_HOST_DEVICE constexpr int padded(int features) { return (features + 3) / 4 * 4; }
GW_HOST_DEVICE constexpr int most(int a, int b) { return a < b ? b : a; }
/// Elements of the first map's matrices and of `maps` square ones for each grade, whose rows are longer by `padding`; without inputs the first
/// has its padding all the same.
GW_HOST_DEVICE constexpr int matrices(int grades, int inputs, int features, int maps, int padding) {
    return grades * padded(features) * (padded(inputs) + padding + maps * (padded(features) + padding));
}
/// Elements of a product's weights for as many lanes where registers do not hold them.
GW_HOST_DEVICE constexpr int weights(int blades, int paths, int lanes) { return blades > 16 ? paths * lanes : 0; }
/// Elements of a block's rows: of x and h forward; of x and four of features backward.
GW_HOST_DEVICE constexpr int forward_rows(int rows, int blades, int inputs, int features) {
    return rows * blades * (padded(inputs) + padded(features));
}
GW_HOST_DEVICE constexpr int backward_rows(int rows, int blades, int inputs, int features) {
    return rows * blades * (padded(inputs) + 4 * padded(features));
}
/// Sums of the gradients of a lane's parameters.
GW_HOST_DEVICE constexpr int sums(int grades, int paths) { return 3 + 3 * grades + paths; }
/// Bytes of dynamic shared memory forward, of so many elements of each part in this order.
GW_HOST_DEVICE constexpr int forward(int matrices, int weights, int rows) { return (matrices + weights + rows) * 4; }
/// The same backward: matrices, weights, their sums of each group, then rows, and in their place, when all rows are done, the sums of all
/// lanes of each group.
GW_HOST_DEVICE constexpr int backward(int matrices, int weights, int groups, int rows, int sums_of_group) {
    return (matrices + weights * (1 + groups) + most(rows, groups * sums_of_group)) * 4;
}
}  // namespace block_simt

namespace block_sm90 {
/// Rows of a group of warps, which have 8 features each; features of a block rounded up, of the narrow kernels and of the wide ones.
constexpr int ROWS = 16, FEATURES_OF_WARP = 8, WIDTH = 32, WIDE = 64;
/// Threads of a group of the narrow kernels.
constexpr int GROUP_THREADS = 32 * WIDTH / FEATURES_OF_WARP;
/// Values of four bytes of the parameters of features in shared memory, with so many for each feature and grade.
GW_HOST_DEVICE constexpr int parameters(int paths, int grades, int by_grade, int width) { return (paths + by_grade * grades + 3) * width; }
/// The same of what the forward pass of wide kernels leaves to the backward pass: both square matrices of two f16 numbers or one, parameters,
/// and scales of the matrices.
GW_HOST_DEVICE constexpr int prepared(int paths, int grades, int numbers) {
    return numbers * grades * WIDE * WIDE + parameters(paths, grades, 4, WIDE) + 4;
}
/// Blocks of threads that share the grades in sums of the gradients of matrices.
GW_HOST_DEVICE constexpr int halves(int blades) { return blades > 4 ? 2 : 1; }
/// Rows of a step of the gradients of the first map, and columns of x in a block of threads that has more than `WIDE`.
constexpr int FIRST_ROWS = 32, MORE_COLUMNS = 80;
}  // namespace block_sm90
