// The weighted product with gates and norm of algebras of 32 blades, row by row, with four lanes per feature.
//
// It computes the same as clifford/product/persistent.cuh, where a thread has too few registers for 32 blades, their gradients, 56 weights and
// the sums of their gradients: here a lane has a quarter of each (clifford/product/four_lanes_multivectors.cuh).
//
// blockDim is (four threads for each feature of a row, a multiple of 32; rows worked on at a time), at most THREADS threads in all.
// blockIdx.x selects the first row, blockIdx.y the slice of blockDim.x/4 features; the slices of a row form a cluster.
// Features·sizeof(T) must be a multiple of 16, addresses aligned to 16, and rows fewer than 2³⁰. Dynamic shared memory: the stages.
// Names: gw_sgp_four_lanes_<fwd|bwd>_<algebra>_<dtype>.
#pragma once

#include "clifford/pointwise/norms.cuh"
#include "clifford/product/four_lanes_multivectors.cuh"
#include "clifford/product/four_lanes_stages.cuh"
#include "clifford/product/warp_sums.cuh"

template <class A, class T, int THREADS>
struct FourLanesProduct {
    template <int IN, int OUT>
    using Rows = FourLanesStages<A, T, THREADS, IN, OUT>;
    using Lanes = FourLanesMultivectors<A, T, Rows<2, 1>::PITCH>;
    using C = typename Lanes::C;
    using Product = typename Lanes::Product;
    using Element = typename Lanes::Element;
    using Lane = typename Lanes::Lane;
    using SharedHalf = typename Lanes::SharedHalf;
    using Operands = typename Lanes::Operands;
    using Gate = typename Lanes::Gate;
    template <int K>
    using Pair = typename Lanes::template Pair<K>;
    static constexpr int BLADES = Lanes::BLADES, GRADES = Lanes::GRADES, PAIRS = Lanes::PAIRS;
    /// Elements of an array of a stage.
    static constexpr int ARRAY = Rows<2, 1>::ARRAY;
    using Sums = WarpSums<GRADES, 8>;
    /// Sums of a row: those of each grade, of lanes 2s + t.
    static constexpr int SUMS = 4 * Sums::P;
    static_assert(SUMS == 16 && Sums::EACH == 2);

    /// Scratch for the warps' sums of two consecutive steps.
    using Scratch = C[2][THREADS / 32][SUMS];

    /// First half of the sums over a row: each warp writes its sums in the scratch. All lanes call it.
    GW_DEVICE static void publish_sums(const C (&values)[GRADES], C (&scratch)[THREADS / 32][SUMS]) {
        const C sum = Sums::whole(Sums::parts(values));
        const int lane = threadIdx.x % 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
        if (lane % 2 == 0) scratch[warp][lane / 2] = sum;
    }

    /// Second half, after `synchronize`: lanes l and l + 16 receive sum l: of lane l/4 and grade l%4.
    GW_DEVICE static C row_sum(C (&scratch)[THREADS / 32][SUMS], bool clustered) {
        const i32 warps = blockDim.x / 32;
        const C* const first = &scratch[threadIdx.y * warps + threadIdx.x / 16 % 2][threadIdx.x % 16];
        C total = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (clustered) {
#pragma unroll 1
            for (u32 rank = 0; rank < gridDim.y; ++rank) {
#pragma unroll 1
                for (i32 i = threadIdx.x / 16 % 2; i < warps; i += 2) total += cluster_read(first + i / 2 * 2 * SUMS, rank);
            }
        } else
#endif
        if (warps == THREADS / 32) {
            C values[THREADS / 64];
#pragma unroll
            for (int i = 0; i < THREADS / 64; ++i) values[i] = first[2 * i * SUMS];
#pragma unroll
            for (int i = 0; i < THREADS / 64; ++i) total += values[i];
        } else {
#pragma unroll 1
            for (i32 i = threadIdx.x / 16 % 2; i < warps; i += 2) total += first[i / 2 * 2 * SUMS];
        }
        return total + __shfl_xor_sync(0xffffffffu, total, 16);
    }

