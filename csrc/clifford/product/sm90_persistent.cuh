// The weighted product with gates and norm, row by row, with specialised warps (sm_90a: `setmaxnreg`).
//
// It computes the same as clifford/product/persistent.cuh. All warpgroups of a block but the last compute: a thread holds V adjacent features
// with their blades and weights in registers. In the last warpgroup, one producer warp per operand copies rows into a ring of
// stages, and the other warps sum: they add up the partial sums that the computing warps leave, and return the factors of the norm.
// Computing warps run one row ahead: they begin the next row before they need the factors of the row before (docs/kernels/product.md).
//
// blockDim is THREADS + HELPING. Of the first THREADS threads, `along`·together compute: `along`, a multiple of 32, work on a row, and
// as many rows at a time as fit. blockIdx.x selects the first row, blockIdx.y the slice of along·V features; the slices of a row
// form a cluster, which works on one row at a time. Features·sizeof(T) must be a multiple of 16, addresses aligned to 16, and rows
// fewer than 2³⁰. Dynamic shared memory: the stages and, backward, the products of a row, BLADES·THREADS·V numbers. Names:
// gw_sgp_sm90_<fwd|bwd>_<algebra>_<dtype>.
#pragma once

#include "clifford/product/multivectors.cuh"
#include "clifford/pointwise/norms.cuh"
#include "clifford/product/product_launch.cuh"
#include "clifford/product/row_weights.cuh"
#include "clifford/product/warp_sums.cuh"
#include "ptx/bulk.cuh"
#include "ptx/wgmma.cuh"

template <class A, class T, int V, int THREADS, bool BACKWARD>
struct Sm90PersistentProduct {
    using Product = Multivectors<A, float, V, T>;
    using Element = typename Product::Element;
    using Gates = typename Product::Gates;
    using Slopes = typename Product::Slopes;
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS, GRADES = A::GRADES;
    /// Number of operands, and of sums over a row: of squares and, backward, of product times gradient.
    static constexpr int IN = BACKWARD ? 3 : 2, SUMS = BACKWARD ? 2 * GRADES : GRADES;
    /// Most elements of one blade that a block works on at a time.
    static constexpr int WIDTH = THREADS * V, STAGE = IN * BLADES * WIDTH, MOST_STAGES = product_sm90::MOST_STAGES;
    static constexpr int WARPS = THREADS / 32, MOST_SLICES = 8;
    using Sums = WarpSums<SUMS>;
    static constexpr int P = Sums::P, EACH = Sums::EACH;
    /// Factors of the norm, in packs of four.
    static constexpr int PACKS = (SUMS + 3) / 4, FACTORS = 4 * PACKS;

    struct Exchange {
        /// Barriers of a stage: its rows have arrived; they have been read. Barriers of two rows in turn: partial sums are published;
        /// factors are ready; the sums of all slices have arrived.
        u64 full[MOST_STAGES], empty[MOST_STAGES], sums_published[2], factors_ready[2], slices_arrived[2];
        /// For two rows in turn: partial sums of the warps, sums of the slices, and factors of the norm.
        float warp_sums[2][WARPS][32], slice_sums[2][MOST_SLICES][P];
        alignas(16) float factors[2][WARPS][FACTORS];
    };

    struct Problem {
        const T* source[IN];
        const T* w;
        i64 rows, features;
        i32 stages, along;
    };

    const Problem& p;
    Exchange& exchange;
    T* const stages;
    /// Backward: the products of the row before, behind the stages.
    float* const products;
    const u32 rows;
    const i32 along, together, slice, across;

    GW_DEVICE static i32 smaller(i64 a, i32 b) { return a < b ? static_cast<i32>(a) : b; }

    GW_DEVICE Sm90PersistentProduct(const Problem& p, Exchange& exchange, void* shared)
        : p(p), exchange(exchange), stages(static_cast<T*>(shared)), products(reinterpret_cast<float*>(stages + p.stages * STAGE)),
          rows(static_cast<u32>(p.rows)), along(p.along), together(THREADS / p.along), slice(blockIdx.y * p.along * V),
          across(smaller(p.features - slice, p.along * V)) {}

    /// Blocks take rows in turn, so that rows in flight are adjacent in memory. Backward starts from the last rows, which the
    /// forward pass may have left in the cache. `row` is unsigned: stepping below 0 wraps past `rows` and ends the loop.
    GW_DEVICE u32 begin() const {
        return BACKWARD ? ((rows + together - 1) / together - 1 - blockIdx.x) * together : blockIdx.x * together;
    }
    GW_DEVICE i32 step() const {
        const i32 distance = gridDim.x * together;
        return BACKWARD ? -distance : distance;
    }

