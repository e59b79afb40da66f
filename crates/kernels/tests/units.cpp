// Prints who computes what of matrix products, as csrc/mma/units.cuh deals it out, for the test in src/ops/matmul/hopper.rs.
//
// Each line of input is a product: rows columns count steps share split ordered, columns of a tile, blocks of a cluster, number of blocks, then
// how many starts there are and the starts, and the 33 numbers of the list. Each line of output is a unit: product, block, z, stretch,
// row, column, first segment, begin, end.
#include <cstdio>
#include <vector>

struct Dimension {
    unsigned x;
};
static Dimension blockIdx, gridDim;

#include "mma/units.cuh"

struct Problem {
    const i32* starts;
    i64 rows, columns;
    i32 count, steps, share, split, ordered;
    i32 list[33];
};

template <int BN, int CLUSTER>
static void print(int product, const Problem& problem, unsigned blocks) {
    gridDim.x = blocks;
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        const Units<Problem, 128, BN, CLUSTER> units(problem, block % CLUSTER);
        for (i32 round = 0; round < units.rounds(); ++round) {
            const i32 own = units.number(round);
            if (own < 0) break;
            const Unit u = units.unit(own);
            std::printf("%d %u %d %d %d %d %d %d %d\n", product, block, u.z, u.stretch, u.row, u.column, u.first_segment, u.begin,
                        u.end);
        }
    }
}

int main() {
    Problem p{};
    int columns, cluster, starts;
    unsigned blocks;
    for (int product = 0; std::scanf("%lld %lld %d %d %d %d %d %d %d %u %d", &p.rows, &p.columns, &p.count, &p.steps, &p.share,
                                     &p.split, &p.ordered, &columns, &cluster, &blocks, &starts) == 11;
         ++product) {
        std::vector<i32> values(starts);
        for (i32& value : values) {
            if (std::scanf("%d", &value) != 1) return 1;
        }
        for (i32& value : p.list) {
            if (std::scanf("%d", &value) != 1) return 1;
        }
        p.starts = starts > 0 ? values.data() : nullptr;
        if (columns == 256 && cluster == 2) {
            print<256, 2>(product, p, blocks);
        } else if (columns == 256 && cluster == 1) {
            print<256, 1>(product, p, blocks);
        } else if (columns == 128 && cluster == 1) {
            print<128, 1>(product, p, blocks);
        } else {
            return 1;
        }
    }
    return 0;
}
