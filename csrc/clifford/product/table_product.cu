// Bilinear products of blades by a table of terms, for any algebra.
//
// out[r] = scale·(base[r] + Σ_groups w[path]·Σ ±a_i·b_k), position by position. The gradients of a product are products of the same
// kind with the roles of the blades permuted, so two kernels suffice. Algebras with compiled kernels have faster ones; these serve
// all others, up to eight generators.
#include "gradewise/chunk.cuh"
#include "gradewise/debug.cuh"

/// Terms of one result that share a weight: positive ones in [start, split), negative ones in [split, end).
struct Group {
    u32 result_path;  // result in the low half, path in the high half
    u32 start, split, end;
};

/// The blades of one term: a in the low half, b in the high half.
using Pair = u32;

/// Σ ±a_i·b_k of one group at one position.
template <class T>
GW_DEVICE Compute<T> group_value(const Group& group, const Pair* pairs, const T* a, const T* b, i64 plane) {
    Compute<T> sum = 0;
    for (u32 term = group.start; term < group.split; ++term) {
        const Pair pair = pairs[term];
        sum += widen(a[(pair & 0xffff) * plane]) * widen(b[(pair >> 16) * plane]);
    }
    for (u32 term = group.split; term < group.end; ++term) {
        const Pair pair = pairs[term];
        sum -= widen(a[(pair & 0xffff) * plane]) * widen(b[(pair >> 16) * plane]);
    }
    return sum;
}

/// One thread per position, blockIdx.y the result. `plane` positions per blade, `features` of them per row; w is
/// [features, paths] or null, base has the shape of out or is null.
template <class T>
GW_DEVICE void product(const Group* groups, const u32* spans, const Pair* pairs, const T* a, const T* b, const T* w,
                       const T* base, T* out, i64 plane, i64 features, i64 paths, double scale) {
    const u32 result = blockIdx.y;
    const u32 first = spans[2 * result], last = spans[2 * result + 1];
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const T* weights = w == nullptr ? nullptr : w + position % features * paths;
        Compute<T> sum = base == nullptr ? Compute<T>(0) : widen(base[result * plane + position]);
        for (u32 index = first; index < last; ++index) {
            const Group group = groups[index];
            const Compute<T> value = group_value(group, pairs, a + position, b + position, plane);
            sum += weights == nullptr ? value : value * widen(weights[GW_INDEX(group.result_path >> 16, paths)]);
        }
        out[result * plane + position] = narrow<T>(sum * Compute<T>(scale));
    }
}

/// Partial gradients of the weights: partial[chunk, feature, path] = scale·Σ_rows Σ_groups grad[result]·Σ ±a_i·b_k over the
/// rows of a chunk. One thread per feature, blockIdx.y the path, blockIdx.z the chunk.
template <class T>
GW_DEVICE void product_weights(const Group* groups, const u32* spans, const Pair* pairs, const T* a, const T* b,
                               const T* grad, Compute<T>* partial, const Chunk& chunk, double scale) {
    const i64 plane = chunk.rows * chunk.features;
    const u32 path = blockIdx.y;
    const u32 first = spans[2 * path], last = spans[2 * path + 1];
    chunk.each_feature([&](i64 feature) {
        Compute<T> total = 0;
        chunk.each_row(feature, [&](i64, i64 position) {
            for (u32 index = first; index < last; ++index) {
                const Group group = groups[index];
                const Compute<T> value = group_value(group, pairs, a + position, b + position, plane);
                total += value * widen(grad[(group.result_path & 0xffff) * plane + position]);
            }
        });
        partial[chunk.place(feature) * gridDim.y + path] = total * Compute<T>(scale);
    });
}

#define GW_KERNELS(T, NAME)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_table_product_##NAME(                                    \
        const Group* groups, const u32* spans, const Pair* pairs, const T* a, const T* b, const T* w, const T* base, \
        T* out, i64 plane, i64 features, i64 paths, double scale) {                                                  \
        begin_kernel();                                                                                              \
        product<T>(groups, spans, pairs, a, b, w, base, out, plane, features, paths, scale);                         \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_table_product_weights_##NAME(                            \
        const Group* groups, const u32* spans, const Pair* pairs, const T* a, const T* b, const T* grad,             \
        Compute<T>* partial, i64 rows, i64 features, i64 chunk, double scale) {                                      \
        begin_kernel();                                                                                              \
        product_weights<T>(groups, spans, pairs, a, b, grad, partial, {rows, features, chunk}, scale);               \
    }
GW_FOR_DTYPES(GW_KERNELS)
