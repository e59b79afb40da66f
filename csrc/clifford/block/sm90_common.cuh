// Blocks of equivariant networks on many rows: what the kernels of f32 (clifford/block/sm90_f32x3.cuh) and of 16 bits (clifford/block/sm90_16bit.cuh)
// share in both passes, and those of more than 32 features (clifford/block/sm90_64.cuh). They differ in how operands reach the matrix
// instructions, and agree on which positions a lane has and on all functions of single positions.
//
// A block of threads has groups of warps: two or three groups of four, or with more than 32 features one of eight. A group works on 16
// rows, and each of its warps on 8 of the features. With g = lane/4 and t = lane%4, a lane holds all blades of the positions (row g, feature 2t), (g, 2t+1), (g+8, 2t),
// (g+8, 2t+1): the layout of the results of matrix instructions. Operations on single positions (gates, norms, the product)
// therefore need no exchange; operands of linear maps go through shared memory. In loops, `half` is the row's half of the 16, `side` the
// feature of the two, and 2·half + side the position.
#pragma once

#include "clifford/block/element.cuh"
#include "clifford/block/definition.cuh"

/// The body of a kernel that is compiled for compute capability 9.0 alone.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
#define GW_RUN_ON_SM90(...) __VA_ARGS__
#else
#define GW_RUN_ON_SM90(...) __trap()
#endif

/// Whether COUNT adjacent features of each of these arrays can be accessed as one.
template <int COUNT, class T, int N>
GW_DEVICE bool are_aligned(i64 features, const T* const (&arrays)[N]) {
    u64 bits = features % COUNT * sizeof(T);
#pragma unroll
    for (int n = 0; n < N; ++n) bits |= reinterpret_cast<u64>(arrays[n]);
    return bits % (COUNT * sizeof(T)) == 0;
}

/// Of at most `MOST` features, a multiple of 32.
template <class A, class T, int MOST = 32>
struct BlockSm90 {
    using Functions = BlockElement<A>;
    using Product = typename Functions::Product;
    using Element = typename Functions::Element;
    using SiluGate = typename Functions::SiluGate;
    using Normalizer = typename Functions::Normalizer;
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    static constexpr float SQRT_HALF = Functions::SQRT_HALF;
    /// Rows of a group, and features of a block rounded up: the columns of a tile.
    static constexpr int ROWS = 16, WIDTH = MOST;
    /// Warps of a group.
    static constexpr int COLUMNS = WIDTH / 8;
    /// Values of every blade at the lane's four positions.
    using Fragment = float[BLADES][4];

    const BlockOperands<T>& p;
    int inputs, features;
    int group, column;   // The warp's group, and the 8 features it works on.
    int line, pair;      // lane/4 and lane%4.
    int feature;         // The first of the lane's two.
    float share;         // 1/features

    GW_DEVICE explicit BlockSm90(const BlockOperands<T>& weights) : p(weights) {
        inputs = static_cast<int>(p.inputs);
        features = static_cast<int>(p.features);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        group = warp / COLUMNS;
        column = warp % COLUMNS;
        line = lane / 4;
        pair = lane % 4;
        feature = column * 8 + 2 * pair;
        share = 1.0f / static_cast<float>(features);
    }

