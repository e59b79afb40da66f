// L⁻¹ of matrices [batch, n, n] with L·Lᵀ = ½(Σ + Σᵀ) + ridge·1: lower triangular, zeros above. One thread per matrix, which works in the
// memory of the result; matrices are small, and there is one for each channel.
#include "gradewise/math.cuh"

namespace {

template <class T>
GW_DEVICE void inverse_cholesky(const T* sigma, T* out, i64 batch, i64 n, double ridge) {
    using C = Compute<T>;
    for (i64 at = thread_index(); at < batch; at += thread_count()) {
        const T* s = sigma + at * n * n;
        T* a = out + at * n * n;
        for (i64 row = 0; row < n; ++row) {
            for (i64 column = 0; column <= row; ++column) {
                C left = C(0.5) * (widen(s[row * n + column]) + widen(s[column * n + row]));
                for (i64 k = 0; k < column; ++k) left -= widen(a[row * n + k]) * widen(a[column * n + k]);
                a[row * n + column] = narrow<T>(row == column ? root(left + C(ridge)) : left / widen(a[column * n + column]));
            }
        }
        for (i64 row = 0; row < n; ++row) {
            const C diagonal = widen(a[row * n + row]);
            for (i64 column = 0; column < row; ++column) {
                C dot = 0;
                // Later columns of this row read L from their own column on, so that this one may be overwritten.
                for (i64 k = column; k < row; ++k) dot += widen(a[row * n + k]) * widen(a[k * n + column]);
                a[row * n + column] = narrow<T>(-dot / diagonal);
            }
            a[row * n + row] = narrow<T>(C(1) / diagonal);
            for (i64 column = row + 1; column < n; ++column) a[row * n + column] = narrow<T>(C(0));
        }
    }
}

}  // namespace

// 16-bit matrices are widened by the launcher.
#define GW_KERNELS(T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                           \
        gw_inverse_cholesky_##NAME(const T* sigma, T* out, i64 batch, i64 n, double ridge) {                    \
        begin_kernel();                                                                                         \
        inverse_cholesky(sigma, out, batch, n, ridge);                                                          \
    }
GW_KERNELS(float, f32)
GW_KERNELS(double, f64)
