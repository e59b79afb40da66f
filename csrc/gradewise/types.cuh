// Element types: storage types and the types of arithmetic on them.
//
// Includes nothing from outside csrc, so that the same text compiles with nvcc and at run time with NVRTC.
#pragma once

#include "gradewise/integers.cuh"
#include "ptx/grid.cuh"

/// IEEE 754 binary16, storage only.
struct f16 {
    u16 bits;
};

/// The upper half of a binary32, storage only.
struct bf16 {
    u16 bits;
};

/// The type of arithmetic on elements of type T.
template <class T>
struct ComputeOf {
    using type = float;
};
template <>
struct ComputeOf<double> {
    using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

GW_DEVICE float widen(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
GW_DEVICE float widen(bf16 value) { return __uint_as_float(static_cast<u32>(value.bits) << 16); }
GW_DEVICE float widen(float value) { return value; }
GW_DEVICE double widen(double value) { return value; }

template <class T>
struct Narrow;
template <>
struct Narrow<float> {
    GW_DEVICE static float from(float value) { return value; }
    GW_DEVICE static float from(double value) { return static_cast<float>(value); }
};
template <>
struct Narrow<double> {
    GW_DEVICE static double from(double value) { return value; }
};
template <>
struct Narrow<f16> {
    GW_DEVICE static f16 from(float value) {
        f16 result;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
        return result;
    }
    // Rounded twice, by way of f32; the error stays far below that of the format.
    GW_DEVICE static f16 from(double value) { return from(static_cast<float>(value)); }
};
template <>
struct Narrow<bf16> {
    GW_DEVICE static bf16 from(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        bf16 result;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
        return result;
#else
        // To nearest, ties to even; NaN stays NaN.
        u32 bits = __float_as_uint(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fff};
        bits += 0x7fffu + ((bits >> 16) & 1u);
        return bf16{static_cast<u16>(bits >> 16)};
#endif
    }
    GW_DEVICE static bf16 from(double value) { return from(static_cast<float>(value)); }
};

/// Rounds a computed value to the storage type T.
template <class T, class C>
GW_DEVICE T narrow(C value) {
    return Narrow<T>::from(value);
}

/// N adjacent elements, loaded and stored as one access where N·sizeof(T) is a power of two of at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

/// Whether T is bf16.
template <class T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<bf16> = true;

/// N adjacent elements, widened.
template <int N, class T>
GW_DEVICE void load(const T* source, Compute<T> (&values)[N]) {
    if constexpr (IS_BF16<T> && N % 2 == 0) {
        // One instruction per element; widening a half would first take the register apart.
        const Pack<u32, N / 2> pack = *reinterpret_cast<const Pack<u32, N / 2>*>(source);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const u32 word = pack.at[i / 2];
            values[i] = __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
        }
    } else {
        const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(source);
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = widen(pack.at[i]);
    }
}

/// The same if `there`, zeros otherwise. Zeros are widened, too: of a condition around both the load and what widens its result, the compiler
/// makes a branch, and such loads wait for each other.
template <int N, class T>
GW_DEVICE void load_if(bool there, const T* source, Compute<T> (&values)[N]) {
    Pack<T, N> pack{};
    if constexpr (sizeof(pack) % 4 == 0) {
        Pack<u32, sizeof(pack) / 4> words{};
        if (there) words = *reinterpret_cast<const Pack<u32, sizeof(pack) / 4>*>(source);
        pack = reinterpret_cast<const Pack<T, N>&>(words);
    } else {
        if (there) pack = *reinterpret_cast<const Pack<T, N>*>(source);
    }
    load<N>(&pack.at[0], values);
}

/// One element, widened, if `there`, zero otherwise.
template <class T>
GW_DEVICE Compute<T> element_if(bool there, const T* element) {
    Compute<T> value[1];
    load_if<1>(there, element, value);
    return value[0];
}

/// N adjacent elements, rounded and stored.
template <int N, class T>
GW_DEVICE void store(T* target, const Compute<T> (&values)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(values[i]);
    *reinterpret_cast<Pack<T, N>*>(target) = pack;
}

/// This thread's position in a one-dimensional grid, and the grid's size.
GW_DEVICE i64 thread_index() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
GW_DEVICE i64 thread_count() { return static_cast<i64>(gridDim.x) * blockDim.x; }

/// Calls M(type, name) for each element type.
#define GW_FOR_DTYPES(M) \
    M(float, f32)        \
    M(double, f64)       \
    M(bf16, bf16)        \
    M(f16, f16)
