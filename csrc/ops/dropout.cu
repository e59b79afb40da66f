// Dropout masks: four elements for each counter of the generator. `out` is aligned to four elements.
#include "gradewise/philox.cuh"

namespace {

/// 0 where the random bits are below the threshold, `kept` elsewhere.
template <class T>
GW_DEVICE void mask(T* out, i64 elements, u64 seed, u64 stream, i64 threshold, double kept) {
    const T zero = narrow<T>(Compute<T>(0)), value = narrow<T>(static_cast<Compute<T>>(kept));
    for (i64 counter = thread_index(); counter * 4 < elements; counter += thread_count()) {
        u32 words[4];
        philox(static_cast<u64>(counter), stream, seed, words);
        Pack<T, 4> pack;
#pragma unroll
        for (int k = 0; k < 4; ++k) pack.at[k] = words[k] < threshold ? zero : value;
        if (counter * 4 + 4 <= elements) {
            *reinterpret_cast<Pack<T, 4>*>(out + counter * 4) = pack;
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (counter * 4 + k < elements) out[counter * 4 + k] = pack.at[k];
            }
        }
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gw_dropout_mask_##NAME(                                \
        T* out, i64 elements, u64 seed, u64 stream, i64 threshold, double kept) {                            \
        begin_kernel();                                                                                      \
        mask(out, elements, seed, stream, threshold, kept);                                                  \
    }
GW_FOR_DTYPES(GW_KERNELS)
