// Sizes of launches of ops/copy.cu.
#pragma once

namespace copies {
/// The most parts that the kernel of many joins takes: with them its parameters take 3,616 of the 4,096 bytes that every driver passes.
constexpr int MOST_JOINED = 16;
/// The most parts that are parameters of their own, which the compiler unrolls.
constexpr int FEW_JOINED = 4;
}  // namespace copies
