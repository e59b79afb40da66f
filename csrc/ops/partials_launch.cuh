// Sizes of launches of ops/partials.cu.
#pragma once

namespace partials {
/// Results of a block, and threads that share the chunks of one result.
constexpr int RESULTS = 32, LANES = 8;
}  // namespace partials