    /// A position in the ring of stages, and the number of the step.
    struct PipelineState {
        i32 stage = 0;
        u32 phase = 0, number = 0;

        GW_DEVICE void advance(i32 stages) {
            ++number;
            if (++stage == stages) {
                stage = 0;
                phase ^= 1;
            }
        }
        /// Selects one of a pair of barriers, and its parity.
        GW_DEVICE u32 slot() const { return number & 1; }
        GW_DEVICE u32 slot_phase() const { return number >> 1 & 1; }
    };

    /// A producer warp: copies the rows of one array.
    GW_DEVICE void produce(int array) const {
        PipelineState state;
        const i32 blade = threadIdx.x % 32;
        const T* const source = array == 0 ? p.source[0] : array == 1 ? p.source[1] : p.source[IN - 1];
        const T* from = source + (blade * p.rows + begin()) * p.features + slice;
        const i64 stride = step() * p.features;
        T* const place = stages + (array * BLADES + blade) * WIDTH;
#pragma unroll 1
        for (u32 row = begin(); row < rows; row += step(), from += stride) {
            const u32 left = rows - row, count = left < static_cast<u32>(together) ? left : together;
            const u32 size = count * across * sizeof(T);
            u64* const full = exchange.full + state.stage;
            barrier_wait(exchange.empty + state.stage, state.phase ^ 1);
            if (blade == 0) barrier_expect(full, size * BLADES);
            __syncwarp();
            if (blade < BLADES) bulk_copy(place + state.stage * STAGE, from, size, full);
            state.advance(p.stages);
        }
    }

    /// The sum over all slices of the cluster. All lanes of a summing warp call it.
    GW_DEVICE float sum_slices(float own, const PipelineState& state) const {
        const i32 lane = threadIdx.x % 32;
        u64* const arrived = exchange.slices_arrived + state.slot();
        if (lane == 0) barrier_expect(arrived, gridDim.y * P * sizeof(float));
        __syncwarp();
        for (u32 rank = 0; rank < gridDim.y; ++rank) {
            if (lane % EACH == 0) cluster_send(&exchange.slice_sums[state.slot()][blockIdx.y][lane / EACH], own, arrived, rank);
        }
        barrier_wait(arrived, state.slot_phase());
        float total = 0;
        for (u32 rank = 0; rank < gridDim.y; ++rank) total += exchange.slice_sums[state.slot()][rank][lane / EACH];
        return total;
    }

    /// Summing warps; the others of the last warpgroup are producers.
    static constexpr int SUM_WARPS = 4 - IN;

    /// A summing warp: handles the row `first` of those at a time and every SUM_WARPS-th after it. `inverse_rms` is [grades, rows].
    GW_DEVICE void reduce_rows(i32 first, float* inverse_rms) const {
        const i32 lane = threadIdx.x % 32, value = lane / EACH;
        const float share = 1.0f / static_cast<float>(p.features);
        PipelineState state;
#pragma unroll 1
        for (u32 base = begin(); base < rows; base += step()) {
            barrier_wait(exchange.sums_published + state.slot(), state.slot_phase());
#pragma unroll 1
            for (i32 y = first; y < together; y += SUM_WARPS) {
                const i32 warps = along / 32;
                float total = 0;
                // Forward leaves these warps few registers.
                constexpr int AT_A_TIME = BACKWARD ? 4 : 3;
#pragma unroll 1
                for (i32 from = 0; from < warps; from += AT_A_TIME) {
                    float parts[AT_A_TIME];
#pragma unroll
                    for (int i = 0; i < AT_A_TIME; ++i) {
                        parts[i] = from + i < warps ? exchange.warp_sums[state.slot()][y * warps + from + i][lane] : 0.0f;
                    }
#pragma unroll
                    for (int i = 0; i < AT_A_TIME; ++i) total += parts[i];
                }
                total = Sums::whole(total);
                if (gridDim.y > 1) total = sum_slices(total, state);
                const float scale = inverse_root(total * share + float(RMS_EPSILON));
                float* const factors = exchange.factors[state.slot()][y];
                const bool writes = lane % EACH == 0 && value < GRADES;
                if constexpr (BACKWARD) {
                    // With r = 1/rms, the gradient of the norm's input is r·(g - o·r²·Σ o·g/N).
                    const float projection = __shfl_down_sync(0xffffffffu, total, GRADES * EACH) * share * scale * scale;
                    if (writes) {
                        factors[value] = scale;
                        factors[GRADES + value] = projection;
                    }
                } else if (writes) {
                    factors[value] = scale;
                    if (blockIdx.y == 0 && base + y < rows) inverse_rms[value * p.rows + base + y] = scale;
                }
            }
            barrier_arrive(exchange.factors_ready + state.slot());
            state.advance(p.stages);
        }
    }

