// Optimiser updates of all parameters in one launch, and the sums of squares of all gradients.
//
// Values that change from step to step are read from device memory, so that a captured launch can be replayed. `constants` holds
// the constants of the step. `control`, if not null, has: whether to take the step (control[0] != 0), the factor on gradients
// (control[1]), and the largest magnitude of their elements after that (control[2]; 0 for no limit). Null means: take the step,
// factor 1, no limit.
//
// Results are stored through `flushed`: weights and moments hold no subnormal numbers, as on the CPU.
#include "gradewise/math.cuh"
#include "ops/optim_launch.cuh"

/// One parameter: up to four arrays of `count` elements, and the first block that works on it.
struct Item {
    u64 at[4];
    i64 count;
    u32 first_block, pad;
};

struct Items {
    Item item[optim::MOST];
    i32 count, pad;
};

static_assert(sizeof(Item) == 48 && sizeof(Items) <= 32000, "as the launcher lays them out, within the parameter space");

using optim::PARTS, optim::PER_BLOCK;

/// The parameter of this block: the last whose first block is not after it.
GW_DEVICE const Item& own_item(const Items& items) {
    int low = 0, high = items.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (items.item[middle].first_block <= blockIdx.x) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return items.item[low];
}

template <class T>
GW_DEVICE T* array(const Item& item, int which) {
    return reinterpret_cast<T*>(item.at[which]);
}

/// Elements of a thread whose values are on their way from memory at a time. One after the other, 16 of them took 14 µs: for all the
/// compiler knows the arrays overlap, so it moves no load ahead of a store.
constexpr int AT_ONCE = 8;

/// Calls `use(i, load(i))` for the block's elements, each thread's in order, with the loads of AT_ONCE elements ahead of their uses.
template <class Load, class Use>
GW_DEVICE void for_own_elements(const Item& item, Load load, Use use) {
    const i64 begin = static_cast<i64>(blockIdx.x - item.first_block) * PER_BLOCK;
    const i64 end = begin + PER_BLOCK < item.count ? begin + PER_BLOCK : item.count;
    for (i64 first = begin + threadIdx.x; first < end; first += AT_ONCE * optim::THREADS) {
        decltype(load(first)) held[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const i64 i = first + k * optim::THREADS;
            if (i < end) held[k] = load(i);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const i64 i = first + k * optim::THREADS;
            if (i < end) use(i, held[k]);
        }
    }
}

/// An element of each array of an update, as it is in memory.
template <class T>
struct Element {
    T parameter, gradient, first, second;
};

/// Calls `use(i, element, g)` for the block's elements, with the gradient scaled and limited. There are two loops so that the arithmetic
/// without a limit stays as it is: one multiplication, which the compiler may contract with the additions of `use`.
template <class T, class Load, class Use>
GW_DEVICE void for_own_gradients(const Item& item, const double* control, Load load, Use use) {
    using C = Compute<T>;
    const C scale = control == nullptr ? C(1) : C(control[1]), limit = control == nullptr ? C(0) : C(control[2]);
    if (limit > C(0)) {
        for_own_elements(item, load, [&](i64 i, const Element<T>& element) {
            const C g = widen(element.gradient) * scale;
            use(i, element, g > limit ? limit : g < -limit ? -limit : g);
        });
    } else {
        for_own_elements(item, load, [&](i64 i, const Element<T>& element) { use(i, element, widen(element.gradient) * scale); });
    }
}

