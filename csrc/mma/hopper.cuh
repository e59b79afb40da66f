// Tile products by the matrix instructions of warpgroups, fed by the copy engine (sm_90a).
//
// D[z] = alpha·Σ_segments R·Sᵀ with R rows×k and S columns×k; C is D, or its transpose. Blocks are persistent and compute tiles of
// 128×BN. One producer thread copies tiles of R and S into a ring of STAGES stages; two consumer warpgroups multiply them, 64 rows
// each, or with BLOCKS = 2 and tiles of 256×BN twice 64. Two blocks of a cluster compute tiles one below the other and share the
// tile of S: each fetches half of it for both.
// docs/kernels/matmul.md explains the design.
#pragma once

#include "gradewise/types.cuh"
#include "mma/tiles_launch.cuh"
#include "mma/units.cuh"
#include "ptx/tensor_map.cuh"
#include "ptx/wgmma.cuh"

/// The parameters of a launch. Segments are those of mma/problem.cuh.
struct TileProblem {
    TensorMap r, s, out;
    void* c;
    const void* bias;
    const i32* starts;
    const i32* r_index;
    const i32* s_index;
    i64 rows, columns;
    /// Strides in elements: from one C to the next, and from one row of C to the next.
    i64 c_stride, c_row;
    /// Number of z, steps along k per segment, and most steps per stretch.
    i32 count, steps, share;
    /// The bias is added at z from bias_first to before bias_last; it has one element per column of C.
    i32 bias_first, bias_last;
    i32 accumulate;
    /// Whether tiles of C are written through the tensor map `out`, in boxes of 128 bytes along rows of C by 64 rows, or by 32 if C
    /// is transposed.
    i32 boxes;
    /// The stride of matrices in the tensor maps; 0 if all segments use the same matrix.
    i32 r_step, s_step;
    float alpha;
    /// If `split`, sums are cut into stretches: those of z are numbered list[z] to list[z + 1] and are written to c[stretch, rows,
    /// columns] in f32. If `ordered`, list holds the z in the order of computation, the longest first.
    i32 split, ordered;
    i32 list[33];
    /// If not null, R is also written transposed to it, [matrices, k, rows], while it passes through shared memory. Requires f32, k
    /// along the rows of R, one segment per z, and matrix z of R for each z.
    float* r_transposed;
    i64 k;
};

/// A stage has room for S_TILES tiles of S, of which the copies fill the first. The problem P is TileProblem, or derived from it by
/// who fetches the tiles in another way (fields/hopper.cuh).
template <class T, int BN_, bool R_ACROSS, bool S_ACROSS, bool TRANSPOSED, int CLUSTER, int STAGES, int S_TILES = 1,
          class P = TileProblem, int BLOCKS_ = 1>
struct Hopper : Units<P, 128 * BLOCKS_, BN_, CLUSTER> {
    using Problem = P;
    using Element = T;
    using Base = Units<P, 128 * BLOCKS_, BN_, CLUSTER>;
    using Base::number;
    using Base::p;
    using Base::rank;
    using Base::rounds;
    using Base::unit;
    /// Instructions have 64 rows: a consumer warpgroup multiplies BLOCKS blocks of 64, one below the other.
    static constexpr int BLOCKS = BLOCKS_, BM = 128 * BLOCKS, BN = BN_;
    /// Depth of a step: 128 bytes along k.
    static constexpr int BK = 128 / sizeof(T);
    /// If k runs across rows, operands are copied in pieces of PIECE elements by BK.
    static constexpr int PIECE = 128 / sizeof(T), PIECE_BYTES = BK * 128;
    /// Of R, the rows of one instruction.
    static constexpr int BLOCK_BYTES = 64 * 128;
    static constexpr int R_BYTES = BM * 128, S_BYTES = BN * 128, STAGE = R_BYTES + S_TILES * S_BYTES;
    static constexpr int STAGE_COUNT = STAGES, RING_BYTES = STAGES * STAGE;
    /// Boxes of a warpgroup for results on their way out, used in turn.
    static constexpr int BOXES = 2, BOX_BYTES = 8 << 10, OUT_BYTES = BOXES * BOX_BYTES;
    static constexpr int BARRIER_BYTES = hopper_tile::BARRIERS;
    static constexpr int SHARED_BYTES = hopper_tile::shared(BM, BN, STAGES, S_TILES);
    static_assert(SHARED_BYTES == RING_BYTES + 2 * OUT_BYTES + BARRIER_BYTES && SHARED_BYTES <= 227 << 10, "fits a block");
    /// Threads of the two consumer warpgroups; the third warpgroup is the producer's.
    static constexpr int MULTIPLYING = 256, THREADS = hopper_tile::THREADS;
    /// Registers per thread: at launch, then of the producer's and of the consumers' warpgroups. Asking for more than the block has
    /// would wait forever.
    static constexpr bool ASSISTED = sizeof(T) == 4 && BLOCKS == 1;
    static constexpr int START = 168, FEW = ASSISTED ? 56 : 40, MANY = ASSISTED ? 224 : 232;
    static_assert(128 * FEW + MULTIPLYING * MANY <= THREADS * START, "the block has no more registers");
    /// TF32 operands whose k runs across go through registers: the instruction cannot transpose 32-bit elements.
    static constexpr bool BY_REGISTERS = sizeof(T) == 4 && R_ACROSS;
    static_assert(!(sizeof(T) == 4 && S_ACROSS), "S of 32-bit elements has its k along rows");
    /// Depth of one instruction along k.
    static constexpr int DEPTH = 32 / sizeof(T);
    /// Sums of a thread in one block of 64 rows.
    static constexpr int SUMS = BN / 2;

