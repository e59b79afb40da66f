// One value everywhere. The host gives the bits of the value, so that every dtype is exact; 16 bytes per store.

namespace {

template <typename Word>
__device__ void fill(Word* out, long long elements, unsigned long long bits) {
    constexpr int kPerStore = 16 / sizeof(Word);
    const long long thread = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    const long long threads = gridDim.x * static_cast<long long>(blockDim.x);
    const Word word = static_cast<Word>(bits);
    // Storage is aligned to far more than 16 bytes, but a view into it need not be.
    const long long head = min(elements, static_cast<long long>((0 - reinterpret_cast<unsigned long long>(out)) % 16 / sizeof(Word)));
    const long long stores = (elements - head) / kPerStore;
    unsigned long long twin = word;
    for (int width = 8 * sizeof(Word); width < 64; width *= 2) twin |= twin << width;
    const ulonglong2 pair = make_ulonglong2(twin, twin);
    for (long long store = thread; store < stores; store += threads) {
        reinterpret_cast<ulonglong2*>(out + head)[store] = pair;
    }
    for (long long element = thread; element < head; element += threads) out[element] = word;
    for (long long element = head + stores * kPerStore + thread; element < elements; element += threads) {
        out[element] = word;
    }
}

}  // namespace

#define GW_FILL(dtype, Word)                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                 \
        gw_fill_##dtype(Word* out, long long elements, unsigned long long bits) {                     \
        fill(out, elements, bits);                                                                    \
    }
GW_FILL(f32, unsigned int)
GW_FILL(f64, unsigned long long)
GW_FILL(bf16, unsigned short)
GW_FILL(f16, unsigned short)