    /// A barrier of the group's warps.
    GW_DEVICE void group_barrier() const { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(32 * COLUMNS) : "memory"); }

    /// Parameters of features in shared memory, [values, WIDTH], with zeros past the last feature. Of the normalisation's parameter a,
    /// the kernels of 16 bits and of more than 32 features keep σ(a) and σ(-a), which the others compute at every use.
    struct Parameters {
        static constexpr bool HAS_SIGMOIDS = sizeof(T) == 2 || WIDTH > 32;
        /// Values per feature and grade, and in all.
        static constexpr int BY_GRADE = HAS_SIGMOIDS ? 4 : 3, COUNT = (PATHS + BY_GRADE * GRADES + 3) * WIDTH;
        float* first;

        GW_DEVICE float product(int path, int feature) const { return first[path * WIDTH + feature]; }
        GW_DEVICE float slope(int grade, int feature) const { return first[(PATHS + grade) * WIDTH + feature]; }
        GW_DEVICE float shift(int grade, int feature) const { return first[(PATHS + GRADES + grade) * WIDTH + feature]; }
        GW_DEVICE Normalizer normalizer(int grade, int feature) const {
            const float mix = first[(PATHS + 2 * GRADES + grade) * WIDTH + feature];
            if constexpr (HAS_SIGMOIDS) {
                Normalizer normalizer;
                normalizer.share = mix;
                normalizer.rest = first[(PATHS + 3 * GRADES + grade) * WIDTH + feature];
                return normalizer;
            } else {
                return Normalizer(mix);
            }
        }
        GW_DEVICE float bias(int feature) const { return first[(PATHS + BY_GRADE * GRADES) * WIDTH + feature]; }
        GW_DEVICE float left_bias(int feature) const { return first[(PATHS + BY_GRADE * GRADES + 1) * WIDTH + feature]; }
        GW_DEVICE float gain(int feature) const { return first[(PATHS + BY_GRADE * GRADES + 2) * WIDTH + feature]; }
    };

    /// Loads the parameters; all threads of the block call it, and a barrier must follow before they are read.
    GW_DEVICE Parameters load_parameters(float* target) const {
        p.typed([&](auto zero) { load_parameters_of<decltype(zero)>(target); });
        return {target};
    }

    /// The same of parameters of type P.
    template <class P>
    GW_DEVICE void load_parameters_of(float* target) const {
#pragma unroll 4
        for (int at = threadIdx.x; at < Parameters::COUNT; at += blockDim.x) {
            const int feature = at % WIDTH, value = at / WIDTH, by_grade = value - PATHS;
            const int kind = by_grade / GRADES, single = by_grade - Parameters::BY_GRADE * GRADES;
            const void* source;
            int index;
            if (by_grade < 0) {
                source = p.product;
                index = feature * PATHS + value;
            } else if (single < 0) {
                source = kind == 0 ? p.slope : kind == 1 ? p.shift : p.normalization;
                index = feature * GRADES + by_grade % GRADES;
            } else {
                source = single == 0 ? p.bias : single == 1 ? p.left_bias : p.gain;
                index = feature;
            }
            float loaded = element_if(feature < features, static_cast<const P*>(source) + index);
            if (Parameters::HAS_SIGMOIDS && single < 0 && kind >= 2) loaded = Quick::sigmoid(kind == 2 ? loaded : -loaded);
            target[at] = loaded;
        }
    }

    /// The thread's number, hidden from the compiler, so that values computed from it do not stay in registers from one tile to the next.
    GW_DEVICE static int opaque_thread() {
        int thread;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        return thread;
    }

    GW_DEVICE void silu_of(const Parameters& parameters, int feature, SiluGate (&silu)[GRADES]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            silu[grade].slope = parameters.slope(grade, feature);
            silu[grade].shift = parameters.shift(grade, feature);
        }
    }

    GW_DEVICE void normalizer_of(const Parameters& parameters, int feature, Normalizer (&normalizer)[GRADES]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) normalizer[grade] = parameters.normalizer(grade, feature);
    }

    GW_DEVICE void product_of(const Parameters& parameters, int feature, typename Product::Weights& weights) const {
#pragma unroll
        for (int path = 0; path < PATHS; ++path) weights.at[path][0] = parameters.product(path, feature);
    }

    /// Whether two adjacent elements of a row of `width`, the first with an even index, can be accessed as one.
    GW_DEVICE static bool is_paired(const T* array, int width) {
        return width % 2 == 0 && reinterpret_cast<u64>(array) % (2 * sizeof(T)) == 0;
    }

    /// The sum of N values over the features of each row: `values[n][half]` is the lane's part for row g + 8·half. Exchanged through
    /// `shared`, [N, ROWS, COLUMNS] of the group.
    template <int N>
    GW_DEVICE void sum_features(float (&values)[N][2], float* shared) const {
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float& value = values[n][half];
                value += __shfl_xor_sync(0xffffffffu, value, 1);
                value += __shfl_xor_sync(0xffffffffu, value, 2);
                if (pair == 0) shared[(n * ROWS + line + 8 * half) * COLUMNS + column] = value;
            }
        }
        group_barrier();
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                values[n][half] = 0;
#pragma unroll
                for (int first = 0; first < COLUMNS; first += 4) {
                    float parts[4];
                    load<4>(shared + (n * ROWS + line + 8 * half) * COLUMNS + first, parts);
                    const float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
                    values[n][half] = first == 0 ? sum : values[n][half] + sum;
                }
            }
        }
    }

    /// y becomes h = silu(y), at one position.
    GW_DEVICE void apply_silu(const Parameters& parameters, int feature, Element& y) const {
        SiluGate silu[GRADES];
        silu_of(parameters, feature, silu);
        typename SiluGate::At gates[GRADES];
        Functions::factors(silu, y, gates);
        Functions::apply(gates, y, y);
    }

    /// y becomes h = silu(y).
    GW_DEVICE void apply_silu(const Parameters& parameters, Fragment& y) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = 2 * half + side;
                Element element;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = y[blade][at];
                apply_silu(parameters, feature + side, element);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) y[blade][at] = element.at[blade][0];
            }
        }
    }

    /// s = (l + bias + product of h and the normalised r)/√2, in the place of l.
    GW_DEVICE void apply_product(const Parameters& parameters, const Fragment& h, const Fragment& r, Fragment& s) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            Normalizer normalizer[GRADES];
            typename Product::Weights weights;
            normalizer_of(parameters, feature + side, normalizer);
            product_of(parameters, feature + side, weights);
            const float bias = parameters.left_bias(feature + side);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = 2 * half + side;
                Element one, factor, result;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    one.at[blade][0] = h[blade][at];
                    factor.at[blade][0] = r[blade][at];
                }
                typename Normalizer::At norms[GRADES];
                Functions::factors(normalizer, factor, norms);
                Functions::apply(norms, factor, factor);
                Product::multiply(one, factor, weights, result);
                result.at[0][0] += bias;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    s[blade][at] = SQRT_HALF * (s[blade][at] + result.at[blade][0]);
                }
            }
        }
    }

    /// The sum over features of the norms of s, for the lane's two rows; see `sum_features` for `shared`.
    GW_DEVICE void sum_norms(const Fragment& s, float (&norms)[1][2], float* shared) const {
        norms[0][0] = norms[0][1] = 0;
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            Element element;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = s[blade][at];
            if (feature + at % 2 < features) norms[0][at / 2] += smooth_norm<Quick>(Functions::total(element));
        }
        sum_features<1>(norms, shared);
    }

    /// The lane's values of row g + 8·half.
    GW_DEVICE static void values_of_row(const Fragment& values, int half, float (&row)[BLADES][2]) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            row[blade][0] = values[blade][2 * half];
            row[blade][1] = values[blade][2 * half + 1];
        }
    }
};
