// Sums signed squares as csrc/clifford/pointwise/square_sum.cuh does, for the test in square_sum.rs.
//
// Each line of input has a count and as many pairs of a sign and the bits of an f32; each line of output has the bits of the sum.
#include <cmath>
#include <cstdio>
#include <cstring>

static float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}
using std::fmaf;

#include "clifford/pointwise/square_sum.cuh"

int main() {
    int count;
    while (std::scanf("%d", &count) == 1) {
        SquareSum<float> sum;
        for (int i = 0; i < count; ++i) {
            int sign;
            unsigned bits;
            if (std::scanf("%d %x", &sign, &bits) != 2) return 1;
            float value;
            std::memcpy(&value, &bits, sizeof value);
            sum.add(static_cast<float>(sign), value);
        }
        const float result = sum.value();
        unsigned bits;
        std::memcpy(&bits, &result, sizeof bits);
        std::printf("%x\n", bits);
    }
}
