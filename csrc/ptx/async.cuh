// Asynchronous copies from global to shared memory (sm_80 and later).
#pragma once

#include "gradewise/types.cuh"

GW_DEVICE u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

/// Starts a copy of 16 bytes, of which the first `bytes` are read and the rest become zero. Both addresses must be aligned to 16.
GW_DEVICE void copy_async_16(void* target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes));
}

/// The same with 4 bytes, of which all or none are read.
GW_DEVICE void copy_async_4(void* target, const void* source, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes));
}

/// Starts a copy of an element of 4 or 8 bytes if `there`, else of zero.
template <class T>
GW_DEVICE void copy_async_element(T* target, const T* source, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(target)), "l"(source), "n"(sizeof(T)),
                 "r"(there ? static_cast<int>(sizeof(T)) : 0));
}

/// Starts a copy of BYTES, 4 or 8, to which both addresses must be aligned.
template <int BYTES>
GW_DEVICE void copy_async_small(void* target, const void* source) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(target)), "l"(source), "n"(BYTES));
}

/// Closes the group of copies started since the last call.
GW_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;"); }

/// Waits until at most N groups of this thread are unfinished.
template <int N>
GW_DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}
