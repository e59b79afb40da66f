// Rows of the kernels of 16 bits (see clifford/block/sm90_16bit.cuh): copies from global to shared memory, the values of a lane, and stores.
#pragma once

#include "clifford/block/operands_16bit.cuh"
#include "clifford/block/sm90_common.cuh"
#include "ptx/async.cuh"
#include "ptx/bulk.cuh"

template <class A, class T>
struct BlockRowStages : BlockSm90<A, T> {
    using Common = BlockSm90<A, T>;
    using typename Common::Fragment;
    using Common::BLADES;
    using Common::column, Common::feature, Common::features, Common::inputs, Common::line, Common::p, Common::pair;
    using Operands = Operands16Bit<T>;
    static constexpr int ROW = Operands::ROW;

    /// Arrays of operands [BLADES, COUNT rows of a tile].
    template <int COUNT>
    struct Rows {
        static constexpr int BLADE_BYTES = COUNT * ROW, BYTES = BLADES * BLADE_BYTES;
    };

    GW_DEVICE explicit BlockRowStages(const BlockOperands<T>& weights) : Common(weights) {}

    /// The address of a blade's plane of [blades, rows, width], of less than 4 GiB, from that of the scalar's.
    template <class S>
    GW_DEVICE static S* plane_of(S* scalar, u32 bytes, int blade) {
        return (S*)((char*)scalar + static_cast<u64>(bytes) * blade);
    }

    /// Bytes of such a plane.
    GW_DEVICE u32 plane_bytes(int width) const { return static_cast<u32>(p.rows) * width * u32(sizeof(T)); }

    /// Rows of arrays in shared memory, as they are in global memory: planes of COUNT rows, without gaps between rows. Where planes have an
    /// odd number of elements, those of odd blades begin at the second element of their stage, so that copies of words are aligned.
    template <int COUNT, int TILES = 1>
    struct Stage {
        static constexpr int PLANE = COUNT * ROW * TILES, BYTES = BLADES * PLANE;
    };

    /// How rows of arrays come to their stages: by the copy engine, asynchronous copies of threads, or element by element.
    enum class CopyMethod { ENGINE, EIGHT_BYTES, FOUR_BYTES, ELEMENTS };

    /// The fastest method that the alignment of these arrays [BLADES, rows, width] allows.
    template <int N>
    GW_DEVICE CopyMethod copy_method(const T* const (&arrays)[N], int width) const {
        u64 bits = 0;
#pragma unroll
        for (int n = 0; n < N; ++n) bits |= reinterpret_cast<u64>(arrays[n]);
        if ((bits | p.rows * width * sizeof(T)) % 16 == 0) return CopyMethod::ENGINE;
        if (bits % 8 == 0 && width % 4 == 0) return CopyMethod::EIGHT_BYTES;
        return bits % 4 == 0 ? CopyMethod::FOUR_BYTES : CopyMethod::ELEMENTS;
    }

