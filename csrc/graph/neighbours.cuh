// Neighbours within a cutoff: atoms are sorted into the bins of a grid along the cell's vectors, and a warp compares an atom with those of
// the bins around.
//
// A pair is (receiver, sender, images): how often each vector of the cell is added to the position of the sender. It is in the list if
// |sender + images·vectors − receiver|² is below the square of the cutoff, computed in double precision without fused multiply-adds in the
// order of `square_of`. The list is sorted by receiver, sender and images. So it follows from positions, cell and cutoff alone, and is
// that of the host, whatever grid found it. Since the square is the same, bit for bit, with receiver and sender exchanged and images
// negated, the list has each pair's opposite, too.
#pragma once

#include "gradewise/debug.cuh"
#include "gradewise/strided.cuh"
#include "graph/neighbours_launch.cuh"

namespace neighbours {

/// The box in which atoms are, along vectors that do not repeat as wide as 1.
struct Box {
    double vectors[3][3], inverse[3][3];
    /// Distances of opposite faces.
    double heights[3];
    /// The least width of a bin, a little more than the cutoff: rounding may put an atom into the bin beside its own.
    double width;
    /// The square of the cutoff, and that of the distance between rounded positions beyond which pairs are not looked at again.
    double limit, loose;
    i32 periodic[3], unused;
};

/// What a search knows between its kernels.
struct State {
    /// The bits of the least square of a distance; those of numbers above 0 are ordered as the numbers are.
    u64 closest;
    /// Where the grid begins, and bins for a fraction of 1, along each vector.
    double first[3], scale[3];
    i32 counts[3], reach[3];
    /// Whether this search is under way.
    u32 searches_now;
    u32 faults, pairs, searches;
};
static_assert(sizeof(State) == STATE, "as the launcher allocates");

/// Memory of a search that is its own.
struct Scratch {
    State* state;
    double* report;
    /// `MEASURES` for each block that measures.
    double* measures;
    /// For each atom its bin; for each bin where its atoms begin, and once they are in it, where they end.
    u32 *bins, *ends;
    /// Atoms bin by bin: number, position inside of the cell, and how often each vector was taken off to get there; the latter two by axis.
    u32* members;
    double* inside;
    i32* taken;
    /// For each atom, where its pairs begin.
    u32* rows;
    /// Pairs as they are found.
    u32* found_senders;
    u64* found_images;
};

/// The list: as many pairs as there is room for. Those beyond the last found have both ends at the last atom, far apart.
template <class T>
struct List {
    /// Values, starts of groups and positions by group, of receivers and senders.
    u32 *receivers, *receiver_starts, *receiver_order;
    u32 *senders, *sender_starts, *sender_order;
    u64* images;
    /// By axis: what images add to a difference of positions.
    T* shifts;
    /// Where the atoms were at the last search, by axis.
    T* searched;
    double far;
    i64 room;
};

// Products and sums that the compiler does not fuse.
GW_DEVICE double times(double a, double b) { return __dmul_rn(a, b); }
GW_DEVICE double plus(double a, double b) { return __dadd_rn(a, b); }
GW_DEVICE double sum_of_products(double a, double b, double c, double x, double y, double z) {
    return plus(plus(times(a, x), times(b, y)), times(c, z));
}
GW_DEVICE double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
GW_DEVICE double square_of(const double (&x)[3]) { return sum_of_products(x[0], x[1], x[2], x[0], x[1], x[2]); }

/// The sum of so many of each vector, along an axis.
GW_DEVICE double shift_along(const Box& box, const i32 (&images)[3], int axis) {
    return sum_of_products(images[0], images[1], images[2], box.vectors[0][axis], box.vectors[1][axis], box.vectors[2][axis]);
}

template <class T>
GW_DEVICE void position_of(const T* x, i64 atom, i64 atoms, double (&position)[3]) {
    for (int axis = 0; axis < 3; ++axis) position[axis] = widen(x[axis * atoms + atom]);
}

// Images as one number, in whose order they are sorted: 21 bits each, above 0.
constexpr i64 ZERO = 1 << 20;
GW_DEVICE u64 packed(const i32 (&images)[3]) {
    return static_cast<u64>(images[0] + ZERO) << 42 | static_cast<u64>(images[1] + ZERO) << 21 | static_cast<u64>(images[2] + ZERO);
}
GW_DEVICE void unpack(u64 images, i32 (&out)[3]) {
    const u64 mask = (1 << 21) - 1;
    out[0] = static_cast<i32>(static_cast<i64>(images >> 42) - ZERO);
    out[1] = static_cast<i32>(static_cast<i64>(images >> 21 & mask) - ZERO);
    out[2] = static_cast<i32>(static_cast<i64>(images & mask) - ZERO);
}
GW_DEVICE u64 negated(u64 images) {
    const u64 twice = 2 * ZERO;
    return (twice << 42) + (twice << 21) + twice - images;
}

// ------------------------------------------------------------------------------------------------------------------ measures

/// The greatest square of a distance moved, and the least and greatest fractions along vectors that do not repeat.
struct Measures {
    double of[MEASURES];

