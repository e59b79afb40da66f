// Threads and dynamic shared memory of the kernels of blocks, in one place for the kernels and for their launchers (csrc/launch_table.cpp).
// Needs no device: host compilers read it, too.
//
// A layout is that of a block's dynamic shared memory: where each part begins, in bytes, and BYTES in all. A kernel takes its pointers from
// it, so that it cannot use more than it is launched with.
#pragma once

#include "algebra/algebra.cuh"
#include "clifford/block/block_launch.cuh"

/// What the families for sm_90a share, for at most WIDTH_ features: see clifford/block/sm90_common.cuh.
template <class A, int WIDTH_>
struct BlockSm90Sizes {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    /// Rows of a group of warps, features rounded up, and warps of a group: each has 8 features.
    static constexpr int ROWS = block_sm90::ROWS, WIDTH = WIDTH_, COLUMNS = WIDTH / block_sm90::FEATURES_OF_WARP;
    /// A lane's part of a feature's product weights and normalisation parameters, in sums over all eight lanes of the feature.
    static constexpr int SHARE = (PATHS + GRADES + 7) / 8;

    /// Bytes of the parameters of features in shared memory, with BY_GRADE values of each feature and grade.
    static constexpr int parameters(int by_grade) { return block_sm90::parameters(PATHS, GRADES, by_grade, WIDTH) * 4; }
};

/// f32 by three products (clifford/block/sm90_f32x3.cuh). TILES · 32 is at least the number of inputs.
template <class A, int TILES>
struct BlockF32x3Sizes : BlockSm90Sizes<A, block_sm90::WIDTH> {
    using Common = BlockSm90Sizes<A, block_sm90::WIDTH>;
    using Common::BLADES, Common::COLUMNS, Common::GRADES, Common::ROWS, Common::SHARE, Common::WIDTH;
    static constexpr int GROUPS = 2, THREADS = GROUPS * 32 * COLUMNS;
    /// Bytes of a row of operands, two f16 numbers a value; of a blade's rows and of those of all blades; of a grade's matrix and of all
    /// grades'.
    static constexpr int ROW = 4 * WIDTH, PLANE = ROWS * ROW, ARRAY = BLADES * PLANE, GRADE = WIDTH * ROW, MATRIX = GRADES * GRADE;
    static constexpr int PARAMETERS = Common::parameters(3);
    /// Bytes of the scales of matrices, and of those of the columns of 16 rows.
    static constexpr int MATRIX_SCALES = 4 * 4, ROW_SCALES = 4 * COLUMNS;
    static constexpr int RIGHT = 0, LEFT = MATRIX, LINEAR = 2 * MATRIX, AFTER_MATRICES = (2 + TILES) * MATRIX;

    struct Forward {
        static constexpr int THREADS = BlockF32x3Sizes::THREADS;
        /// Of each group: rows of x, 32 columns at a time, then h; sums over features, then scales.
        static constexpr int GROUP = (TILES + 1) * ARRAY, GROUP_SUMS = 4 * ROWS * 4 + ROWS * 4;
        static constexpr int VALUES = AFTER_MATRICES + GROUPS * GROUP, SUMS = VALUES + PARAMETERS;
        static constexpr int SCALES = SUMS + GROUPS * GROUP_SUMS, BYTES = SCALES + MATRIX_SCALES;
        static_assert((TILES + 1) * ROW_SCALES <= ROWS * 4, "the scales of x and h");
    };

    struct Backward {
        static constexpr int THREADS = BlockF32x3Sizes::THREADS;
        /// Operands of both groups.
        static constexpr int BOTH = GROUPS * ARRAY;
        static constexpr int GRAD_R = AFTER_MATRICES, GRAD_L = GRAD_R + BOTH, H = GRAD_L + BOTH, STAGE = H + BOTH;
        static constexpr int VALUES = STAGE + BOTH, ROW_SCALES = VALUES + PARAMETERS;
        static constexpr int SCALES = ROW_SCALES + 3 * GROUPS * BlockF32x3Sizes::ROW_SCALES;
        static constexpr int EXCHANGE = SCALES + MATRIX_SCALES, GROUP_EXCHANGE = 8 * ROWS * 4;
        /// The sums of a thread, of both of its features.
        static constexpr int THREAD_SUMS = EXCHANGE + GROUPS * GROUP_EXCHANGE, SUMS_OF_THREAD = 2 * (SHARE + 3 + 2 * GRADES);
        static constexpr int BYTES = THREAD_SUMS + SUMS_OF_THREAD * THREADS * 4;
    };
};

