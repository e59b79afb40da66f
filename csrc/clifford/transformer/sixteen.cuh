// Planes of an algebra of 16 blades, grade by grade.
#pragma once

#include "gradewise/integers.cuh"

/// There are as many blades of each grade in all of them.
constexpr int PLANES = 16, GRADES = 5;
GW_DEVICE constexpr int grade_of(int plane) { return plane == 0 ? 0 : plane < 5 ? 1 : plane < 11 ? 2 : plane < 15 ? 3 : 4; }
