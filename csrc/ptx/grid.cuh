// Ordering of a kernel after its predecessor in the stream (sm_90 and later).
#pragma once

#include "gradewise/integers.cuh"

/// Must be the first statement of every kernel. The launch may overlap with the end of the kernel ahead; this waits until the
/// writes of that kernel are visible (docs/kernels/launches.md).
GW_DEVICE void begin_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
