// Blocks of equivariant networks (see clifford/mv_block.cuh for the definition) with 33 to 64 features, whose three matrices do not fit
// into the shared memory of a multiprocessor together. The linear maps that stand alone, y = linear(x) and the gradient of x, are products
// of matrices for other kernels. The rest is one kernel for each pass, with the matrices `right` and `left` in shared memory, and one for
// the gradients of matrices:
//
//   forward   y, residual             ->  r, s, out   (y, r, s are kept, and out is the result)
//   backward  y, r, s, grad           ->  the gradients of y, r and l, and h, of which the gradients of matrices are formed
//   sums      x or h, and gradients   ->  the gradients of matrices, see clifford/mv_wide_sums.cuh
//
// The positions that a lane has are those of clifford/mv_tile_warp.cuh, with one group of eight warps, 16 rows at a time. Products are
// those of clifford/mv_tiles_f32.cuh: exact f32 in three TF32 parts, or TF32, which holds 16-bit operands exactly.
#pragma once

#include "clifford/mv_tiles_f32.cuh"
#include "ptx/bulk.cuh"

/// `PAIRED` says that features are even in number, and all arrays of them aligned to two: branches at every access would keep loads from being
/// in flight together.
template <class A, class T, int PARTS, bool PAIRED>
struct MvWide : MvTilesF32<A, T, 64, PARTS> {
    using Tiles = MvTilesF32<A, T, 64, PARTS>;
    using typename Tiles::Fragment;
    using Tiles::BLADES, Tiles::GRADES, Tiles::ROWS, Tiles::WIDTH, Tiles::feature, Tiles::features, Tiles::line, Tiles::p;

    using Tiles::Tiles;

    /// As those of `Tiles`, without its branches.
    GW_DEVICE void read(const T* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const i64 row = first + line + 8 * half, plane = p.rows * features;
        const T* at = source + row * features + feature;
        const bool inside = row < p.rows && feature < features;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            values[blade][0] = values[blade][1] = 0;
            if constexpr (PAIRED) {
                if (inside) load<2>(at, values[blade]);
            } else {
                if (inside) values[blade][0] = widen(at[0]);
                if (inside && feature + 1 < features) values[blade][1] = widen(at[1]);
            }
        }
    }
    GW_DEVICE void write_row(T* target, i64 first, int half, const float (&values)[BLADES][2]) const {
        Tiles::write_row(target, first, half, values, PAIRED);
    }
    GW_DEVICE void write(T* target, i64 first, const Fragment& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            Tiles::values_of_row(values, half, row);
            write_row(target, first, half, row);
        }
    }

    /// Copies matrices [GRADES, features, features] as `Tiles::load_matrices` does, 16 bytes at a time where they allow it. Call
    /// `Tiles::fetched` before the barrier.
    GW_DEVICE float* fetch_matrices(float* target, const void* source, int padded, int pitch) const {
        if (features % 8 != 0 || reinterpret_cast<u64>(source) % 16 != 0) {
            return this->load_matrices(target, source, features, padded, pitch);
        }
        // No rows are padding then; columns past the features are.
        const int lines = GRADES * padded;
        p.typed([&](auto zero) { fetch_lines(target, static_cast<const decltype(zero)*>(source), lines, pitch); });
        return target + lines * pitch;
    }

    /// The same of elements of type P, of lines one after the other.
    template <class P>
    GW_DEVICE void fetch_lines(float* target, const P* source, int lines, int pitch) const {
        constexpr int COUNT = 16 / sizeof(P), LANES = WIDTH / COUNT;
        const int o = threadIdx.x % LANES * COUNT, step = blockDim.x / LANES;
        const bool there = o < features;
        const P* const from = source + (there ? o : 0);
#pragma unroll 4
        for (int at = threadIdx.x / LANES; at < lines; at += step) {
            float* const to = target + at * pitch + o;
            if constexpr (sizeof(P) == 4) {
                copy_async_16(to, from + at * features, there ? 16 : 0);
            } else {
                float values[COUNT];
                load<COUNT>(from + at * features, values);
#pragma unroll
                for (int i = 0; i < COUNT; i += 4) {
                    const float four[4] = {there ? values[i] : 0.0f, there ? values[i + 1] : 0.0f, there ? values[i + 2] : 0.0f,
                                           there ? values[i + 3] : 0.0f};
                    store<4>(to + i, four);
                }
            }
        }
    }

    /// Brings 16 rows of [BLADES, rows, features], `first` on, to the second-level cache, where their planes can be copied as they are:
    /// the lanes of a warp take a plane each, those of warp `number`. While a block works on a tile, memory fetches the next one.
    GW_DEVICE void prefetch(const T* source, i64 first, int number) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const i64 left = p.rows - first, count = left < ROWS ? left : ROWS;
        if (warp != number || lane >= BLADES || count <= 0 || source == nullptr) return;
        const T* const from = source + (lane * p.rows + first) * features;
        const u32 bytes = static_cast<u32>(count * features * sizeof(T)) / 16 * 16;
        if (reinterpret_cast<u64>(from) % 16 == 0 && bytes > 0) bulk_prefetch(from, bytes);
    }
};
