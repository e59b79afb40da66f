// Equivariant linear maps of many rows of f32, by warp-wide matrix instructions (sm_80 and later), all pairs of planes in one launch. In
// TF32, or with three products for each where results are to be exact.
//
// A launch puts the parameters into the order in which instructions take them. Then features go from memory to registers in packs of 16
// bytes, without shared memory and barriers: which element of a pack an instruction takes as which term or column is free, so that a
// thread's operands are what it loads.
#include "clifford/transformer/equi/equi_tiles_outer.cuh"
#include "clifford/transformer/equi/equi_tiles_product.cuh"

/// Compiled to a trap on targets without the instructions; the launcher checks the architecture of the kernel.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define GW_RUN(STATEMENT) STATEMENT
#else
#define GW_RUN(STATEMENT) __trap()
#endif

/// Blocks on a multiprocessor at least, whose registers limit them; compilers for later targets take a few more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 3;
#else
constexpr int BLOCKS = 4;
#endif

#define GW_KERNELS(NAME, EXACT, PRODUCT_BLOCKS, OUTER_BLOCKS)                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gw_equi_fragments_##NAME##f32(                                                  \
        EquiSizes size, EquiParameters<const float> from, const EquiCells cells, const double* table, i32 transposed,                 \
        float* fragments, float* added) {                                                                                             \
        begin_kernel();                                                                                                               \
        GW_RUN(equi_fragments<EXACT>(size, from, cells, table, transposed != 0, fragments, added));                                   \
    }                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, PRODUCT_BLOCKS) gw_equi_tiles_##NAME##f32(                                  \
        EquiSizes size, EquiParameters<const float> from, i32 transposed, const float* fragments, const float* added,                 \
        EquiSide<const float> features, EquiSide<float> results, u32 rows) {                                                          \
        begin_kernel();                                                                                                               \
        GW_RUN(equi_tiles_product<EXACT>(size, from, transposed != 0, fragments, added, features, results, rows));                    \
    }                                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, OUTER_BLOCKS) gw_equi_tiles_outer_##NAME##f32(                              \
        EquiSizes size, EquiParameters<const float> from, EquiSide<const float> features, EquiSide<const float> grad, float* parts,   \
        float* bias, u32 rows, u32 share) {                                                                                           \
        begin_kernel();                                                                                                               \
        GW_RUN(equi_tiles_outer<EXACT>({size}, from, features, grad, parts, bias, rows, share));                                      \
    }
GW_KERNELS(, false, 5, BLOCKS)
GW_KERNELS(exact_, true, BLOCKS, 2)