    struct Ring {
        u64 full[STAGES], empty[STAGES];
        /// Used by HopperExact: S has been split.
        u64 split[STAGES];
    };
    static_assert(sizeof(Ring) <= BARRIER_BYTES, "there is room");

    Ring& ring;
    unsigned char* memory;

    GW_DEVICE Hopper(const P& problem, Ring& ring, unsigned char* shared)
        : Base(problem, CLUSTER == 1 ? 0 : cluster_rank()), ring(ring) {
        memory = shared;
    }

    /// Threads that call `produce`, the first of their warpgroup.
    static constexpr int PRODUCERS = 1;

    /// The producer: copies the tiles of all of the block's units, in order.
    GW_DEVICE void produce() const {
        tensor_map_prefetch(p.r);
        tensor_map_prefetch(p.s);
        int stage = 0;
        u32 phase = 0;
        for (i32 round = 0; round < rounds(); ++round) {
            const i32 own = number(round);
            if (own < 0) break;
            const Unit u = unit(own);
            i32 segment = u.first_segment + u.begin / p.steps, depth = u.begin % p.steps;
            for (i32 step = u.begin; step < u.end; ++step) {
                const i32 k = depth * BK;
                const i32 r_matrix = p.r_step * (p.r_index == nullptr ? segment : p.r_index[segment]);
                const i32 s_matrix = p.s_step * (p.s_index == nullptr ? segment : p.s_index[segment]);
                barrier_wait(&ring.empty[stage], phase ^ 1);
                u64* full = &ring.full[stage];
                barrier_expect(full, R_BYTES + S_BYTES);
                unsigned char* r = memory + stage * STAGE;
                unsigned char* s = r + R_BYTES;
                if constexpr (R_ACROSS) {
#pragma unroll
                    for (int i = 0; i < BM / PIECE; ++i) copy_box(r + i * PIECE_BYTES, p.r, u.row + i * PIECE, k, r_matrix, full);
                } else {
                    copy_box(r, p.r, k, u.row, r_matrix, full);
                }
                const auto copy_s = [&](int offset, i32 x, i32 y) {
                    if constexpr (CLUSTER == 1) {
                        copy_box(s + offset, p.s, x, y, s_matrix, full);
                    } else {
                        copy_box_to(3, s + offset, p.s, x, y, s_matrix, full);
                    }
                };
                if constexpr (S_ACROSS) {
                    constexpr int PIECES = BN / PIECE / CLUSTER;
#pragma unroll
                    for (int i = 0; i < PIECES; ++i) {
                        const int piece = rank * PIECES + i;
                        copy_s(piece * PIECE_BYTES, u.column + piece * PIECE, k);
                    }
                } else {
                    constexpr int ROWS = BN / CLUSTER;
                    copy_s(rank * ROWS * 128, k, u.column + rank * ROWS);
                }
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
                if (++depth == p.steps) {
                    depth = 0;
                    ++segment;
                }
            }
        }
    }

    /// Warps of the producer's warpgroup that do not copy; they may write R transposed.
    static constexpr int ASSISTING = 3;
    static constexpr bool CAN_TRANSPOSE = ASSISTED && !R_ACROSS;