    using Rows = RowWeights<float, T, PATHS, V>;

    /// The position of a computing thread.
    struct Position {
        i32 y, feature;
        /// Whether the thread has features. Threads beyond the row work on its beginning; their results are discarded.
        bool active;
    };

    GW_DEVICE Position position() const {
        const i32 thread = threadIdx.x, y = thread / along, x = thread - y * along;
        const bool active = x * V < across;
        return {y, active ? x * V : 0, active};
    }

    /// Loads the weights of this thread's features.
    template <class W>
    GW_DEVICE void read_weights(const Position& own, W set) const {
        Rows::read(p.w + (slice + own.feature) * static_cast<i64>(PATHS), [&](int path, int v, float value) {
            // Forces widening here. Forward, weights stay as they are stored and are widened at each use, for lack of registers.
            if constexpr (BACKWARD) asm volatile("" : "+f"(value));
            set(path, v, value);
        });
    }

    /// Reads V features of all blades from shared memory.
    template <class S>
    GW_DEVICE static void fetch(const S* from, Element& element) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) ::load<V>(from + blade * WIDTH, element.at[blade]);
    }

    /// Reads those of one array of a stage.
    GW_DEVICE void read(i32 stage, int array, i32 place, Element& element) const {
        fetch(stages + stage * STAGE + array * BLADES * WIDTH + place, element);
    }

    /// Leaves the warp's partial sums of the row; threads that are not busy contribute zeros. An arrival at `sums_published` must follow.
    GW_DEVICE void publish_sums(float (&sums)[SUMS], bool busy, const PipelineState& state) const {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sums[i] = busy ? sums[i] : 0.0f;
        exchange.warp_sums[state.slot()][threadIdx.x / 32][threadIdx.x % 32] = Sums::parts(sums);
    }

    /// Waits for the factors of the norm of a state and loads them.
    GW_DEVICE void acquire_factors(const Position& own, const PipelineState& state, float (&factors)[FACTORS]) const {
        barrier_wait(exchange.factors_ready + state.slot(), state.slot_phase());
        const float4* from = reinterpret_cast<const float4*>(exchange.factors[state.slot()][own.y]);
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            const float4 part = from[pack];
            factors[4 * pack] = part.x;
            factors[4 * pack + 1] = part.y;
            factors[4 * pack + 2] = part.z;
            factors[4 * pack + 3] = part.w;
        }
    }

    /// Stores V features of a result; consecutive blades are `plane` bytes apart.
    GW_DEVICE static void write(char* to, i64 plane, const Element& element) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, to += plane) ::store<V>(reinterpret_cast<T*>(to), element.at[blade]);
    }

    GW_DEVICE i64 row_bytes() const { return p.features * static_cast<i64>(sizeof(T)); }

    /// The address of this thread's results for the block's first rows.
    GW_DEVICE char* address(T* target, const Position& own) const {
        return reinterpret_cast<char*>(target + (static_cast<i64>(begin() + own.y) * p.features + slice + own.feature));
    }

    /// out = norm(gate(x)·gate(y)).
    GW_DEVICE void forward(T* out) const {
        const Position own = this->position();
        typename Product::Weights weights;
        read_weights(own, [&](int path, int v, float value) { weights.at[path][v] = value; });
        const i64 plane = p.rows * row_bytes(), stride = step() * row_bytes();
        char* to = address(out, own);
        Element before;
        PipelineState state, last;
        u32 base = begin();
        const auto finish = [&](u32 base) {
            float factors[FACTORS];
            acquire_factors(own, last, factors);
            Product::scale_grades(before, factors, before);
            if (own.active && base + own.y < rows) write(to, plane, before);
            to += stride;
        };
#pragma unroll 1
        for (; base < rows; base += step()) {
            const bool has_row = base + own.y < rows;
            const i32 place = (has_row ? own.y : 0) * across + own.feature;
            Element a, b, result;
            barrier_wait(exchange.full + state.stage, state.phase);
            read(state.stage, 0, place, a);
            read(state.stage, 1, place, b);
            barrier_arrive(exchange.empty + state.stage);
            Gates(a, b).apply(a);
            Product::multiply(a, b, weights, result);
            float squares[SUMS] = {};
            Product::add_squares(result, squares);
            publish_sums(squares, own.active && has_row, state);
            barrier_arrive(exchange.sums_published + state.slot());
            if (state.number > 0) finish(base - step());
            before = result;
            last = state;
            state.advance(p.stages);
        }
        if (state.number > 0) finish(base - step());
    }

    /// Writes gradients of x and y (each may be null) and, if `partial` is not null, partial gradients [gridDim.x, ...] of w
    /// [features, paths], rounded up to 4 elements, and of a bias [features] of y's scalar part.
    GW_DEVICE void backward(T* grad_x, T* grad_y, float* partial) const {
        const Position own = this->position();
        typename Product::Weights weights, sums;
        read_weights(own, [&](int path, int v, float value) {
            weights.at[path][v] = value;
            sums.at[path][v] = 0;
        });
        const i64 plane = p.rows * row_bytes(), stride = step() * row_bytes();
        char *to_x = address(grad_x, own), *to_y = address(grad_y, own);
        float* const kept = products + threadIdx.x * V;
        float bias[V] = {};
        Slopes gates;
        PipelineState state, last;
        u32 base = begin();
        const auto finish = [&](u32 base, const Element& output) {
            const bool has_row = base + own.y < rows, busy = own.active && has_row;
            const i32 place = (has_row ? own.y : 0) * across + own.feature;
            Element a, b, g, da, db;
            float factors[FACTORS];
            acquire_factors(own, last, factors);
            read(last.stage, 2, place, g);
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
                const float scale = busy ? factors[grade] : 0.0f;
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    g.at[N][v] = scale * gates.both[v] * (g.at[N][v] - output.at[N][v] * factors[GRADES + grade]);
                }
            });
            read(last.stage, 0, place, a);
            read(last.stage, 1, place, b);
            barrier_arrive(exchange.empty + last.stage);
            Product::differentiate(a, b, g, weights, da, db, sums);
            Product::gate_backward(a, gates.a, da);
            Product::gate_backward(b, gates.b, db);