    GW_DEVICE Measures() {
        of[0] = 0;
        for (int k = 0; k < 3; ++k) {
            of[1 + k] = 1e300;
            of[4 + k] = -1e300;
        }
    }
    GW_DEVICE void take(const Measures& other) {
        of[0] = fmax(of[0], other.of[0]);
        for (int k = 0; k < 3; ++k) {
            of[1 + k] = fmin(of[1 + k], other.of[1 + k]);
            of[4 + k] = fmax(of[4 + k], other.of[4 + k]);
        }
    }
};

/// What this thread measures. A distance that is no number counts as infinite.
template <class T>
GW_DEVICE Measures measured(const T* x, const T* searched, const Box& box, i64 atoms) {
    Measures all;
    for (i64 atom = thread_index(); atom < atoms; atom += thread_count()) {
        double position[3], before[3];
        position_of(x, atom, atoms, position);
        position_of(searched, atom, atoms, before);
        Measures own;
        for (int k = 0; k < 3; ++k) {
            before[k] = plus(position[k], -before[k]);
            if (box.periodic[k]) continue;
            const double* row = box.inverse[k];
            const double fraction = sum_of_products(row[0], row[1], row[2], position[0], position[1], position[2]);
            own.of[1 + k] = own.of[4 + k] = fraction;
        }
        const double moved = square_of(before);
        own.of[0] = moved == moved ? moved : infinity();
        all.take(own);
    }
    return all;
}

/// The measures of all threads of the block, at each of them.
GW_DEVICE Measures of_block(Measures own) {
    __shared__ double shared[ALONE / 32][MEASURES];
    for (int offset = 16; offset > 0; offset /= 2) {
        Measures other;
        for (int k = 0; k < MEASURES; ++k) other.of[k] = __shfl_xor_sync(0xffffffffu, own.of[k], offset);
        own.take(other);
    }
    if (threadIdx.x % 32 == 0) {
        for (int k = 0; k < MEASURES; ++k) shared[threadIdx.x / 32][k] = own.of[k];
    }
    __syncthreads();
    Measures all;
    for (u32 warp = 0; warp < blockDim.x / 32; ++warp) {
        Measures other;
        for (int k = 0; k < MEASURES; ++k) other.of[k] = shared[warp][k];
        all.take(other);
    }
    __syncthreads();
    return all;
}

// ---------------------------------------------------------------------------------------------------------------------- bins

/// Bins along each vector, and how many of them away neighbours may be.
GW_DEVICE void lay_out(const Measures& measures, const Box& box, State& state, i64 atoms) {
    const double most = static_cast<double>(BINS * atoms);
    double counts[3], heights[3], extents[3];
    for (int k = 0; k < 3; ++k) {
        const double low = measures.of[1 + k], extent = fmax(measures.of[4 + k] - low, 1e-9);
        const bool open = !box.periodic[k] && low <= measures.of[4 + k];
        extents[k] = open ? extent * (1 + 1e-9) : 1;
        state.first[k] = open ? low : 0;
        heights[k] = box.heights[k] * extents[k];
        counts[k] = fmin(fmax(floor(heights[k] / box.width), 1.0), most);
    }
    while (counts[0] * counts[1] * counts[2] > most) {
        const double greatest = fmax(counts[0], fmax(counts[1], counts[2]));
        bool halved = false;
        for (int k = 0; k < 3; ++k) {
            if (halved || counts[k] < greatest) continue;
            counts[k] = floor(counts[k] / 2);
            halved = true;
        }
    }
    for (int k = 0; k < 3; ++k) {
        state.counts[k] = static_cast<i32>(counts[k]);
        state.reach[k] = static_cast<i32>(fmin(ceil(box.width * counts[k] / heights[k]), 1.0 * FARTHEST));
        state.scale[k] = counts[k] / extents[k];
    }
}

/// Begins a search if it is due: always, or since an atom has moved by the root of `due`. By one block.
GW_DEVICE void begin(const Measures& measures, const Box& box, const Scratch& own, i64 atoms, double due, bool always) {
    State& state = *own.state;
    if (threadIdx.x == 0) {
        state.searches_now = always || !(measures.of[0] < due);
        own.report[4] = measures.of[0];
        if (state.searches_now) {
            lay_out(measures, box, state, atoms);
            state.closest = static_cast<u64>(__double_as_longlong(infinity()));
            state.faults = 0;
        }
    }
    __syncthreads();
    if (!state.searches_now) return;
    const i64 bins = static_cast<i64>(state.counts[0]) * state.counts[1] * state.counts[2];
    for (i64 bin = threadIdx.x; bin < bins; bin += blockDim.x) own.ends[bin] = 0;
}

/// Where an atom is: its bin, how often each vector is taken off, and where it is then.
struct Place {
    u32 bin;
    i32 taken[3];
    double inside[3];
    u32 faults;
};

GW_DEVICE Place place_of(const double (&position)[3], const Box& box, const State& state) {
    Place place{};
    i32 at[3];
    for (int axis = 0; axis < 3; ++axis) {
        place.inside[axis] = position[axis];
        if (!(fabs(position[axis]) < 1e300)) place.faults |= NOT_FINITE;
    }
    for (int k = 0; k < 3; ++k) {
        const double* row = box.inverse[k];
        double along = sum_of_products(row[0], row[1], row[2], position[0], position[1], position[2]) - state.first[k];
        if (box.periodic[k]) {
            double turns = floor(along);
            if (!(fabs(turns) < FARTHEST)) {
                place.faults |= TOO_FAR;
                turns = 0;
            }
            along -= turns;
            place.taken[k] = static_cast<i32>(turns);
            for (int axis = 0; axis < 3; ++axis) place.inside[axis] -= turns * box.vectors[k][axis];
        }
        const double bin = along * state.scale[k], last = state.counts[k] - 1;
        at[k] = static_cast<i32>(bin > 0 ? fmin(bin, last) : 0);
    }
    place.bin = (at[0] * state.counts[1] + at[1]) * state.counts[2] + at[2];
    return place;
}

/// Counts the atoms of each bin.
template <class T>
GW_DEVICE void count_members(const T* x, const Box& box, const Scratch& own, i64 atoms) {
    for (i64 atom = thread_index(); atom < atoms; atom += thread_count()) {
        double position[3];
        position_of(x, atom, atoms, position);
        const Place place = place_of(position, box, *own.state);
        own.bins[atom] = place.bin;
        if (place.faults) atomicOr(&own.state->faults, place.faults);
        atomicAdd(&own.ends[place.bin], 1u);
    }
}

/// Replaces numbers by the sums of those before them, and returns the sum of all. By one block of `ALONE` threads.
GW_DEVICE u32 sums_before(u32* values, i64 count) {
    __shared__ u32 sums[ALONE / 32];
    constexpr int EACH = 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 carry = 0;
    for (i64 first = 0; first < count; first += EACH * ALONE) {
        const i64 at = first + EACH * threadIdx.x;
        u32 value[EACH], sum = 0;
        for (int k = 0; k < EACH; ++k) {
            value[k] = at + k < count ? values[at + k] : 0;
            sum += value[k];
        }
        u32 through = sum;
        for (int offset = 1; offset < 32; offset *= 2) {
            const u32 before = __shfl_up_sync(0xffffffffu, through, offset);
            if (lane >= offset) through += before;
        }
        if (lane == 31) sums[warp] = through;
        __syncthreads();
        u32 before = carry + through - sum;
        for (int w = 0; w < ALONE / 32; ++w) {
            if (w < warp) before += sums[w];
            carry += sums[w];
        }
        __syncthreads();
        for (int k = 0; k < EACH; ++k) {
            if (at + k < count) values[at + k] = before;
            before += value[k];
        }
    }
    return carry;
}

GW_DEVICE void begin_bins(const Scratch& own) {
    const i32* counts = own.state->counts;
    sums_before(own.ends, static_cast<i64>(counts[0]) * counts[1] * counts[2]);
}

/// Puts atoms into their bins. In which order those of a bin are in it is left open: the list does not depend on it.
template <class T>
GW_DEVICE void put(const T* x, const Box& box, const Scratch& own, i64 atoms) {
    for (i64 atom = thread_index(); atom < atoms; atom += thread_count()) {
        double position[3];
        position_of(x, atom, atoms, position);
        const Place place = place_of(position, box, *own.state);
        const i64 slot = GW_INDEX(atomicAdd(&own.ends[place.bin], 1u), atoms);
        own.members[slot] = static_cast<u32>(atom);
        for (int k = 0; k < 3; ++k) {
            own.inside[k * atoms + slot] = place.inside[k];
            own.taken[k * atoms + slot] = place.taken[k];
        }
    }
}

// --------------------------------------------------------------------------------------------------------------------- pairs

/// An atom whose neighbours a warp seeks.
struct Receiver {
    u32 atom;
    double position[3], inside[3];
    i32 taken[3];
};

template <class T>
GW_DEVICE Receiver receiver_at(i64 slot, const T* x, const Scratch& own, i64 atoms) {
    Receiver receiver;
    receiver.atom = own.members[slot];
    position_of(x, receiver.atom, atoms, receiver.position);
    for (int k = 0; k < 3; ++k) {
        receiver.inside[k] = own.inside[k * atoms + slot];
        receiver.taken[k] = own.taken[k * atoms + slot];
    }
    return receiver;
}

/// A bin along a vector that may be beyond the grid's end: which bin of the grid it is an image of, and how many periods away.
GW_DEVICE i32 wrapped(i32 at, i32 count, i32& turns) {
    turns = at >= 0 ? at / count : -((count - 1 - at) / count);
    return at - turns * count;
}

/// Calls `each(is_pair, sender, images, square)` for what is in the bins around an atom: all lanes of the warp call together, each for an
/// atom of its own.
template <class T, class Each>
GW_DEVICE void each_near(const Receiver& receiver, const T* x, const Box& box, const Scratch& own, i64 atoms, Each each) {
    const State& state = *own.state;
    const int lane = threadIdx.x % 32;
    i32 low[3], high[3], rest = static_cast<i32>(own.bins[receiver.atom]);
    for (int k = 2; k >= 0; --k) {
        const i32 home = rest % state.counts[k];
        rest /= state.counts[k];
        low[k] = home - state.reach[k];
        high[k] = home + state.reach[k];
        if (box.periodic[k]) continue;
        low[k] = low[k] < 0 ? 0 : low[k];
        high[k] = high[k] < state.counts[k] ? high[k] : state.counts[k] - 1;
    }
    for (i32 a = low[0]; a <= high[0]; ++a) {
        for (i32 b = low[1]; b <= high[1]; ++b) {
            for (i32 c = low[2]; c <= high[2]; ++c) {
                i32 turns[3];
                i32 bin = wrapped(a, state.counts[0], turns[0]);
                bin = bin * state.counts[1] + wrapped(b, state.counts[1], turns[1]);
                bin = bin * state.counts[2] + wrapped(c, state.counts[2], turns[2]);
                double from[3];
                for (int axis = 0; axis < 3; ++axis) from[axis] = shift_along(box, turns, axis) - receiver.inside[axis];
                const u32 end = own.ends[bin];
                for (u32 first = bin > 0 ? own.ends[bin - 1] : 0; first < end; first += 32) {
                    const u32 slot = first + lane;
                    bool is_pair = slot < end;
                    if (is_pair) {
                        double near = 0;
                        for (int axis = 0; axis < 3; ++axis) {
                            const double difference = own.inside[axis * atoms + slot] + from[axis];
                            near += difference * difference;
                        }
                        is_pair = near < box.loose;
                    }
                    u32 sender = 0;
                    i32 images[3] = {};
                    double square = 0;
                    if (is_pair) {
                        sender = own.members[slot];
                        double difference[3];
                        position_of(x, sender, atoms, difference);
                        for (int k = 0; k < 3; ++k) images[k] = turns[k] - own.taken[k * atoms + slot] + receiver.taken[k];
                        for (int axis = 0; axis < 3; ++axis) {
                            difference[axis] =
                                plus(plus(difference[axis], -receiver.position[axis]), shift_along(box, images, axis));
                        }
                        square = square_of(difference);
                        const bool is_itself = sender == receiver.atom && !(images[0] | images[1] | images[2]);
                        is_pair = square < box.limit && !is_itself;
                    }
                    each(is_pair, sender, images, square);
                }
            }
        }
    }
}

GW_DEVICE i64 warp_index() { return thread_index() / 32; }
GW_DEVICE i64 warp_count() { return thread_count() / 32; }

/// Counts the pairs of each receiver.
template <class T>
GW_DEVICE void count_pairs(const T* x, const Box& box, const Scratch& own, i64 atoms) {
    for (i64 slot = warp_index(); slot < atoms; slot += warp_count()) {
        const Receiver receiver = receiver_at(slot, x, own, atoms);
        u32 count = 0;
        double closest = infinity();
        each_near(receiver, x, box, own, atoms, [&](bool is_pair, u32, const i32 (&)[3], double square) {
            count += __popc(__ballot_sync(0xffffffffu, is_pair));
            if (is_pair) closest = fmin(closest, square);
        });
        for (int offset = 16; offset > 0; offset /= 2) {
            closest = fmin(closest, __shfl_xor_sync(0xffffffffu, closest, offset));
        }
        if (threadIdx.x % 32 != 0) continue;
        own.rows[receiver.atom] = count;
        // Read first, because most atoms have neighbours farther away than the closest pair so far, and few then wait for one another.
        const u64 bits = static_cast<u64>(__double_as_longlong(closest));
        if (bits < *static_cast<volatile u64*>(&own.state->closest)) atomicMin(&own.state->closest, bits);
    }
}

/// Where the pairs of each receiver begin, and whether there is room for all; says so in the report. By one block of `ALONE` threads.
GW_DEVICE void begin_rows(const Scratch& own, i64 atoms, i64 room) {
    const u32 pairs = sums_before(own.rows, atoms);
    if (threadIdx.x != 0) return;
    State& state = *own.state;
    u32 faults = state.faults;
    if (!faults && pairs > room) faults = FULL;
    state.pairs = pairs;
    state.searches_now = !faults;
    state.searches += !faults;
    own.report[0] = faults;
    own.report[1] = pairs;
    own.report[2] = __longlong_as_double(static_cast<i64>(state.closest));
    own.report[3] = state.searches;
}

/// Whether one pair of a receiver comes before another.
GW_DEVICE bool is_before(u32 sender, u64 images, u32 other, u64 others) {
    return sender != other ? sender < other : images < others;
}

/// Writes the pairs of each receiver in their order, and what fills up the list.
template <class T>
GW_DEVICE void fill(const T* x, const Box& box, const Scratch& own, const List<T>& list, i64 atoms) {
    const int lane = threadIdx.x % 32;
    for (i64 slot = warp_index(); slot < atoms; slot += warp_count()) {
        const Receiver receiver = receiver_at(slot, x, own, atoms);
        const u32 row = own.rows[receiver.atom];
        u32 count = 0;
        each_near(receiver, x, box, own, atoms, [&](bool is_pair, u32 sender, const i32 (&images)[3], double) {
            const u32 pairs = __ballot_sync(0xffffffffu, is_pair);
            if (is_pair) {
                const i64 at = GW_INDEX(row + count + __popc(pairs & ((1u << lane) - 1)), list.room);
                own.found_senders[at] = sender;
                own.found_images[at] = packed(images);
            }
            count += __popc(pairs);
        });
        __syncwarp();
        // The place of a pair is the number of those before it.
        for (u32 k = lane; k < count; k += 32) {
            const u32 sender = own.found_senders[row + k];
            const u64 images = own.found_images[row + k];
            u32 before = 0;
            for (u32 other = 0; other < count; ++other) {
                before += is_before(own.found_senders[row + other], own.found_images[row + other], sender, images);
            }
            const u32 at = row + before;
            list.receivers[at] = receiver.atom;
            list.receiver_order[at] = at;
            list.senders[at] = sender;
            list.images[at] = images;
            i32 turns[3];
            unpack(images, turns);
            for (int axis = 0; axis < 3; ++axis) list.shifts[axis * list.room + at] = narrow<T>(shift_along(box, turns, axis));
        }
        if (lane == 0) list.receiver_starts[receiver.atom] = list.sender_starts[receiver.atom] = row;
    }
    if (thread_index() == 0) list.receiver_starts[atoms] = list.sender_starts[atoms] = static_cast<u32>(list.room);
    const i32 none[3] = {};
    for (i64 at = own.state->pairs + thread_index(); at < list.room; at += thread_count()) {
        list.receivers[at] = list.senders[at] = static_cast<u32>(atoms - 1);
        list.receiver_order[at] = list.sender_order[at] = static_cast<u32>(at);
        list.images[at] = packed(none);
        for (int axis = 0; axis < 3; ++axis) list.shifts[axis * list.room + at] = narrow<T>(axis == 0 ? list.far : 0.0);
    }
}

/// The first pair in a row that is not before (sender, images).
template <class T>
GW_DEVICE u32 first_from(const List<T>& list, u32 low, u32 high, u32 sender, u64 images) {
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (is_before(list.senders[middle], list.images[middle], sender, images)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/// Groups pairs by sender. Opposites of the pairs that an atom receives are those that it sends, and as many: it has a place for them as
/// large as its row. They are sorted by receiver, as the row is by sender; those of one receiver have negated images, hence the opposite
/// order.
template <class T>
GW_DEVICE void group_by_sender(const T* x, const Scratch& own, const List<T>& list, i64 atoms) {
    const u32 pairs = own.state->pairs;
    for (i64 at = thread_index(); at < pairs; at += thread_count()) {
        const u32 atom = list.receivers[at], other = list.senders[at];
        const auto end = [&](u32 row) { return row + 1 < atoms ? own.rows[row + 1] : pairs; };
        const u32 begin = first_from(list, own.rows[atom], end(atom), other, 0);
        const u32 behind = first_from(list, begin, end(atom), other + 1, 0);
        const u32 opposite = first_from(list, own.rows[other], end(other), atom, negated(list.images[at]));
        GW_ASSERT(list.senders[opposite] == atom);
        list.sender_order[begin + (behind - 1 - at)] = opposite;
    }
    for (i64 k = thread_index(); k < 3 * atoms; k += thread_count()) list.searched[k] = x[k];
}

}  // namespace neighbours
