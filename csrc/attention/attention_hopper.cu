// Attention by the instructions of sm_90a, without dropout and of sequences that are not packed.
#include "attention/hopper_kernels.cuh"

GW_HOPPER_KERNELS(hopper, false)
