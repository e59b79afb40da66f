// The weighted product with gates and norm, row by row: each row is read once and written once, forward and backward.
//
// A block owns whole rows, or, with its cluster, a slice of each: the sums that the norm takes are formed among its threads.
// Rows stream through shared memory ahead of their use, several at a time, as contiguous pieces of each blade. A thread works on
// V adjacent features, whose blades and weights it holds in registers.
//
// blockDim is (threads along a row, a multiple of 32; rows worked on at a time), at most THREADS threads in all. blockIdx.x is the
// first row, blockIdx.y the slice of blockDim.x·V features; slices of one row form a cluster. Features·sizeof(T) is a multiple of 16 and addresses are aligned to 16.
// Dynamic shared memory has the stages, and for the gradients of algebras of more than 16 blades 2·PATHS values a thread; for a gradient
// that goes out transposed, the rows of a group.
// Names: gw_sgp_rows_<fwd|bwd>_<algebra>_<dtype>, and for f32 of up to 16 blades gw_sgp_rows_bwd_turned_<algebra>_f32.
#pragma once

#include "ops/multivectors.cuh"
#include "ops/warp_sums.cuh"
#include "ptx/bulk.cuh"

template <class A, class T, int V, int THREADS>
struct SgpRows {
    using C = Compute<T>;
    using Product = Multivectors<A, C, V>;
    using Element = typename Product::Element;
    using Slope = typename Product::Slope;
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS, GRADES = A::GRADES;
    /// Elements of one blade that a block works on at a time, and the space they take, at most.
    static constexpr int WIDTH = THREADS * V;
    /// Most rows on their way at a time.
    static constexpr int STAGES = 4;

    /// A ring of stages in shared memory, each of which `IN` arrays come through row by row. The first `OUT` of them are written
    /// over by results, which go back from there.
    template <int IN, int OUT>
    struct Stream {
        const T* source[IN];
        T* target[OUT];
        T* buffer;
        u64* full;
        i64 plane, features, end;
        i32 stages;
        i32 first;   // The slice's first feature.
        i32 across;  // Features of the slice.
        i32 stage, turn;

        static constexpr int STAGE = IN * BLADES * WIDTH;

        GW_DEVICE void take_slice() {
            first = static_cast<i32>(blockIdx.y * blockDim.x * V);
            const i64 rest = features - first;
            across = static_cast<i32>(rest < blockDim.x * V ? rest : blockDim.x * V);
            stage = turn = 0;
        }

        /// Starts at this block's first row.
        GW_DEVICE void open() {
            take_slice();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            if (threadIdx.x == 0 && threadIdx.y == 0) {
                for (int i = 0; i < stages; ++i) barrier_init(full + i, 1);
                barrier_init_fence();
            }
            __syncthreads();
#endif
#pragma unroll 1
            for (int i = 0; i < stages; ++i) start(i, begin() + i * step());
        }

        /// Blocks take rows in turn, so that those on their way at a time are neighbours in memory.
        GW_DEVICE static i64 begin() { return static_cast<i64>(blockIdx.x) * blockDim.y; }
        GW_DEVICE static i64 step() { return static_cast<i64>(gridDim.x) * blockDim.y; }
        GW_DEVICE static i64 after(i64 row) { return row + step(); }

        /// Bytes of a blade's rows from `row` on.
        GW_DEVICE u32 bytes(i64 row) const {
            const i64 left = end - row;
            const int rows = left < 0 ? 0 : left < blockDim.y ? static_cast<int>(left) : blockDim.y;
            return static_cast<u32>(rows * across) * sizeof(T);
        }

        GW_DEVICE static int warp() { return (threadIdx.y * blockDim.x + threadIdx.x) / 32; }
        GW_DEVICE static int warps() { return blockDim.x * blockDim.y / 32; }

