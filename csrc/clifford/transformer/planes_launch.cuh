// Sizes that the kernels of feature planes share.
#pragma once

namespace feature_planes {
/// Most planes, one for each blade.
constexpr int MOST_PLANES = 32;
}  // namespace feature_planes
