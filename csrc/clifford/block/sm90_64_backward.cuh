// The backward pass of a block with more than 32 features, see clifford/block/sm90_64.cuh.
// Names: gw_block_sm90_64_bwd_<algebra>_<dtype>, and gw_block_sm90_64_f32x3_bwd_<algebra>_f32 by three products.
#pragma once

#include "clifford/block/sm90_gradients.cuh"
#include "clifford/block/sm90_64.cuh"

/// Gradients at single positions are those of clifford/block/sm90_gradients.cuh. Those of matrices are formed by other kernels
/// (clifford/block/sm90_64_inner_gradients.cuh, sm90_64_first_gradients.cuh): there are no registers for their sums.
template <class A, class T, int PRODUCTS, bool PACKED>
struct Block64Backward : BlockGradients<A, Block64<A, T, PRODUCTS, PACKED>, 0> {
    using Base = BlockGradients<A, Block64<A, T, PRODUCTS, PACKED>, 0>;
    using Block = Block64<A, T, PRODUCTS, PACKED>;
    using typename Block::Element;
    using typename Block::Fragment;
    using typename Block::Parameters;
    using typename Block::Product;
    using typename Block::Rows;
    using Block::ARRAY, Block::BLADES, Block::COLUMNS, Block::GRADES, Block::MATRIX, Block::PLANE, Block::ROWS;
    using Block::feature, Block::p;

    /// The first map's result, the gradient of that of the block, and the parameters.
    struct Sources {
        const T *y, *grad;
        const char* prepared;  // By the forward pass, see `Block::Prepared`.
    };

    /// The gradient of y; and as operands, as `Block::store_tile` writes them, h and the gradients of r and l, with the inverses of their scales and a
    /// zero, [tiles, 4].
    struct Results {
        T* y;
        char *h, *r, *l;
        float* inverses;
    };

    /// Also writes the gradients of the parameters but the matrices, summed over the block's rows, to [gridDim.x, Layout.count]. Dynamic
    /// shared memory: the two matrices, two or three arrays of rows, the parameters and scales of the matrices, 256 sums of rows, 24 magnitudes, two
    /// barriers, and the lanes' sums of parameters.
    GW_DEVICE static void run(char* shared, const BlockOperands<T>& weights, const Sources& sources, const Results& results,
                              float* partial) {
        Block64Backward(weights).work(shared, sources, results, partial);
    }

  private:
    static constexpr bool KEEPS_Y = Block::Sizes::Backward::KEEPS_Y;
    static constexpr int THREADS = Block::THREADS, BY_SIDE = Base::SHARE + 3;

    /// `Sums` of BlockGradients. Those of silu of a lane's second feature are in registers until the end: there is no more shared memory.
    struct Sums : Base::template ThreadSums<THREADS, BY_SIDE> {
        using Shared = typename Base::template ThreadSums<THREADS, BY_SIDE>;
        using Shared::own;
        static constexpr int SILU = 2 * GRADES, COUNT = Shared::COUNT + SILU * THREADS;
        float second[GRADES][2] = {};
        float* own_second = nullptr;

        GW_DEVICE explicit Sums(float* shared) : Shared(shared) {
#pragma unroll
            for (int n = 0; n < SILU; ++n) first(n) = 0;
        }
        GW_DEVICE float& first(int n) const { return own[(2 * BY_SIDE + n) * THREADS]; }
        GW_DEVICE void load_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
            for (int n = 0; n < SILU; ++n) values[n / 2][n % 2] = side == 0 ? first(n) : second[n / 2][n % 2];
        }
        GW_DEVICE void store_silu(int side, const float (&values)[GRADES][2]) {
#pragma unroll
            for (int n = 0; n < SILU; ++n) (side == 0 ? first(n) : second[n / 2][n % 2]) = values[n / 2][n % 2];
        }

