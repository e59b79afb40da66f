// Sizes of launches of ops/optim.cu.
#pragma once

namespace optim {
/// Most parameters of a launch: as many as fit into the parameter space of a kernel (32,764 bytes).
constexpr int MOST = 640;
/// Threads of a block, and elements that it works on.
constexpr int THREADS = 256, PER_BLOCK = 4096;
/// Partial results of a block of `squares`, and numbers that are reported of all gradients together.
constexpr int PARTS = 3, REPORTED = 4;
}  // namespace optim