    GW_DEVICE static void synchronize(bool clustered) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (clustered) {
            cluster_sync();
            return;
        }
#endif
        __syncthreads();
    }

    /// Where a lane finds its feature in the first place of a stage that holds the row. Lanes without a row or features compute on valid
    /// data; their results are discarded.
    template <class R>
    GW_DEVICE static i32 place_of(const R& in, Lane lane, i32 row) {
        const i32 y = row < in.rows ? threadIdx.y : 0;
        return lane.feature() < in.across ? y * in.across + lane.feature() : 0;
    }

    /// out = norm(gate(x)·gate(y)), and `inverse_rms` [grades, rows].
    GW_DEVICE static void forward(T* buffer, const T* x, const T* y, const T* w, T* out, C* inverse_rms, i64 rows, i64 features,
                                  i32 stages) {
        __shared__ Scratch scratch;
        const bool clustered = gridDim.y > 1;
        __shared__ typename Rows<2, 1>::Pieces pieces;
        Rows<2, 1> in{{x, y}, {out}, buffer, pieces, static_cast<i32>(rows), static_cast<i32>(features), stages};
        const Lane lane;
        typename Product::Weights weights;
        in.open(w, [&](const T* slice) {
            Lanes::read_weights(slice + (lane.feature() < in.across ? lane.feature() : 0) * A::PATHS, lane, weights);
        });

        const u32 parity = lane.parity(), sign = parity << 31;
        const bool upper = lane.s;
        const bool active = lane.feature() < in.across;
        const C share = C(1) / C(features);

        int slot = 0;
        i32 base = in.begin();
        Operands operands(in.present_stage() + place_of(in, lane, base + threadIdx.y), lane);
#pragma unroll 1
        for (; base < in.rows; base += in.step()) {
            const i32 row = base + threadIdx.y;
            const bool busy = active && row < in.rows;
            T* const from = in.present_stage() + place_of(in, lane, row);
            Element &a = operands.a, &b = operands.b, product;
            const Gate gate(operands.scalar);
            Lanes::change_signs(a, lane.s << 31);
            Lanes::change_signs(b, lane.t << 31);
            Product::multiply(a, b, weights, product);
            SharedHalf result;
            Lanes::add_lanes(product, upper, 24, result);
            C squares[GRADES] = {};
            each<PAIRS>([&](auto pair) {
                constexpr int K = decltype(pair)::value, first = Pair<K>::FIRST_GRADE, second = Pair<K>::SECOND_GRADE;
                result.at[K] *= gate.both;
                const C square = result.at[K] * result.at[K];
                if constexpr (first == second) {
                    squares[first] += square;
                } else {
                    squares[first] += upper ? C(0) : square;
                    squares[second] += upper ? square : C(0);
                }
            });
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) squares[grade] = busy ? squares[grade] : C(0);
            publish_sums(squares, scratch[slot]);
            in.wait_next_stage();
            synchronize(clustered);
            C total = row_sum(scratch[slot], clustered);
            // The halves of a result are with lanes (s, t) and (1 - s, 1 - t): 24 lanes apart, 12 sums.
            total += __shfl_xor_sync(0xffffffffu, total, 3 * Sums::P);
            const C scale = inverse_root(total * share + C(RMS_EPSILON));
            if (row < in.rows && blockIdx.y == 0 && threadIdx.x < 2 * Sums::P && threadIdx.x % Sums::P < GRADES) {
                const i32 half = 2 * (threadIdx.x % Sums::P), grade = threadIdx.x < Sums::P ? half : A::GENERATORS - half;
                inverse_rms[grade * rows + row] = scale;
            }
            C factor[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                factor[grade] = __shfl_sync(0xffffffffu, scale, parity * Sums::P + grade);
            }
            each<PAIRS>([&](auto pair) {
                constexpr int K = decltype(pair)::value, first = Pair<K>::FIRST_GRADE, second = Pair<K>::SECOND_GRADE;
                result.at[K] *= first == second ? factor[first] : upper ? factor[second] : factor[first];
            });
            Lanes::change_signs(result, upper, sign);
            if (busy) Lanes::write(from, result, parity, upper);
            in.advance(base);
            operands = Operands(in.present_stage() + place_of(in, lane, row + in.step()), lane);
            slot ^= 1;
        }
        in.close(base);
        // A block must not exit while others of its cluster may still read its sums.
        if (clustered) synchronize(true);
    }

    /// Writes gradients of x and y (each may be null) and, if `partial` is not null, partial gradients [gridDim.x, ...] of w
    /// [features, paths], rounded up to 4 elements, and of a bias [features] of y's scalar part.
    ///
    /// With r = 1/rms and o the product, the gradient of the norm's input is r·(g - o·r²·Σ o·g/N).
    GW_DEVICE static void backward(T* buffer, const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y,
                                   C* partial, i64 rows, i64 features, i32 stages) {
        __shared__ Scratch scratch;
        const bool clustered = gridDim.y > 1;
        __shared__ typename Rows<3, 2>::Pieces pieces;
        Rows<3, 2> in{{x, y, grad}, {grad_x, grad_y}, buffer, pieces, static_cast<i32>(rows), static_cast<i32>(features), stages};
        const Lane lane;
        typename Product::Weights weights;
        in.open(w, [&](const T* slice) {
            Lanes::read_weights(slice + (lane.feature() < in.across ? lane.feature() : 0) * A::PATHS, lane, weights);
        });

        const u32 parity = lane.parity(), sign = parity << 31;
        const bool active = lane.feature() < in.across;
        const C share = C(1) / C(features);
        typename Product::Weights sums = {};
        C bias = 0;

        int slot = 0;
        i32 base = in.begin();
        Operands operands(in.present_stage() + place_of(in, lane, base + threadIdx.y), lane);
#pragma unroll 1
        for (; base < in.rows; base += in.step()) {
            const i32 row = base + threadIdx.y;
            const bool busy = active && row < in.rows;
            T* const from = in.present_stage() + place_of(in, lane, row);
            Element &a = operands.a, &b = operands.b, g, output;
            const Gate gate(operands.scalar);
            Lanes::change_signs(a, lane.s << 31);
            Lanes::change_signs(b, lane.t << 31);
            Product::multiply(a, b, weights, output);
            Lanes::read(from + 2 * ARRAY, parity, g);
            // Sums of squares and of products with the gradient. `against` has those whose sign depends on the half.
            C squares[GRADES] = {}, along[GRADES] = {}, against[GRADES] = {};
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Lanes::tables.grade[N];
                constexpr bool negative = Lanes::tables.dual_sign[N] < 0;
                C& o = output.at[N][0];
                o = (o + __shfl_xor_sync(0xffffffffu, o, 24)) * gate.both;
                squares[grade] += o * o;
                (negative ? against[grade] : along[grade]) += o * g.at[N][0];
            });
            C values[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                along[grade] += Lanes::flip(against[grade], sign);
                // Lanes (s, t) and (1 - s, 1 - t) have the same sums; each gives one kind.
                values[grade] = busy ? (lane.s ? along[grade] : squares[grade]) : C(0);
            }
            publish_sums(values, scratch[slot]);
            in.wait_next_stage();
            synchronize(clustered);
            const C total = row_sum(scratch[slot], clustered);
            const C other = __shfl_xor_sync(0xffffffffu, total, 3 * Sums::P);
            const C scale = inverse_root(total * share + C(RMS_EPSILON));
            const C projection = other * share * scale * scale;
            C factor[GRADES], signed_factor[GRADES], part[GRADES], dot = 0;
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                const int from_lane = parity * Sums::P + grade;
                const C common = __shfl_sync(0xffffffffu, scale, from_lane);
                part[grade] = __shfl_sync(0xffffffffu, projection, from_lane);
                factor[grade] = busy ? common : C(0);
                // Σ x·(gradient of gate(x)), which is the same for both operands and for the product's gradient.
                dot += factor[grade] * (along[grade] - part[grade] * squares[grade]);
                factor[grade] *= gate.both;
                part[grade] *= factor[grade];
                signed_factor[grade] = Lanes::flip(factor[grade], sign);
            }
            dot += __shfl_xor_sync(0xffffffffu, dot, 8);
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Lanes::tables.grade[N];
                constexpr bool negative = Lanes::tables.dual_sign[N] < 0;
                g.at[N][0] = (negative ? signed_factor[grade] : factor[grade]) * g.at[N][0] - part[grade] * output.at[N][0];
            });
            Element da, db;
            Product::differentiate(a, b, g, weights, da, db, sums);
            SharedHalf grad_a, grad_b;
            Lanes::add_lanes(da, lane.t, 8, grad_a);
            Lanes::add_lanes(db, lane.s, 16, grad_b);
            const C slope_y = __shfl_xor_sync(0xffffffffu, gate.slope, 8);
            // Only the first lane's pair holds the scalar part.
            grad_a.at[0] += lane.index() == 0 ? gate.slope * dot : C(0);
            grad_b.at[0] += lane.index() == 0 ? slope_y * dot : C(0);
            bias += grad_b.at[0];
            Lanes::change_signs(grad_a, lane.t, lane.s << 31);
            Lanes::change_signs(grad_b, lane.s, lane.t << 31);
            if (busy) {
                Lanes::write(from, grad_a, lane.s, lane.t);
                Lanes::write(from + ARRAY, grad_b, lane.t, lane.s);
            }
            // The operands of the next step before results are sent, so that both wait at the same time. (Forward it is slower.)
            operands = Operands(in.next_stage() + place_of(in, lane, row + in.step()), lane);
            in.advance(base);
            slot ^= 1;
        }
        in.close(base);
        if (clustered) synchronize(true);
        if (partial == nullptr) return;
        const i64 weight_count = (features * A::PATHS + 3) / 4 * 4;
        partial += blockIdx.x * (weight_count + features);
        write_parameter_gradients(sums, bias, lane, active, in.across, reinterpret_cast<C*>(buffer), partial + in.first * A::PATHS,
              partial + weight_count + in.first);
    }

    /// Adds the sums of the rows that the block works on at a time, in order, through `space`, and writes them to `to_weights`
    /// [across, paths] and `to_biases` [across]. All threads call it.
    GW_DEVICE static void write_parameter_gradients(const typename Product::Weights& sums, C bias, Lane lane, bool active, i32 across, C* space,
                                C* to_weights, C* to_biases) {
        C* const biases = space + across * A::PATHS;
#pragma unroll 1
        for (i32 y = 0; y < blockDim.y; ++y) {
            if (threadIdx.y == y && active) {
                Lanes::each_sum(sums, lane, [&](int path, C sum) {
                    C& place = space[lane.feature() * A::PATHS + path];
                    place = y == 0 ? sum : place + sum;
                });
                if (lane.index() == 0) biases[lane.feature()] = y == 0 ? bias : biases[lane.feature()] + bias;
            }
            __syncthreads();
        }
        const i32 thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
        for (i32 i = thread; i < across * A::PATHS; i += threads) to_weights[i] = space[i];
        for (i32 i = thread; i < across; i += threads) to_biases[i] = biases[i];
    }
};

