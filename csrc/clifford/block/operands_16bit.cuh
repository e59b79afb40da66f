// 16-bit operands of the warp-wide matrix instructions in shared memory, loaded by `ldmatrix`, as they lie or transposed.
//
// A tile is [rows, 32 columns]: rows of 64 bytes, whose four chunks of 16 bytes are permuted (chunk c of row r lies at c XOR (r/2)%4), so
// that any eight adjacent rows have a chunk in 32 different banks.
#pragma once

#include "gradewise/types.cuh"
#include "ptx/mma.cuh"

template <class T>
struct Operands16Bit {
    static_assert(sizeof(T) == 2);
    /// Bytes of a row of a tile.
    static constexpr int ROW = 64;

    /// Two numbers rounded to 16 bits, the first in the lower half.
    GW_DEVICE static u32 pair(float first, float second) {
        u32 pair;
        if constexpr (IS_BF16<T>) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        } else {
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        }
        return pair;
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
    GW_DEVICE static u32 left_transposed_offset(int lane, int chunk) {
        return offset(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2);
    }

    /// The same for two fragments of B, whose terms are 32 rows of the tile, and whose columns are those of `chunk`; to be loaded transposed.
    GW_DEVICE static u32 right_offset(int lane, int chunk) { return offset(lane, chunk); }

    /// The same for two fragments of B transposed: its columns are 8 rows of the tile, and the terms of its sums all 32 columns.
    GW_DEVICE static u32 right_transposed_offset(int row) {
        const int lane = threadIdx.x % 32;
        return offset(row + lane % 8, lane / 8);
    }
};
