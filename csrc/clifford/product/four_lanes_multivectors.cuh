// Multivectors of 32 blades shared by four lanes (clifford/product/four_lanes.cuh).
//
// An algebra with a central pseudoscalar ω is two copies of its even part (algebra/even_part.cuh). With x = X₀ + ω·X₁ and
// y = Y₀ + ω·Y₁, lane (s, t) of a feature multiplies Xₛ by Yₜ: 16 blades each, with a quarter of the weights. All four run the same
// instructions, for terms and signs are the same; they differ in the weights, in where operands come from, and in the signs between odd
// blades and the products of ω with even ones. Lane 8·(2s + t) + f of a warp works on feature f of the warp's eight.
#pragma once

#include "algebra/even_part.cuh"
#include "clifford/product/multivectors.cuh"

/// PITCH: elements between two places of a stage (clifford/product/four_lanes_stages.cuh).
template <class A, class T, int PITCH>
struct FourLanesMultivectors {
    using C = Compute<T>;
    using Half = EvenPart<A>;
    using Product = Multivectors<Half, C, 1, T>;
    using Element = typename Product::Element;
    static constexpr int BLADES = Half::BLADES, PATHS = Half::PATHS, GRADES = Half::GRADES, PAIRS = BLADES / 2;
    static constexpr auto tables = Half::make();
    static_assert(Half::agrees());

    /// Which of the four products a lane forms.
    struct Lane {
        u32 s, t;

        GW_DEVICE Lane() : s(threadIdx.x / 16 % 2), t(threadIdx.x / 8 % 2) {}
        /// The parity of the result.
        GW_DEVICE u32 parity() const { return s ^ t; }
        GW_DEVICE u32 index() const { return 2 * s + t; }
        /// The lane's feature among those of the slice.
        GW_DEVICE static i32 feature() { return threadIdx.x / 32 * 8 + threadIdx.x % 8; }
    };

    /// Flips the sign where `mask` is that of a sign, and keeps it where it is 0.
    GW_DEVICE static C flip(C value, u32 mask) { return __uint_as_float(__float_as_uint(value) ^ mask); }

    /// The number, in the whole algebra, of a path of the lane's product.
    template <int PATH>
    GW_DEVICE static int path_of_whole(Lane lane) {
        constexpr int a = tables.paths_of_whole[0][PATH], b = tables.paths_of_whole[1][PATH];
        constexpr int c = tables.paths_of_whole[2][PATH], d = tables.paths_of_whole[3][PATH];
        return lane.s ? (lane.t ? d : c) : (lane.t ? b : a);
    }

    /// Reads the weights of a feature; `w` points to its first. Those of X₁·Y₁ are multiplied by ω².
    GW_DEVICE static void read_weights(const T* w, Lane lane, typename Product::Weights& weights) {
        each<PATHS>([&](auto path) {
            constexpr int N = decltype(path)::value;
            C value = widen(w[path_of_whole<N>(lane)]);
            // Widened here, once, and not again at each use.
            asm volatile("" : "+f"(value));
            weights.at[N][0] = Half::SQUARE < 0 && lane.s & lane.t ? -value : value;
        });
    }

    /// Calls f(path, sum) for the sums of the weights' gradients, with the path's number in the whole algebra.
    template <class F>
    GW_DEVICE static void each_sum(const typename Product::Weights& sums, Lane lane, F f) {
        each<PATHS>([&](auto path) {
            constexpr int N = decltype(path)::value;
            f(path_of_whole<N>(lane), Half::SQUARE < 0 && lane.s & lane.t ? -sums.at[N][0] : sums.at[N][0]);
        });
    }

    /// Reads the even or odd half of an operand: `from` points to the feature in its first place.
    GW_DEVICE static void read(const T* from, u32 odd, Element& element) {
        // The places of couple n are 2n and 2n + 1.
        const T *const first = from + odd * PITCH, *const second = from + (1 - odd) * PITCH;
        each<BLADES>([&](auto couple) {
            constexpr int N = decltype(couple)::value, blade = tables.of_couple[N];
            constexpr bool swapped = tables.second[blade];
            element.at[blade][0] = widen((swapped ? second : first)[2 * N * PITCH]);
        });
    }

