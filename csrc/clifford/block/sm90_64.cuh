// Blocks of equivariant networks (clifford/block/definition.cuh) with 33 to 64 features, whose three matrices do not fit
// into the shared memory of a multiprocessor together. The linear map that stands alone, y = linear(x), is a product of matrices for other
// kernels. The rest is one kernel for each pass, with the matrices `right` and `left` in shared memory, and two for gradients of linear maps:
//
//   forward   y, residual             ->  out           (y is kept, and the parameters as they are in shared memory)
//   backward  y, grad                 ->  the gradient of y; h and the gradients of r and l, as the operands that they were in products
//   sums      x and the gradient of y ->  the gradients of x and of the first matrix, see clifford/block/sm90_64_first_gradients.cuh
//             those operands          ->  the gradients of the others, see clifford/block/sm90_64_inner_gradients.cuh
//
// with h = silu(y), r = right(h), l = left(h) and s, the argument of the layer norm, which both passes compute.
//
// The positions that a lane has are those of clifford/block/sm90_common.cuh, with one group of eight warps, 16 rows at a time. Operands and their
// products are those of clifford/block/sm90_64_products.cuh.
#pragma once

#include "clifford/block/sm90_64_products.cuh"
#include "ptx/store.cuh"

/// `PACKED` says that features are a multiple of four, and all arrays of them aligned to four: branches at every access would keep loads from
/// being in flight together.
template <class A, class T, int PRODUCTS, bool PACKED>
struct Block64 : Block64Products<A, T, PRODUCTS> {
    using Products = Block64Products<A, T, PRODUCTS>;
    using typename Products::Element;
    using typename Products::Fragment;
    using typename Products::Functions;
    using typename Products::Normalizer;
    using typename Products::Parameters;
    using typename Products::Product;
    using Products::opaque;
    using Products::BLADES, Products::GRADES, Products::PATHS, Products::PLANE, Products::ROWS, Products::WIDTH;
    using Products::feature, Products::features, Products::line, Products::p;
    /// The lane's values of its two rows.
    using Rows = float[2][BLADES][2];

    /// What the forward pass leaves to the backward pass of the parameters, as both have it in shared memory, in bytes: the matrices, and the
    /// values of single features with the inverses of the matrices' scales.
    struct Prepared {
        static constexpr int MATRICES = Products::Sizes::PREPARED_MATRICES, VALUES = Products::Sizes::PREPARED_VALUES;
        static_assert(VALUES == (Parameters::COUNT + 4) * sizeof(float));
    };

    GW_DEVICE explicit Block64(const BlockOperands<T>& weights) : Products(weights) {}

    /// The lane's values of row g + 8·half of [BLADES, rows, features], `first` the group's first row; zeros where there are none.
    GW_DEVICE void read(const T* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const i64 row = opaque(first) + line + 8 * half, plane = opaque(p.rows) * features;
        const T* at = source + row * features + feature;
        const bool inside = row < p.rows && feature < features;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            values[blade][0] = values[blade][1] = 0;
            if constexpr (PACKED) {
                if (inside) load<2>(at, values[blade]);
            } else {
                if (inside) values[blade][0] = widen(at[0]);
                if (inside && feature + 1 < features) values[blade][1] = widen(at[1]);
            }
        }
    }
    GW_DEVICE void read(const T* source, i64 first, Rows& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) read(source, first, half, values[half]);
    }

    /// Writes the lane's values of the same row.
    GW_DEVICE void write(T* target, i64 first, int half, const float (&values)[BLADES][2]) const {
        const i64 row = opaque(first) + line + 8 * half, plane = opaque(p.rows) * features;
        if (row >= p.rows || feature >= features) return;
        T* at = target + row * features + feature;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            if constexpr (PACKED && sizeof(T) == 4) {
                store_words(at, {__float_as_uint(values[blade][0]), __float_as_uint(values[blade][1])});
            } else if constexpr (PACKED) {
                store<2>(at, values[blade]);
            } else {
                at[0] = narrow<T>(values[blade][0]);
                if (feature + 1 < features) at[1] = narrow<T>(values[blade][1]);
            }
        }
    }
    GW_DEVICE void write(T* target, i64 first, const Rows& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) write(target, first, half, values[half]);
    }

    /// h = silu(y) in the place of y, in `rows` in parts, and in `raws` as it is. `bounds` are the largest magnitudes of y, which are bounds of
    /// those of h; the result is the inverse of the scale.
    GW_DEVICE float gate(const Parameters& parameters, Rows& y, const float* bounds, char* rows, char* raws) const {
        const auto scale = this->scale_of_tile(bounds);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                Element element;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = y[half][blade][side];
                this->apply_silu(parameters, feature + side, element);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) y[half][blade][side] = element.at[blade][0];
            }
            this->store_raw(raws, half, y[half]);
            this->store_operands(rows, half, scale.factor, y[half]);
        }
        return scale.inverse;
    }

    /// s = (l + bias + product of h and the normalised r)/√2, in the place of l. h is read from `raws`, where the lane put its part of it.
    GW_DEVICE void multiply_rows(const Parameters& parameters, const char* raws, const Fragment& r, Fragment& s) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const auto* const from = reinterpret_cast<const float*>(raws + this->word_offset(half, side));
                multiply_position(parameters, side, from, r, s, 2 * half + side);
            }
        }
    }

    /// The same at one position, that with the number `at` of `r` and `s`, with h from `from`.
    GW_DEVICE void multiply_position(const Parameters& parameters, int side, const float* from, const Fragment& r, Fragment& s, int at) const {
        Normalizer normalizer[GRADES];
        typename Product::Weights weights;
        this->normalizer_of(parameters, feature + side, normalizer);
        this->product_of(parameters, feature + side, weights);
        Element h, factor, result;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            h.at[blade][0] = from[blade * (PLANE / static_cast<int>(sizeof(float)))];
            factor.at[blade][0] = r[blade][at];
        }
        typename Normalizer::At norms[GRADES];
        Functions::factors(normalizer, factor, norms);
        Functions::apply(norms, factor, factor);
        Product::multiply(h, factor, weights, result);
        result.at[0][0] += parameters.left_bias(feature + side);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) s[blade][at] = Products::SQRT_HALF * (s[blade][at] + result.at[blade][0]);
    }

    /// Prefetches 16 rows of [BLADES, rows, features], `first` on into the second-level cache, where their planes can be copied as they are:
    /// the lanes of a warp take a plane each, those of the group's warp `number`. While a group works on a tile, memory fetches the next one.
    GW_DEVICE void prefetch(const T* source, i64 first, int number) const {
        const int thread = opaque(threadIdx.x), lane = thread % 32;
        const i64 left = p.rows - first, count = left < ROWS ? left : ROWS;
        if (thread / 32 != number || lane >= BLADES || count <= 0 || source == nullptr) return;
        const T* const from = source + (lane * p.rows + first) * features;
        const u32 bytes = static_cast<u32>(count * features * sizeof(T)) / 16 * 16;
        if (reinterpret_cast<u64>(from) % 16 == 0 && bytes > 0) bulk_prefetch(from, bytes);
    }
};
