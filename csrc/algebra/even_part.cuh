// Algebras with a central pseudoscalar, as two copies of their even part.
//
// With an odd number of generators and no degenerate one, the pseudoscalar ω commutes with everything, and ω² = ±1. Multiplying by ω
// takes grade k to grade n - k, so that every multivector is x = X₀ + ω·X₁ with even X₀ and X₁, and
// x·y = (X₀·Y₀ + ω²·X₁·Y₁) + ω·(X₀·Y₁ + X₁·Y₀). The four products have the same terms with the same signs. Each has a quarter of the
// grade paths: those whose left and right grades have the parities of its factors.
#pragma once

#include "algebra/algebra.cuh"

/// The even part of A, with what `Pivoted` and `Multivectors` ask of an algebra. Grade g here is grade 2g of A.
template <class A>
struct EvenPart {
    static_assert(A::GENERATORS % 2 == 1 && A::sign_of_masks(A::BLADES - 1, A::BLADES - 1) != 0, "needs a central pseudoscalar");
    static constexpr int GENERATORS = A::GENERATORS, BLADES = A::BLADES / 2, GRADES = A::GRADES / 2;
    /// Consecutive terms that pivot on an operand share it and read two registers instead of three, which compute capability 9.0 does
    /// in three quarters of the time.
    static constexpr bool OPERANDS_FIRST = true;
    /// ω².
    static constexpr int SQUARE = A::sign_of_masks(A::BLADES - 1, A::BLADES - 1);

    static constexpr int grade_of_mask(int mask) { return A::grade_of_mask(mask) / 2; }
    static constexpr int sign_of_masks(int left, int right) { return A::sign_of_masks(left, right); }

    struct Tables {
        /// As in `Algebra`; masks are those of A.
        short mask[BLADES] = {};
        short blade[A::BLADES] = {};
        signed char grade[BLADES] = {};
        short first[GRADES + 1] = {};
        short path[GRADES * GRADES * GRADES] = {};
        int paths = 0;
        /// The blade's number in A, and the sign of ω·blade against the blade of A with the other generators.
        short number[BLADES] = {};
        signed char dual_sign[BLADES] = {};
        /// The numbers in A of a path for the four products: of Xₛ and Yₜ at 2s + t.
        short paths_of_whole[4][GRADES * GRADES * GRADES] = {};
        /// Blades n and last - n of A have each other's generators missing: one is even, the other is its product with ω but for the
        /// sign. The even one of these, and whether it is the second.
        short of_couple[BLADES] = {};
        bool second[BLADES] = {};
    };

    static constexpr Tables make() {
        constexpr auto whole = A::make();
        Tables t{};
        int count = 0;
        for (int number = 0; number < A::BLADES; ++number) {
            if (whole.grade[number] % 2 != 0) continue;
            const int mask = whole.mask[number];
            t.mask[count] = static_cast<short>(mask);
            t.blade[mask] = static_cast<short>(count);
            t.grade[count] = static_cast<signed char>(whole.grade[number] / 2);
            t.number[count] = static_cast<short>(number);
            t.dual_sign[count] = static_cast<signed char>(A::sign_of_masks(A::BLADES - 1, mask));
            t.second[count] = number >= BLADES;
            t.of_couple[number < BLADES ? number : A::BLADES - 1 - number] = static_cast<short>(count);
            ++count;
        }
        for (int grade = 0; grade <= GRADES; ++grade) {
            int first = 0;
            while (first < BLADES && t.grade[first] < grade) ++first;
            t.first[grade] = static_cast<short>(first);
        }
        for (int key = 0; key < GRADES * GRADES * GRADES; ++key) {
            const int left = key / GRADES / GRADES, out = key / GRADES % GRADES, right = key % GRADES;
            const auto in_whole = [](int grade, int odd) { return odd != 0 ? A::GENERATORS - 2 * grade : 2 * grade; };
            for (int which = 0; which < 4; ++which) {
                const int odd = which / 2, other = which % 2;
                const int path =
                    whole.path[(in_whole(left, odd) * A::GRADES + in_whole(out, odd ^ other)) * A::GRADES + in_whole(right, other)];
                t.path[key] = static_cast<short>(path < 0 ? -1 : t.paths);
                if (path >= 0) t.paths_of_whole[which][t.paths] = static_cast<short>(path);
            }
            if (t.path[key] >= 0) ++t.paths;
        }
        return t;
    }

    static constexpr int PATHS = make().paths;

    /// Whether products in A and the numbers of blades are as stated above.
    static constexpr bool agrees() {
        constexpr auto whole = A::make();
        const Tables t = make();
        for (int i = 0; i < BLADES; ++i) {
            if (whole.mask[A::BLADES - 1 - t.number[i]] != ((A::BLADES - 1) ^ t.mask[i])) return false;
            for (int j = 0; j < BLADES; ++j) {
                const int k = t.blade[t.mask[i] ^ t.mask[j]];
                for (int which = 0; which < 4; ++which) {
                    const bool left = which / 2 != 0, right = which % 2 != 0;
                    const int all = A::BLADES - 1, of_result = left && right ? SQUARE : left != right ? t.dual_sign[k] : 1;
                    const int sign = (left ? t.dual_sign[i] : 1) * (right ? t.dual_sign[j] : 1) * of_result;
                    const int a = left ? all ^ t.mask[i] : t.mask[i], b = right ? all ^ t.mask[j] : t.mask[j];
                    if (A::sign_of_masks(a, b) != sign * sign_of_masks(t.mask[i], t.mask[j])) return false;
                }
            }
        }
        return true;
    }
};
