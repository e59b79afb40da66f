// Assertions in kernels. They cost nothing unless GRADEWISE_DEBUG is defined: GRADEWISE_DEBUG_CUDA=1 defines it, for embedded kernels
// when they are built, for kernels compiled at run time when they are.
//
//   GW_ASSERT(condition)         stops the kernel unless the condition holds
//   GW_INDEX(index, size)        the index, which must be at least 0 and less than the size
//
// A failed assertion prints its file, line, block, thread and values. Needs only a device compiler.
#pragma once

#include "gradewise/integers.cuh"

#ifdef GRADEWISE_DEBUG

GW_DEVICE void gw_place(const char* file, int line) {
    printf("%s:%d: block (%u, %u, %u), thread (%u, %u, %u): ", file, line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
           threadIdx.y, threadIdx.z);
}

GW_DEVICE void gw_assert(bool holds, const char* condition, const char* file, int line) {
    if (holds) return;
    gw_place(file, line);
    printf("`%s` does not hold\n", condition);
    __trap();
}

GW_DEVICE i64 gw_index(i64 index, i64 size, const char* name, const char* file, int line) {
    if (index >= 0 && index < size) return index;
    gw_place(file, line);
    printf("index `%s` is %lld, expected less than %lld\n", name, index, size);
    __trap();
    return 0;
}

#define GW_ASSERT(condition) gw_assert(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define GW_INDEX(index, size) gw_index(static_cast<i64>(index), static_cast<i64>(size), #index, __FILE__, __LINE__)

#else

#define GW_ASSERT(condition) static_cast<void>(0)
#define GW_INDEX(index, size) (index)

#endif
