// The producer warps of clifford/block/sm90_64_first_gradients.cuh: they copy rows to shared memory and make operands of them, some steps ahead of
// the warps that multiply.
#pragma once

#include "clifford/block/operands_two_f16.cuh"
#include "clifford/block/sm90_64_halves.cuh"
#include "ptx/barrier.cuh"

template <class A, class T, int PRODUCTS, int COLUMNS>
struct Block64FirstRows {
    using TwoF16 = OperandsTwoF16;
    using Sizes = Block64FirstSizes<static_cast<int>(sizeof(T)), COLUMNS>;
    static constexpr int GRADES = A::GRADES, ROWS = Sizes::ROWS, WIDTH = Sizes::WIDTH;
    static constexpr auto tables = A::make();
    /// Whether rows are split, and into how many numbers.
    static constexpr bool SPLIT = sizeof(T) == 4;
    static constexpr int NUMBERS = PRODUCTS == 3 ? 2 : 1;
    /// Threads that form one of the results, and those that copy.
    static constexpr int THREADS = Sizes::THREADS, MULTIPLYING = COLUMNS * 2, COPYING = THREADS - 2 * MULTIPLYING;
    /// Elements of 16 bytes, and bytes of a row in shared memory.
    static constexpr int SIZE = static_cast<int>(sizeof(T)), PACK = 16 / SIZE;
    template <int COUNT>
    static constexpr int LINE = Sizes::template LINE<COUNT>;
    /// Threads along a row of COUNT columns, and rows at a time: a power of two.
    template <int COUNT>
    static constexpr int ALONG = COUNT / PACK;
    static constexpr int ROWS_AT_ONCE = (COLUMNS == 64 ? 4 : 2) * PACK, ROUNDS = ROWS / ROWS_AT_ONCE;
    static_assert(ROWS_AT_ONCE * ALONG<COLUMNS> <= COPYING && ROWS_AT_ONCE * ROUNDS == ROWS);
    /// Bytes from 8 columns to the next ones: with f32, low parts are behind the high ones.
    static constexpr int CHUNK = SPLIT ? 32 : 16, LOW = 16;
    static constexpr int STAGES = Sizes::STAGES, AHEAD = STAGES * 3 / 4, ARRAY = Sizes::ARRAY, STAGE = Sizes::STAGE;
    /// Groups of 16 rows, which have a scale of their own.
    static constexpr int GROUPS = Sizes::GROUPS;
    static_assert(ROWS == 16 * GROUPS);
    /// Magnitudes of a step: those of eight warps for each scale, so that each lane of a warp has one.
    static constexpr int MAGNITUDES = Sizes::STAGE_MAGNITUDES;

    struct Sources {
        const T *x, *grad, *matrices;
        i64 rows;
        int inputs, pitch, features;
    };

    char* shared;
    float* magnitudes;  // Largest ones of each array and group and the warps that copy, of two steps.
    float* inverses;    // Those of scales, of every stage.
    u64 *full, *empty;  // Whether a stage has been filled, and read.
    const Sources& sources;
    int column;      // The block's first column of x.
    int tiles;       // Of the block: `blockIdx.x`, and every `gridDim.x`-th from there on.
    int begin, end;  // Its blades.