    /// Starts copying COUNT rows, `first` on, of N arrays [BLADES, rows, width], as far as they exist, to stages. All `threads` threads
    /// from `leader` on call it, once all of them have read what the stages held. By the copy engine, rows may be read after
    /// `barrier_wait`; otherwise after `copy_async_wait` (the caller closes groups of copies) and a barrier of these threads.
    template <class Stage, int COUNT, int N>
    GW_DEVICE void load_stage(char* const (&stages)[N], const T* const (&sources)[N], i64 first, int width, CopyMethod method, int leader, int threads,
                         u64* barrier) const {
        if (first >= p.rows) return;
        const int rows = static_cast<int>(min(p.rows - first, static_cast<i64>(COUNT))), thread = threadIdx.x - leader;
        const u32 bytes = rows * width * static_cast<int>(sizeof(T));
        if (method == CopyMethod::ENGINE) {
            if (thread >= BLADES) return;
            const i64 from = (thread * p.rows + first) * width;
            barrier_expect(barrier, N * bytes);
#pragma unroll
            for (int n = 0; n < N; ++n) bulk_copy(stages[n] + thread * Stage::PLANE, sources[n] + from, bytes, barrier);
            return;
        }
        const int shift = shift_of(width);
        const u32 plane = plane_bytes(width);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const T* const from = sources[n] + first * width;
            if (method == CopyMethod::EIGHT_BYTES) {
                copy_rows<Stage, 8>(stages[n], from, plane, bytes, 0, thread, threads);
            } else if (method == CopyMethod::FOUR_BYTES) {
                // With a shift, a word more, which has elements of the next rows or plane: an array has a multiple of four.
                copy_rows<Stage, 4>(stages[n], from, plane, shift == 0 ? bytes : bytes / 4 * 4 + 4, shift, thread, threads);
            } else {
#pragma unroll 1
                for (int at = thread; at < rows * width; at += threads) {
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) {
                        *reinterpret_cast<T*>(stages[n] + blade * Stage::PLANE + blade % 2 * shift + at * sizeof(T)) =
                            *plane_of(from + at, plane, blade);
                    }
                }
            }
        }
    }

    /// Starts copies of UNIT bytes of every plane to a stage.
    template <class Stage, int UNIT>
    GW_DEVICE static void copy_rows(char* stage, const T* from, u32 plane, u32 bytes, int shift, int thread, int threads) {
#pragma unroll 1
        for (u32 at = thread * UNIT; at < bytes; at += threads * UNIT) {
            const char* const source = reinterpret_cast<const char*>(from) + at;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                copy_async_small<UNIT>(stage + at + blade * Stage::PLANE, plane_of(source, plane, blade) - blade % 2 * shift);
            }
        }
    }

    /// Bytes by which rows of odd blades are shifted in their stage.
    GW_DEVICE int shift_of(int width) const { return static_cast<int>(p.rows) & width & 1 ? static_cast<int>(sizeof(T)) : 0; }

    /// Copies 16 of a stage's rows of x to operands: a tile of columns from `from` on, with zeros past the last column. `row` is the first
    /// of the rows, and `last` the last that exists.
    template <class Stage, class Rows>
    GW_DEVICE void store_inputs(char* rows, const char* stage, int row, int last, int from) const {
        const int thread = this->opaque_thread() % 128, pair = thread % 16, column = from + 2 * pair;
        char* const to = rows + Operands::offset(thread / 16, pair / 4) + pair % 4 * 4;
        const T* source[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int own = min(row + thread / 16 + 8 * half, last);
            source[half] = reinterpret_cast<const T*>(stage) + own * inputs + min(column, inputs - 1);
        }
        const u32 mask = column + 1 < inputs ? 0xffffffffu : column < inputs ? 0xffffu : 0u;
        const int next = column + 1 < inputs ? 1 : 0, shift = shift_of(inputs);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const T* const at = reinterpret_cast<const T*>(reinterpret_cast<const char*>(source[half]) + blade * Stage::PLANE);
                u32 both;
                if (inputs % 2 == 0) {
                    // Past the last column, what is masked is read from a word before.
                    both = *reinterpret_cast<const u32*>(reinterpret_cast<const char*>(at) - (column < inputs ? 0 : sizeof(T)));
                } else {
                    const T* const own = at + (blade % 2 && shift ? 1 : 0);
                    both = own[0].bits | static_cast<u32>(own[next].bits) << 16;
                }
                *reinterpret_cast<u32*>(to + half * 8 * ROW + blade * Rows::BLADE_BYTES) = both & mask;
            }
        }
    }

    /// The lane's values of a row of a stage.
    template <class Stage>
    GW_DEVICE void read(const char* stage, int row, float (&values)[BLADES][2]) const {
        const T* const at = reinterpret_cast<const T*>(stage) + row * features;
        if (features % 2 == 0) {
            const char* const near = reinterpret_cast<const char*>(at + min(feature, features - 2));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) load<2>(reinterpret_cast<const T*>(near + blade * Stage::PLANE), values[blade]);
            return;
        }
        const int shift = shift_of(features);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const char* const near = reinterpret_cast<const char*>(at + min(feature + side, features - 1));
            const char* const near_odd = near + shift;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                values[blade][side] = widen(*reinterpret_cast<const T*>((blade % 2 ? near_odd : near) + blade * Stage::PLANE));
            }
        }
    }

    /// Writes the lane's values of rows g and g + 8 of [BLADES, rows, features], `first` the first of 16.
    GW_DEVICE void write(T* target, i64 first, const Fragment& values) const {
        const u32 plane = plane_bytes(features);
        const bool paired = Common::is_paired(target, features);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = first + line + 8 * half;
            if (row >= p.rows || feature >= features) continue;
            T* const at = target + row * features + feature;
            if (paired) {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    store_two(plane_of(at, plane, blade), values[blade][2 * half], values[blade][2 * half + 1]);
                }
            } else {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) *plane_of(at, plane, blade) = narrow<T>(values[blade][2 * half]);
                if (feature + 1 >= features) continue;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) *plane_of(at + 1, plane, blade) = narrow<T>(values[blade][2 * half + 1]);
            }
        }
    }

    GW_DEVICE static void store_two(T* target, float first, float second) {
        *reinterpret_cast<u32*>(target) = Operands::pair(first, second);
    }

    /// Where `store_operands` writes the lane's pair of row g.
    GW_DEVICE u32 own_offset() const { return Operands::offset(line, column) + pair * 4; }

    /// Puts the lane's two values of every blade at row g + 8·half of 16 rows of operands.
    template <class Rows>
    GW_DEVICE void store_operands(char* rows, int half, const float (&values)[BLADES][2]) const {
        char* const own = rows + own_offset() + half * 8 * ROW;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            *reinterpret_cast<u32*>(own + blade * Rows::BLADE_BYTES) = Operands::pair(values[blade][0], values[blade][1]);
        }
    }
};
