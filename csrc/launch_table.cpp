// Prints threads of a block and bytes of dynamic shared memory of kernels, a kernel a line: the build makes the table of it that launchers
// look up. Compiled for the machine that builds, from the same headers as the kernels.
#include <cstdio>
#include <initializer_list>

#include "clifford/block/launch.cuh"

template <class Launch>
static void kernel(const char* name, const char* algebra, const char* dtype) {
    std::printf("gw_%s_%s_%s %d %d\n", name, algebra, dtype, Launch::THREADS, Launch::BYTES);
}

template <class A, int TILES>
static void blocks_of_inputs(const char* algebra, const char* inputs) {
    char name[64];
    const auto named = [&](const char* family, const char* pass) {
        std::snprintf(name, sizeof name, "%s_%s_in%s", family, pass, inputs);
        return name;
    };
    for (const char* family : {"block_sm90_f32x3", "block_sm90_f32x3_unaligned"}) {
        kernel<typename BlockF32x3Sizes<A, TILES>::Forward>(named(family, "fwd"), algebra, "f32");
        kernel<typename BlockF32x3Sizes<A, TILES>::Backward>(named(family, "bwd"), algebra, "f32");
    }
    for (const char* dtype : {"bf16", "f16"}) {
        kernel<typename Block16BitSizes<A, TILES>::Forward>(named("block_sm90_16bit", "fwd"), algebra, dtype);
        kernel<typename Block16BitSizes<A, TILES>::Backward>(named("block_sm90_16bit", "bwd"), algebra, dtype);
    }
}

template <class A>
static void blocks(const char* algebra) {
    blocks_of_inputs<A, 1>(algebra, "32");
    blocks_of_inputs<A, 2>(algebra, "64");
    kernel<typename Block64Sizes<A, 2>::Forward>("block_sm90_64_f32x3_fwd", algebra, "f32");
    kernel<typename Block64Sizes<A, 2>::Backward>("block_sm90_64_f32x3_bwd", algebra, "f32");
    kernel<Block64FirstSizes<4, 64>>("block_sm90_64_f32x3_bwd_first_64", algebra, "f32");
    kernel<Block64FirstSizes<4, 80>>("block_sm90_64_f32x3_bwd_first_80", algebra, "f32");
    kernel<Block64InnerSizes<A, 2>>("block_sm90_64_f32x3_bwd_inner", algebra, "f32");
    kernel<Block64InnerSizes<A, 1>>("block_sm90_64_bwd_inner", algebra, "f32");
    for (const char* dtype : {"f32", "bf16", "f16"}) {
        kernel<typename Block64Sizes<A, 1>::Forward>("block_sm90_64_fwd", algebra, dtype);
        kernel<typename Block64Sizes<A, 1>::Backward>("block_sm90_64_bwd", algebra, dtype);
        if (dtype[0] == 'f' && dtype[1] == '3') {
            kernel<Block64FirstSizes<4, 64>>("block_sm90_64_bwd_first_64", algebra, dtype);
            kernel<Block64FirstSizes<4, 80>>("block_sm90_64_bwd_first_80", algebra, dtype);
        } else {
            kernel<Block64FirstSizes<2, 64>>("block_sm90_64_bwd_first_64", algebra, dtype);
            kernel<Block64FirstSizes<2, 80>>("block_sm90_64_bwd_first_80", algebra, dtype);
        }
    }
}

int main() {
    blocks<Algebra<2, 0, 0>>("2_0_0");
    blocks<Algebra<3, 0, 0>>("3_0_0");
}
