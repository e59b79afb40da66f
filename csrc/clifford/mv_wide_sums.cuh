// Gradients of the first matrix of blocks with more than 32 features, see clifford/mv_wide.cuh.
// Names: gw_mv_wide_sums_<COLUMNS>_<algebra>_<dtype>, and gw_mv_wide_exact_sums… in three parts.
#pragma once

#include "clifford/mv_tf32.cuh"
#include "clifford/mv_wide_halves.cuh"
#include "ptx/async.cuh"

/// partial[block][grade][m][n] = Σ a[blade][row][m]·b[blade][row][n] over the blades of the grade and the block's rows. a is [BLADES, rows,
/// inputs], with rows `pitch` elements apart, and b [BLADES, rows, features], features at most 64.
///
/// A block has COLUMNS columns of a, by blockIdx.y, and all of b: each of its warps 16 of both. 80 columns instead of 64 serve
/// the 65 of a layer that takes an attribute beside 64 features. It has half of the grades, by blockIdx.z, where all would take more
/// registers than there are, and keeps their sums in registers. 32 rows of one blade at a time come to shared memory, some steps ahead. In
/// three parts, matrix instructions, which truncate, add these 32 products; the rest are additions that round.
template <class A, class T, int PARTS, int COLUMNS>
struct MvWideSums {
    template <int N>
    using Operand = MvTf32<PARTS, N>;
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, ROWS = 32, WIDTH = 64, THREADS = COLUMNS / 16 * 128;
    static constexpr auto tables = A::make();
    /// Elements from one row to the next in shared memory: the lanes of four pairs of rows and eight columns read 32 banks.
    static constexpr int PACK = 16 / sizeof(T), A_PITCH = COLUMNS + PACK, PITCH = WIDTH + PACK, A_PLANE = ROWS * A_PITCH, PLANE = ROWS * PITCH;
    static constexpr int STAGES = 4, STAGE = A_PLANE + PLANE;
    /// 8 columns of b that a warp has.
    static constexpr int STRIPS = 2;

    struct Sources {
        const T *a, *b;
        i64 rows;
        int inputs, pitch, features;
    };

    /// Dynamic shared memory: STAGES stages.
    GW_DEVICE static void run(T* shared, const Sources& sources, float* partial) {
        const MvWideSums pass(shared, sources);
        MvWideHalves<A>::run([&](auto first, auto last) { pass.template work<decltype(first)::value, decltype(last)::value>(partial); });
    }

  private:
    T* shared;
    const Sources& sources;
    int column;         // The block's first column of a.
    int line, pair;
    int above, beside;  // The warp's first columns of a and of b, within the block.
    bool a_packed, b_packed;

    GW_DEVICE MvWideSums(T* shared, const Sources& sources) : shared(shared), sources(sources) {
        column = blockIdx.y * COLUMNS;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        line = lane / 4;
        pair = lane % 4;
        above = warp % (COLUMNS / 16) * 16;
        beside = warp / (COLUMNS / 16) * 8 * STRIPS;
        a_packed = is_packed(sources.a, sources.pitch);
        b_packed = is_packed(sources.b, sources.features);
    }

    GW_DEVICE static bool is_packed(const T* array, int width) { return width % PACK == 0 && reinterpret_cast<u64>(array) % 16 == 0; }

    /// Starts copying up to COUNTED columns of 32 rows, `first` on, of one blade of [BLADES, rows, width], `column` on, with rows `pitch`
    /// elements apart; zeros elsewhere.
    template <int COUNTED>
    GW_DEVICE void fetch(T* target, const T* source, int width, int pitch, int column, int blade, i64 first, bool packed) const {
        const T* const rows = source + (blade * sources.rows + first) * pitch + column;
        const int left = width - column, lines = static_cast<int>(sources.rows - first < ROWS ? sources.rows - first : ROWS);
        if (packed) {
            constexpr int ALONG = COUNTED / PACK;
#pragma unroll
            for (int at = threadIdx.x; at < ROWS * ALONG; at += THREADS) {
                const int row = at / ALONG, x = at % ALONG * PACK;
                const bool inside = row < lines && x < left;
                // Rows of a may end within 16 bytes.
                const int bytes = inside ? min(left - x, PACK) * static_cast<int>(sizeof(T)) : 0;
                copy_async_16(target + row * (COUNTED + PACK) + x, inside ? rows + row * pitch + x : source, bytes);
            }
            return;
        }
#pragma unroll(sizeof(T) == 4 ? 1 : 2)
        for (int at = threadIdx.x; at < ROWS * COUNTED; at += THREADS) {
            const int row = at / COUNTED, x = at % COUNTED;
            const bool inside = row < lines && x < left;
            const T* const from = inside ? rows + row * pitch + x : source;
            T* const to = target + row * (COUNTED + PACK) + x;
            if constexpr (sizeof(T) == 4) {
                copy_async_4(to, from, inside ? 4 : 0);
            } else {
                *to = inside ? *from : T{};
            }
        }
    }

