// Sums of parameters' gradients in the backward pass of blocks of 16 bits on many rows, see clifford/block/sm90_16bit_backward.cuh.
#pragma once

#include "gradewise/types.cuh"

/// Gradients of the parameters of a thread's two features, summed over its rows, in shared memory because registers are short: pairs of
/// the silu's for each side and grade; then, of both sides, of the biases and the gain, and SHARE pairs of the product weights with
/// the normalisation behind them, see `BlockGradients::fold`.
template <int GRADES, int SHARE>
struct Block16BitSums {
    static constexpr int BIAS = 2 * GRADES, LEFT_BIAS = BIAS + 1, GAIN = BIAS + 2, PRODUCT = BIAS + 3;
    static constexpr int SIZE = (PRODUCT + SHARE) * 2 * 256;
    float* first;

    GW_DEVICE float* at(int number) const { return first + 2 * (number * 256 + threadIdx.x); }
    GW_DEVICE void clear() const {
        const float none[2] = {};
#pragma unroll
        for (int number = 0; number < PRODUCT + SHARE; ++number) ::store<2>(at(number), none);
    }
    /// Sum n of a thread's side, see `BlockGradients`.
    GW_DEVICE float of(int thread, int side, int n) const {
        const int singles = 3 + 2 * GRADES, grade = n - 3;
        // Both sides of a value are a pair, or slope and shift of a side and grade.
        const bool is_silu = n >= 3 && n < singles;
        const int number = n < 3 ? BIAS + n : is_silu ? side * GRADES + grade % GRADES : PRODUCT + n - singles;
        return first[2 * (number * 256 + thread) + (is_silu ? grade / GRADES : side)];
    }
    GW_DEVICE void load_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) load<2>(at(side * GRADES + grade), values[grade]);
    }
    GW_DEVICE void store_silu(int side, const float (&values)[GRADES][2]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) ::store<2>(at(side * GRADES + grade), values[grade]);
    }
    GW_DEVICE void add_folded(int side, const float (&values)[SHARE]) const {
#pragma unroll
        for (int n = 0; n < SHARE; ++n) at(PRODUCT + n)[side] += values[n];
    }
    GW_DEVICE void add(int number, const float (&values)[2]) const {
        float sums[2];
        load<2>(at(number), sums);
        sums[0] += values[0];
        sums[1] += values[1];
        ::store<2>(at(number), sums);
    }
};
