// A Clifford algebra Cl(P,Q,R) as compile-time constants.
//
// Everything is derived from the signature: blades in order of grade, then lexicographically; the sign of every product of two
// blades; the numbering of grade paths. Loops over blades are unrolled, so all tables vanish at compile time. Needs no device: host
// compilers read it, too.
#pragma once

#include "gradewise/integers.cuh"

template <int P, int Q, int R>
struct Algebra {
    static constexpr int GENERATORS = P + Q + R;
    static constexpr int BLADES = 1 << GENERATORS;
    static constexpr int GRADES = GENERATORS + 1;
    /// Whether a product pivots on an operand where the result would cost as much (algebra/unroll.cuh).
    static constexpr bool OPERANDS_FIRST = false;

    static constexpr int grade_of_mask(int mask) {
        int grade = 0;
        for (int rest = mask; rest != 0; rest >>= 1) grade += rest & 1;
        return grade;
    }

    /// The sign of the product of the blades with these generators: 0 if it vanishes.
    static constexpr int sign_of_masks(int left, int right) {
        int sign = 1;
        for (int generator = 0; generator < GENERATORS; ++generator) {
            if (!((right >> generator) & 1)) continue;
            // The generators of `left` that this one passes on the way to its place.
            for (int above = generator + 1; above < GENERATORS; ++above) {
                if ((left >> above) & 1) sign = -sign;
            }
            if ((left >> generator) & 1) {
                if (generator >= P + Q) return 0;
                if (generator >= P) sign = -sign;
            }
        }
        return sign;
    }

    /// Whether blade `a` comes before blade `b`: lower grade first, then by the lists of their generators.
    static constexpr bool precedes(int a, int b) {
        if (grade_of_mask(a) != grade_of_mask(b)) return grade_of_mask(a) < grade_of_mask(b);
        // Equal grades: the blade with the lowest generator that the other does not have comes first.
        const int different = a ^ b;
        return (a & (different & -different)) != 0;
    }

    struct Tables {
        /// Generators of each blade, and the blade of each set of generators.
        short mask[BLADES] = {};
        short blade[BLADES] = {};
        signed char grade[BLADES] = {};
        /// First blade of each grade, and one past the last.
        short first[GRADES + 1] = {};
        /// The number of the grade path (left, out, right), -1 where there is none.
        short path[GRADES * GRADES * GRADES] = {};
        int paths = 0;
        /// Square of each blade times the sign of its reversal: the diagonal of the quadratic form.
        signed char metric[BLADES] = {};
    };

    static constexpr Tables make() {
        Tables t{};
        for (int mask = 0; mask < BLADES; ++mask) {
            int position = 0;
            for (int other = 0; other < BLADES; ++other) {
                if (other != mask && precedes(other, mask)) ++position;
            }
            t.mask[position] = static_cast<short>(mask);
            t.blade[mask] = static_cast<short>(position);
            t.grade[position] = static_cast<signed char>(grade_of_mask(mask));
        }
        for (int grade = 0; grade <= GRADES; ++grade) {
            int first = 0;
            while (first < BLADES && t.grade[first] < grade) ++first;
            t.first[grade] = static_cast<short>(first);
        }
        bool present[GRADES * GRADES * GRADES] = {};
        for (int left = 0; left < BLADES; ++left) {
            for (int right = 0; right < BLADES; ++right) {
                if (sign_of_masks(left, right) == 0) continue;
                const int out = grade_of_mask(left ^ right);
                present[(grade_of_mask(left) * GRADES + out) * GRADES + grade_of_mask(right)] = true;
            }
        }
        for (int key = 0; key < GRADES * GRADES * GRADES; ++key) {
            t.path[key] = static_cast<short>(present[key] ? t.paths++ : -1);
        }
        for (int blade = 0; blade < BLADES; ++blade) {
            const int mask = t.mask[blade], grade = t.grade[blade];
            const int reversal = (grade * (grade - 1) / 2) % 2 == 0 ? 1 : -1;
            t.metric[blade] = static_cast<signed char>(sign_of_masks(mask, mask) * reversal);
        }
        return t;
    }

    static constexpr int PATHS = make().paths;
};