        /// Starts bringing the rows from `row` on; called by all threads. On sm_90 one thread of each warp brings its blades.
        GW_DEVICE void start(int into, i64 row) {
            const u32 size = bytes(row);
            T* const place = buffer + into * STAGE;
            const i64 offset = row * features + first;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            if (threadIdx.x % 32 != 0 || size == 0) return;
            if (threadIdx.x == 0 && threadIdx.y == 0) barrier_expect(full + into, size * (IN * BLADES));
#pragma unroll 1
            for (int blade = warp(); blade < BLADES; blade += warps()) {
                const i64 at = blade * plane + offset;
#pragma unroll
                for (int i = 0; i < IN; ++i) {
                    bulk_copy(place + (i * BLADES + blade) * WIDTH, source[i] + at, size, full + into);
                }
            }
#else
            const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
#pragma unroll
            for (int i = 0; i < IN; ++i) {
#pragma unroll 1
                for (int blade = 0; blade < BLADES; ++blade) {
                    const char* from = reinterpret_cast<const char*>(source[i] + blade * plane + offset);
                    char* to = reinterpret_cast<char*>(place + (i * BLADES + blade) * WIDTH);
#pragma unroll 1
                    for (u32 at = thread * 16; at < size; at += threads * 16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
                        copy_async_16(to + at, from + at, 16);
#else
                        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
#endif
                    }
                }
            }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            copy_async_commit();
#endif
#endif
        }

        /// Waits for the rows of the present stage.
        GW_DEVICE void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            barrier_wait(full + stage, turn & 1);
#else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            if (stages >= 4) {
                copy_async_wait<3>();
            } else if (stages == 3) {
                copy_async_wait<2>();
            } else {
                copy_async_wait<1>();
            }
#endif
            __syncthreads();
#endif
        }

        /// This thread's features of one array, `own` from the start of a blade.
        GW_DEVICE void read(int array, int own, Element& element) const {
            const T* from = buffer + stage * STAGE + array * BLADES * WIDTH + own;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::load<V>(from + blade * WIDTH, element.at[blade]);
        }

        /// This thread's features of one result; `position` is where they go.
        GW_DEVICE void write(int array, int own, i64 position, const Element& element) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            T* to = buffer + stage * STAGE + array * BLADES * WIDTH + own;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::store<V>(to + blade * WIDTH, element.at[blade]);
#else
            if (target[array] == nullptr) return;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::store<V>(target[array] + blade * plane + position, element.at[blade]);
#endif
        }

        /// After a barrier behind `wait` and `read`: what was written in the turn before goes out. `base` is the present row.
        GW_DEVICE void flush(i64 base) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            if (threadIdx.x % 32 != 0 || base == begin()) return;
            const i64 row = base - step(), offset = row * features + first;
            const T* const place = buffer + previous() * STAGE;
            const u32 size = bytes(row);
#pragma unroll 1
            for (int blade = warp(); blade < BLADES; blade += warps()) {
                const i64 at = blade * plane + offset;
#pragma unroll
                for (int i = 0; i < OUT; ++i) {
                    if (target[i] != nullptr) bulk_store(target[i] + at, place + (i * BLADES + blade) * WIDTH, size);
                }
            }
            store_commit();
#else
            start(stage, base + stages * step());
#endif
        }

        /// Ends a turn: the stage that was flushed is filled again.
        GW_DEVICE void advance(i64 base) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            shared_fence();
            if (base != begin()) {
                if (threadIdx.x % 32 == 0) store_wait<0>();
                start(previous(), base + (stages - 1) * step());
            }
#endif
            if (++stage == stages) {
                stage = 0;
                ++turn;
            }
        }

        /// After the last turn: what it wrote goes out. `base` is one past its rows.
        GW_DEVICE void close(i64 base) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            __syncthreads();
            flush(base);
            if (threadIdx.x % 32 == 0) store_wait<0>();
