// Work on arrays [outer, rows, columns] where what a thread finds out about its row serves every block of the outer axis: a thread
// takes the same elements of several blocks, with their loads in flight together.
#pragma once

#include "gradewise/strided.cuh"
#include "ops/edges_launch.cuh"

/// The elements of a thread: N adjacent columns from `column` on of a row, in `blocks` blocks from `first` on.
struct Work {
    u32 row;
    u32 column;
    u32 first;
    u32 blocks;
};

/// The blocks of group `group` of `depth` blocks each: the first, and how many there are.
GW_DEVICE void group_of(u32 group, u32 outer, u32 depth, u32& first, u32& blocks) {
    first = group * depth;
    blocks = outer - first < depth ? outer - first : depth;
}

/// The work at position `at` of [groups of `depth` blocks, rows, packs of N columns].
template <int N>
GW_DEVICE Work work_of(i64 at, const Divisor& rows, const Divisor& packs, u32 outer, u32 depth) {
    const i64 line = at / packs, group = line / rows;
    Work work;
    work.row = static_cast<u32>(line - group * rows.size);
    work.column = static_cast<u32>(at - line * packs.size) * N;
    group_of(static_cast<u32>(group), outer, depth, work.first, work.blocks);
    return work;
}

/// A number known to the compiler.
template <int N>
struct Count {
    static constexpr int value = N;
};

/// Calls f(Count<U>) as often as U fits into `count`, then for the rest with half as many, and so on down to one.
template <int U, class F>
GW_DEVICE void in_steps(u32 count, const F& f) {
#pragma unroll 1
    for (; count >= U; count -= U) f(Count<U>{});
    if constexpr (U > 1) in_steps<U / 2>(count, f);
}

/// Adjacent elements that a thread of a wide kernel takes.
template <class T>
constexpr int WIDE_ELEMENTS = edges::wide(sizeof(T));

/// Blocks of 256 threads per multiprocessor: as many as leave the loads of a step their registers, without spills. Of kernels of wide
/// accesses, of wide and of narrow sums, of sums that are added to others, and of results that go through shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int EDGE_BLOCKS = 3, WIDE_SUM_BLOCKS = 2, SUM_BLOCKS = 3, ADDING_BLOCKS = 2, ROW_BLOCKS = 4;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr int EDGE_BLOCKS = 4, WIDE_SUM_BLOCKS = 4, SUM_BLOCKS = 5, ADDING_BLOCKS = 4, ROW_BLOCKS = 6;
#else
constexpr int EDGE_BLOCKS = 4, WIDE_SUM_BLOCKS = 4, SUM_BLOCKS = 4, ADDING_BLOCKS = 3, ROW_BLOCKS = 4;
#endif
