// Convolutions of fields by the instructions of sm_90a, see fields/hopper.cuh: gw_field_hopper[_exact]_<forward|gradient>[_<columns>]_
// <dtype>, in f32 by TF32 or, exact, in three parts.
#include "fields/hopper.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_FIELD_HOPPER(NAME, ...)                                                               \
    extern "C" __global__ void __launch_bounds__(hopper_tile::THREADS, 1)                         \
        gw_field_hopper_##NAME(const __grid_constant__ FieldTiles problem) {                     \
        begin_kernel();                                                                          \
        GW_RUN(__VA_ARGS__);                                                                     \
    }

template <class T>
using Along = Hopper<T, 256, false, false, true, 1, 4, 1, FieldTiles>;
template <class T>
using Across = Hopper<T, 256, true, true, false, 1, 4, 1, FieldTiles>;
using Turned = Hopper<float, 128, true, false, false, 1, 5, 1, FieldTiles>;
using Exact = HopperExact<false, true, hopper_tile::EXACT_STAGES, FieldTiles>;
using ExactTurned = HopperExact<true, false, 4, FieldTiles>;
GW_FIELD_HOPPER(forward_f32, FieldForward<Along<float>>)
GW_FIELD_HOPPER(forward_bf16, FieldForward<Along<bf16>>)
GW_FIELD_HOPPER(forward_f16, FieldForward<Along<f16>>)
GW_FIELD_HOPPER(gradient_f32, FieldGradient<Turned, true>)
GW_FIELD_HOPPER(gradient_bf16, FieldGradient<Across<bf16>>)
GW_FIELD_HOPPER(gradient_f16, FieldGradient<Across<f16>>)
GW_FIELD_HOPPER(exact_forward_f32, FieldForward<Exact>)
GW_FIELD_HOPPER(exact_gradient_f32, FieldGradient<ExactTurned, true>)

// Tiles with as many columns for the target's channels.
template <class T>
using Along192 = Hopper<T, 192, false, false, false, 1, 3, 1, FieldTiles, 2>;
template <class T>
using Across192 = Hopper<T, 192, true, true, false, 1, 3, 1, FieldTiles, 2>;
using Turned192 = Hopper<float, 192, true, false, false, 1, 4, 1, FieldTiles>;
using Turned96 = Hopper<float, 96, true, false, false, 1, 4, 1, FieldTiles, 2>;
using Exact96 = HopperExact<false, false, 4, FieldTiles, 96>;
using ExactTurned96 = HopperExact<true, false, 4, FieldTiles, 96>;
GW_FIELD_HOPPER(forward_192_f32, FieldForward<Along192<float>, true>)
GW_FIELD_HOPPER(forward_192_bf16, FieldForward<Along192<bf16>, true>)
GW_FIELD_HOPPER(forward_192_f16, FieldForward<Along192<f16>, true>)
GW_FIELD_HOPPER(gradient_192_f32, FieldGradient<Turned192, true>)
GW_FIELD_HOPPER(gradient_96_f32, FieldGradient<Turned96, true>)
GW_FIELD_HOPPER(gradient_192_bf16, FieldGradient<Across192<bf16>, true>)
GW_FIELD_HOPPER(gradient_192_f16, FieldGradient<Across192<f16>, true>)
GW_FIELD_HOPPER(exact_forward_96_f32, FieldForward<Exact96, true>)
GW_FIELD_HOPPER(exact_gradient_96_f32, FieldGradient<ExactTurned96, true>)

static_assert(sizeof(TileProblem) == 704 && sizeof(FieldTiles) == 832, "as the launcher lays it out");