    /// If `mask` is that of a sign: goes from the coefficients of odd blades to those of the products of ω with even blades, or back.
    GW_DEVICE static void change_signs(Element& element, u32 mask) {
        each<BLADES>([&](auto blade) {
            constexpr int N = decltype(blade)::value;
            if constexpr (tables.dual_sign[N] < 0) element.at[N][0] = flip(element.at[N][0], mask);
        });
    }

    /// The blades of couples 2K and 2K + 1.
    template <int K>
    struct Pair {
        static constexpr int FIRST = tables.of_couple[2 * K], SECOND = tables.of_couple[2 * K + 1];
        static constexpr int FIRST_GRADE = tables.grade[FIRST], SECOND_GRADE = tables.grade[SECOND];
        static constexpr bool FIRST_SIGN = tables.dual_sign[FIRST] < 0, SECOND_SIGN = tables.dual_sign[SECOND] < 0;
        static constexpr bool FIRST_SWAPPED = tables.second[FIRST], SECOND_SWAPPED = tables.second[SECOND];
    };

    /// Half of a multivector, shared by two lanes: the one with `upper` unset has the first blade of each pair.
    struct SharedHalf {
        C at[PAIRS];
    };

    /// Adds two lanes' halves of a multivector. `upper` must differ between lanes `distance` apart.
    GW_DEVICE static void add_lanes(const Element& element, bool upper, int distance, SharedHalf& sum) {
        each<PAIRS>([&](auto pair) {
            constexpr int K = decltype(pair)::value, FIRST = Pair<K>::FIRST, SECOND = Pair<K>::SECOND;
            const C first = element.at[FIRST][0], second = element.at[SECOND][0];
            const C sent = upper ? first : second, kept = upper ? second : first;
            sum.at[K] = kept + __shfl_xor_sync(0xffffffffu, sent, distance);
        });
    }

    /// Changes the signs of a shared half as `change_signs` does.
    GW_DEVICE static void change_signs(SharedHalf& shared, bool upper, u32 mask) {
        const u32 lower_only = upper ? 0 : mask, upper_only = upper ? mask : 0;
        each<PAIRS>([&](auto pair) {
            constexpr int K = decltype(pair)::value;
            constexpr bool first = Pair<K>::FIRST_SIGN, second = Pair<K>::SECOND_SIGN;
            if constexpr (first || second) {
                shared.at[K] = flip(shared.at[K], first && second ? mask : first ? lower_only : upper_only);
            }
        });
    }

    /// Writes a shared half to an array's places in a stage; `to` points to the feature in the first.
    GW_DEVICE static void write(T* to, const SharedHalf& shared, u32 odd, bool upper) {
        to += 2 * upper * PITCH;
        T *const straight = to + odd * PITCH, *const swapped = to + (1 - odd) * PITCH;
        each<PAIRS>([&](auto pair) {
            constexpr int K = decltype(pair)::value;
            constexpr bool first = Pair<K>::FIRST_SWAPPED, second = Pair<K>::SECOND_SWAPPED;
            T* const place = first == second ? (first ? swapped : straight) : upper == second ? swapped : straight;
            place[4 * K * PITCH] = narrow<T>(shared.at[K]);
        });
    }

    /// A lane's halves of both operands, and the scalar part of one: that of y for t = 1.
    struct Operands {
        Element a, b;
        C scalar;

        /// `from` points to the feature in the first place of a stage.
        GW_DEVICE Operands(const T* from, Lane lane) {
            read(from, lane.s, a);
            read(from + A::BLADES * PITCH, lane.t, b);
            scalar = widen(from[lane.t * (A::BLADES * PITCH)]);
        }
    };

    /// Gates of a feature: both lanes' factor, and φ/Φ of this lane's operand, y for t = 1.
    struct Gate {
        C both, slope;

        GW_DEVICE explicit Gate(C scalar) {
            const Normal<C> own = Product::density(scalar);
            both = own.cdf * __shfl_xor_sync(0xffffffffu, own.cdf, 8);
            slope = Product::slope(own);
        }
    };
};