        /// Puts what is in registers to shared memory, 2 · GRADES values of each thread. A barrier must follow before `of`.
        GW_DEVICE void publish(float* shared) {
            own_second = shared + threadIdx.x;
#pragma unroll
            for (int n = 0; n < SILU; ++n) own_second[n * THREADS] = second[n / 2][n % 2];
        }
        GW_DEVICE float of(int thread, int side, int n) const {
            const int singles = 3 + SILU, grade = n - 3, other = thread - static_cast<int>(threadIdx.x);
            if (n >= 3 && n < singles) {
                const int number = 2 * (grade % GRADES) + grade / GRADES;
                return (side == 0 ? own + (2 * BY_SIDE + number) * THREADS : own_second + number * THREADS)[other];
            }
            return own[(side * BY_SIDE + (n < 3 ? Base::SHARE + n : n - singles)) * THREADS + other];
        }
    };

    GW_DEVICE explicit Block64Backward(const BlockOperands<T>& weights) : Base(weights) {}

    /// Largest magnitudes of the warps' values: bounds of those of h, and those of the gradients of r and l.
    struct Magnitudes {
        float *h, *r, *l;
    };

    GW_DEVICE void work(char* const matrices, const Sources& sources, const Results& results, float* partial) const {
        // Arrays of rows: h in parts, then r, then its gradient; h raw, then the gradient of l; y.
        using Layout = typename Block::Sizes::Backward;
        char* const dr = matrices + Layout::GRAD_R;
        char* const dl = matrices + Layout::GRAD_L;
        char* const ys = matrices + Layout::Y;
        float* const values = reinterpret_cast<float*>(matrices + Layout::VALUES);
        float* const matrix_inverses = values + Parameters::COUNT;
        float* const exchange = reinterpret_cast<float*>(matrices + Layout::EXCHANGE);
        float* const largest = reinterpret_cast<float*>(matrices + Layout::MAGNITUDES);
        const Magnitudes magnitudes = {largest, largest + COLUMNS, largest + 2 * COLUMNS};
        u64* const arrived = reinterpret_cast<u64*>(matrices + Layout::BARRIERS);  // Values, and matrices.
        const i64 step = static_cast<i64>(gridDim.x) * ROWS;
        const Parameters parameters = {values};
        if (threadIdx.x == 0) {
            barrier_init(arrived, 1);
            barrier_init(arrived + 1, 1);
            barrier_init_fence();
            barrier_expect(arrived, Block::Prepared::VALUES);
            bulk_copy(values, sources.prepared + Block::Prepared::MATRICES, Block::Prepared::VALUES, arrived);
            barrier_expect(arrived + 1, Block::Prepared::MATRICES);
            bulk_copy(matrices, sources.prepared, Block::Prepared::MATRICES, arrived + 1);
        }
        Sums sums(reinterpret_cast<float*>(matrices + Layout::THREAD_SUMS));
        static_assert(Layout::THREAD_SUMS + Sums::COUNT * sizeof(float) == Layout::BYTES);
        Rows y;
        this->read(sources.y, static_cast<i64>(blockIdx.x) * ROWS, y);
        this->publish_largest(y, magnitudes.h);
        __syncthreads();
        barrier_wait(arrived, 0);
#pragma unroll 1
        for (i64 first = static_cast<i64>(blockIdx.x) * ROWS; first < p.rows; first += step) {
            Rows grad;
            this->read(sources.grad, first, grad);
            this->prefetch(sources.grad, first + step, 0);
            this->prefetch(sources.y, first + step, 1);
            const i64 tile = first / ROWS;
            float inverses[3];  // Of h, and of the gradients of r and l.
            if constexpr (KEEPS_Y) {
#pragma unroll
                for (int half = 0; half < 2; ++half) this->store_raw(ys, half, y[half]);
            }
            inverses[0] = this->gate(parameters, y, magnitudes.h, dr, dl);
            shared_fence();
            this->group_barrier();
            if (threadIdx.x == 0) this->store_tile(results.h, tile, dr);
            float dh[1][BLADES][4];
            barrier_wait(arrived + 1, 0);  // In the first tile; its gate hid the copy.
            {
                Fragment mapped[2] = {};  // r, and l without its bias; then s in its place.
                this->template accumulate<false>(mapped, dr, matrices, inverses[0], matrix_inverses);
                this->multiply_rows(parameters, dl, mapped[0], mapped[1]);
                norm_backward(parameters, mapped[0], mapped[1], grad, dr, dl, exchange, magnitudes.l, dh[0], sums);
            }
            product_backward(parameters, dr, dl, dh[0], sums);
            split_gradients(dr, dl, magnitudes, inverses);
            shared_fence();
            this->group_barrier();
            if (threadIdx.x == 0) {
                this->store_tile(results.r, tile, dr);
                this->store_tile(results.l, tile, dl);
                const float all[4] = {inverses[0], inverses[1], inverses[2], 0};
                store<4>(results.inverses + 4 * tile, all);
            }
            Rows again;
            if constexpr (!KEEPS_Y) this->read(sources.y, first, again);  // On its way during the products.
            this->template accumulate<true>(dh, dr, matrices, inverses[1], matrix_inverses);
            this->template accumulate<true>(dh, dl, matrices + MATRIX, inverses[2], matrix_inverses + 1);
            this->read(sources.y, first + step, y);
            if constexpr (KEEPS_Y) {
#pragma unroll
                for (int half = 0; half < 2; ++half) load_raw(ys, half, again[half]);
            }
            silu_backward(parameters, results, first, again, dh[0], sums);
            this->publish_largest(y, magnitudes.h);
            store_wait<0>();
            this->group_barrier();  // All have read the gradients of r and l.
        }
        sums.publish(reinterpret_cast<float*>(dr));
        __syncthreads();
        this->write_sums(parameters, sums, partial);
    }

    /// The gradient of l: that of the layer norm's argument s, over √2, raw in the place of h; publishes its largest magnitudes. Also
    /// moves h from there to `waiting`, by [side][half], and puts r to `dr`, raw.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Fragment& r, const Fragment& s, Rows& grad, char* dr, char* dl,
                                 float* exchange, float* magnitudes, Fragment& waiting, Sums& sums) const {
        Rows by_row;
#pragma unroll
        for (int half = 0; half < 2; ++half) Block::values_of_row(s, half, by_row[half]);
        store_wait<0>();
        this->norm_gradient(parameters, by_row, grad, exchange, sums);
        // There was a barrier since the parts of h were read. A lane reads back only what it wrote.
        this->publish_largest(grad, magnitudes);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float both[BLADES][2];
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int side = 0; side < 2; ++side) {
                    waiting[blade][2 * side + half] = this->raw(dl, blade, half, side);
                    both[blade][side] = r[blade][2 * half + side];
                }
            }
            this->store_raw(dl, half, grad[half]);
            this->store_raw(dr, half, both);
        }
    }

    /// The gradient of r, in the place of r; the product's part of the gradient of h to `waiting`, which is h by [side][half], at the end by
    /// [half][side].
    GW_DEVICE void product_backward(const Parameters& parameters, char* dr, char* dl, Fragment& waiting, Sums& sums) const {
        this->product_gradients(parameters, dr, dl, waiting, sums);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            const float second = waiting[blade][1];
            waiting[blade][1] = waiting[blade][2];
            waiting[blade][2] = second;
        }
    }

    /// The gradients of r and l from raw values to parts, and the inverses of their scales. Has a barrier.
    GW_DEVICE void split_gradients(char* dr, char* dl, const Magnitudes& magnitudes, float (&inverses)[3]) const {
        Rows values;
#pragma unroll
        for (int half = 0; half < 2; ++half) load_raw(dr, half, values[half]);
        this->publish_largest(values, magnitudes.r);
        this->group_barrier();
        const auto right = this->scale_of_tile(magnitudes.r), left = this->scale_of_tile(magnitudes.l);
        inverses[1] = right.inverse;
        inverses[2] = left.inverse;
#pragma unroll
        for (int half = 0; half < 2; ++half) this->store_operands(dr, half, right.factor, values[half]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            load_raw(dl, half, values[half]);
            this->store_operands(dl, half, left.factor, values[half]);
        }
    }

    /// The lane's raw values of every blade of row g + 8·half.
    GW_DEVICE void load_raw(char* rows, int half, float (&values)[BLADES][2]) const {
#pragma unroll
        for (int n = 0; n < 2 * BLADES; ++n) values[n / 2][n % 2] = this->raw(rows, n / 2, half, n % 2);
    }

    /// The gradient of y.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Results& results, i64 first, Rows& y, const Fragment& dh,
                                 Sums& sums) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, y[half], sums, sums.bias(side));
            }
            this->write(results.y, first, half, y[half]);
        }
    }
};
