// The weighted product with gates and norm, row by row: each row is read once and written once, forward and backward.
//
// A block owns whole rows, or, with its cluster, a slice of each, so that the sums of the norm stay within the block or cluster.
// Rows stream through shared memory ahead of their use, as contiguous pieces of each blade. A thread works on V adjacent features,
// whose blades and weights it holds in registers.
//
// blockDim is (threads along a row, a multiple of 32; rows worked on at a time), at most THREADS threads in all. blockIdx.x selects
// the first row, blockIdx.y the slice of blockDim.x·V features; the slices of a row form a cluster. Features·sizeof(T) must be a
// multiple of 16 and addresses aligned to 16. Dynamic shared memory: the stages; for the gradients of algebras of more than 16
// blades, 2·PATHS·V values per thread; for a transposed gradient, the rows of a group. Names:
// gw_sgp_persistent_<fwd|bwd>_<algebra>_<dtype>, and for f32 of up to 16 blades gw_sgp_persistent_bwd_transposed_<algebra>_f32.
#pragma once

#include "clifford/pointwise/norms.cuh"
#include "clifford/product/product_launch.cuh"
#include "clifford/product/row_streams.cuh"
#include "clifford/product/row_weights.cuh"
#include "clifford/product/warp_sums.cuh"

template <class A, class T, int V, int THREADS>
struct PersistentProduct {
    using C = Compute<T>;
    using Product = Multivectors<A, C, V>;
    using Element = typename Product::Element;
    using Gates = typename Product::Gates;
    using Slopes = typename Product::Slopes;
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS, GRADES = A::GRADES;
    using Streams = RowStreams<A, T, V, THREADS>;
    template <int IN, int OUT>
    using Stream = typename Streams::template Stream<IN, OUT>;
    using TransposedStream = typename Streams::TransposedStream;
    static constexpr int STAGES = Streams::STAGES;

    /// Scratch for the warps' sums of two consecutive steps.
    template <int K>
    using Scratch = C[2][THREADS / 32][WarpSums<K>::P];

    /// First half of a sum over the threads of a row: each warp leaves its sums in the scratch. All lanes call it.
    template <int K, int P = WarpSums<K>::P>
    GW_DEVICE static void publish_sums(const C (&values)[K], C (&scratch)[THREADS / 32][P]) {
        const C sum = WarpSums<K>::whole(WarpSums<K>::parts(values));
        const int lane = threadIdx.x % 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
        if (lane % (32 / P) == 0) scratch[warp][lane / (32 / P)] = sum;
    }

    /// Second half, after `synchronize`: lane l receives the sum of value l, for l < P.
    template <int P>
    GW_DEVICE static C row_sum(C (&scratch)[THREADS / 32][P], bool clustered) {
        const int lane = threadIdx.x % P, warps = blockDim.x / 32, first = threadIdx.y * warps;
        C total = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (clustered) {
            for (u32 rank = 0; rank < gridDim.y; ++rank) total += sum_of(warps, [&](int warp) {
                return cluster_read(&scratch[first + warp][lane], rank);
            });
            return total;
        }
#endif
        return sum_of(warps, [&](int warp) { return scratch[first + warp][lane]; });
    }

