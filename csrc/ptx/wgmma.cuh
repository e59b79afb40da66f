// Matrix instructions of a warpgroup, four warps (sm_90a): D = A·B + D with A 64×K and B K×N, accumulated in f32.
//
// With w the warp, g = lane/4 and t = lane%4, a thread holds of D, for each eight columns 8j, the elements (16w + g, 8j + 2t),
// (16w + g, 8j + 2t + 1), (16w + g + 8, 8j + 2t), (16w + g + 8, 8j + 2t + 1). B, and A if it is not in registers, are read from
// shared memory in rows of 128 bytes, swizzled.
#pragma once

#include "ptx/async.cuh"

/// Must precede the first instruction of a group: orders it after all writes to this thread's registers, the compiler's moves
/// included.
GW_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Closes the group of instructions started since the last call.
GW_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all but the last N groups have finished.
template <int N>
GW_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/// The descriptor of a matrix in shared memory: swizzled rows of 128 bytes in groups of eight, which are `groups` bytes apart. If
/// the rows run across k, every 128 bytes of the other axis are a piece of their own, `pieces` bytes apart. Adding n/16 to a
/// descriptor moves it by n bytes.
GW_DEVICE u64 wgmma_matrix(u32 address, u32 groups, u32 pieces) {
    // In a cluster, the upper bits of an address name the block; they must not reach the descriptor.
    const u32 low = (address & 0x3ffff) >> 4 | pieces >> 4 << 16, high = groups >> 4 | 1u << 30;
    return static_cast<u64>(high) << 32 | low;
}

// Register lists of the instructions below.
#define GW_OUT_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GW_OUT_16(d, i) GW_OUT_4(d, i), GW_OUT_4(d, i + 4), GW_OUT_4(d, i + 8), GW_OUT_4(d, i + 12)
#define GW_OUT_32(d, i) GW_OUT_16(d, i), GW_OUT_16(d, i + 16)
#define GW_OUT_48(d, i) GW_OUT_32(d, i), GW_OUT_16(d, i + 32)
#define GW_OUT_64(d, i) GW_OUT_32(d, i), GW_OUT_32(d, i + 32)
#define GW_OUT_96(d, i) GW_OUT_64(d, i), GW_OUT_32(d, i + 64)
#define GW_OUT_128(d, i) GW_OUT_64(d, i), GW_OUT_64(d, i + 64)
#define GW_NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GW_NAMES_48 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define GW_NAMES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GW_NAMES_96 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define GW_NAMES_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/// Instructions with N columns: `registers` takes A from registers, `shared` from shared memory.
template <int N>
struct Wgmma;

#define GW_WGMMA_REGISTERS(NAME, N, COUNT, K, TYPE, TRANSPOSES, A0, A1, A2, A3, B, ADD, TAG)                                          \
    GW_DEVICE static void NAME(float (&d)[COUNT], const u32 (&a)[4], u64 b, i32 add, TAG) {                                     \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                          \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPE "." TYPE " {" GW_NAMES_##COUNT "}, {" A0 ", " A1 \
                     ", " A2 ", " A3 "}, " B ", p, 1, 1" TRANSPOSES ";\n}"                                                      \
                     : GW_OUT_##COUNT(d, 0)                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                           \
    }
#define GW_WGMMA_SHARED(N, COUNT, K, TYPE, TRANSPOSES, A, B, ADD, TAG)                                                           \
    template <bool TRANSPOSE_A, bool TRANSPOSE_B>                                                                               \
    GW_DEVICE static void shared(float (&d)[COUNT], u64 a, u64 b, i32 add, TAG) {                                               \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                          \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPE "." TYPE " {" GW_NAMES_##COUNT "}, " A ", " B   \
                     ", p, 1, 1" TRANSPOSES ";\n}"                                                                              \
                     : GW_OUT_##COUNT(d, 0)                                                                                     \
                     : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSE_A ? 1 : 0), "n"(TRANSPOSE_B ? 1 : 0));                           \
    }
// With 16-bit operands, `registers` takes a B whose rows run across k, `registers_along` one whose rows run along k.
template <>
struct Wgmma<64> {
    GW_WGMMA_REGISTERS(registers, 64, 32, 16, "bf16", ", 1", "%32", "%33", "%34", "%35", "%36", "%37", bf16)
    GW_WGMMA_REGISTERS(registers, 64, 32, 16, "f16", ", 1", "%32", "%33", "%34", "%35", "%36", "%37", f16)
    GW_WGMMA_REGISTERS(registers_along, 64, 32, 16, "bf16", ", 0", "%32", "%33", "%34", "%35", "%36", "%37", bf16)
    GW_WGMMA_REGISTERS(registers_along, 64, 32, 16, "f16", ", 0", "%32", "%33", "%34", "%35", "%36", "%37", f16)
    GW_WGMMA_SHARED(64, 32, 16, "bf16", ", %35, %36", "%32", "%33", "%34", bf16)
    GW_WGMMA_SHARED(64, 32, 16, "f16", ", %35, %36", "%32", "%33", "%34", f16)
};
template <>
struct Wgmma<96> {
    GW_WGMMA_REGISTERS(registers, 96, 48, 8, "tf32", "", "%48", "%49", "%50", "%51", "%52", "%53", float)
};
template <>
struct Wgmma<128> {
    GW_WGMMA_REGISTERS(registers, 128, 64, 16, "bf16", ", 1", "%64", "%65", "%66", "%67", "%68", "%69", bf16)
    GW_WGMMA_REGISTERS(registers, 128, 64, 16, "f16", ", 1", "%64", "%65", "%66", "%67", "%68", "%69", f16)
    GW_WGMMA_REGISTERS(registers, 128, 64, 8, "tf32", "", "%64", "%65", "%66", "%67", "%68", "%69", float)
    GW_WGMMA_SHARED(128, 64, 8, "tf32", "", "%64", "%65", "%66", float)
    GW_WGMMA_SHARED(128, 64, 16, "bf16", ", %67, %68", "%64", "%65", "%66", bf16)
    GW_WGMMA_SHARED(128, 64, 16, "f16", ", %67, %68", "%64", "%65", "%66", f16)
};
template <>
struct Wgmma<192> {
    GW_WGMMA_REGISTERS(registers, 192, 96, 8, "tf32", "", "%96", "%97", "%98", "%99", "%100", "%101", float)
    GW_WGMMA_SHARED(192, 96, 8, "tf32", "", "%96", "%97", "%98", float)
    GW_WGMMA_SHARED(192, 96, 16, "bf16", ", %99, %100", "%96", "%97", "%98", bf16)
    GW_WGMMA_SHARED(192, 96, 16, "f16", ", %99, %100", "%96", "%97", "%98", f16)
};
template <>
struct Wgmma<256> {
    GW_WGMMA_REGISTERS(registers, 256, 128, 8, "tf32", "", "%128", "%129", "%130", "%131", "%132", "%133", float)
    GW_WGMMA_SHARED(256, 128, 8, "tf32", "", "%128", "%129", "%130", float)
    GW_WGMMA_SHARED(256, 128, 16, "bf16", ", %131, %132", "%128", "%129", "%130", bf16)
    GW_WGMMA_SHARED(256, 128, 16, "f16", ", %131, %132", "%128", "%129", "%130", f16)
};

/// Moves registers between warpgroups: the producer gives up what the consumers then ask for. All warps of a warpgroup must call
/// it. Asking for more than the block has waits forever.
template <int COUNT>
GW_DEVICE void registers_at_least() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
GW_DEVICE void registers_at_most() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
