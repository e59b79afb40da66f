// y = x / (1 + e^-bx), and its gradients; T is the type of the elements.
#include "gradewise/types.cuh"

extern "C" __global__ void swish(const T* x, T* y, long long n, double b) {
    const i64 i = thread_index();
    if (i >= n) return;
    const Compute<T> value = widen(x[i]);
    y[i] = narrow<T>(value / (1 + exp(-Compute<T>(b) * value)));
}

extern "C" __global__ void swish_backward(const T* x, const T* grad_y, T* grad_x, long long n, double b) {
    const i64 i = thread_index();
    if (i >= n) return;
    const Compute<T> value = widen(x[i]), slope = Compute<T>(b);
    const Compute<T> gate = 1 / (1 + exp(-slope * value));
    grad_x[i] = narrow<T>(widen(grad_y[i]) * gate * (1 + slope * value * (1 - gate)));
}
