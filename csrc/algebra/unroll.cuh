// Loops over the terms of a product, unrolled, with every index a compile-time constant.
#pragma once

#include "algebra/algebra.cuh"

template <int N>
struct Constant {
    static constexpr int value = N;
};

template <int FIRST, int COUNT, class F>
GW_DEVICE void each_from(F& f) {
    // By halves, so that template nesting grows with the logarithm only.
    if constexpr (COUNT == 1) {
        f(Constant<FIRST>{});
    } else if constexpr (COUNT > 1) {
        each_from<FIRST, COUNT / 2>(f);
        each_from<FIRST + COUNT / 2, COUNT - COUNT / 2>(f);
    }
}

/// Calls f(Constant<0>), …, f(Constant<N − 1>).
template <int N, class F>
GW_DEVICE void each(F f) {
    each_from<0, N>(f);
}

/// What terms are listed for: a weighted product, its gradients, or the sums Σ ±x_left·y_right of each path and result, without weights.
enum class Purpose { PRODUCT, GRADIENT, SUMS };

/// The terms of the geometric product of algebra A, out[result] += sign·w[path]·x[left]·y[right], in order of path and, within a path, of
/// the blades of one side: its pivot. The factor that the terms of a pivot blade share is taken out of their sum: of the trilinear form
/// w·Σ ±x_left·y_right·g_result, a product that pivots on `left` multiplies w·x_left once for each left blade, and its gradients sum
/// ±y_right·g_result there. Each path has the pivot that costs the fewest operations for the purpose; SUMS pivot on the result.
template <class A, Purpose PURPOSE>
struct Pivoted {
    static constexpr int MOST = A::BLADES * A::BLADES;
    static constexpr bool GRADIENT = PURPOSE == Purpose::GRADIENT;
    enum Pivot : signed char { LEFT, RIGHT, RESULT };

    struct Term {
        short left, right, result, path;
        signed char sign;
        Pivot pivot;
        /// Whether the term is the first of its path and pivot blade, and whether it is the last.
        bool opens, closes;
        /// How many pairs of path and pivot blade come before this term's.
        short group;
    };

    struct List {
        Term at[MOST] = {};
        int count = 0;
    };

    static constexpr List make() {
        constexpr auto tables = A::make();
        List list{};
        short groups = 0;
        for (int key = 0; key < A::GRADES * A::GRADES * A::GRADES; ++key) {
            if (tables.path[key] < 0) continue;
            const int grades[3] = {key / A::GRADES / A::GRADES, key % A::GRADES, key / A::GRADES % A::GRADES};
            auto first = [&](int side) { return tables.first[grades[side]]; };
            auto size = [&](int side) { return tables.first[grades[side] + 1] - tables.first[grades[side]]; };
            int terms = 0;
            for (int left = first(LEFT); left < first(LEFT) + size(LEFT); ++left) {
                for (int right = first(RIGHT); right < first(RIGHT) + size(RIGHT); ++right) {
                    const int mask = tables.mask[left] ^ tables.mask[right];
                    terms += A::grade_of_mask(mask) == grades[RESULT] &&
                             A::sign_of_masks(tables.mask[left], tables.mask[right]) != 0;
                }
            }
            Pivot pivot = RESULT;
            int least = GRADIENT ? 3 * terms + 2 * size(RESULT) : size(RESULT);
            for (int side = LEFT; side <= RIGHT && PURPOSE != Purpose::SUMS; ++side) {
                const int cost = GRADIENT ? 2 * terms + 3 * size(side) : size(side);
                if (cost < least || (A::OPERANDS_FIRST && !GRADIENT && cost == least)) {
                    least = cost;
                    pivot = static_cast<Pivot>(side);
                }
            }
            const int other = pivot == LEFT ? RIGHT : LEFT;
            for (int p = first(pivot); p < first(pivot) + size(pivot); ++p) {
                const int begin = list.count;
                for (int o = first(other); o < first(other) + size(other); ++o) {
                    const int third = tables.mask[p] ^ tables.mask[o];
                    if (A::grade_of_mask(third) != grades[3 - pivot - other]) continue;
                    const int left = pivot == LEFT ? tables.mask[p] : tables.mask[o];
                    const int right = pivot == RIGHT ? tables.mask[p] : pivot == LEFT ? tables.mask[o] : third;
                    const int sign = A::sign_of_masks(left, right);
                    if (sign == 0) continue;
                    list.at[list.count++] = {tables.blade[left],
                                             tables.blade[right],
                                             tables.blade[left ^ right],
                                             tables.path[key],
                                             static_cast<signed char>(sign),
                                             pivot,
                                             false,
                                             false,
                                             groups};
                }
                if (list.count > begin) {
                    list.at[begin].opens = true;
                    list.at[list.count - 1].closes = true;
                    ++groups;
                }
            }
        }
        return list;
    }

    static constexpr List list = make();
    static constexpr int COUNT = list.count;
};
