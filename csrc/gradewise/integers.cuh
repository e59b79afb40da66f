// Integer types, and the attribute of device functions. Needs no device, so that code on top of this header alone is tested on the
// host.
#pragma once

using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using u16 = unsigned short;

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GW_DEVICE __device__ __forceinline__
#else
#define GW_DEVICE inline
#endif
