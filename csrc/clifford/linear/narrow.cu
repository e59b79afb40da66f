// The grade-wise linear map between few features on both sides, see narrow.cuh.
//
// Names: gw_mv_linear_narrow_<short|long>_<C>_f32 for up to C results to a row, and gw_mv_linear_narrow_grad_f32.
#include "clifford/linear/narrow.cuh"

#define GW_PRODUCT(LENGTH, SHORT, C, BLOCKS)                                            \
    extern "C" __global__ void __launch_bounds__(narrow_map::PRODUCT_THREADS, BLOCKS)      \
        gw_mv_linear_narrow_##LENGTH##_##C##_f32(GW_PARAMETER NarrowMap map) {          \
        begin_kernel();                                                                 \
        NarrowProduct<SHORT, C>::run(map);                                              \
    }
// As many blocks as there are registers for.
GW_PRODUCT(short, true, 8, 6)
GW_PRODUCT(short, true, 12, 4)
GW_PRODUCT(short, true, 16, 4)
GW_PRODUCT(short, true, 24, 4)
GW_PRODUCT(short, true, 32, 3)
GW_PRODUCT(long, false, 8, 6)
GW_PRODUCT(long, false, 12, 6)
GW_PRODUCT(long, false, 16, 5)
GW_PRODUCT(long, false, 24, 5)
GW_PRODUCT(long, false, 32, 3)

extern "C" __global__ void __launch_bounds__(narrow_map::SUM_THREADS, 3)
    gw_mv_linear_narrow_grad_f32(GW_PARAMETER NarrowGradients map) {
    begin_kernel();
    NarrowSums::run(map);
}
