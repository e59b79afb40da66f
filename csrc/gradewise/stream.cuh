// Rows that stream through shared memory into the registers of the threads that share them: the copy of the next row overlaps with
// work on the present one.
//
// A block is blockDim.x threads along a row, a multiple of 32 and at most 512, by blockDim.y rows, at most STREAM_ROWS. Blocks are
// persistent and take rows in turn, so that rows in flight are adjacent in memory. Each thread copies only the packs of 16 bytes
// that it works on, so it waits only for its own copies. Dynamic shared memory has K packs for every thread of each stream,
// followed by data of the kernel.
#pragma once

#include "gradewise/rows_launch.cuh"
#include "gradewise/types.cuh"
#include "ptx/async.cuh"

/// Most rows of a block, and most warps that share one.
constexpr int STREAM_ROWS = 4, STREAM_WARPS = 16;

/// Threads of a block with K packs per thread, and how many such blocks fit on a multiprocessor.
template <int K>
constexpr int STREAM_THREADS = streamed_rows::threads(K);
template <int K>
constexpr int STREAM_BLOCKS = streamed_rows::blocks(K);

/// How elements are stored in words of 32 bits: one of f32, two of 16 bits.
template <class T>
struct Words;
template <>
struct Words<float> {
    static constexpr u32 ZERO = 0, LEAST = 0xff800000u;
    GW_DEVICE static float widen(u32 word, int) { return __uint_as_float(word); }
    GW_DEVICE static u32 narrow(const float* values) { return __float_as_uint(values[0]); }
};
template <>
struct Words<bf16> {
    static constexpr u32 ZERO = 0, LEAST = 0xff80ff80u;
    GW_DEVICE static float widen(u32 word, int i) { return __uint_as_float(i ? word & 0xffff0000u : word << 16); }
    GW_DEVICE static u32 narrow(const float* values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        u32 word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
        return word;
#else
        return ::narrow<bf16>(values[0]).bits | static_cast<u32>(::narrow<bf16>(values[1]).bits) << 16;
#endif
    }
};
template <>
struct Words<f16> {
    static constexpr u32 ZERO = 0, LEAST = 0xfc00fc00u;
    GW_DEVICE static float widen(u32 word, int i) { return ::widen(f16{static_cast<u16>(i ? word >> 16 : word)}); }
    GW_DEVICE static u32 narrow(const float* values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        u32 word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
        return word;
#else
        return ::narrow<f16>(values[0]).bits | static_cast<u32>(::narrow<f16>(values[1]).bits) << 16;
#endif
    }
};

/// K packs of 16 bytes in registers, as they are stored.
template <class T, int K>
struct Packs {
    static constexpr int WIDE = 16 / sizeof(T), SIZE = K * WIDE, EACH = 4 / sizeof(T);
    u32 words[K * 4];

    GW_DEVICE float operator[](int i) const { return Words<T>::widen(words[i / EACH], i % EACH); }

    GW_DEVICE void set(int k, uint4 pack) {
        words[4 * k] = pack.x;
        words[4 * k + 1] = pack.y;
        words[4 * k + 2] = pack.z;
        words[4 * k + 3] = pack.w;
    }

    /// Makes the compiler forget values derived from the pack, so that it computes them again: kept, they need more registers than
    /// a thread has.
    GW_DEVICE void anew(int k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(words[4 * k + i]));
    }
    GW_DEVICE void anew() {
#pragma unroll
        for (int k = 0; k < K; ++k) anew(k);
    }
};

/// Rounds and stores a pack.
template <class T>
GW_DEVICE void store_pack(T* target, const float (&values)[16 / sizeof(T)]) {
    constexpr int EACH = 4 / sizeof(T);
    uint4 pack;
    pack.x = Words<T>::narrow(values);
    pack.y = Words<T>::narrow(values + EACH);
    pack.z = Words<T>::narrow(values + 2 * EACH);
    pack.w = Words<T>::narrow(values + 3 * EACH);
    *reinterpret_cast<uint4*>(target) = pack;
}

/// This thread's part of the rows of `x`. Rows must be aligned to 16 bytes, a multiple of them long, and at most K packs per
/// thread.
template <class T, int K>
struct RowStream {
    using Row = Packs<T, K>;
    /// Elements between a thread's packs. A warp has K·32 adjacent packs; its threads take every 32nd.
    static constexpr int APART = 32 * Row::WIDE;

