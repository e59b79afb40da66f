// Attention by the instructions of sm_90a, with dropout or of packed sequences.
#include "attention/hopper_kernels.cuh"

GW_HOPPER_KERNELS(hopper_general, true)
