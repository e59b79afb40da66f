// The backward pass of a block on many rows of f32, see clifford/block/sm90_f32x3.cuh. Names: gw_block_sm90_f32x3_bwd_in<inputs>_<algebra>_f32.
#pragma once

#include "clifford/block/sm90_f32x3.cuh"
#include "clifford/block/sm90_gradients.cuh"

/// `TILES` · 32 is at least the number of inputs.
///
/// The two groups work on adjacent rows, and form the gradients of the matrices of all 32 rows together: each warp has the same 16
/// inputs (by its group) and 8 features (by its column) of every matrix, and keeps their sums in registers over all rows.
template <class A, int TILES, bool PAIRED>
struct BlockF32x3Backward : BlockGradients<A, BlockF32x3<A, TILES, PAIRED>, TILES> {
    using Base = BlockGradients<A, BlockF32x3<A, TILES, PAIRED>, TILES>;
    using Block = BlockF32x3<A, TILES, PAIRED>;
    using typename Base::Matrices;
    using typename Block::Element;
    using typename Block::Fragment;
    using typename Block::MatrixScales;
    using typename Block::Parameters;
    using typename Block::TwoF16;
    using typename Block::Product;
    using Block::ARRAY, Block::BLADES, Block::COLUMNS, Block::GRADES, Block::MATRIX, Block::PLANE, Block::ROWS, Block::WIDTH, Block::tables;
    using Block::column, Block::feature, Block::features, Block::group, Block::inputs, Block::line, Block::p, Block::pair, Block::share;
    /// Rows of the block.
    static constexpr int GROUPS = 2, ALL = GROUPS * ROWS;

    /// The inputs and saved intermediates of the forward pass, and the gradient of its result.
    struct Sources {
        const float *x, *y, *r, *s, *grad;
    };

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Layout.count]. Dynamic
    /// shared memory: the matrices; three arrays of operands and one of inputs to come, for both groups; the parameters, the lanes' sums, for
    /// each group 128 sums, scales (see `Scales`), and the scales of matrices.
    GW_DEVICE static void run(char* shared, const BlockOperands<float>& weights, const Sources& sources, float* grad_x, float* partial) {
        BlockF32x3Backward(weights).work(shared, sources, grad_x, partial);
    }

  private:
    using Sums = typename Base::template SharedSums<ALL * 8>;

    /// Scales of operands, of the columns of both groups.
    using ArrayScales = float[GROUPS][COLUMNS];
    struct Scales {
        ArrayScales dr, dl, h;
    };

    GW_DEVICE explicit BlockF32x3Backward(const BlockOperands<float>& weights) : Base(weights) {}

    GW_DEVICE void work(char* shared, const Sources& sources, float* grad_x, float* partial) const {
        using Layout = typename Block::Sizes::Backward;
        char* const right = shared + Block::Sizes::RIGHT;
        // Of both groups: the gradient of r; that of l, later that of y; h, later x, 32 columns at a time; 32 columns of x to come.
        char* const dr = shared + Layout::GRAD_R;
        char* const dl = shared + Layout::GRAD_L;
        char* const h = shared + Layout::H;
        char* const stage = shared + Layout::STAGE;
        float* const values = reinterpret_cast<float*>(shared + Layout::VALUES);
        Scales& scales = *reinterpret_cast<Scales*>(shared + Layout::ROW_SCALES);
        auto* const matrix_scales = reinterpret_cast<MatrixScales*>(shared + Layout::SCALES);
        float* const exchanges = reinterpret_cast<float*>(shared + Layout::EXCHANGE);
        Sums sums(reinterpret_cast<float*>(shared + Layout::THREAD_SUMS));
        static_assert(Layout::ROW_SCALES + sizeof(Scales) == Layout::SCALES && sizeof(MatrixScales) == Block::Sizes::MATRIX_SCALES);
        static_assert(Layout::THREAD_SUMS + Sums::COUNT * sizeof(float) == Layout::BYTES);
        auto own = [&](char* array) { return this->own_words(array + group * ARRAY); };
        auto fetch = [&](i64 row, int tile) {
            this->fetch_raw(own(stage), sources.x, row, WIDTH * tile, inputs);
            copy_async_commit();
        };
        float s[2][BLADES][2], g[2][BLADES][2];
        auto read_first = [&](i64 first) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                this->read(sources.s, first, half, s[half]);
                this->read(sources.grad, first, half, g[half]);
            }
        };
        const i64 start = static_cast<i64>(blockIdx.x) * ALL, step = static_cast<i64>(gridDim.x) * ALL;
        const Parameters parameters = this->template fetch_parameters<128 * GROUPS>(values);
        fetch(start + group * ROWS, 0);
        this->prefetch(sources.y, start, ALL, features, 2);
        this->prefetch(sources.r, start, ALL, features, 3);
        this->template load_matrices<128 * GROUPS>(right, matrix_scales, exchanges);
        read_first(start + group * ROWS);
        Matrices matrices;
        const int lane = threadIdx.x % 32, chunks = (features + 7) / 8;
        const u32 a = group * ARRAY + TwoF16::left_offset(lane);
        const u32 at_dr = shared_address(dr) + a, at_dl = shared_address(dl) + a;
        const u32 at_right = this->template matrices_at<true>(right);
        this->template fetched<1>();
        __syncthreads();
