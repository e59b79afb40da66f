// f32 operands of the warp-wide matrix instructions in shared memory, each as the sum of two f16 numbers, high + low, times a power of two.
//
// Two f16 numbers have 22 bits together. The power of two is common to 16 rows of 8 columns (or to a matrix) and scales their largest
// value near the largest f16. A value 2⁻¹⁷ as large still has all 22 bits, and what is lost of smaller ones is 2⁻⁴⁰ of the largest. Products
// are formed in three parts, high·high + high·low + low·high, which have the accuracy of f32: low·low is below 2⁻²² of the product.
//
// A tile is [rows, 32 columns]. A row has 128 bytes: four chunks of 8 high parts, then four of low parts. Chunk c of row r lies at
// c XOR r%8, so that any eight adjacent rows have a chunk in 32 different banks.
#pragma once

#include "gradewise/types.cuh"
#include "ptx/mma.cuh"

struct OperandsTwoF16 {
    /// Bytes of a row of a tile, and what distinguishes the address of a low part from that of the high one.
    static constexpr int ROW = 128, LOW = 64;

    /// A power of two, and its inverse.
    struct Scale {
        float factor, inverse;
    };

    /// Scales `largest`, the largest magnitude of some values, to at least 2¹⁴ and below 2¹⁵. Values below 2⁻¹¹² keep the factor of that.
    /// An infinite one makes all of them NaN: beside it, nothing would be left of the others.
    GW_DEVICE static Scale scale_of(float largest) {
        const u32 exponent = max(__float_as_uint(largest) >> 23, 15u), factor = exponent == 255 ? 0x7fffffffu : (268 - exponent) << 23;
        return {__uint_as_float(factor), __uint_as_float((exponent - 14) << 23)};
    }

    /// The larger magnitude.
    GW_DEVICE static float larger(float largest, float value) { return fmaxf(largest, fabsf(value)); }

    /// The largest of a warp's magnitudes.
    GW_DEVICE static float largest_of_warp(float largest) {
        // Magnitudes are in the order of their bits. As an instruction, because the function does not exist below compute capability 8.0.
        u32 bits;
        asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(bits) : "r"(__float_as_uint(largest)));
        return __uint_as_float(bits);
    }

    /// The scale of values of which each of WARPS warps, all of the block, has a part, and this thread the `largest` magnitude of its own. Has
    /// barriers; what was read of `shared`, a value of each warp, may be read before.
    template <int WARPS>
    GW_DEVICE static Scale scale_of_block(float largest, float* shared) {
        largest = largest_of_warp(largest);
        __syncthreads();
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
        __syncthreads();
        largest = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) largest = fmaxf(largest, shared[warp]);
        return scale_of(largest);
    }

    /// Two numbers rounded to f16, the first in the lower half.
    GW_DEVICE static u32 round(float first, float second) {
        u32 pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        return pair;
    }

    /// The parts of two scaled numbers, the first in the lower half.
    GW_DEVICE static void split(float first, float second, u32& high, u32& low) {
        float rest[2];
        asm("{\n"
            ".reg .b16 one, two;\n"
            "cvt.rn.f16x2.f32 %0, %4, %3;\n"
            "mov.b32 {one, two}, %0;\n"
            "cvt.f32.f16 %1, one;\n"
            "cvt.f32.f16 %2, two;\n"
            "}"
            : "=&r"(high), "=&f"(rest[0]), "=&f"(rest[1])
            : "f"(first), "f"(second));
        low = round(first - rest[0], second - rest[1]);
    }

    /// Writes the parts of two scaled numbers: high ones to `high`, low ones `low` bytes behind it.
    GW_DEVICE static void store(char* high, int low, float first, float second) {
        u32 parts[2];
        split(first, second, parts[0], parts[1]);
        *reinterpret_cast<u32*>(high) = parts[0];
        *reinterpret_cast<u32*>(high + low) = parts[1];
    }

    /// The offset of a chunk in a tile, in bytes.
    GW_DEVICE static u32 offset(int row, int chunk) { return row * ROW + ((chunk ^ (row % 8)) * 16); }

    /// From the address of high parts in a row of a tile to that of the low ones.
    GW_DEVICE static int to_low(int row) { return row & 4 ? -LOW : LOW; }

    // Where a lane finds its row of fragments; `load_matrices` gives high parts first, then low ones.

    /// 16 rows of A and the 8 columns of chunk 0; those of chunk c are at the address XOR 16·c.
    GW_DEVICE static u32 left_offset(int lane) { return offset(lane % 16, lane / 16 * 4); }

    /// 16 columns of A transposed, from `chunk` on, over 16 rows of the tile: high parts; low ones at the address XOR `LOW`.
    GW_DEVICE static u32 left_transposed_offset(int lane, int chunk) { return offset(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2); }

    /// 16 rows of B and the columns of `chunk`, to be loaded transposed.
    GW_DEVICE static u32 right_offset(int lane, int chunk) { return offset(lane % 16, chunk + lane / 16 * 4); }

    /// Of two tiles that are `apart` bytes from each other: 8 rows of B and the columns of `chunk`, to be loaded transposed. The next 8 rows
    /// are 8·ROW further.
    GW_DEVICE static u32 two_right_offset(int lane, int chunk, int apart) {
        return offset(lane % 8, chunk + lane / 8 % 2 * 4) + lane / 16 * apart;
    }

    /// The same of B transposed, whose columns are 8 rows of the tile from `row` on, and whose rows are chunk 0; those of chunk c are at
    /// the address XOR 16·c.
    GW_DEVICE static u32 two_right_transposed_offset(int lane, int row, int apart) {
        return offset(row + lane % 8, lane / 8 % 2 * 4) + lane / 16 * apart;
    }
};