#pragma unroll
            for (int v = 0; v < V; ++v) bias[v] += db.at[0][v];
            if (busy && grad_x != nullptr) write(to_x, plane, da);
            if (busy && grad_y != nullptr) write(to_y, plane, db);
            to_x += stride;
            to_y += stride;
        };
#pragma unroll 1
        for (; base < rows; base += step()) {
            const bool has_row = base + own.y < rows;
            const i32 place = (has_row ? own.y : 0) * across + own.feature;
            Element a, b, g, output;
            barrier_wait(exchange.full + state.stage, state.phase);
            read(state.stage, 0, place, a);
            read(state.stage, 1, place, b);
            const Slopes next(a, b);
            Product::multiply(a, b, weights, output);
            next.apply(output);
            read(state.stage, 2, place, g);
            float values[SUMS] = {};
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    values[grade] += output.at[N][v] * output.at[N][v];
                    values[GRADES + grade] += output.at[N][v] * g.at[N][v];
                }
            });
            publish_sums(values, own.active && has_row, state);
            barrier_arrive(exchange.sums_published + state.slot());
            Element before;
            if (state.number > 0) fetch(kept, before);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::store<V>(kept + blade * WIDTH, output.at[blade]);
            if (state.number > 0) finish(base - step(), before);
            gates = next;
            last = state;
            state.advance(p.stages);
        }
        if (state.number > 0) {
            Element before;
            fetch(kept, before);
            finish(base - step(), before);
        }
        if (partial == nullptr) return;
        const i64 weight_count = (p.features * PATHS + 3) / 4 * 4;
        partial += blockIdx.x * (weight_count + p.features);
        const i32 threads = along * together;
        const typename Rows::Place place{own.feature, across, own.y, together, own.active};
        Rows::write(sums, bias, place, reinterpret_cast<float*>(stages), partial + slice * PATHS, partial + weight_count + slice,
                    threadIdx.x, threads, [&] { named_barrier(1, threads); });
    }

    /// Body of a block.
    GW_DEVICE static void run(const Problem& problem, T* out, float* inverse_rms, T* grad_x, T* grad_y, float* partial) {
        extern __shared__ uint4 dynamic[];
        __shared__ Exchange exchange;
        Sm90PersistentProduct(problem, exchange, dynamic).work(out, inverse_rms, grad_x, grad_y, partial);
    }

  private:
    GW_DEVICE void work(T* out, float* inverse_rms, T* grad_x, T* grad_y, float* partial) const {
        const i32 working = along * together;
        if (threadIdx.x == 0) {
            for (int i = 0; i < p.stages; ++i) {
                barrier_init(exchange.full + i, IN);
                barrier_init(exchange.empty + i, working);
            }
            for (int i = 0; i < 2; ++i) {
                barrier_init(exchange.sums_published + i, working);
                barrier_init(exchange.factors_ready + i, 32 * SUM_WARPS);
                barrier_init(exchange.slices_arrived + i, 1);
            }
            barrier_init_fence();
        }
        // Blocks of a cluster must have started before another one writes to their shared memory.
        if (gridDim.y > 1) {
            cluster_sync();
        } else {
            __syncthreads();
        }
        // Registers per thread: at launch, then of helping and of computing warps.
        constexpr int LAUNCH_REGISTERS = 65536 / (THREADS + 128) / 8 * 8, HELPER_REGISTERS = THREADS <= 256 ? 56 : BLADES < 8 ? 40 : 32;
        constexpr int LEFT_REGISTERS = (LAUNCH_REGISTERS * (THREADS + 128) - HELPER_REGISTERS * 128) / THREADS / 8 * 8;
        constexpr int COMPUTE_REGISTERS = LEFT_REGISTERS < 240 ? LEFT_REGISTERS : 240;
        if (threadIdx.x >= THREADS) {
            registers_at_most<HELPER_REGISTERS>();
            const i32 helper = threadIdx.x / 32 - WARPS;
            if (helper < IN) {
                produce(helper);
            } else {
                reduce_rows(helper - IN, inverse_rms);
            }
        } else {
            registers_at_least<COMPUTE_REGISTERS>();
            if (threadIdx.x >= working) return;
            if constexpr (BACKWARD) {
                backward(grad_x, grad_y, partial);
            } else {
                forward(out);
            }
        }
    }
};