#pragma unroll 1
        for (i64 base = start; base < p.rows; base += step) {
            const i64 first = base + group * ROWS;
            float dh[1][BLADES][4];  // It is y first, then h.
            norm_backward(parameters, sources, first, s, g, own(dr), own(dl), exchanges + group * 8 * ROWS, dh[0], sums);
            this->apply_silu(parameters, dh[0]);
            this->store_operands(own(h), dh[0], scales.h[group]);
            product_backward(parameters, own(dr), own(dl), dh[0], sums);
            split_raw(own(dr), own(dr), scales.dr[group]);
            split_raw(own(dl), own(dl), scales.dl[group]);
            __syncthreads();
            correlate<2>({&matrices.right, &matrices.left}, h, scales.h, {dr, dl}, {&scales.dr, &scales.dl});
            this->template accumulate<true, 1>(dh, at_dr, scales.dr[group], chunks, {at_right}, {matrix_scales->inverse[0]});
            this->template accumulate<true, 1>(dh, at_dl, scales.dl[group], chunks, {at_right + MATRIX}, {matrix_scales->inverse[1]});
            Fragment y;
            this->read(sources.y, first, y);
            __syncthreads();  // All have read h and the gradient of l.
            this->fetched();
            split_raw(own(h), own(stage), scales.h[group]);
            if constexpr (TILES == 1) fetch(first + step, 0);
            else fetch(first, 1);
            // Not earlier: by the time that they are read, they would have left the cache again.
            this->prefetch(sources.s, base + step, ALL, features, 0);
            this->prefetch(sources.grad, base + step, ALL, features, 1);
            this->prefetch(sources.y, base + step, ALL, features, 2);
            this->prefetch(sources.r, base + step, ALL, features, 3);
            silu_backward(parameters, dh[0], y, sums);
            this->store_operands(own(dl), y, scales.dl[group]);
            __syncthreads();
            if (grad_x != nullptr) {
                input_backward(at_right + 2 * MATRIX, at_dl, scales.dl[group], first, chunks, matrix_scales, grad_x);
            }
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                if (tile > 0) {
                    __syncthreads();  // All have read the columns of x before.
                    this->fetched();
                    split_raw(own(h), own(stage), scales.h[group]);
                    if (tile + 1 == TILES) fetch(first + step, 0);
                    else fetch(first, tile + 1);
                    __syncthreads();
                }
                if (tile + 1 == TILES) read_first(first + step);
                correlate<1>({&matrices.linear[tile]}, h, scales.h, {dl}, {&scales.dl});
            }
            __syncthreads();  // All have read x and the gradient of y.
        }
        this->fetched();
        this->write_matrices(matrices, reinterpret_cast<float*>(shared), partial);
        this->write_sums(parameters, sums, partial);
    }

    /// Splits the lane's raw values of an array; `own` and `from` are its places and may be the same.
    GW_DEVICE void split_raw(char* own, char* from, float* scales) const {
        Fragment values;
        this->read_raw(from, values);
        this->store_operands(own, values, scales);
    }

    /// The gradient of l, that of the layer norm's argument s over √2, as raw values. Also loads r as raw values, and y.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Sources& sources, i64 first, const float (&s)[2][BLADES][2],
                                 float (&g)[2][BLADES][2], char* dr, char* dl, float* exchange, Fragment& y, Sums& sums) const {
        Fragment r;
        this->read(sources.y, first, y);
        this->read(sources.r, first, r);
        this->norm_gradient(parameters, s, g, exchange, sums);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int side = 0; side < 2; ++side) {
                    this->raw(dr, blade, half, side) = r[blade][2 * half + side];
                    this->raw(dl, blade, half, side) = g[half][blade][side];
                }
            }
        }
    }

    /// The gradient of r, in the place of the raw r; the product's part of the gradient of h to `dh`, which is h.
    GW_DEVICE void product_backward(const Parameters& parameters, char* dr, char* dl, Fragment& dh, Sums& sums) const {
        float waiting[BLADES][4];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) waiting[blade][2 * (at % 2) + at / 2] = dh[blade][at];
        }
        this->product_gradients(parameters, dr, dl, waiting, sums);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) dh[blade][at] = waiting[blade][2 * (at % 2) + at / 2];
        }
    }

    /// y becomes its gradient.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Fragment& dh, Fragment& y, Sums& sums) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            Block::values_of_row(y, half, row);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, row, sums, sums.bias(side));
            }
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                y[blade][2 * half] = row[blade][0];
                y[blade][2 * half + 1] = row[blade][1];
            }
        }
    }

    /// The gradient of x of the group's rows, through the first linear map. `matrices` and `dy` are where the lane finds its rows of the
    /// first fragments.
    GW_DEVICE void input_backward(u32 matrices, u32 dy, const float* scales, i64 first, int chunks, const MatrixScales* inverses,
                                  float* grad_x) const {
        const bool paired = Block::is_paired(grad_x, inputs);
        const i64 plane = p.rows * inputs;
#pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            const int input = WIDTH * tile + feature;
            if (WIDTH * tile + 8 * column >= inputs) return;
            float dx[1][BLADES][4] = {};
            this->template accumulate<true, 1>(dx, dy, scales, chunks, {matrices + tile * MATRIX}, {inverses->inverse[2 + tile]});
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 row = first + line + 8 * half;
                if (row >= p.rows || input >= inputs) continue;
                float* at = grad_x + row * inputs + input;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade, at += plane) {
                    const float both[2] = {dx[0][blade][2 * half], dx[0][blade][2 * half + 1]};
                    if (paired) {
                        store<2>(at, both);
                    } else {
                        at[0] = both[0];
                        if (input + 1 < inputs) at[1] = both[1];
                    }
                }
            }
        }
    }

    /// The sums of a matrix's gradients.
    using MatrixSums = float[GRADES][4];

    /// sums[m][grade] += Σ over all rows and the grade's blades of a[row][i]·b[m][row][o], for the group's 16 i and the warp's 8 features o.
    ///
    /// Matrix instructions truncate the sums that they form, so that errors would grow with the number of rows: 16 rows are summed by
    /// themselves, and added to the others by additions that round.
    template <int M>
    GW_DEVICE void correlate(MatrixSums* const (&sums)[M], const char* a, const ArrayScales& a_scales, const char* const (&b)[M],
                             const ArrayScales* const (&b_scales)[M]) const {
        const int lane = threadIdx.x % 32;
        u32 at_a = shared_address(a) + TwoF16::left_transposed_offset(lane, 2 * group), at_b[M];
#pragma unroll
        for (int m = 0; m < M; ++m) at_b[m] = shared_address(b[m]) + TwoF16::right_offset(lane, column);
#pragma unroll 1
        for (int rows = 0; rows < GROUPS; ++rows) {
            float factors[M][2];
#pragma unroll
            for (int m = 0; m < M; ++m) {
                const float scale = (*b_scales[m])[rows][column];
#pragma unroll
                for (int half = 0; half < 2; ++half) factors[m][half] = a_scales[rows][2 * group + half] * scale;
            }
            each<GRADES>([&](auto index) {
                constexpr int grade = decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
                float products[M][4] = {};
                each<end - begin>([&](auto number) {
                    constexpr int blade = begin + decltype(number)::value;
                    u32 high[4], low[4];
                    ::load_matrices<true>(high, at_a + blade * PLANE);
                    ::load_matrices<true>(low, (at_a ^ TwoF16::LOW) + blade * PLANE);
#pragma unroll
                    for (int m = 0; m < M; ++m) {
                        u32 right[4];
                        ::load_matrices<true>(right, at_b[m] + blade * PLANE);
                        const u32 right_high[2] = {right[0], right[1]}, right_low[2] = {right[2], right[3]};
                        mma_16(products[m], low, right_high, f16{});
                        mma_16(products[m], high, right_low, f16{});
                        mma_16(products[m], high, right_high, f16{});
                    }
                });
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) (*sums[m])[grade][i] += products[m][i] * factors[m][i / 2];
                }
            });
            at_a += ARRAY;
#pragma unroll
            for (int m = 0; m < M; ++m) at_b[m] += ARRAY;
        }
    }
};