#define GW_SGP_FOUR_LANES_FORWARD(P, Q, R, T, NAME, THREADS)                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_sgp_four_lanes_fwd_##P##_##Q##_##R##_##NAME(                   \
        const T* x, const T* y, const T* w, T* out, Compute<T>* inverse_rms, i64 rows, i64 features, i32 stages) {             \
        begin_kernel();                                                                                                        \
        extern __shared__ uint4 shared[];                                                                                      \
        FourLanesProduct<Algebra<P, Q, R>, T, THREADS>::forward(reinterpret_cast<T*>(shared), x, y, w, out, inverse_rms, rows, \
                                                        features, stages);                                                     \
    }

#define GW_SGP_FOUR_LANES_BACKWARD(P, Q, R, T, NAME, THREADS)                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_sgp_four_lanes_bwd_##P##_##Q##_##R##_##NAME(                  \
        const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y, Compute<T>* partial, i64 rows,               \
        i64 features, i32 stages) {                                                                                           \
        begin_kernel();                                                                                                       \
        extern __shared__ uint4 shared[];                                                                                     \
        FourLanesProduct<Algebra<P, Q, R>, T, THREADS>::backward(reinterpret_cast<T*>(shared), x, y, w, grad, grad_x, grad_y, \
                                                         partial, rows, features, stages);                                    \
    }

#define GW_SGP_FOUR_LANES_TYPE(P, Q, R, T, NAME, THREADS) \
    GW_SGP_FOUR_LANES_FORWARD(P, Q, R, T, NAME, THREADS)  \
    GW_SGP_FOUR_LANES_BACKWARD(P, Q, R, T, NAME, THREADS)

/// All kernels of an algebra of 32 blades.
#define GW_SGP_FOUR_LANES(P, Q, R)                                           \
    GW_SGP_FOUR_LANES_TYPE(P, Q, R, float, f32, product_four_lanes::THREADS) \
    GW_SGP_FOUR_LANES_TYPE(P, Q, R, bf16, bf16, product_four_lanes::THREADS) \
    GW_SGP_FOUR_LANES_TYPE(P, Q, R, f16, f16, product_four_lanes::THREADS)
