// Sizes of launches of graph/neighbours.cu.
#pragma once

namespace neighbours {
/// Threads of a block: of kernels of one block, and of others.
constexpr int ALONE = 1024, THREADS = 256;
/// Most atoms that a block sorts into bins alone.
constexpr int FEW = 4096;
/// Most blocks that measure how far atoms have moved, of which a thread each takes a result.
constexpr int MEASURING = 256;
/// What a block measures: how far atoms have moved, and the least and the greatest fraction along each vector.
constexpr int MEASURES = 7;
/// Most bins for an atom.
constexpr int BINS = 2;
/// Atoms have to be within so many cells of the one at the origin.
constexpr int FARTHEST = 1 << 18;
/// Bytes of the state of a search, and numbers of its report: faults, pairs, the least square of a distance, searches, and the greatest
/// square of a distance that an atom has moved.
constexpr int STATE = 96, REPORT = 5;
/// Faults: a position that is not finite, an atom too far from the cell, and more pairs than there is room for.
constexpr int NOT_FINITE = 1, TOO_FAR = 2, FULL = 4;
}  // namespace neighbours
