// The kernels of a search for neighbours (graph/neighbours.cuh). Each does nothing where no search is due. For few atoms they run in the
// order few, count, rows, fill, group; for others measure, begin, members, bins, put, count, rows, fill, group.
//
// With bounds of one block, since the compiler would otherwise spill registers to fit more blocks.
#include "graph/neighbours.cuh"

using namespace neighbours;

extern "C" __global__ void __launch_bounds__(ALONE)
    gw_neighbours_begin(const double* measures, i64 blocks, GW_PARAMETER Box box, GW_PARAMETER Scratch own, i64 atoms, double due,
                        i32 always) {
    begin_kernel();
    Measures measured;
    if (threadIdx.x < blocks) {
        for (int k = 0; k < MEASURES; ++k) measured.of[k] = measures[MEASURES * threadIdx.x + k];
    }
    begin(of_block(measured), box, own, atoms, due, always != 0);
}

extern "C" __global__ void __launch_bounds__(ALONE) gw_neighbours_bins(GW_PARAMETER Scratch own) {
    begin_kernel();
    if (own.state->searches_now) begin_bins(own);
}

extern "C" __global__ void __launch_bounds__(ALONE) gw_neighbours_rows(GW_PARAMETER Scratch own, i64 atoms, i64 room) {
    begin_kernel();
    if (own.state->searches_now) begin_rows(own, atoms, room);
}

#define GW_KERNELS(T, NAME)                                                                                                     \
    /* For few atoms, one block does what the five kernels up to `put` do. */                                                   \
    extern "C" __global__ void __launch_bounds__(ALONE)                                                                         \
        gw_neighbours_few_##NAME(const T* x, const T* searched, GW_PARAMETER Box box, GW_PARAMETER Scratch own, i64 atoms,      \
                                 double due, i32 always) {                                                                      \
        begin_kernel();                                                                                                         \
        begin(of_block(measured(x, searched, box, atoms)), box, own, atoms, due, always != 0);                                  \
        if (!own.state->searches_now) return;                                                                                   \
        __syncthreads();                                                                                                        \
        count_members(x, box, own, atoms);                                                                                      \
        __syncthreads();                                                                                                        \
        begin_bins(own);                                                                                                        \
        __syncthreads();                                                                                                        \
        put(x, box, own, atoms);                                                                                                \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_measure_##NAME(const T* x, const T* searched, GW_PARAMETER Box box, double* measures, i64 atoms) {        \
        begin_kernel();                                                                                                         \
        const Measures all = of_block(measured(x, searched, box, atoms));                                                       \
        if (threadIdx.x == 0) {                                                                                                 \
            for (int k = 0; k < MEASURES; ++k) measures[MEASURES * blockIdx.x + k] = all.of[k];                                 \
        }                                                                                                                       \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_members_##NAME(const T* x, GW_PARAMETER Box box, GW_PARAMETER Scratch own, i64 atoms) {                   \
        begin_kernel();                                                                                                         \
        if (own.state->searches_now) count_members(x, box, own, atoms);                                                         \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_put_##NAME(const T* x, GW_PARAMETER Box box, GW_PARAMETER Scratch own, i64 atoms) {                       \
        begin_kernel();                                                                                                         \
        if (own.state->searches_now) put(x, box, own, atoms);                                                                   \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_count_##NAME(const T* x, GW_PARAMETER Box box, GW_PARAMETER Scratch own, i64 atoms) {                     \
        begin_kernel();                                                                                                         \
        if (own.state->searches_now) count_pairs(x, box, own, atoms);                                                           \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_fill_##NAME(const T* x, GW_PARAMETER Box box, GW_PARAMETER Scratch own, GW_PARAMETER List<T> list,        \
                                  i64 atoms) {                                                                                  \
        begin_kernel();                                                                                                         \
        if (own.state->searches_now) fill(x, box, own, list, atoms);                                                            \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                      \
        gw_neighbours_group_##NAME(const T* x, GW_PARAMETER Scratch own, GW_PARAMETER List<T> list, i64 atoms) {                \
        begin_kernel();                                                                                                         \
        if (own.state->searches_now) group_by_sender(x, own, list, atoms);                                                      \
    }
GW_KERNELS(float, f32)
GW_KERNELS(double, f64)