    /// The sum of the first `count` values. All loads are in flight at once.
    template <class F>
    GW_DEVICE static C sum_of(int count, F value) {
        constexpr int MOST = THREADS / 32;
        C values[MOST], total = 0;
#pragma unroll
        for (int i = 0; i < MOST; ++i) values[i] = i < count ? value(i) : C(0);
#pragma unroll
        for (int i = 0; i < MOST; ++i) total += values[i];
        return total;
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

    using Rows = RowWeights<C, T, PATHS, V>;

    /// Loads the weights of this thread's features from those of the slice; a thread without features loads the first.
    template <class W>
    GW_DEVICE static void read_weights(const T* slice, bool active, W set) {
        Rows::read(slice + (active ? threadIdx.x * V * PATHS : 0), set);
    }

    /// out = norm(gate(x)·gate(y)), and `inverse_rms` [grades, rows].
    GW_DEVICE static void forward(T* buffer, const T* x, const T* y, const T* w, T* out, C* inverse_rms, i64 rows, i64 features,
                                  i32 stages) {
        __shared__ alignas(16) u64 full[STAGES];
        __shared__ Scratch<GRADES> scratch;
        const bool clustered = gridDim.y > 1;
        Stream<2, 1> in{{x, y}, {out}, buffer, full, rows * features, features, rows, stages};
        in.open();

        const i64 feature = in.first + threadIdx.x * V;
        const bool active = threadIdx.x * V < in.across;
        const C share = C(1) / C(features);
        typename Product::Weights weights;
        read_weights(w + in.first * PATHS, active, [&](int path, int v, C value) { weights.at[path][v] = value; });

        int parity = 0;
        i64 base = in.begin();
#pragma unroll 1
        for (; base < rows; base += in.step()) {
            const i64 row = base + threadIdx.y;
            const bool busy = active && row < rows;
            // Threads without a row or features compute on valid data; their results are discarded.
            const int own = active ? static_cast<int>((row < rows ? threadIdx.y : 0) * in.across + threadIdx.x * V) : 0;
            in.wait();
            Element a, b, result;
            in.read(0, own, a);
            in.read(1, own, b);
            Gates(a, b).apply(a);
            Product::multiply(a, b, weights, result);
            C squares[GRADES] = {};
            Product::add_squares(result, squares);
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) squares[grade] = busy ? squares[grade] : C(0);
            publish_sums<GRADES>(squares, scratch[parity]);
            synchronize(clustered);
            in.flush(base);
            const C scale = inverse_root(row_sum(scratch[parity], clustered) * share + C(RMS_EPSILON));
            if (row < rows && blockIdx.y == 0 && threadIdx.x < GRADES) inverse_rms[threadIdx.x * rows + row] = scale;
            C factor[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) factor[grade] = __shfl_sync(0xffffffffu, scale, grade);
            Product::scale_grades(result, factor, result);
            if (busy) in.write(0, own, row * features + feature, result);
            in.advance(base);
            parity ^= 1;
        }
        in.close(base);
        // A block must not exit while others of its cluster may still read its sums.
        if (clustered) synchronize(true);
    }

    /// The weights of a thread's features and the sums of their gradients: in registers, or, if there are too many, in shared
    /// memory behind the stages, one column per thread.
    struct InRegisters {
        typename Product::Weights weights, sums;

        GW_DEVICE InRegisters(C*, const T* slice, bool active) {
            read_weights(slice, active, [&](int path, int v, C value) {
                weights.at[path][v] = value;
                sums.at[path][v] = 0;
            });
        }
    };

    struct InSharedMemory {
        typename Product::template Shared<THREADS> weights, sums;

        GW_DEVICE InSharedMemory(C* space, const T* slice, bool active) {
            weights.first = space + threadIdx.y * blockDim.x + threadIdx.x;
            sums.first = weights.first + PATHS * V * THREADS;
            read_weights(slice, active, [&](int path, int v, C value) {
                weights.at(path, v) = value;
                sums.at(path, v) = 0;
            });
        }
    };

    template <bool FEW, class YES, class NO>
    struct Choose {
        using type = YES;
    };
    template <class YES, class NO>
    struct Choose<false, YES, NO> {
        using type = NO;
    };
    using Kept = typename Choose<(BLADES <= 16), InRegisters, InSharedMemory>::type;

