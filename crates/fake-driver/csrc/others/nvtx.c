/* A stand-in for a profiler that listens to NVTX: what it hears goes to the file FAKE_NVTX_LOG. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

typedef void (*Function)(void);
struct callbacks {
    size_t size;
    int (*functions)(int module, Function ***places, unsigned *count);
};
struct version {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t);
};

static FILE *heard;

static int push(const char *name) { return fprintf(heard, "push %s\n", name), fflush(heard), 0; }
static int pop(void) { return fprintf(heard, "pop\n"), fflush(heard), 0; }
static void mark(const char *name) { fprintf(heard, "mark %s\n", name), fflush(heard); }

API int InitializeInjectionNvtx2(const void *(*export)(uint32_t)) {
    const struct version *version = export(3);
    const struct callbacks *callbacks = export(1);
    if (!version || version->size != sizeof *version || version->version < 2 || export(2)) return 0;
    if (!callbacks || callbacks->size != sizeof *callbacks) return 0;
    version->set(3);
    static const unsigned counts[] = {0, 16, 9, 15, 7, 16, 7}; /* functions of each module */
    for (int module = -1; module < 8; module++) {
        Function **places = NULL;
        unsigned count = 0;
        int known = callbacks->functions(module, &places, &count);
        if (known != (module >= 1 && module <= 6)) return 0;
        if (!known) continue;
        if (count != counts[module] || callbacks->functions(module, NULL, NULL) != 1 || places[0] || places[count]) return 0;
        for (unsigned i = 1; i < count; i++)
            if (!places[i]) return 0;
        if (module != 1) continue;
        *places[2] = (Function)mark;
        *places[9] = (Function)push;
        *places[11] = (Function)pop;
    }
    const char *path = getenv("FAKE_NVTX_LOG");
    heard = path ? fopen(path, "w") : NULL;
    return heard != NULL;
}