#endif
        }

        GW_DEVICE int previous() const { return stage == 0 ? stages - 1 : stage - 1; }
    };

    /// Rows of a sector of 32 bytes of a transposed array.
    static constexpr int GROUP = 8;

    /// The stream of the gradients when that of y goes out transposed (sm_90). Blocks take GROUP consecutive rows, blockDim.y at a time,
    /// then those of the next group in turn, whose gradients of y are gathered behind the stages. That leaves room for two stages: all
    /// three operands make way for rows two turns on as soon as all threads have read them, and the gradient of x goes straight out.
    struct Turned : Stream<3, 2> {
        using Base = Stream<3, 2>;
        using Base::across;
        using Base::buffer;
        using Base::end;
        using Base::features;
        using Base::first;
        using Base::full;
        using Base::plane;
        using Base::stage;
        using Base::STAGE;
        using Base::target;
        using Base::turn;

        GW_DEVICE static i64 begin() { return static_cast<i64>(blockIdx.x) * GROUP; }
        /// From the last rows of a group to the first of the block's next one.
        GW_DEVICE static i64 skip() { return static_cast<i64>(gridDim.x - 1) * GROUP; }

        /// The number of a row in its group.
        GW_DEVICE static u32 number(i64 row) { return static_cast<u32>(row) % GROUP; }

        GW_DEVICE static i64 after(i64 row) {
            row += blockDim.y;
            return number(row) == 0 ? row + skip() : row;
        }

        GW_DEVICE void open() {
            this->take_slice();
            if (threadIdx.x == 0 && threadIdx.y == 0) {
                for (int i = 0; i < STAGES; ++i) barrier_init(full + i, 1);
                barrier_init_fence();
            }
            __syncthreads();
            this->start(0, begin());
            this->start(1, after(begin()));
        }

        /// After a barrier behind the reads: the rows two turns on take the place of the present ones. `base` is the present row.
        GW_DEVICE void flush(i64 base) { this->start(stage, after(after(base))); }

        GW_DEVICE void write(i64 position, const Element& element) const {
            if (target[0] == nullptr) return;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::store<V>(target[0] + blade * plane + position, element.at[blade]);
        }

        GW_DEVICE void advance() {
            stage ^= 1;
            turn += stage == 0;
        }

        /// The gathered columns of this block, GROUP rows of each: column v·THREADS + t for feature t·V + v. Row r of column c is word
        /// (r + c/4) % GROUP of the column, so that neither threads of one row nor those that read columns meet in a bank.
        GW_DEVICE T* columns() const { return buffer + 2 * STAGE; }

        GW_DEVICE void gather(i64 base, const Element& element) {
            const u32 row = number(base) + threadIdx.y;
            T* const to = columns() + threadIdx.x * GROUP + (row + threadIdx.x / 4) % GROUP;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int v = 0; v < V; ++v) to[(blade * WIDTH + v * THREADS) * GROUP] = element.at[blade][v];
            }
        }

        /// Whether `base` comes after a whole group of this block.
        GW_DEVICE static bool follows_group(i64 base) { return number(base) == 0 && base != begin(); }

        /// Writes the gathered group before `base`. A warp takes the columns of its own threads, of all blades or, where several warps have the
        /// same columns, of some. Two lanes write a sector.
        GW_DEVICE void write_group(i64 base) const {
            const int lane = threadIdx.x % 32, half = lane % 2, thread = threadIdx.x / 32 * 32 + lane / 2;
            const T* from = columns() + (threadIdx.y * WIDTH + thread) * GROUP;
            const i64 row = base - skip() - GROUP;
            T* to = target[1] + (threadIdx.y * features + first + thread * V) * end + row;
#pragma unroll 1
            for (int blade = threadIdx.y; blade < BLADES; blade += blockDim.y) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if ((thread + 16 * i) * V >= across) continue;
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        C values[4];
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            values[e] = from[(v * THREADS + 16 * i) * GROUP + (4 * half + e + lane / 8) % GROUP];
                        }
                        // 16 columns on, the same words are the other half.
                        ::store<4>(to + (16 * i * V + v) * end + 4 * (half ^ i), values);
                    }
                }
                from += blockDim.y * WIDTH * GROUP;
                to += blockDim.y * features * end;
            }
        }

        /// After the last turn; `base` is what would follow.
        GW_DEVICE void close(i64 base) {
            __syncthreads();
            if (follows_group(base)) write_group(base);
        }
    };

    /// Scratch for the sums of two consecutive rows' warps.
    template <int K>
    using Scratch = C[2][THREADS / 32][WarpSums<K>::P];

    /// First half of a sum over the threads of a row.
    template <int K, int P = WarpSums<K>::P>
    GW_DEVICE static void give(const C (&values)[K], C (&scratch)[THREADS / 32][P]) {
        const C sum = WarpSums<K>::whole(WarpSums<K>::parts(values));
        const int lane = threadIdx.x % 32, warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
        if (lane % (32 / P) == 0) scratch[warp][lane / (32 / P)] = sum;
    }

    /// Second half, after a barrier: lane l gets the sum of value l, for l < P.
    template <int P>
    GW_DEVICE static C take(C (&scratch)[THREADS / 32][P], bool clustered) {
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

    /// The sum of the first `count` values, read all at once.
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

    /// How many of a thread's weights are adjacent and aligned, for all threads.
    static constexpr int AT_ONCE = V * PATHS % 4 == 0 ? 4 : V * PATHS % 2 == 0 ? 2 : 1;

    /// Weights of this thread's features out of the slice's; zero for one without any.
    template <class W>
    GW_DEVICE static void read_weights(const T* slice, bool active, W set) {
        const T* const w = slice + (active ? threadIdx.x * V * PATHS : 0);
#pragma unroll
        for (int i = 0; i < V * PATHS; i += AT_ONCE) {
            C values[AT_ONCE];
            ::load<AT_ONCE>(w + i, values);
#pragma unroll
            for (int e = 0; e < AT_ONCE; ++e) set((i + e) % PATHS, (i + e) / PATHS, active ? values[e] : C(0));
        }
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
            // Idle threads compute on what is there.
            const int own = active ? static_cast<int>((row < rows ? threadIdx.y : 0) * in.across + threadIdx.x * V) : 0;
            in.wait();
            Element a, b, result;
            in.read(0, own, a);
            in.read(1, own, b);
            Product::gate(a);
            Product::gate(b);
            Product::multiply(a, b, weights, result);
            C squares[GRADES] = {};
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) squares[grade] += result.at[N][v] * result.at[N][v];
            });
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) squares[grade] = busy ? squares[grade] : C(0);
            give<GRADES>(squares, scratch[parity]);
            synchronize(clustered);
            in.flush(base);
            const C scale = inverse_root(take(scratch[parity], clustered) * share + C(1e-6));
            if (row < rows && blockIdx.y == 0 && threadIdx.x < GRADES) inverse_rms[threadIdx.x * rows + row] = scale;
            C factor[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) factor[grade] = __shfl_sync(0xffffffffu, scale, grade);
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) result.at[N][v] *= factor[grade];
            });
            if (busy) in.write(0, own, row * features + feature, result);
            in.advance(base);
            parity ^= 1;
        }
        in.close(base);
        // No block of a cluster ends before the others have read its sums.
        if (clustered) synchronize(true);
    }

    /// Where the weights of a thread's features are while it works, and the sums of their gradients: in registers, or, where there
    /// are too many, in shared memory behind the stages, a column for each thread.
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

    /// Gradients of x and y (each may be null), and (may be null) partial gradients [gridDim.x, ...] of w [features, paths], rounded up to 4
    /// elements, and of a bias [features] of y's scalar part.
    ///
    /// With r = 1/rms and o the product, the gradient of the norm's input is r·(g - o·r²·Σ o·g/N).
    ///
    /// TURNED: grad_y is there, and transposed, [blades, features, rows]; rows are a multiple of GROUP, of which blockDim.y is a
    /// divisor; there are two stages, and WIDTH·BLADES·GROUP elements behind them.
    template <bool TURNED = false>
    GW_DEVICE static void backward(T* buffer, const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y,
                                   C* partial, i64 rows, i64 features, i32 stages) {
        __shared__ alignas(16) u64 full[STAGES];
        __shared__ Scratch<2 * GRADES> scratch;
        const bool clustered = gridDim.y > 1;
        typename Choose<TURNED, Turned, Stream<3, 2>>::type in{x, y, grad, grad_x, grad_y, buffer, full, rows * features,
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
            // Idle threads compute on what is there.
            const int own = active ? static_cast<int>((row < rows ? threadIdx.y : 0) * in.across + threadIdx.x * V) : 0;
            in.wait();
            Element a, b, g;
            in.read(0, own, a);
            in.read(1, own, b);
            const Slope slope_a = Product::gate_with_slope(a), slope_b = Product::gate_with_slope(b);
            Element output;
            Product::multiply(a, b, kept.weights, output);
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
            give<2 * GRADES>(values, scratch[parity]);
            synchronize(clustered);
            in.flush(base);
            const C total = take(scratch[parity], clustered);
            const C along = __shfl_down_sync(0xffffffffu, total, GRADES) * share;
            const C scale = inverse_root(total * share + C(1e-6));
            const C pull = along * scale * scale;
            C factor[GRADES], part[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                const C common = __shfl_sync(0xffffffffu, scale, grade);
                factor[grade] = busy ? common : C(0);
                part[grade] = __shfl_sync(0xffffffffu, pull, grade);
            }
            each<BLADES>([&](auto blade) {
                constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    g.at[N][v] = factor[grade] * (g.at[N][v] - output.at[N][v] * part[grade]);
                }
            });
            if constexpr (TURNED) {
                // In a cluster not before its barrier, which waits for what was written.
                if (in.follows_group(base)) in.write_group(base);
            }
            Element da, db;
            Product::differentiate(a, b, g, kept.weights, da, db, kept.sums);
            Product::gate_backward(a, slope_a, da);
            Product::gate_backward(b, slope_b, db);
#pragma unroll
            for (int v = 0; v < V; ++v) bias[v] += db.at[0][v];
            if constexpr (TURNED) {
                // The columns are free for the next group.
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
        leave(kept, bias, reinterpret_cast<C*>(buffer), active, in.across, partial + in.first * PATHS,
              partial + weight_count + in.first);
    }

    /// Writes the sums of this block's rows by way of shared memory, where those of rows that were worked on at a time are
    /// added, in order: to `weights` [features of the slice, paths] and to `biases` [features of the slice].
    GW_DEVICE static void leave(Kept& kept, const C (&bias)[V], C* space, bool active, i32 across, C* weights, C* biases) {
        __syncthreads();
        C* const own = space + threadIdx.x * V * PATHS;
        C* const own_bias = space + across * PATHS + threadIdx.x * V;
#pragma unroll 1
        for (int y = 0; y < blockDim.y; ++y) {
            if (threadIdx.y == y && active) {
#pragma unroll
                for (int i = 0; i < V * PATHS; i += AT_ONCE) {
                    C sums[AT_ONCE] = {};
                    if (y > 0) ::load<AT_ONCE>(own + i, sums);
#pragma unroll
                    for (int e = 0; e < AT_ONCE; ++e) sums[e] += kept.sums((i + e) % PATHS, (i + e) / PATHS);
                    ::store<AT_ONCE>(own + i, sums);
                }
#pragma unroll
                for (int v = 0; v < V; ++v) own_bias[v] = y == 0 ? bias[v] : own_bias[v] + bias[v];
            }
            __syncthreads();
        }
        const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
        for (int i = thread; i < across * PATHS; i += threads) weights[i] = space[i];
        for (int i = thread; i < across; i += threads) biases[i] = space[across * PATHS + i];
    }
};

