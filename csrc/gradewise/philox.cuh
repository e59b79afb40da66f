// Philox4x32-10: a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), bit for bit that of
// crates/kernels/src/ops/dropout/philox.rs.
#pragma once

#include "gradewise/types.cuh"

/// Permutes a counter; `round_key(round, half)` are the two words of each round's key.
template <class RoundKey>
GW_DEVICE void philox_rounds(u32 (&c)[4], RoundKey round_key) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 first = 0xD2511F53ull * c[0], second = 0xCD9E8D57ull * c[2];
        c[0] = static_cast<u32>(second >> 32) ^ c[1] ^ round_key(round, 0);
        c[1] = static_cast<u32>(second);
        c[2] = static_cast<u32>(first >> 32) ^ c[3] ^ round_key(round, 1);
        c[3] = static_cast<u32>(first);
    }
}

/// The four random words of a counter, whose upper half is `stream`, under a key.
GW_DEVICE void philox(u64 counter, u64 stream, u64 key, u32 (&words)[4]) {
    words[0] = static_cast<u32>(counter);
    words[1] = static_cast<u32>(counter >> 32);
    words[2] = static_cast<u32>(stream);
    words[3] = static_cast<u32>(stream >> 32);
    philox_rounds(words, [&](int round, int half) {
        return half == 0 ? static_cast<u32>(key) + round * 0x9E3779B9u : static_cast<u32>(key >> 32) + round * 0xBB67AE85u;
    });
}
