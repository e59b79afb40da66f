// Convolutions of fields by the instructions of sm_90a, see fields/hopper.cuh: gw_field_hopper[_exact]_<forward|gradient>_<dtype>, in f32
// by TF32 or, exact, in three parts.
#include "fields/hopper.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_FIELD_HOPPER(NAME, ...)                                                               \
    extern "C" __global__ void __launch_bounds__(384, 1)                                         \
        gw_field_hopper_##NAME(const __grid_constant__ FieldTiles problem) {                     \
        begin_kernel();                                                                          \
        GW_RUN(__VA_ARGS__);                                                                     \
    }

template <class T>
using Along = Hopper<T, 256, false, false, true, 1, 4, 1, FieldTiles>;
template <class T>
using Across = Hopper<T, 256, true, true, false, 1, 4, 1, FieldTiles>;
using Turned = Hopper<float, 128, true, false, false, 1, 5, 1, FieldTiles>;
GW_FIELD_HOPPER(forward_f32, FieldForward<Along<float>>)
GW_FIELD_HOPPER(forward_bf16, FieldForward<Along<bf16>>)
GW_FIELD_HOPPER(forward_f16, FieldForward<Along<f16>>)
GW_FIELD_HOPPER(gradient_f32, FieldGradient<Turned>)
GW_FIELD_HOPPER(gradient_bf16, FieldGradient<Across<bf16>>)
GW_FIELD_HOPPER(gradient_f16, FieldGradient<Across<f16>>)
GW_FIELD_HOPPER(exact_forward_f32, FieldForward<HopperExact<false, true, 4, FieldTiles>>)
GW_FIELD_HOPPER(exact_gradient_f32, FieldGradient<HopperExact<true, false, 4, FieldTiles>>)

static_assert(Along<float>::SHARED_BYTES == 4 * (128 + 256) * 128 + (32 << 10) + 1024, "as launched");
static_assert(Turned::SHARED_BYTES == 5 * (128 + 128) * 128 + (32 << 10) + 1024, "as launched");
static_assert(sizeof(TileProblem) == 704 && sizeof(FieldTiles) == 832, "as the launcher lays it out");
