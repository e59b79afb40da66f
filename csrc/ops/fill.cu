// Fills an array with one value, given by its bits: exact in every dtype, and stored 16 bytes at a time.
#include "gradewise/types.cuh"

namespace {

/// `bits` is the value repeated to 64 bits; `out` is aligned to its size.
template <class Word>
GW_DEVICE void fill(Word* out, i64 elements, u64 bits) {
    constexpr i64 PER_STORE = 16 / sizeof(Word);
    const i64 gap = static_cast<i64>((0 - reinterpret_cast<u64>(out)) % 16 / sizeof(Word));
    const i64 head = gap < elements ? gap : elements;
    const i64 stores = (elements - head) / PER_STORE;
    ulonglong2* aligned = reinterpret_cast<ulonglong2*>(out + head);
    for (i64 store = thread_index(); store < stores; store += thread_count()) aligned[store] = make_ulonglong2(bits, bits);
    // The elements before and after the aligned 16-byte stores.
    const i64 rest = elements - stores * PER_STORE;
    for (i64 i = thread_index(); i < rest; i += thread_count()) {
        out[i < head ? i : i + stores * PER_STORE] = static_cast<Word>(bits);
    }
}

}  // namespace

#define GW_FILL(Word, NAME)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gw_fill_##NAME(Word* out, i64 elements, u64 bits) {    \
        begin_kernel();                                                                                      \
        fill(out, elements, bits);                                                                           \
    }
GW_FILL(u16, w2)
GW_FILL(u32, w4)
GW_FILL(u64, w8)