    /// Writes gradients of x and y (each may be null) and, if `partial` is not null, partial gradients [gridDim.x, ...] of w
    /// [features, paths], rounded up to 4 elements, and of a bias [features] of y's scalar part.
    ///
    /// With r = 1/rms and o the product, the gradient of the norm's input is r·(g - o·r²·Σ o·g/N).
    ///
    /// TRANSPOSED: grad_y is not null and is written transposed, [blades, features, rows]. Requires that rows are a multiple of GROUP
    /// and GROUP of blockDim.y, two stages, and WIDTH·BLADES·GROUP elements of shared memory behind them.
    template <bool TRANSPOSED = false>
    GW_DEVICE static void backward(T* buffer, const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y,
                                   C* partial, i64 rows, i64 features, i32 stages) {
        __shared__ alignas(16) u64 full[STAGES];
        __shared__ Scratch<2 * GRADES> scratch;
        const bool clustered = gridDim.y > 1;
        typename Choose<TRANSPOSED, TransposedStream, Stream<3, 2>>::type in{x, y, grad, grad_x, grad_y, buffer, full, rows * features,
                                                               features, rows, stages};
        in.open();

        const i64 feature = in.first + threadIdx.x * V;
        const bool active = threadIdx.x * V < in.across;
        const C share = C(1) / C(features);
        Kept kept(reinterpret_cast<C*>(buffer + stages * Stream<3, 2>::STAGE), w + in.first * PATHS, active);

        C bias[V] = {};

        int parity = 0;
        i64 base = in.begin();
#pragma unroll 1
        for (; base < rows; base = in.after(base)) {
            const i64 row = base + threadIdx.y;
            const bool busy = active && row < rows;
            // Threads without a row or features compute on valid data; their results are discarded.
            const int own = active ? static_cast<int>((row < rows ? threadIdx.y : 0) * in.across + threadIdx.x * V) : 0;
            in.wait();
            Element a, b, g;
            in.read(0, own, a);
            in.read(1, own, b);
            const Slopes gates(a, b);
            Element output;
            Product::multiply(a, b, kept.weights, output);
            gates.apply(output);
            in.read(2, own, g);
            C values[2 * GRADES] = {};
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    values[grade] += output.at[N][v] * output.at[N][v];
                    values[GRADES + grade] += output.at[N][v] * g.at[N][v];
                }
            });
#pragma unroll
            for (int i = 0; i < 2 * GRADES; ++i) values[i] = busy ? values[i] : C(0);
            publish_sums<2 * GRADES>(values, scratch[parity]);
            synchronize(clustered);
            in.flush(base);
            const C total = row_sum(scratch[parity], clustered);
            const C along = __shfl_down_sync(0xffffffffu, total, GRADES) * share;
            const C scale = inverse_root(total * share + C(RMS_EPSILON));
            const C projection = along * scale * scale;
            C factor[GRADES], part[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                const C common = __shfl_sync(0xffffffffu, scale, grade);
                factor[grade] = busy ? common : C(0);
                part[grade] = __shfl_sync(0xffffffffu, projection, grade);
            }
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    g.at[N][v] = factor[grade] * gates.both[v] * (g.at[N][v] - output.at[N][v] * part[grade]);
                }
            });
            if constexpr (TRANSPOSED) {
                // In a cluster, writes come after its barrier, which would otherwise wait for them.
                if (in.follows_group(base)) in.write_group(base);
            }
            Element da, db;
            Product::differentiate(a, b, g, kept.weights, da, db, kept.sums);
            Product::gate_backward(a, gates.a, da);
            Product::gate_backward(b, gates.b, db);
#pragma unroll
            for (int v = 0; v < V; ++v) bias[v] += db.at[0][v];
            if constexpr (TRANSPOSED) {
                // After this, the columns are free for the next group.
                if (in.follows_group(base)) blockDim.y == 1 ? __syncwarp() : __syncthreads();
                if (busy) {
                    in.write(row * features + feature, da);
                    in.gather(base, db);
                }
                in.advance();
            } else {
                if (busy) {
                    in.write(0, own, row * features + feature, da);
                    in.write(1, own, row * features + feature, db);
                }
                in.advance(base);
            }
            parity ^= 1;
        }
        in.close(base);
        if (clustered) synchronize(true);
        if (partial == nullptr) return;
        const i64 weight_count = (features * PATHS + 3) / 4 * 4;
        partial += blockIdx.x * (weight_count + features);
        const typename Rows::Place place{static_cast<i32>(threadIdx.x) * V, in.across, static_cast<i32>(threadIdx.y),
                                         static_cast<i32>(blockDim.y), active};
        const i32 thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
        Rows::write(kept.sums, bias, place, reinterpret_cast<C*>(buffer), partial + in.first * PATHS,
                    partial + weight_count + in.first, thread, threads, [] { __syncthreads(); });
    }
};

/// BLOCKS: how many blocks must fit on a multiprocessor.
#define GW_SGP_PERSISTENT_FORWARD(P, Q, R, T, NAME, V, THREADS, BLOCKS)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gw_sgp_persistent_fwd_##P##_##Q##_##R##_##NAME(                  \
        const T* x, const T* y, const T* w, T* out, Compute<T>* inverse_rms, i64 rows, i64 features, i32 stages) {                 \
        begin_kernel();                                                                                                            \
        extern __shared__ uint4 shared[];                                                                                          \
        PersistentProduct<Algebra<P, Q, R>, T, V, THREADS>::forward(reinterpret_cast<T*>(shared), x, y, w, out, inverse_rms, rows, \
                                                          features, stages);                                                       \
    }

