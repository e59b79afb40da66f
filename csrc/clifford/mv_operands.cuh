// Operands of the warp-wide matrix instructions in shared memory, in 16-bit parts that add up to the elements.
//
// An f32 element is the sum of three bf16 parts (24 bits of mantissa, the exponents of f32). Of the nine products of two such elements
// the six largest are computed; the others are below 2⁻²⁴ of the product. 16-bit elements are their own single part. Elements are split
// once, as they are written; fragments are loaded by `ldmatrix`, as they lie or transposed.
//
// A tile is [rows, 32 columns] of one part: rows of 64 bytes, whose four chunks of 16 bytes are permuted (chunk c of row r lies at c
// XOR (r/2)%4), so that any eight adjacent rows have a chunk in 32 different banks.
#pragma once

#include "gradewise/types.cuh"
#include "ptx/mma.cuh"

/// The type of the parts of an element.
template <class T>
struct MvPart {
    using type = T;
};
template <>
struct MvPart<float> {
    using type = bf16;
};

template <class T>
struct MvOperands {
    using Part = typename MvPart<T>::type;
    /// Parts of an element, and bytes of a row of a tile.
    static constexpr int PARTS = sizeof(T) == 4 ? 3 : 1, ROW = 64;

    /// Two numbers rounded to 16 bits, the first in the lower half.
    template <class Part>
    GW_DEVICE static u32 pair(float first, float second) {
        u32 pair;
        if constexpr (IS_BF16<Part>) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        } else {
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        }
        return pair;
    }

    /// Two adjacent elements, part by part.
    GW_DEVICE static void split(float first, float second, u32 (&parts)[PARTS]) {
        if constexpr (PARTS == 1) {
            parts[0] = pair<T>(first, second);
        } else {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                parts[part] = pair<bf16>(first, second);
                first -= __uint_as_float(parts[part] << 16);
                second -= __uint_as_float(parts[part] & 0xffff0000u);
            }
        }
    }

    /// The offset of a chunk of 8 elements in a tile, in bytes.
    GW_DEVICE static u32 offset(int row, int chunk) { return row * ROW + ((chunk ^ (row / 2 % 4)) * 16); }

    /// Where the lane finds its row of a fragment of A (16 rows of the tile, 16 columns from an even chunk on). The next 16 columns are
    /// at the address XOR 32.
    GW_DEVICE static u32 left_offset() {
        const int lane = threadIdx.x % 32;
        return offset(lane % 16, lane / 16);
    }

    /// The same for A transposed: 16 rows of the tile are the terms of the sums, 16 columns from `chunk` on the rows of A.
    GW_DEVICE static u32 left_transposed_offset(int chunk) {
        const int lane = threadIdx.x % 32;
        return offset(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2);
    }

    /// The same for two fragments of B, whose terms are 32 rows of the tile, and whose columns are those of `chunk`; to be loaded transposed.
    GW_DEVICE static u32 right_offset(int chunk) { return offset(threadIdx.x % 32, chunk); }

    /// The same for two fragments of B transposed: its columns are 8 rows of the tile, and the terms of its sums all 32 columns.
    GW_DEVICE static u32 right_transposed_offset(int row) {
        const int lane = threadIdx.x % 32;
        return offset(row + lane % 8, lane / 8);
    }

    /// products[n] += a[n]·b[n] for N independent sums of 16 terms. Of one sum at a time, each instruction would wait for the one before.
    /// Begins with the smallest products: the instructions truncate what they add.
    template <int N>
    GW_DEVICE static void multiply(float (&products)[N][4], const u32 (&a)[N][PARTS][4], const u32 (&b)[N][PARTS][2]) {
        constexpr int LEFT[6] = {0, 2, 1, 0, 1, 0}, RIGHT[6] = {2, 0, 1, 1, 0, 0};
#pragma unroll
        for (int step = PARTS == 1 ? 5 : 0; step < 6; ++step) {
#pragma unroll
            for (int n = 0; n < N; ++n) mma_16(products[n], a[n][LEFT[step]], b[n][RIGHT[step]], Part{});
        }
    }
};
