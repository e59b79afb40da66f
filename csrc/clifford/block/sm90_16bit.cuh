// Blocks of equivariant networks (clifford/block/definition.cuh) of 16-bit features: linear maps by the matrix
// instructions of the tensor cores. What both passes share; the passes are in sm90_16bit_forward.cuh and sm90_16bit_backward.cuh.
//
// The positions that a lane has are those of clifford/block/sm90_common.cuh; operands are those of clifford/block/operands_16bit.cuh.
//
// Arrays of rows come to shared memory as they are, a tile ahead of its use (`Stage`). No read of a row is guarded: rows past the end
// and features past the last are read from the last there is. Gradients of results are zero there, so that nothing is added for them, and
// results are not written.
#pragma once

#include "clifford/block/launch.cuh"
#include "clifford/block/sm90_row_stages.cuh"

template <class A, class T>
struct Block16Bit : BlockRowStages<A, T> {
    using Base = BlockRowStages<A, T>;
    using Operands = Operands16Bit<T>;
    using typename Base::Fragment;
    using typename Base::Parameters;
    using Base::BLADES, Base::GRADES, Base::PATHS, Base::ROW, Base::WIDTH, Base::tables;
    using Base::feature, Base::features, Base::inputs, Base::p;
    /// Bytes of matrices [GRADES, WIDTH rows], and of one grade's.
    static constexpr int GRADE_BYTES = WIDTH * ROW, MATRIX_BYTES = GRADES * GRADE_BYTES;

    GW_DEVICE explicit Block16Bit(const BlockOperands<T>& weights) : Base(weights) {}

    /// Loads the matrices as [right, left, linear by 32 inputs], one after the other by the same instructions: those of a long kernel that lie
    /// far from its beginning are fetched more slowly, and loading has several branches for each matrix.
    template <int TILES>
    GW_DEVICE void load_all_matrices(char* target) const {
#pragma unroll 1
        for (int m = 0; m < 2 + TILES; ++m) {
            const bool first = m >= 2;
            load_matrices(target + m * MATRIX_BYTES, m == 0 ? p.right : m == 1 ? p.left : p.linear, first ? inputs : features,
                          first ? WIDTH * (m - 2) : 0);
        }
    }

    /// Copies rows `first` to `first` + WIDTH of matrices [GRADES, count, features] to [GRADES, tile] in shared memory, with zeros for
    /// what there is not.
    GW_DEVICE void load_matrices(char* target, const void* source, int count, int first) const {
        p.typed([&](auto zero) {
            using P = decltype(zero);
            if (features % 2 == 0 && reinterpret_cast<u64>(source) % (2 * sizeof(P)) == 0) {
                load_matrices_of<true>(target, static_cast<const P*>(source), count, first);
            } else {
                load_matrices_of<false>(target, static_cast<const P*>(source), count, first);
            }
        });
    }

    /// The same of elements of type P, two at a time if `PAIRED`.
    template <bool PAIRED, class P>
    GW_DEVICE void load_matrices_of(char* target, const P* source, int count, int first) const {
        constexpr int PAIRS = WIDTH / 2;
        const int o = threadIdx.x % PAIRS * 2, step = blockDim.x / PAIRS;
#pragma unroll 4
        for (int at = threadIdx.x / PAIRS; at < GRADES * WIDTH; at += step) {
            const int grade = at / WIDTH, row = at % WIDTH, i = first + row;
            const P* const from = source + (grade * count + i) * features + o;
            float values[2];
            if constexpr (PAIRED) {
                load_if<2>(i < count && o < features, from, values);
            } else {
#pragma unroll
                for (int n = 0; n < 2; ++n) values[n] = element_if(i < count && o + n < features, from + n);
            }
            u32* const to = reinterpret_cast<u32*>(target + grade * GRADE_BYTES + Operands::offset(row, o / 8)) + o % 8 / 2;
            *to = Operands::pair(values[0], values[1]);
        }
    }

    /// Calls f(group) for groups of blades whose sums are formed side by side: the scalar and the pseudoscalar, then the blades of each
    /// other grade.
    template <class F>
    GW_DEVICE static void each_group(F f) {
        static_assert(tables.first[1] == 1 && tables.first[GRADES - 1] == BLADES - 1);
        each<GRADES - 1>([&](auto index) { f(Group<decltype(index)::value>{}); });
    }

    template <int G>
    struct Group {
        static constexpr int COUNT = G == 0 ? 2 : tables.first[G + 1] - tables.first[G];
        GW_DEVICE static constexpr int blade(int n) { return G == 0 ? n * (BLADES - 1) : tables.first[G] + n; }
        GW_DEVICE static constexpr int grade(int n) { return G == 0 ? n * (GRADES - 1) : G; }
        /// Matrices of the group's grades.
        static constexpr int MATRICES = G == 0 ? 2 : 1;
    };

    /// sums[blade] += rows[blade]·matrix of the blade's grade, for 16 rows and the warp's 8 columns of the matrix; of the transposed
    /// matrix if `TRANSPOSED`. The sum runs over all columns of a tile of rows. `rows` and `matrix` are where the lane finds its rows of
    /// the first fragments. If `FRESH`, the sums begin here.
    template <bool TRANSPOSED, bool FRESH, class Rows>
    GW_DEVICE static void accumulate(Fragment& sums, u32 rows, u32 matrix) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[Members::MATRICES][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) ::load_matrices<!TRANSPOSED>(b[m], matrix + Members::grade(m) * GRADE_BYTES);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<FRESH>(group, sums, a, b, k);
            }
        });
    }

    /// The same with two matrices, not transposed; the sums begin here.
    template <class Rows>
    GW_DEVICE static void accumulate_two(Fragment& one, Fragment& two, u32 rows, u32 matrix_one, u32 matrix_two) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[2][Members::MATRICES][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) {
                ::load_matrices<true>(b[0][m], matrix_one + Members::grade(m) * GRADE_BYTES);
                ::load_matrices<true>(b[1][m], matrix_two + Members::grade(m) * GRADE_BYTES);
            }
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<true>(group, one, a, b[0], k);
                add_products<true>(group, two, a, b[1], k);
            }
        });
    }

    /// Adds the products of the k-th 16 terms of a group's blades to `sums`; if `FRESH`, the sums begin with the first.
    template <bool FRESH, class Members>
    GW_DEVICE static void add_products(Members, Fragment& sums, const u32 (&a)[Members::COUNT][4], const u32 (&b)[Members::MATRICES][4],
                                       int k) {
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) {
            float(&sum)[4] = sums[Members::blade(n)];
            if (FRESH && k == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[i] = 0;
            }
            const u32(&matrix)[4] = b[n % Members::MATRICES];
            const u32 right[2] = {matrix[2 * k], matrix[2 * k + 1]};
            mma_16(sum, a[n], right, T{});
        }
    }

    /// Fragments of 16 rows and columns of a group's blades.
    template <class Rows, bool TRANSPOSED = false, class Members>
    GW_DEVICE static void load_rows(Members, u32 (&fragments)[Members::COUNT][4], u32 rows) {
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) ::load_matrices<TRANSPOSED>(fragments[n], rows + Members::blade(n) * Rows::BLADE_BYTES);
    }
};
