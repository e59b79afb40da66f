// The place of a kernel among those before and after it in its stream (sm_90 and later).
#pragma once

#include "gradewise/integers.cuh"

/// The first statement of every kernel. It may have been launched when the last block of the one before had ended, but not all that
/// block wrote was seen yet (docs/kernels.md, "Launches that overlap"): nothing in memory is read or written until it is.
GW_DEVICE void begin_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