/// BLOCKS is how many blocks are to fit on a multiprocessor.
#define GW_SGP_ROWS_FORWARD(P, Q, R, T, NAME, V, THREADS, BLOCKS)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gw_sgp_rows_fwd_##P##_##Q##_##R##_##NAME(                  \
        const T* x, const T* y, const T* w, T* out, Compute<T>* inverse_rms, i64 rows, i64 features, i32 stages) { \
        begin_kernel();                                                                                            \
        extern __shared__ uint4 shared[];                                                                                    \
        SgpRows<Algebra<P, Q, R>, T, V, THREADS>::forward(reinterpret_cast<T*>(shared), x, y, w, out, inverse_rms, rows,     \
                                                          features, stages);                                          \
    }

#define GW_SGP_ROWS_BACKWARD(P, Q, R, T, NAME, V, THREADS, BLOCKS)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gw_sgp_rows_bwd_##P##_##Q##_##R##_##NAME(                  \
        const T* x, const T* y, const T* w, const T* grad, T* grad_x, T* grad_y, Compute<T>* partial, i64 rows,              \
        i64 features, i32 stages) {                                                                               \
        begin_kernel();                                                                                           \
        extern __shared__ uint4 shared[];                                                                                    \
        SgpRows<Algebra<P, Q, R>, T, V, THREADS>::backward(reinterpret_cast<T*>(shared), x, y, w, grad, grad_x, grad_y,      \
                                                           partial, rows, features, stages);                          \
    }