/// 16 bits (clifford/block/sm90_16bit.cuh). TILES · 32 is at least the number of inputs.
template <class A, int TILES>
struct Block16BitSizes : BlockSm90Sizes<A, block_sm90::WIDTH> {
    using Common = BlockSm90Sizes<A, block_sm90::WIDTH>;
    using Common::BLADES, Common::COLUMNS, Common::GRADES, Common::ROWS, Common::SHARE, Common::WIDTH;
    static constexpr int ROW = 2 * WIDTH, GRADE = WIDTH * ROW, MATRIX = GRADES * GRADE, PARAMETERS = Common::parameters(4), BARRIER = 8;
    /// Bytes of 16 rows of all blades: of features, or of 32 inputs.
    static constexpr int ARRAY = BLADES * ROWS * ROW;
    static constexpr int RIGHT = 0, LEFT = MATRIX, LINEAR = 2 * MATRIX, AFTER_MATRICES = (2 + TILES) * MATRIX;

    struct Forward {
        static constexpr int GROUPS = 3, THREADS = GROUPS * 32 * COLUMNS;
        /// Of each group: operands of x, later of h; rows of x and of the residual as they are in global memory; sums; two barriers.
        static constexpr int ROWS_OF_X = TILES * ARRAY, RESIDUAL = 2 * TILES * ARRAY, GROUP = RESIDUAL + ARRAY;
        static constexpr int GROUP_SUMS = 4 * ROWS * 4, GROUP_BARRIERS = 2 * BARRIER;
        static constexpr int VALUES = AFTER_MATRICES + GROUPS * GROUP, SUMS = VALUES + PARAMETERS;
        static constexpr int BARRIERS = SUMS + GROUPS * GROUP_SUMS, BYTES = BARRIERS + GROUPS * GROUP_BARRIERS;
    };

    struct Backward {
        static constexpr int GROUPS = 2, THREADS = GROUPS * 32 * COLUMNS, BOTH = GROUPS * ARRAY;
        /// Operands of both groups, then their rows as they are in global memory.
        static constexpr int GRAD_R = AFTER_MATRICES, GRAD_L = GRAD_R + BOTH, H = GRAD_L + BOTH;
        static constexpr int STAGE_S = H + BOTH, STAGE_GRAD = STAGE_S + BOTH, STAGE_R = STAGE_GRAD + BOTH, STAGE_Y = STAGE_R + BOTH;
        static constexpr int STAGE_X = STAGE_Y + BOTH, VALUES = STAGE_X + TILES * BOTH;
        static constexpr int EXCHANGE = VALUES + PARAMETERS, GROUP_EXCHANGE = 8 * ROWS * 4;
        /// Pairs of sums of each thread.
        static constexpr int THREAD_SUMS = EXCHANGE + GROUPS * GROUP_EXCHANGE, PAIRS = 2 * GRADES + 3 + SHARE;
        static constexpr int BARRIERS = THREAD_SUMS + PAIRS * 8 * THREADS, BYTES = BARRIERS + 3 * BARRIER;
    };
};

/// 33 to 64 features (clifford/block/sm90_64.cuh), with operands of NUMBERS f16 numbers.
template <class A, int NUMBERS>
struct Block64Sizes : BlockSm90Sizes<A, block_sm90::WIDE> {
    using Common = BlockSm90Sizes<A, block_sm90::WIDE>;
    using Common::BLADES, Common::COLUMNS, Common::GRADES, Common::ROWS, Common::SHARE, Common::WIDTH;
    static constexpr int THREADS = 32 * COLUMNS, LINE = 2 * WIDTH;
    /// Of a tile: bytes of the high parts of one blade, of its operands, and of those of all blades; and of a tile of raw values.
    static constexpr int PART = ROWS * LINE, PLANE = NUMBERS * PART, TILE_BYTES = BLADES * PLANE, ARRAY = 2 * BLADES * PART;
    /// Of matrices: bytes of the high parts of one grade, of its operands, and of a matrix of all grades.
    static constexpr int MATRIX_PART = WIDTH * LINE, GRADE = NUMBERS * MATRIX_PART, MATRIX = GRADES * GRADE;
    /// What the forward pass leaves to the backward pass, both of them as they are in shared memory: matrices, and parameters with scales.
    static constexpr int PREPARED_MATRICES = 2 * MATRIX, PREPARED_VALUES = Common::parameters(4) + 4 * 4;
    static_assert(PREPARED_MATRICES + PREPARED_VALUES == 4 * block_sm90::prepared(Common::PATHS, GRADES, NUMBERS), "as launchers count them");