    GW_DEVICE bool transposes() const { return CAN_TRANSPOSE && p.r_transposed != nullptr; }

    /// Body of these warps.
    GW_DEVICE void assist() const {
        if constexpr (CAN_TRANSPOSE) {
            if (transposes()) transpose_r();
        }
    }

    /// Arrivals that empty a stage: one per consumer warp of both blocks, plus one per assisting warp that reads this block's R.
    GW_DEVICE u32 readers() const { return 8 * CLUSTER + (transposes() ? ASSISTING : 0); }

    /// Writes R transposed; called by each assisting warp. The column tiles that share rows of R take its steps in turn.
    GW_DEVICE void transpose_r() const {
        const int warp = threadIdx.x / 32 % 4 - 1, lane = threadIdx.x % 32;
        int stage = 0;
        u32 phase = 0;
        for (i32 round = 0; round < rounds(); ++round) {
            const i32 own = number(round);
            if (own < 0) break;
            const Unit u = unit(own);
            for (i32 step = u.begin; step < u.end; ++step) {
                barrier_wait(&ring.full[stage], phase);
                if (step % this->column_tiles == u.column / BN) {
                    const unsigned char* r = memory + stage * STAGE;
                    // Each lane takes one row and four elements along k.
                    constexpr int PIECES = 8;
#pragma unroll 1
                    for (int job = warp; job < BM / 32 * PIECES; job += ASSISTING) {
                        const int line = job / PIECES * 32 + lane, piece = job % PIECES;
                        float values[4];
                        load<4>(reinterpret_cast<const float*>(r + line * 128 + (piece ^ line % 8) * 16), values);
                        const i64 row = u.row + line, depth = step * BK + piece * 4;
                        float* target = p.r_transposed + (u.z * p.k + depth) * p.rows + row;
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            if (row < p.rows && depth + e < p.k) target[e * p.rows] = values[e];
                        }
                    }
                    __syncwarp();
                }
                if (lane == 0) barrier_arrive(&ring.empty[stage], rank);
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
            }
        }
    }

    /// For R with k across: offsets of the four elements that a thread needs for the first instruction, rows g and g + 8 of its
    /// warp at k = t and at k = t + 4. The elements of the next instruction are eight lines further.
    GW_DEVICE static void places_across(int row, u32 (&places)[4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int m = row + lane / 4 + i % 2 * 8, k = lane % 4 + i / 2 * 4;
            places[i] = m / 32 * PIECE_BYTES + k * 128 + (m % 32 / 4 ^ k) * 16 + m % 4 * 4;
        }
    }

    /// A consumer warpgroup; `half` selects its half of the tile's rows.
    GW_DEVICE void consume(int half) const {
        consume(half, [&](const Unit& u, int block, const float(&sums)[SUMS]) {
            if (p.boxes && !p.split) {
                write<T, true>(u, block, sums);
            } else if (p.boxes) {
                write<float, true>(u, block, sums);
            } else {
                write<float, false>(u, block, sums);
            }
        });
    }

    /// The same; `put(unit, block, sums)` writes block `block` of the unit, rows 64·block to before 64·(block + 1).
    template <class Put>
    GW_DEVICE void consume(int half, Put&& put) const {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        int stage = 0;
        u32 phase = 0;
        float sums[BLOCKS][SUMS];
        u32 places[4];
        places_across(half * BLOCKS * 64 + warp * 16, places);
        // Warp-uniform; the shuffle makes that visible to the compiler.
        const u32 base = __shfl_sync(0xffffffffu, shared_address(memory), 0);
        const u64 r_matrix = wgmma_matrix(base + half * BLOCKS * BLOCK_BYTES, 1024, PIECE_BYTES);
        const u64 s_matrix = wgmma_matrix(base + R_BYTES, 1024, PIECE_BYTES);
        for (i32 round = 0; round < rounds(); ++round) {
            const i32 own = number(round);
            if (own < 0) break;
            const Unit u = unit(own);
            int previous = -1;
            const auto release = [&](int which) {
                if (which >= 0 && lane < CLUSTER) barrier_arrive(&ring.empty[which], lane);
            };
            const auto multiply = [&](u32 (&a)[BLOCKS][4][4], bool add) {
                barrier_wait(&ring.full[stage], phase);
                const unsigned char* r = memory + stage * STAGE;
                if constexpr (BY_REGISTERS) {
#pragma unroll
                    for (int i = 0; i < BLOCKS * 16; ++i) {
                        const u32 offset = i / 16 * BLOCK_BYTES + i % 16 / 4 * 1024;
                        a[i / 16][i % 16 / 4][i % 4] = *reinterpret_cast<const u32*>(r + places[i % 4] + offset);
                    }
                }
                const u64 left = r_matrix + stage * (STAGE / 16), right = s_matrix + stage * (STAGE / 16);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const u64 b = right + i * ((S_ACROSS ? DEPTH * 128 : 32) / 16);
#pragma unroll
                    for (int block = 0; block < BLOCKS; ++block) {
                        if constexpr (BY_REGISTERS) {
                            Wgmma<BN>::registers(sums[block], a[block][i], b, add || i > 0, T{});
                        } else {
                            const u64 matrix = left + block * (BLOCK_BYTES / 16) + i * ((R_ACROSS ? DEPTH * 128 : 32) / 16);
                            Wgmma<BN>::template shared<R_ACROSS, S_ACROSS>(sums[block], matrix, b, add || i > 0, T{});
                        }
                    }
                }
                wgmma_commit();
                // The previous group has finished: its stage and its registers are free.
                wgmma_wait<1>();
                release(previous);
                previous = stage;
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
            };
            u32 even[BLOCKS][4][4], odd[BLOCKS][4][4];
            i32 step = u.begin;
            if (step == u.end) {
#pragma unroll
                for (int i = 0; i < BLOCKS * SUMS; ++i) sums[i / SUMS][i % SUMS] = 0;
            }
            if constexpr (BY_REGISTERS) {
                // Two sets of registers in turn: the instructions of the step before may still be reading theirs.
                for (; step + 1 < u.end; step += 2) {
                    multiply(even, step > u.begin);
                    multiply(odd, true);
                }
                if (step < u.end) multiply(even, step > u.begin);
            } else {
                for (; step < u.end; ++step) multiply(even, step > u.begin);
            }
            wgmma_wait<0>();
            release(previous);
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                scale_and_bias(u, half * BLOCKS + block, sums[block]);
                put(u, half * BLOCKS + block, sums[block]);
            }
        }
        store_wait<0>();
    }

    /// sums = alpha·sums, plus the bias where the unit's z takes it.
    GW_DEVICE void scale_and_bias(const Unit& u, int block, float (&sums)[SUMS]) const {
        if (p.bias != nullptr && u.z >= p.bias_first && u.z < p.bias_last) {
            const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
            const T* bias = static_cast<const T*>(p.bias);
            const i32 row = u.row + block * 64 + warp * 16 + lane / 4, column = u.column + 2 * (lane % 4);
#pragma unroll
            for (int e = 0; e < SUMS; ++e) {
                const i32 at = TRANSPOSED ? row + e / 2 % 2 * 8 : column + e / 4 * 8 + e % 2;
                const i64 end = TRANSPOSED ? p.rows : p.columns;
                sums[e] = p.alpha * sums[e] + (at < end ? widen(bias[at]) : 0.0f);
            }
        } else if (p.alpha != 1) {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sums[i] *= p.alpha;
        }
    }

    /// Epilogue: writes a block of 64 rows through shared memory as elements of type O. If COPIED, the copy engine writes them
    /// while the next tile is computed; otherwise threads write element by element. All threads of the warpgroup call it.
    template <class O, bool COPIED>
    GW_DEVICE void write(const Unit& u, int block, const float (&sums)[SUMS]) const {
        constexpr int WIDE = 128 / sizeof(O);
        // Columns of D in a box.
        constexpr int COLUMNS = TRANSPOSED ? 32 : WIDE;
        static_assert(BN % COLUMNS == 0, "tiles are whole boxes");
        const int half = block / BLOCKS;
        const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
        unsigned char* const boxes = memory + RING_BYTES + half * OUT_BYTES;
        const i32 row = u.row + block * 64;
#pragma unroll
        for (int first = 0; first < BN; first += COLUMNS) {
            unsigned char* box = boxes + first / COLUMNS % BOXES * BOX_BYTES;
            // An odd number of boxes ends with the box that the next tile begins with.
            constexpr bool ODD = BN / COLUMNS % BOXES != 0;
            if (COPIED && thread == 0) {
                if (ODD && first == 0) {
                    store_wait<0>();
                } else {
                    store_wait<BOXES - 1>();
                }
            }
            named_barrier(1 + half, 128);
#pragma unroll
            for (int e = 0; e < COLUMNS / 2; e += 2) {
                // Two adjacent elements of a row of D.
                const int column = e / 4 * 8 + 2 * t, i = warp * 16 + g + e / 2 % 2 * 8;
                const float values[2] = {sums[first / 2 + e], sums[first / 2 + e + 1]};
                if constexpr (TRANSPOSED) {
#pragma unroll
                    for (int next = 0; next < 2; ++next) *at<O>(box, i, column + next) = narrow<O>(values[next]);
                } else {
                    ::store<2>(at<O>(box, i, column), values);
                }
            }
            if constexpr (COPIED) shared_fence();
            named_barrier(1 + half, 128);
            const i32 column = u.column + first;
            if constexpr (COPIED) {
                if (thread != 0) continue;
                const i32 z = p.split ? u.stretch : u.z, x = row, y = column;
                if constexpr (TRANSPOSED) {
#pragma unroll
                    for (int piece = 0; piece < 64 / WIDE; ++piece) put_box(box + piece * 32 * 128, x + piece * WIDE, y, z);
                } else {
                    put_box(box, y, x, z);
                }
                store_commit();
            } else {
                for (int e = thread; e < 64 * COLUMNS; e += 128) {
                    const int i = TRANSPOSED ? e % 64 : e / COLUMNS, j = TRANSPOSED ? e / 64 : e % COLUMNS;
                    if (row + i < p.rows && column + j < p.columns) finish(u, row + i, column + j, *at<float>(box, i, j));
                }
            }
        }
    }

    GW_DEVICE void put_box(const unsigned char* box, i32 x, i32 y, i32 z) const {
        if (p.accumulate) {
            add_box(p.out, box, x, y, z);
        } else {
            store_box(p.out, box, x, y, z);
        }
    }

    /// The address of element (i, j) of 64×COLUMNS in a box of swizzled lines of 128 bytes, which are rows of C.
    template <class O>
    GW_DEVICE static O* at(unsigned char* box, int i, int j) {
        constexpr int WIDE = 128 / sizeof(O), PER = 16 / sizeof(O);
        const int line = TRANSPOSED ? i / WIDE * 32 + j : i, e = TRANSPOSED ? i % WIDE : j;
        return reinterpret_cast<O*>(box + line * 128 + (e / PER ^ line % 8) * 16) + e % PER;
    }

    /// Writes element (row, column) of D.
    GW_DEVICE void finish(const Unit& u, i64 row, i64 column, float value) const {
        const i64 place = TRANSPOSED ? column * p.c_row + row : row * p.c_row + column;
        if (p.split) {
            static_cast<float*>(p.c)[u.stretch * p.rows * p.columns + place] = value;
            return;
        }
        T* target = static_cast<T*>(p.c) + u.z * p.c_stride + place;
        if (p.accumulate) value += widen(*target);
        *target = narrow<T>(value);
    }

    GW_DEVICE static void run(const P& problem) { run_as<Hopper>(problem); }

    /// Body of a block; `Block` is this class or one derived from it.
    template <class Block>
    GW_DEVICE static void run_as(const P& problem) {
        // The swizzle needs this alignment, which holds because there is no other shared memory.
        extern __shared__ __align__(1024) unsigned char dynamic[];
        Ring& ring = *reinterpret_cast<Ring*>(dynamic + RING_BYTES + 2 * OUT_BYTES);
        const Block block(problem, ring, dynamic);
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(&ring.full[stage], 1);
                barrier_init(&ring.empty[stage], block.readers());
                barrier_init(&ring.split[stage], ASSISTING);
            }
            barrier_init_fence();
        }
        if constexpr (CLUSTER > 1) {
            cluster_sync();
        } else {
            __syncthreads();
        }
        if (threadIdx.x >= MULTIPLYING) {
            registers_at_most<FEW>();
            if (threadIdx.x < MULTIPLYING + Block::PRODUCERS) block.produce();
            if (threadIdx.x >= MULTIPLYING + 32) block.assist();
        } else {
            registers_at_least<MANY>();
            block.consume(threadIdx.x / 128);
        }
        __syncthreads();
        // A block must not exit while another may still signal its barriers.
        if constexpr (CLUSTER > 1) cluster_sync();
    }
};