/// For sm_90, where the matrix products are that read what it writes; a trap elsewhere.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define GW_RUN_TURNED(...) __VA_ARGS__
#else
#define GW_RUN_TURNED(...) __trap()
#endif
#define GW_SGP_ROWS_TURNED(P, Q, R, V, THREADS)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_sgp_rows_bwd_turned_##P##_##Q##_##R##_f32(                   \
        const float* x, const float* y, const float* w, const float* grad, float* grad_x, float* grad_y, float* partial,     \
        i64 rows, i64 features, i32 stages) {                                                                                \
        begin_kernel();                                                                                                      \
        extern __shared__ uint4 shared[];                                                                                    \
        using Rows = SgpRows<Algebra<P, Q, R>, float, V, THREADS>;                                                           \
        GW_RUN_TURNED(Rows::template backward<true>(reinterpret_cast<float*>(shared), x, y, w, grad, grad_x, grad_y,         \
                                                    partial, rows, features, stages));                                       \
    }

#define GW_SGP_ROWS(P, Q, R, V, THREADS, FORWARD_BLOCKS, BACKWARD_BLOCKS)                 \
    GW_SGP_ROWS_FORWARD(P, Q, R, float, f32, V, THREADS, FORWARD_BLOCKS)                  \
    GW_SGP_ROWS_FORWARD(P, Q, R, bf16, bf16, V, THREADS, FORWARD_BLOCKS)                  \
    GW_SGP_ROWS_FORWARD(P, Q, R, f16, f16, V, THREADS, FORWARD_BLOCKS)                    \
    GW_SGP_ROWS_BACKWARD(P, Q, R, float, f32, V, THREADS, BACKWARD_BLOCKS)                \
    GW_SGP_ROWS_BACKWARD(P, Q, R, bf16, bf16, V, THREADS, BACKWARD_BLOCKS)                \
    GW_SGP_ROWS_BACKWARD(P, Q, R, f16, f16, V, THREADS, BACKWARD_BLOCKS)

/// All kernels of an algebra of up to 8, 16 or 32 blades; the numbers are those of `Plan::of` in the launcher (sgp/rows.rs).
#define GW_SGP_ROWS_8(P, Q, R)          \
    GW_SGP_ROWS(P, Q, R, 2, 256, 2, 1)  \
    GW_SGP_ROWS_TURNED(P, Q, R, 2, 256)
#define GW_SGP_ROWS_16(P, Q, R)         \
    GW_SGP_ROWS(P, Q, R, 1, 256, 2, 1)  \
    GW_SGP_ROWS_TURNED(P, Q, R, 1, 256)
#define GW_SGP_ROWS_32(P, Q, R) GW_SGP_ROWS(P, Q, R, 1, 128, 3, 1)