    struct Forward {
        static constexpr int THREADS = Block64Sizes::THREADS;
        static constexpr int ROWS_OF_H = PREPARED_MATRICES, RAW_H = ROWS_OF_H + ARRAY, VALUES = RAW_H + ARRAY;
        static constexpr int SUMS = VALUES + PREPARED_VALUES, MAGNITUDES = SUMS + ROWS * COLUMNS * 4, BYTES = MAGNITUDES + COLUMNS * 4;
    };

    struct Backward {
        static constexpr int THREADS = Block64Sizes::THREADS;
        /// Whether there is shared memory for y, which is read twice otherwise.
        static constexpr bool KEEPS_Y = NUMBERS == 1;
        static constexpr int GRAD_R = PREPARED_MATRICES, GRAD_L = GRAD_R + ARRAY, Y = GRAD_L + ARRAY, VALUES = Y + (KEEPS_Y ? ARRAY : 0);
        static constexpr int EXCHANGE = VALUES + PREPARED_VALUES, MAGNITUDES = EXCHANGE + 2 * ROWS * COLUMNS * 4;
        static constexpr int BARRIERS = MAGNITUDES + 3 * COLUMNS * 4, THREAD_SUMS = BARRIERS + 2 * 8;
        static constexpr int BYTES = THREAD_SUMS + (2 * (SHARE + 3) + 2 * GRADES) * THREADS * 4;
    };
};

/// Blocks of threads that share the grades in sums of the gradients of matrices (clifford/block/sm90_64_halves.cuh), and blades of each.
template <class A>
struct Block64HalvesSizes {
    static constexpr int HALVES = block_sm90::halves(A::BLADES), COUNT = A::BLADES / HALVES;
};

/// Gradients of the first map of 33 to 64 features (clifford/block/sm90_64_first_gradients.cuh), for elements of SIZE bytes and COLUMNS columns
/// of x.
template <int SIZE, int COLUMNS>
struct Block64FirstSizes {
    static constexpr int THREADS = 512, ROWS = block_sm90::FIRST_ROWS, WIDTH = block_sm90::WIDE;
    /// Bytes of a row of COUNT columns: the same 16 bytes of eight adjacent rows are in 32 banks.
    template <int COUNT>
    static constexpr int LINE = COUNT * SIZE + 16;
    static constexpr int STAGES = SIZE == 4 ? 8 : 16, ARRAY = ROWS * LINE<COLUMNS>, STAGE = ARRAY + ROWS * LINE<WIDTH>;
    /// Groups of 16 rows, which have a scale of their own, and magnitudes of a step: those of eight warps for each scale.
    static constexpr int GROUPS = 2, STAGE_MAGNITUDES = 2 * GROUPS * 8;
    static constexpr int MAGNITUDES = STAGES * STAGE, INVERSES = MAGNITUDES + 2 * STAGE_MAGNITUDES * 4;
    static constexpr int BARRIERS = INVERSES + STAGES * 2 * GROUPS * 4, BYTES = BARRIERS + 2 * STAGES * 8;
};

/// Gradients of the other matrices of 33 to 64 features (clifford/block/sm90_64_inner_gradients.cuh).
template <class A, int NUMBERS>
struct Block64InnerSizes {
    static constexpr int THREADS = 512;
    /// Bytes of a stage: the blades of a tile of three arrays, and the tile's scales.
    static constexpr int ARRAY = Block64HalvesSizes<A>::COUNT * Block64Sizes<A, NUMBERS>::PLANE, STAGE = 3 * ARRAY + 128, STAGES = 4;
    static constexpr int BARRIERS = STAGES * STAGE, BYTES = BARRIERS + STAGES * 8;
};