#define GW_SGP_PERSISTENT_BACKWARD(P, Q, R, T, NAME, V, THREADS, BLOCKS)                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gw_sgp_persistent_bwd_##P##_##Q##_##R##_##NAME(                 \
        const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y, Compute<T>* partial, i64 rows,                   \
        i64 features, i32 stages) {                                                                                               \
        begin_kernel();                                                                                                           \
        extern __shared__ uint4 shared[];                                                                                         \
        PersistentProduct<Algebra<P, Q, R>, T, V, THREADS>::backward(reinterpret_cast<T*>(shared), x, y, w, grad, grad_x, grad_y, \
                                                           partial, rows, features, stages);                                      \
    }

/// Only sm_90 has the matrix products that read its result; a trap elsewhere.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define GW_RUN_TRANSPOSED(...) __VA_ARGS__
#else
#define GW_RUN_TRANSPOSED(...) __trap()
#endif
#define GW_SGP_PERSISTENT_TRANSPOSED(P, Q, R, V, THREADS)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_sgp_persistent_bwd_transposed_##P##_##Q##_##R##_f32(     \
        const float* x, const float* y, const float* w, const float* grad, float* grad_x, float* grad_y, float* partial, \
        i64 rows, i64 features, i32 stages) {                                                                            \
        begin_kernel();                                                                                                  \
        extern __shared__ uint4 shared[];                                                                                \
        using Rows = PersistentProduct<Algebra<P, Q, R>, float, V, THREADS>;                                             \
        GW_RUN_TRANSPOSED(Rows::template backward<true>(reinterpret_cast<float*>(shared), x, y, w, grad, grad_x, grad_y, \
                                                    partial, rows, features, stages));                                   \
    }

#define GW_SGP_PERSISTENT(P, Q, R, V, THREADS, FORWARD_BLOCKS, BACKWARD_BLOCKS)  \
    GW_SGP_PERSISTENT_FORWARD(P, Q, R, float, f32, V, THREADS, FORWARD_BLOCKS)   \
    GW_SGP_PERSISTENT_FORWARD(P, Q, R, bf16, bf16, V, THREADS, FORWARD_BLOCKS)   \
    GW_SGP_PERSISTENT_FORWARD(P, Q, R, f16, f16, V, THREADS, FORWARD_BLOCKS)     \
    GW_SGP_PERSISTENT_BACKWARD(P, Q, R, float, f32, V, THREADS, BACKWARD_BLOCKS) \
    GW_SGP_PERSISTENT_BACKWARD(P, Q, R, bf16, bf16, V, THREADS, BACKWARD_BLOCKS) \
    GW_SGP_PERSISTENT_BACKWARD(P, Q, R, f16, f16, V, THREADS, BACKWARD_BLOCKS)

/// All kernels of an algebra of up to 8, 16 or 32 blades.
#define GW_SGP_PERSISTENT_OF(P, Q, R, BLADES)                                                                                     \
    GW_SGP_PERSISTENT(P, Q, R, product_persistent::width(BLADES), product_persistent::threads(BLADES),                            \
                      product_persistent::blocks(BLADES, 0), product_persistent::blocks(BLADES, 1))
#define GW_SGP_PERSISTENT_TRANSPOSED_OF(P, Q, R, BLADES) \
    GW_SGP_PERSISTENT_TRANSPOSED(P, Q, R, product_persistent::width(BLADES), product_persistent::threads(BLADES))
#define GW_SGP_PERSISTENT_8(P, Q, R)     \
    GW_SGP_PERSISTENT_OF(P, Q, R, 8)     \
    GW_SGP_PERSISTENT_TRANSPOSED_OF(P, Q, R, 8)
#define GW_SGP_PERSISTENT_16(P, Q, R)    \
    GW_SGP_PERSISTENT_OF(P, Q, R, 16)    \
    GW_SGP_PERSISTENT_TRANSPOSED_OF(P, Q, R, 16)
#define GW_SGP_PERSISTENT_32(P, Q, R) GW_SGP_PERSISTENT_OF(P, Q, R, 32)