/// Adam (arXiv:1412.6980). Arrays: parameter, gradient, first and second moment. Constants: step size, root of the second
/// bias correction, β1, β2, 1 − β1, 1 − β2, ε, factor on the parameter, λ added to the gradient.
template <class T>
GW_DEVICE void adam(const Items& items, const double* constants, const double* control) {
    using C = Compute<T>;
    if (control != nullptr && control[0] == 0) return;
    const C step_size = C(constants[0]), bias_root = C(constants[1]), beta1 = C(constants[2]), beta2 = C(constants[3]);
    const C rest1 = C(constants[4]), rest2 = C(constants[5]), epsilon = C(constants[6]);
    const C shrink = C(constants[7]), decay = C(constants[8]);
    const Item& item = own_item(items);
    T *p = array<T>(item, 0), *m = array<T>(item, 2), *v = array<T>(item, 3);
    const T* gradient = array<T>(item, 1);
    const auto load = [&](i64 i) { return Element<T>{p[i], gradient[i], m[i], v[i]}; };
    for_own_gradients<T>(item, control, load, [&](i64 i, const Element<T>& element, C scaled) {
        const C value = widen(element.parameter);
        const C g = scaled + decay * value;
        const C first = flushed(beta1 * widen(element.first) + rest1 * g);
        const C second = flushed(beta2 * widen(element.second) + rest2 * g * g);
        m[i] = narrow<T>(first);
        v[i] = narrow<T>(second);
        p[i] = narrow<T>(flushed(shrink * value - step_size * first / (root(second) / bias_root + epsilon)));
    });
}

/// Gradient descent. Arrays: parameter, gradient, momentum. Constants: learning rate, momentum, λ, 1 in the first step.
template <class T>
GW_DEVICE void sgd(const Items& items, const double* constants, const double* control) {
    using C = Compute<T>;
    if (control != nullptr && control[0] == 0) return;
    const C rate = C(constants[0]), momentum = C(constants[1]), decay = C(constants[2]);
    const bool first = constants[3] != 0;
    const Item& item = own_item(items);
    T *p = array<T>(item, 0), *buffer = array<T>(item, 2);
    const T* gradient = array<T>(item, 1);
    const auto load = [&](i64 i) { return Element<T>{p[i], gradient[i], first ? T{} : buffer[i], T{}}; };
    for_own_gradients<T>(item, control, load, [&](i64 i, const Element<T>& element, C scaled) {
        const C value = widen(element.parameter);
        const C g = scaled + decay * value;
        const C velocity = flushed(first ? g : momentum * widen(element.first) + g);
        buffer[i] = narrow<T>(velocity);
        p[i] = narrow<T>(flushed(value - rate * (momentum == C(0) ? g : velocity)));
    });
}

/// Moving average. Arrays: average, parameter. Constants: decay, 1 − decay.
template <class T>
GW_DEVICE void ema(const Items& items, const double* constants, const double* control) {
    using C = Compute<T>;
    if (control != nullptr && control[0] == 0) return;
    const C keep = C(constants[0]), take = C(constants[1]);
    const Item& item = own_item(items);
    T* average = array<T>(item, 0);
    const T* p = array<T>(item, 1);
    const auto load = [&](i64 i) { return Element<T>{p[i], T{}, average[i], T{}}; };
    for_own_elements(item, load, [&](i64 i, const Element<T>& element) {
        average[i] = narrow<T>(flushed(keep * widen(element.first) + take * widen(element.parameter)));
    });
}

/// What `join` makes of the values of a block of optim::THREADS threads, in a fixed order; thread 0 receives it. Contains barriers: all threads must
/// call it.
template <class F>
GW_DEVICE double block_join(double value, F join) {
    __shared__ double values[optim::THREADS];
    __syncthreads();  // They may still be read from the last call.
    values[threadIdx.x] = value;
    __syncthreads();
    for (int width = 128; width > 0; width /= 2) {
        if (threadIdx.x < width) values[threadIdx.x] = join(values[threadIdx.x], values[threadIdx.x + width]);
        __syncthreads();
    }
    return values[0];
}

GW_DEVICE double block_sum(double value) {
    return block_join(value, [](double a, double b) { return a + b; });
}

GW_DEVICE double block_largest(double value) {
    return block_join(value, [](double a, double b) { return a < b ? b : a; });
}