    /// The sums of the grades from FIRST to before LAST.
    template <int FIRST, int LAST>
    GW_DEVICE void work(float* partial) const {
        constexpr int BEGIN = tables.first[FIRST], COUNTED = tables.first[LAST] - BEGIN;
        const int tiles = static_cast<int>((sources.rows + ROWS - 1) / ROWS), blocks = gridDim.x, number = blockIdx.x;
        // Step n is the n % COUNTED-th blade of the block's tile n / COUNTED.
        const int own = tiles > number ? (tiles - number + blocks - 1) / blocks : 0, steps = own * COUNTED;
        auto start = [&](int step) {
            if (step < steps) {
                const i64 first = (number + static_cast<i64>(step / COUNTED) * blocks) * ROWS;
                const int blade = BEGIN + step % COUNTED;
                T* const stage = shared + step % STAGES * STAGE;
                fetch<COLUMNS>(stage, sources.a, sources.inputs, sources.pitch, column, blade, first, a_packed);
                fetch<WIDTH>(stage + A_PLANE, sources.b, sources.features, sources.features, 0, blade, first, b_packed);
            }
            copy_async_commit();
        };
        for (int step = 0; step < STAGES - 1; ++step) start(step);
        float sums[LAST - FIRST][STRIPS][4] = {};
        // Warps whose columns of a do not exist only copy.
        const bool idle = column + above >= sources.inputs;
        int step = 0;
#pragma unroll 1
        for (int tile = 0; tile < own; ++tile) {
            each<LAST - FIRST>([&](auto index) {
                constexpr int grade = FIRST + decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
#pragma unroll 1
                for (int blade = begin; blade < end; ++blade, ++step) {
                    copy_async_wait<STAGES - 2>();
                    __syncthreads();  // The step is there, and all have read the one before, whose place the next copies take.
                    start(step + STAGES - 1);
                    if (!idle) add(sums[grade - FIRST], shared + step % STAGES * STAGE);
                }
            });
        }
        copy_async_wait<0>();
        partial += (static_cast<i64>(blockIdx.x) * GRADES + FIRST) * sources.inputs * sources.features;
#pragma unroll
        for (int grade = 0; grade < LAST - FIRST; ++grade) write(sums[grade], partial + grade * sources.inputs * sources.features);
    }

    /// Adds the products of a stage's rows.
    GW_DEVICE void add(float (&sums)[STRIPS][4], const T* stage) const {
        if constexpr (PARTS == 1) {
            multiply(sums, stage);
        } else {
            float own[STRIPS][4] = {};
            multiply(own, stage);
#pragma unroll
            for (int strip = 0; strip < STRIPS; ++strip) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[strip][i] += own[strip][i];
            }
        }
    }

    /// The same by matrix instructions alone.
    GW_DEVICE void multiply(float (&sums)[STRIPS][4], const T* stage) const {
        const T* const left = stage + 2 * pair * A_PITCH + above + line;
        const T* const right = stage + A_PLANE + 2 * pair * PITCH + line;
#pragma unroll
        for (int row = 0; row < ROWS; row += 8) {
            const T* const from = left + row * A_PITCH;
            Operand<4> a;
            a.set(0, widen(from[0]));
            a.set(1, widen(from[8]));
            a.set(2, widen(from[A_PITCH]));
            a.set(3, widen(from[A_PITCH + 8]));
#pragma unroll
            for (int strip = 0; strip < STRIPS; ++strip) {
                const T* const other = right + beside + 8 * strip + row * PITCH;
                Operand<2> b;
                b.set(0, widen(other[0]));
                b.set(1, widen(other[PITCH]));
                if constexpr (PARTS == 3) {
                    mma_tf32(sums[strip], a.low, b.high);
                    mma_tf32(sums[strip], a.high, b.low);
                }
                mma_tf32(sums[strip], a.high, b.high);
            }
        }
    }

    /// Writes the sums of one grade to its place.
    GW_DEVICE void write(const float (&sums)[STRIPS][4], float* place) const {
#pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = column + above + line + i / 2 * 8, feature = beside + 8 * strip + 2 * pair + i % 2;
                if (row < sources.inputs && feature < sources.features) place[row * sources.features + feature] = sums[strip][i];
            }
        }
    }
};
