// Loops over the terms of a product, unrolled with every index a constant of the compiler.
#pragma once

#include "algebra/algebra.cuh"

template <int N>
struct Constant {
    static constexpr int value = N;
};

template <int FIRST, int COUNT, class F>
GW_DEVICE void each_from(F& f) {
    // By halves, so that templates nest as deep as the logarithm only.
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

/// The terms of the geometric product of algebra A, in order of result, then path: out[result] += sign·w[path]·x[left]·y[right].
template <class A>
struct Terms {
    static constexpr int MOST = A::BLADES * A::BLADES;

    struct List {
        short left[MOST] = {}, right[MOST] = {}, result[MOST] = {}, path[MOST] = {};
        signed char sign[MOST] = {};
        /// Whether the term is the first of its result and path, and whether it is the last.
        bool opens[MOST] = {}, closes[MOST] = {};
        int count = 0;
    };

    static constexpr typename A::Tables tables = A::make();

    static constexpr List make() {
        List list{};
        for (int result = 0; result < A::BLADES; ++result) {
            // In order of path is in order of the grades of left and right, and so of the blades.
            for (int left = 0; left < A::BLADES; ++left) {
                const int right = tables.blade[tables.mask[result] ^ tables.mask[left]];
                const int sign = A::sign_of_masks(tables.mask[left], tables.mask[right]);
                if (sign == 0) continue;
                const int key = (tables.grade[left] * A::GRADES + tables.grade[result]) * A::GRADES + tables.grade[right];
                // Insertion keeps the terms of a result in order of path.
                int at = list.count++;
                while (at > 0 && list.result[at - 1] == result && list.path[at - 1] > tables.path[key]) {
                    list.left[at] = list.left[at - 1];
                    list.right[at] = list.right[at - 1];
                    list.result[at] = list.result[at - 1];
                    list.path[at] = list.path[at - 1];
                    list.sign[at] = list.sign[at - 1];
                    --at;
                }
                list.left[at] = static_cast<short>(left);
                list.right[at] = static_cast<short>(right);
                list.result[at] = static_cast<short>(result);
                list.path[at] = tables.path[key];
                list.sign[at] = static_cast<signed char>(sign);
            }
        }
        for (int n = 0; n < list.count; ++n) {
            list.opens[n] = n == 0 || list.result[n - 1] != list.result[n] || list.path[n - 1] != list.path[n];
            if (n > 0) list.closes[n - 1] = list.opens[n];
        }
        list.closes[list.count - 1] = true;
        return list;
    }

    static constexpr List list = make();
    static constexpr int COUNT = list.count;
};

/// The same terms path by path, in order of a blade that each path pivots on: the factor that few terms differ in is taken out of
/// their sum. Of the trilinear form w·Σ ±x_left·y_right·g_result, a product pivoting on `left` multiplies w·x_left once for each
/// left blade; its gradients take Σ ±y_right·g_result there. Which pivot costs least depends on the path's grades.
template <class A, bool GRADIENT>
struct Pivoted {
    static constexpr int MOST = A::BLADES * A::BLADES;
    enum Pivot : signed char { LEFT, RIGHT, RESULT };

    struct Term {
        short left, right, result, path;
        signed char sign;
        Pivot pivot;
        /// Whether the term is the first of its path and pivot blade, and whether it is the last.
        bool opens, closes;
    };

    struct List {
        Term at[MOST] = {};
        int count = 0;
    };

    static constexpr List make() {
        constexpr auto tables = A::make();
        List list{};
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
            for (int side = LEFT; side <= RIGHT; ++side) {
                const int cost = GRADIENT ? 2 * terms + 3 * size(side) : size(side);
                if (cost < least) {
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
                                             false};
                }
                if (list.count > begin) {
                    list.at[begin].opens = true;
                    list.at[list.count - 1].closes = true;
                }
            }
        }
        return list;
    }

    static constexpr List list = make();
    static constexpr int COUNT = list.count;
};
