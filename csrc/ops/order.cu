// Sorting along adjacent elements (tiles sorted in shared memory, then merged pairwise), and positions of extrema. Sorting is
// stable, so the result does not depend on the order of the work.
#include "gradewise/debug.cuh"
#include "gradewise/group.cuh"
#include "ops/order_launch.cuh"

namespace {

using order::SORTERS, order::TILE;
/// No position; sorts last.
constexpr u32 NONE = 0xffffffffu;

/// Whether a comes before b.
template <class C>
GW_DEVICE bool before(C a, u32 at_a, C b, u32 at_b, bool descending) {
    if (at_a == NONE || at_b == NONE) return at_a < at_b;
    const bool less = a < b || (b != b && a == a), greater = b < a || (a != a && b == b);
    if (less || greater) return less != descending;
    return at_a < at_b;
}

/// Sorts tiles of the rows of x by a bitonic network. Of each row the first `keep` are written, as rows of that length.
template <class T>
GW_DEVICE void sort_tiles(const T* x, T* values, u32* positions, i64 rows, i64 size, i64 keep, bool descending) {
    using C = Compute<T>;
    __shared__ C value[TILE];
    __shared__ u32 position[TILE];
    const i64 tiles = (size + TILE - 1) / TILE;
    for (i64 unit = blockIdx.x; unit < rows * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, first = (unit - row * tiles) * TILE;
        for (int i = threadIdx.x; i < TILE; i += SORTERS) {
            const bool inside = first + i < size;
            value[i] = inside ? widen(x[row * size + first + i]) : C(0);
            position[i] = inside ? static_cast<u32>(first + i) : NONE;
        }
        for (int span = 2; span <= TILE; span *= 2) {
            for (int distance = span / 2; distance > 0; distance /= 2) {
                __syncthreads();
                const int thread = threadIdx.x;
                const int i = thread / distance * 2 * distance + thread % distance, j = i + distance;
                const bool ascending = (i & span) == 0;
                const C a = value[i], b = value[j];
                const u32 at_a = position[i], at_b = position[j];
                if (before(b, at_b, a, at_a, descending) == ascending) {
                    value[i] = b;
                    value[j] = a;
                    position[i] = at_b;
                    position[j] = at_a;
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += SORTERS) {
            if (first + i < keep) {
                values[row * keep + first + i] = narrow<T>(value[i]);
                positions[row * keep + first + i] = position[i];
            }
        }
        __syncthreads();
    }
}

/// Merges adjacent runs of `width`: the place of an element is its place in its own run plus the number of elements of the other
/// run that precede it.
template <class T>
GW_DEVICE void merge(const T* x, const u32* at, T* values, u32* positions, i64 rows, i64 size, i64 width, i64 keep,
                     bool descending) {
    for (i64 element = thread_index(); element < rows * size; element += thread_count()) {
        const i64 row = element / size, i = element - row * size, run = i / width, pair = run / 2 * 2 * width;
        const T* source = x + row * size;
        const u32* source_at = at + row * size;
        const i64 other = run % 2 == 0 ? pair + width : pair;
        const Compute<T> value = widen(source[i]);
        const u32 position = source_at[i];
        i64 low = other < size ? other : size, high = other + width < size ? other + width : size;
        const i64 begin = low;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (before(widen(source[middle]), source_at[middle], value, position, descending)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        const i64 target = GW_INDEX(pair + (i - run * width) + (low - begin), size);
        if (target < keep) {
            values[row * keep + target] = narrow<T>(value);
            positions[row * keep + target] = position;
        }
    }
}

/// The position of the greatest or the least element of each row; NaN precedes all. Blocks as in gradewise/group.cuh.
template <class T>
GW_DEVICE void extremum(const T* x, u32* out, i64 rows, i64 size, bool greatest) {
    using C = Compute<T>;
    __shared__ C values[256];
    __shared__ u32 positions[256];
    const auto beats = [&](C a, u32 at_a, C b, u32 at_b) {
        if (at_a == NONE || at_b == NONE) return at_a < at_b;
        if ((a != a) != (b != b)) return a != a;
        if (a < b || a > b) return (a > b) == greatest;
        return at_a < at_b;
    };
    const int place = threadIdx.y * blockDim.x + threadIdx.x;
    each_row(rows, [&](i64 row, bool there) {
        C best = 0;
        u32 at = NONE;
        for (i64 i = threadIdx.x; there && i < size; i += blockDim.x) {
            const C value = widen(x[row * size + i]);
            if (beats(value, static_cast<u32>(i), best, at)) {
                best = value;
                at = static_cast<u32>(i);
            }
        }
        values[place] = best;
        positions[place] = at;
        for (int offset = blockDim.x / 2; offset > 0; offset /= 2) {
            __syncthreads();
            if (static_cast<int>(threadIdx.x) < offset &&
                beats(values[place + offset], positions[place + offset], values[place], positions[place])) {
                values[place] = values[place + offset];
                positions[place] = positions[place + offset];
            }
        }
        if (there && threadIdx.x == 0) out[row] = positions[place];
        __syncthreads();
    });
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(SORTERS)                                                                \
        gw_sort_tiles_##NAME(const T* x, T* values, u32* positions, i64 rows, i64 size, i64 keep, i32 descending) {      \
        begin_kernel();                                                                                                  \
        sort_tiles(x, values, positions, rows, size, keep, descending != 0);                                             \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
        gw_sort_merge_##NAME(const T* x, const u32* at, T* values, u32* positions, i64 rows, i64 size, i64 width,        \
                             i64 keep, i32 descending) {                                                                 \
        begin_kernel();                                                                                                  \
        merge(x, at, values, positions, rows, size, width, keep, descending != 0);                                       \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
        gw_extremum_##NAME(const T* x, u32* out, i64 rows, i64 size, i32 greatest) {                                     \
        begin_kernel();                                                                                                  \
        extremum(x, out, rows, size, greatest != 0);                                                                     \
    }
GW_FOR_DTYPES(GW_KERNELS)