/// For sm_90a; a trap elsewhere. The launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN_SGP(...) __VA_ARGS__
#else
#define GW_RUN_SGP(...) __trap()
#endif

#define GW_SGP_SM90_FORWARD(P, Q, R, T, NAME, V, THREADS)                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS + product_sm90::HELPING, 1) gw_sgp_sm90_fwd_##P##_##Q##_##R##_##NAME(              \
        const T* x, const T* y, const T* w, T* out, float* inverse_rms, i64 rows, i64 features, i32 stages, i32 along) {  \
        begin_kernel();                                                                                                   \
        using Kernel = Sm90PersistentProduct<Algebra<P, Q, R>, T, V, THREADS, false>;                                     \
        GW_RUN_SGP(Kernel::run({{x, y}, w, rows, features, stages, along}, out, inverse_rms, nullptr, nullptr, nullptr)); \
    }

#define GW_SGP_SM90_BACKWARD(P, Q, R, T, NAME, V, THREADS)                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS + product_sm90::HELPING, 1) gw_sgp_sm90_bwd_##P##_##Q##_##R##_##NAME(                  \
        const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y, float* partial, i64 rows,                    \
        i64 features, i32 stages, i32 along) {                                                                                \
        begin_kernel();                                                                                                       \
        using Kernel = Sm90PersistentProduct<Algebra<P, Q, R>, T, V, THREADS, true>;                                          \
        GW_RUN_SGP(Kernel::run({{x, y, grad}, w, rows, features, stages, along}, nullptr, nullptr, grad_x, grad_y, partial)); \
    }

#define GW_SGP_SM90(DIRECTION, P, Q, R, V, THREADS)          \
    GW_SGP_SM90_##DIRECTION(P, Q, R, float, f32, V, THREADS) \
    GW_SGP_SM90_##DIRECTION(P, Q, R, bf16, bf16, V, THREADS) \
    GW_SGP_SM90_##DIRECTION(P, Q, R, f16, f16, V, THREADS)

/// All kernels of an algebra of up to 8, 16 or 32 blades.
#define GW_SGP_SM90_OF(DIRECTION, P, Q, R, BLADES, IS_BACKWARD) \
    GW_SGP_SM90(DIRECTION, P, Q, R, product_sm90::width(BLADES), product_sm90::threads(BLADES, IS_BACKWARD))
#define GW_SGP_SM90_8(P, Q, R)                  \
    GW_SGP_SM90_OF(FORWARD, P, Q, R, 8, 0)      \
    GW_SGP_SM90_OF(BACKWARD, P, Q, R, 8, 1)
#define GW_SGP_SM90_16(P, Q, R)                 \
    GW_SGP_SM90_OF(FORWARD, P, Q, R, 16, 0)     \
    GW_SGP_SM90_OF(BACKWARD, P, Q, R, 16, 1)
#define GW_SGP_SM90_32(P, Q, R) GW_SGP_SM90_OF(FORWARD, P, Q, R, 32, 0)
