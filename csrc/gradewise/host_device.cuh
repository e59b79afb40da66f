// Functions that kernels, host compilers and launchers share: see the headers *_launch.cuh.
//
// Such a header has the sizes of a kernel's launch: threads, tiles, and shared memory. The build translates it to Rust
// (crates/kernels/build/launch_headers.rs), so that launchers use the same numbers and formulas. It consists of namespaces with
// `constexpr int` constants, of functions `GW_HOST_DEVICE constexpr int name(int a, …) { return expression; }`, and of comments.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GW_HOST_DEVICE __host__ __device__
#else
#define GW_HOST_DEVICE
#endif
