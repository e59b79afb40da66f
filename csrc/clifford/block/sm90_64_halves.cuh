// How blocks of threads share the grades in sums of the gradients of matrices, see clifford/block/sm90_64.cuh: all would take more registers than
// there are.
#pragma once

#include "algebra/unroll.cuh"
#include "clifford/block/launch.cuh"

template <class A>
struct Block64Halves {
    static constexpr auto tables = A::make();
    static constexpr int HALVES = Block64HalvesSizes<A>::HALVES, COUNT = Block64HalvesSizes<A>::COUNT;
    static_assert(HALVES == 1 || tables.first[A::GRADES / 2] == COUNT, "the halves have as many blades");

    /// Calls f with the first of this block's grades and the one after its last, as types.
    template <class F>
    GW_DEVICE static void run(F f) {
        if constexpr (HALVES == 1) {
            f(Constant<0>{}, Constant<A::GRADES>{});
        } else if (blockIdx.z == 0) {
            f(Constant<0>{}, Constant<A::GRADES / 2>{});
        } else {
            f(Constant<A::GRADES / 2>{}, Constant<A::GRADES>{});
        }
    }
};
