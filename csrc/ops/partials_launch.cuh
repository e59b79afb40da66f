// Sizes of launches of ops/partials.cu.
#pragma once

namespace partials {
/// Results of a block, and threads that share the chunks of one result.
constexpr int RESULTS = 32, LANES = 8;
/// Most sums of one launch: their list takes 3,848 of the 4,096 bytes of parameters that every driver passes.
constexpr int MOST = 80;
}  // namespace partials