/// Arrays: gradient. partial[PARTS·block] = Σ g² over the block's elements, then how many are zero, then the largest |g| of those that are
/// numbers.
template <class T>
GW_DEVICE void squares(const Items& items, double* partial) {
    const Item& item = own_item(items);
    const T* gradient = array<T>(item, 0);
    double sum = 0, zeros = 0, largest = 0;
    const auto load = [&](i64 i) { return gradient[i]; };
    for_own_elements(item, load, [&](i64, T element) {
        const double g = widen(element), size = g < 0 ? -g : g;
        sum += g * g;
        zeros += g == 0 ? 1 : 0;
        largest = largest < size ? size : largest;
    });
    sum = block_sum(sum);
    zeros = block_sum(zeros);
    largest = block_largest(largest);
    if (threadIdx.x != 0) return;
    double* const own = partial + PARTS * static_cast<i64>(blockIdx.x);
    own[0] = sum;
    own[1] = zeros;
    own[2] = largest;
}

/// One block: from the partial results, report[0] = loss, report[1] = norm of all gradients times *unscale, report[2] = number of
/// elements that are zero, report[3] = the largest magnitude of an element times control[1], report[4 + i] = norm of the i-th times
/// *unscale; control[0] = whether loss and norm are finite, control[1] = *unscale·min(1, limit/norm) (*unscale if the limit is 0). `starts`
/// has the first block of each gradient, and one past the last.
template <class T>
GW_DEVICE void decide(const T* loss, const double* partial, const u32* starts, i64 gradients, double limit,
                      const double* unscale, double* report, double* control) {
    double total = 0, zeros = 0, largest = 0;
    for (i64 i = threadIdx.x; i < gradients; i += blockDim.x) {
        double sum = 0;
        for (u32 block = starts[i]; block < starts[i + 1]; ++block) {
            const double* const own = partial + PARTS * static_cast<i64>(block);
            sum += own[0];
            zeros += own[1];
            largest = largest < own[2] ? own[2] : largest;
        }
        report[4 + i] = *unscale * sqrt(sum);
        total += sum;
    }
    total = block_sum(total);
    zeros = block_sum(zeros);
    largest = block_largest(largest);
    if (threadIdx.x != 0) return;
    const double value = widen(*loss), norm = *unscale * sqrt(total);
    // Neither NaN nor infinite.
    const bool finite = value - value == 0 && norm - norm == 0;
    const double scale = *unscale * (finite && limit > 0 && norm > limit ? limit / norm : 1);
    report[0] = value;
    report[1] = norm;
    report[2] = zeros;
    report[3] = scale * largest;
    control[0] = finite ? 1 : 0;
    control[1] = scale;
}

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(optim::THREADS, 2)                                                     \
        gw_adam_##NAME(const __grid_constant__ Items items, const double* constants, const double* control) {           \
        begin_kernel();                                                                                                 \
        adam<T>(items, constants, control);                                                                             \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(optim::THREADS, 2)                                                     \
        gw_sgd_##NAME(const __grid_constant__ Items items, const double* constants, const double* control) {            \
        begin_kernel();                                                                                                 \
        sgd<T>(items, constants, control);                                                                              \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(optim::THREADS, 2)                                                     \
        gw_ema_##NAME(const __grid_constant__ Items items, const double* constants, const double* control) {            \
        begin_kernel();                                                                                                 \
        ema<T>(items, constants, control);                                                                              \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(optim::THREADS, 2)                                                     \
        gw_squares_##NAME(const __grid_constant__ Items items, double* partial) {                                       \
        begin_kernel();                                                                                                 \
        squares<T>(items, partial);                                                                                     \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(optim::THREADS, 2)                                                     \
        gw_decide_##NAME(const T* loss, const double* partial, const u32* starts, i64 gradients, double limit,          \
                         const double* unscale, double* report, double* control) {                                      \
        begin_kernel();                                                                                                 \
        decide<T>(loss, partial, starts, gradients, limit, unscale, report, control);                                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
