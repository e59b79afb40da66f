// Streams of rows: copies of several arrays' rows into shared memory ahead of their use, and of results back
// (clifford/product/persistent.cuh).
//
// blockDim is (threads along a row, a multiple of 32; rows worked on at a time), at most THREADS threads in all. blockIdx.x selects
// the first row, blockIdx.y the slice of blockDim.x·V features. Features·sizeof(T) must be a multiple of 16 and addresses aligned
// to 16.
#pragma once

#include "clifford/product/multivectors.cuh"
#include "clifford/product/product_launch.cuh"
#include "ptx/bulk.cuh"

template <class A, class T, int V, int THREADS>
struct RowStreams {
    using C = Compute<T>;
    using Element = typename Multivectors<A, C, V>::Element;
    static constexpr int BLADES = A::BLADES;
    /// Most elements of one blade that a block works on at a time, and their space in a stage.
    static constexpr int WIDTH = THREADS * V;
    /// Most stages.
    static constexpr int STAGES = product_persistent::MOST_STAGES;

    /// A ring of stages in shared memory. Each stage holds the rows of `IN` arrays; results overwrite the first `OUT` of them and
    /// leave from there.
    template <int IN, int OUT>
    struct Stream {
        const T* source[IN];
        T* target[OUT];
        T* buffer;
        u64* full;
        i64 plane, features, end;
        i32 stages;
        i32 first;   // The slice's first feature.
        i32 across;  // Number of features of the slice.
        i32 stage, phase;

        static constexpr int STAGE = IN * BLADES * WIDTH;

        GW_DEVICE void set_slice() {
            first = static_cast<i32>(blockIdx.y * blockDim.x * V);
            const i64 rest = features - first;
            across = static_cast<i32>(rest < blockDim.x * V ? rest : blockDim.x * V);
            stage = phase = 0;
        }

        /// Initialises the barriers and starts the copies of the first stages. All threads call it.
        GW_DEVICE void open() {
            set_slice();
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

        /// Blocks take rows in turn, so that rows in flight are adjacent in memory.
        GW_DEVICE static i64 begin() { return static_cast<i64>(blockIdx.x) * blockDim.y; }
        GW_DEVICE static i64 step() { return static_cast<i64>(gridDim.x) * blockDim.y; }
        GW_DEVICE static i64 after(i64 row) { return row + step(); }

        /// Bytes of one blade of the rows from `row` on; 0 past the end.
        GW_DEVICE u32 bytes(i64 row) const {
            const i64 left = end - row;
            const int rows = left < 0 ? 0 : left < blockDim.y ? static_cast<int>(left) : blockDim.y;
            return static_cast<u32>(rows * across) * sizeof(T);
        }

        GW_DEVICE static int warp() { return (threadIdx.y * blockDim.x + threadIdx.x) / 32; }
        GW_DEVICE static int warps() { return blockDim.x * blockDim.y / 32; }

        /// Starts copying the rows from `row` on. All threads call it; on sm_90, one thread of each warp issues the copies of its
        /// blades.
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

        /// Waits for the rows of the present stage. After: all threads may read them.
        GW_DEVICE void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            barrier_wait(full + stage, phase & 1);
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

        /// Reads this thread's features of one array; `own` is their offset in a blade.
        GW_DEVICE void read(int array, int own, Element& element) const {
            const T* from = buffer + stage * STAGE + array * BLADES * WIDTH + own;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::load<V>(from + blade * WIDTH, element.at[blade]);
        }

        /// Writes this thread's features of one result. `position` is their place in the target array.
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

        /// Sends the results of the step before. Before: a barrier after `wait` and `read` of this step. `base` is the present row.
        /// On older devices, starts the copies into the present stage instead.
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

        /// Ends a step, and starts the copies into the stage whose results were sent.
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
                ++phase;
            }
        }

        /// Sends the results of the last step and waits for them. `base` is one past its rows. All threads call it.
        GW_DEVICE void close(i64 base) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            __syncthreads();
            flush(base);
            if (threadIdx.x % 32 == 0) store_wait<0>();
#endif
        }

        GW_DEVICE int previous() const { return stage == 0 ? stages - 1 : stage - 1; }
    };

    /// Rows in a 32-byte sector of a transposed array of f32.
    static constexpr int GROUP = product_persistent::GROUP;

    /// The stream of the backward pass that writes the gradient of y transposed (sm_90). A block takes GROUP consecutive rows,
    /// blockDim.y at a time, then those of its next group, and gathers their gradients of y behind the stages. That leaves room for
    /// two stages: copies replace all three operands by the rows two steps on as soon as all threads have read them, and the
    /// gradient of x is stored directly.
    struct TransposedStream : Stream<3, 2> {
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
        using Base::phase;

        GW_DEVICE static i64 begin() { return static_cast<i64>(blockIdx.x) * GROUP; }
        /// Distance from the end of a group to the block's next group.
        GW_DEVICE static i64 skip() { return static_cast<i64>(gridDim.x - 1) * GROUP; }

        /// The index of a row in its group.
        GW_DEVICE static u32 number(i64 row) { return static_cast<u32>(row) % GROUP; }

        GW_DEVICE static i64 after(i64 row) {
            row += blockDim.y;
            return number(row) == 0 ? row + skip() : row;
        }

        GW_DEVICE void open() {
            this->set_slice();
            if (threadIdx.x == 0 && threadIdx.y == 0) {
                for (int i = 0; i < STAGES; ++i) barrier_init(full + i, 1);
                barrier_init_fence();
            }
            __syncthreads();
            this->start(0, begin());
            this->start(1, after(begin()));
        }

        /// Starts the copies of the rows two steps on into the present stage. Before: a barrier after all reads of the stage.
        /// `base` is the present row.
        GW_DEVICE void flush(i64 base) { this->start(stage, after(after(base))); }

        GW_DEVICE void write(i64 position, const Element& element) const {
            if (target[0] == nullptr) return;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) ::store<V>(target[0] + blade * plane + position, element.at[blade]);
        }

        GW_DEVICE void advance() {
            stage ^= 1;
            phase += stage == 0;
        }

        /// The gathered columns of this block, GROUP rows of each: column v·THREADS + t for feature t·V + v. Row r of column c is
        /// word (r + c/4) % GROUP of the column, which keeps accesses along rows and along columns free of bank conflicts.
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

        /// Whether `base` begins a new group, so that a whole group of this block has been gathered.
        GW_DEVICE static bool follows_group(i64 base) { return number(base) == 0 && base != begin(); }

        /// Writes the group gathered before `base`. Before: a barrier after `gather`. A warp takes the columns of its own threads:
        /// of all blades, or of some where several warps have the same columns. Two lanes write a sector.
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
                        // 16 columns further, the rotation puts the other half of the sector at the same words.
                        ::store<4>(to + (16 * i * V + v) * end + 4 * (half ^ i), values);
                    }
                }
                from += blockDim.y * WIDTH * GROUP;
                to += blockDim.y * features * end;
            }
        }

        /// Writes the last group. `base` is what would follow. All threads call it.
        GW_DEVICE void close(i64 base) {
            __syncthreads();
            if (follows_group(base)) write_group(base);
        }
    };
};
