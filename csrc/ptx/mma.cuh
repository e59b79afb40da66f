// Warp-wide matrix instructions (sm_80 and later): D = A·B + D with A 16×K and B K×8, accumulated in f32.
//
// With g = lane/4 and t = lane%4, a thread holds the elements (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1) of D.
#pragma once

#include "ptx/async.cuh"

/// K = 8 in TF32: A (g, t), (g+8, t), (g, t+4), (g+8, t+4); B (t, g), (t+4, g).
GW_DEVICE void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// K = 16 in bf16; elements in pairs along K.
GW_DEVICE void mma_16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// K = 16 in f16; elements in pairs along K.
GW_DEVICE void mma_16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// K = 8 in f16; elements in pairs along K: A (g, 2t), (g+8, 2t); B (2t, g).
GW_DEVICE void mma_f16_8(float (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/// Conversion to TF32. The instructions truncate the lower 13 bits of the mantissa, which makes every operand smaller by half a
/// unit of the last place on average; a factor of 1 + 0.7213·2⁻¹¹ compensates (0.7213 = 1/(2 ln 2) is the mean of 1/mantissa over
/// numbers of all magnitudes, distributed like 1/x). That is one multiplication instead of four instructions for rounding to
/// nearest, with the same mean error, and NaN stays NaN.
GW_DEVICE u32 to_tf32(float value) { return __float_as_uint(value * 1.00035219f); }

/// The nearest TF32 number.
GW_DEVICE float nearest_tf32(float value) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}

/// Four 8×8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l%8 of matrix l/8.
template <bool TRANSPOSE>
GW_DEVICE void load_matrices(u32 (&r)[4], u32 address) {
    if constexpr (TRANSPOSE) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    }
}

/// Two of them, whose rows threads 0 to 15 give.
template <bool TRANSPOSE>
GW_DEVICE void load_matrices(u32 (&r)[2], u32 address) {
    if constexpr (TRANSPOSE) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
    }
}

template <bool TRANSPOSE>
GW_DEVICE void load_matrices(u32 (&r)[4], const void* row) {
    load_matrices<TRANSPOSE>(r, shared_address(row));
}

/// Stores four 8×8 matrices of 16-bit elements transposed (sm_90): threads 8i to 8i + 7 give the rows of 16 bytes that matrix i is
/// written to, its columns one after the other.
GW_DEVICE void store_transposed(void* row, const u32 (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}
