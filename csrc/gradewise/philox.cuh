// Philox4x32-10: a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), bit for bit that of
// crates/kernels/src/ops/dropout/philox.rs.
#pragma once

#include "gradewise/types.cuh"

/// The four random words of a counter, whose upper half is `stream`, under a key.
GW_DEVICE void philox(u64 counter, u64 stream, u64 key, u32 (&words)[4]) {
    u32 c0 = static_cast<u32>(counter), c1 = static_cast<u32>(counter >> 32);
    u32 c2 = static_cast<u32>(stream), c3 = static_cast<u32>(stream >> 32);
    u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 first = 0xD2511F53ull * c0, second = 0xCD9E8D57ull * c2;
        c0 = static_cast<u32>(second >> 32) ^ c1 ^ k0;
        c1 = static_cast<u32>(second);
        c2 = static_cast<u32>(first >> 32) ^ c3 ^ k1;
        c3 = static_cast<u32>(first);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}