    /// Dynamic shared memory: STAGES stages, 64 magnitudes, four scales and two barriers for each. Has a barrier.
    GW_DEVICE Block64FirstRows(char* shared, const Sources& sources) : shared(shared), sources(sources) {
        magnitudes = reinterpret_cast<float*>(shared + Sizes::MAGNITUDES);
        inverses = reinterpret_cast<float*>(shared + Sizes::INVERSES);
        full = reinterpret_cast<u64*>(shared + Sizes::BARRIERS);
        empty = full + STAGES;
        column = blockIdx.y * COLUMNS;
        const int all = static_cast<int>((sources.rows + ROWS - 1) / ROWS), blocks = gridDim.x, number = blockIdx.x;
        tiles = (all - number + blocks - 1) / blocks;
        begin = blockIdx.z * Block64Halves<A>::COUNT;
        end = begin + Block64Halves<A>::COUNT;
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(full + stage, COPYING);
                barrier_init(empty + stage, 2 * MULTIPLYING);
            }
            barrier_init_fence();
        }
        __syncthreads();
    }

    GW_DEVICE i64 first_row(int tile) const { return (blockIdx.x + static_cast<i64>(tile) * gridDim.x) * ROWS; }

    /// An array [BLADES, rows, width] of which a thread copies 16 bytes of some rows of every step. `unit` are the bytes of the widest access that
    /// its rows allow.
    template <int COUNT>
    struct Source {
        static constexpr int STRIDE = ROWS_AT_ONCE * LINE<COUNT>;
        /// Whether all threads copy rows of it.
        static constexpr bool BY_ALL = ROWS_AT_ONCE * ALONG<COUNT> == COPYING;
        const T *array, *at;  // The thread's first element of the next step.
        int place, parts;     // In a stage, in bytes: where it copies to, and where high parts of that go.
        int bytes;            // That exist, of the 16 that it copies of a row.
        int pitch, unit;

        GW_DEVICE Source(const T* array, int width, int pitch, int column, int thread) : array(array), pitch(pitch) {
            const int x = thread % ALONG<COUNT> * PACK;
            place = BY_ALL || thread < ROWS_AT_ONCE * ALONG<COUNT> ? thread / ALONG<COUNT> * LINE<COUNT> + x * SIZE : -1;
            // Parts of four columns are halves of the 16 bytes of eight.
            parts = place - thread % ALONG<COUNT> % 2 * 8;
            bytes = min(max(width - column - x, 0), PACK) * SIZE;
            const u64 bits = reinterpret_cast<u64>(array) | static_cast<u64>(pitch) * SIZE;
            unit = bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : SIZE;
        }

        GW_DEVICE bool skips() const { return !BY_ALL && place < 0; }

        /// Makes the step of a blade that begins with the row `first` the next one; `rows` are those of a blade.
        GW_DEVICE void seek(int blade, i64 first, i64 rows, int column, int thread) {
            at = array + (blade * rows + first + thread / ALONG<COUNT>) * pitch + column + thread % ALONG<COUNT> * PACK;
        }

        /// Starts copying the step's rows, of which `lines` exist for the thread; zeros elsewhere.
        GW_DEVICE void fetch(char* stage, int lines) const {
            if (skips()) return;
            char* const to = stage + place;
            if (unit == 16) {
#pragma unroll
                for (int n = 0; n < ROUNDS; ++n) {
                    // Rows of x may end within 16 bytes.
                    copy_async_16(to + n * STRIDE, at + n * ROWS_AT_ONCE * pitch, n * ROWS_AT_ONCE < lines ? bytes : 0);
                }
                return;
            }
#pragma unroll 1
            for (int n = 0; n < ROUNDS; ++n) {
                const int own = n * ROWS_AT_ONCE < lines ? bytes : 0;
                const T* const from = at + n * ROWS_AT_ONCE * pitch;
#pragma unroll 1
                for (int byte = 0; byte < 16; byte += unit) {
                    char* const word = to + n * STRIDE + byte;
                    const int left = max(own - byte, 0);
                    if (unit == 8) {
                        copy_async_8(word, from + byte / SIZE, min(left, 8));
                    } else if constexpr (SIZE == 4) {
                        copy_async_4(word, from + byte / SIZE, min(left, 4));
                    } else {
                        *reinterpret_cast<T*>(word) = left > 0 ? from[byte / SIZE] : T{};
                    }
                }
            }
        }

        /// The thread's values of a stage, of which copies have arrived, and the largest of each group.
        GW_DEVICE void read(const char* stage, float (&values)[ROUNDS][4], float (&largest)[GROUPS]) const {
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) largest[group] = 0;
            if (skips()) return;
#pragma unroll
            for (int n = 0; n < ROUNDS; ++n) {
                load<4>(reinterpret_cast<const float*>(stage + place + n * STRIDE), values[n]);
#pragma unroll
                for (int i = 0; i < 4; ++i) largest[n * ROWS_AT_ONCE / 16] = TwoF16::larger(largest[n * ROWS_AT_ONCE / 16], values[n][i]);
            }
        }

        /// Writes them in parts.
        GW_DEVICE void write(char* stage, const float (&values)[ROUNDS][4], const float (&factors)[GROUPS]) const {
            if (skips()) return;
            char* const to = stage + parts;
#pragma unroll
            for (int n = 0; n < ROUNDS; ++n) {
                const float factor = factors[n * ROWS_AT_ONCE / 16];
                u32 high[2], low[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float first = values[n][2 * i] * factor, second = values[n][2 * i + 1] * factor;
                    if constexpr (PRODUCTS == 3) {
                        TwoF16::split(first, second, high[i], low[i]);
                    } else {
                        high[i] = TwoF16::round(first, second);
                    }
                }
                *reinterpret_cast<uint2*>(to + n * STRIDE) = {high[0], high[1]};
                if constexpr (PRODUCTS == 3) *reinterpret_cast<uint2*>(to + n * STRIDE + LOW) = {low[0], low[1]};
            }
        }
    };

    /// The producer threads, of which this is number `thread`.
    GW_DEVICE void produce(int thread) const {
        Source<COLUMNS> x(sources.x, sources.inputs, sources.pitch, column, thread);
        Source<WIDTH> grad(sources.grad, sources.features, sources.features, 0, thread);
        const int steps = (end - begin) * tiles;
        const i64 stride = static_cast<i64>(gridDim.x) * ROWS, x_stride = stride * x.pitch, grad_stride = stride * grad.pitch;
        // What is fetched next, and the rows from there on.
        int step = 0, blade = begin, tile = 0;
        i64 left = 0;
        auto start = [&] {
            if (step < steps) {
                const int stage = step % STAGES;
                if (step >= STAGES) barrier_wait(empty + stage, (step / STAGES - 1) % 2);
                if (tile == 0) {
                    const i64 first = first_row(0);
                    x.seek(blade, first, sources.rows, column, thread);
                    grad.seek(blade, first, sources.rows, 0, thread);
                    left = sources.rows - first;
                }
                const int lines = left < ROWS ? static_cast<int>(left) : ROWS;
                x.fetch(shared + stage * STAGE, lines - thread / ALONG<COLUMNS>);
                grad.fetch(shared + stage * STAGE + ARRAY, lines - thread / ALONG<WIDTH>);
                x.at += x_stride;
                grad.at += grad_stride;
                left -= stride;
                if (++tile == tiles) {
                    tile = 0;
                    ++blade;
                }
            }
            ++step;
            copy_async_commit();
        };
        if (SPLIT && thread < 2 * MAGNITUDES) magnitudes[thread] = 0;
#pragma unroll 1
        for (int n = 0; n < AHEAD; ++n) start();
        if constexpr (!SPLIT) {
#pragma unroll 1
            for (int n = 0; n < steps; ++n) {
                start();
                copy_async_wait<AHEAD>();
                barrier_arrive(full + n % STAGES);
            }
        } else {
            // A step is read while the one before is split: its largest magnitudes are known behind a barrier, and no thread reads any more what a
            // thread overwrites.
            const int lane = thread % 32;
            float values[2][ROUNDS][4], largest[2][GROUPS];
            auto publish_largest = [&](float* target) {
#pragma unroll
                for (int n = 0; n < 2 * GROUPS; ++n) {
                    const float most = TwoF16::largest_of_warp(largest[n / GROUPS][n % GROUPS]);
                    if (lane == 0) target[8 * n + thread / 32] = most;
                }
            };
            copy_async_wait<AHEAD - 1>();
            producer_barrier();
            x.read(shared, values[0], largest[0]);
            grad.read(shared + ARRAY, values[1], largest[1]);
            publish_largest(magnitudes);
            producer_barrier();
#pragma unroll 1
            for (int n = 0; n < steps; ++n) {
                start();
                copy_async_wait<AHEAD - 1>();
                char *const stage = shared + n % STAGES * STAGE, *const next = shared + (n + 1) % STAGES * STAGE;
                float later[2][ROUNDS][4];
                x.read(next, later[0], largest[0]);
                grad.read(next + ARRAY, later[1], largest[1]);
                // Lanes 8i to 8i + 7 have the magnitudes of scale i.
                float most = magnitudes[n % 2 * MAGNITUDES + lane], factors[2][GROUPS];
#pragma unroll
                for (int apart = 4; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
                const auto scale = TwoF16::scale_of(most);
                if (thread < 32 && lane % 8 == 0) inverses[n % STAGES * 2 * GROUPS + lane / 8] = scale.inverse;
#pragma unroll
                for (int i = 0; i < 2 * GROUPS; ++i) factors[i / GROUPS][i % GROUPS] = __shfl_sync(0xffffffffu, scale.factor, 8 * i);
                publish_largest(magnitudes + (n + 1) % 2 * MAGNITUDES);
                x.write(stage, values[0], factors[0]);
                grad.write(stage + ARRAY, values[1], factors[1]);
                barrier_arrive(full + n % STAGES);
#pragma unroll
                for (int i = 0; i < 8 * ROUNDS; ++i) values[i / 4 / ROUNDS][i / 4 % ROUNDS][i % 4] = later[i / 4 / ROUNDS][i / 4 % ROUNDS][i % 4];
                producer_barrier();
            }
        }
        copy_async_wait<0>();
    }

    /// A barrier of the producer warps.
    GW_DEVICE static void producer_barrier() { asm volatile("bar.sync 2, %0;" ::"n"(COPYING) : "memory"); }

    /// A copy of 8 bytes, of which the first `bytes` are read and the rest become zero.
    GW_DEVICE static void copy_async_8(void* target, const void* source, int bytes) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes));
    }
};