    const T* next;
    uint4* slots;
    i64 step;       // Elements between the rows that this block takes.
    int rows_left;  // Rows from `next` on to the last one.
    int elements;   // Elements from this thread's first pack to the end of a row.

    GW_DEVICE static int first_row() { return static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y); }
    GW_DEVICE static int rows_at_a_time() { return static_cast<int>(gridDim.x * blockDim.y); }
    /// Where this thread's first pack begins in a row.
    GW_DEVICE static int first_element() {
        return static_cast<int>(threadIdx.x / 32 * (32 * K) + threadIdx.x % 32) * Row::WIDE;
    }

    /// Starts copying the first row.
    GW_DEVICE RowStream(const T* x, int rows, int columns, uint4* shared) {
        const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
        next = x + static_cast<i64>(first_row()) * columns + first_element();
        slots = shared + thread / 32 * (32 * K) + thread % 32;
        step = static_cast<i64>(rows_at_a_time()) * columns;
        rows_left = rows - first_row();
        elements = columns - first_element();
        advance();
    }

    /// Whether the row has this thread's pack k.
    GW_DEVICE bool has(int k) const { return k * APART < elements; }

    /// Waits for the row in flight and returns it; elements past its end become `rest`.
    GW_DEVICE void take(Row& row, u32 rest) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_wait<0>();
        asm volatile("" ::: "memory");
#endif
#pragma unroll
        for (int k = 0; k < K; ++k) row.set(k, has(k) ? slots[32 * k] : make_uint4(rest, rest, rest, rest));
    }

    /// Starts copying the next row. Everything taken from shared memory must have been moved to registers by then.
    GW_DEVICE void advance() {
        if (rows_left > 0) {
#pragma unroll
            for (int k = 0; k < K; ++k) {
                if (!has(k)) continue;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
                copy_async_16(slots + 32 * k, next + k * APART, 16);
#else
                slots[32 * k] = *reinterpret_cast<const uint4*>(next + k * APART);
#endif
            }
        }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_commit();
#endif
        next += step;
        rows_left -= rows_at_a_time();
    }
};

/// Combines four values, in a fixed order.
template <class C, class F>
GW_DEVICE C folded(const C (&values)[4], F f) {
    return f(f(values[0], values[1]), f(values[2], values[3]));
}

/// Two sums that are formed together.
template <class C>
struct Two {
    C first, second;
    GW_DEVICE Two operator+(const Two& other) const { return {first + other.first, second + other.second}; }
};

/// The value of the lane whose number differs in one bit.
template <class C>
GW_DEVICE C exchanged(C value, int bit) {
    return __shfl_xor_sync(0xffffffffu, value, bit);
}
template <class C>
GW_DEVICE Two<C> exchanged(Two<C> value, int bit) {
    return {exchanged(value.first, bit), exchanged(value.second, bit)};
}

/// Per-row scratch, one slot per warp; unused slots hold `neutral`. Between two uses of the same scratch another one must be used,
/// whose barrier then separates the two.
template <class C>
struct Partials {
    alignas(16) C at[STREAM_ROWS * STREAM_WARPS];

    /// Initialises the scratch. All threads must call it, and a barrier must follow.
    GW_DEVICE void clear(C neutral) {
        const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
        if (thread < STREAM_ROWS * STREAM_WARPS) at[thread] = neutral;
    }

    /// Combines the values of the threads of this row by f, in a fixed order; every thread of the row receives the result. The
    /// barrier covers the threads of the row only.
    template <class F>
    GW_DEVICE C across(C value, F f) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) value = f(value, exchanged(value, offset));
        if (blockDim.x == 32) return value;
        C* const row = at + threadIdx.y * STREAM_WARPS;
        if (threadIdx.x % 32 == 0) row[threadIdx.x / 32] = value;
        asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
        C values[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = row[i];
        if (blockDim.x > 4 * 32) {
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = f(values[i], row[4 + i]);
        }
        if (blockDim.x > 8 * 32) {
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = f(values[i], f(row[8 + i], row[12 + i]));
        }
        return folded(values, f);
    }
};

struct Plus {
    template <class C>
    GW_DEVICE C operator()(C a, C b) const {
        return a + b;
    }
};
/// The greater of two numbers; a NaN loses.
struct Greater {
    GW_DEVICE float operator()(float a, float b) const { return fmaxf(a, b); }
};
