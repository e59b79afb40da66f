/* ProcessPrng, from which Rust's standard library takes random bytes on Windows, for versions of wine that lack it (8 does). */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) {
    while (length > 0) {
        ULONG part = length < 0x40000000 ? (ULONG)length : 0x40000000;
        if (!RtlGenRandom(bytes, part)) return FALSE;
        bytes += part;
        length -= part;
    }
    return TRUE;
}
