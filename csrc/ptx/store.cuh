// Vector stores to global memory, for code in which the compiler takes a store of a pack apart into one store for each word.
#pragma once

#include "gradewise/integers.cuh"

/// Stores adjacent words; `target` is in global memory and a multiple of their size.
GW_DEVICE void store_words(void* target, const u32 (&words)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}
GW_DEVICE void store_words(void* target, const u32 (&words)[2]) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(target), "r"(words[0]), "r"(words[1]) : "memory");
}
