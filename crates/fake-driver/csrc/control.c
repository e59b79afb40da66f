/* What needs all other files: the end of a context, a reset, and the functions by which a test controls the driver. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of a context ---- */

static const struct {
    enum kind kind;
    void (*free)(void *);
} owned[] = {{STREAM, fake_stream_free}, {EVENT, free}, {MODULE, fake_module_free}, {GRAPH, fake_graph_free},
             {EXEC, fake_graph_free}};

static CUresult release(CUdevice device) {
    struct device *found = fake_device(device);
    if (!found) return INVALID_DEVICE;
    if (found->references == 0) return INVALID_CONTEXT;
    found->references -= 1;
    if (found->references > 0) return SUCCESS;
    /* The context ends, and takes along what was made in it. After a sticky error nothing could be released before. */
    bool lost = false;
    int left = 0;
    for (int i = 0; i < DEVICES; i++) {
        left += fake_devices[i].references;
        lost |= fake_devices[i].sticky != SUCCESS;
    }
    fake_memory_release(device, !lost);
    for (size_t i = 0; i < sizeof owned / sizeof *owned && left == 0; i++) {
        for (long long n = lost ? 0 : fake_live(owned[i].kind); n > 0; n--) fake_count(LEAKS);
        fake_forget_handles(owned[i].kind, owned[i].free);
    }
    return SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { CALL(INITIALISED, release(device)); }

/* ---- control ---- */

static void reset(void) {
    fake_stream_reset();
    fake_module_reset();
    fake_memory_reset();
    fake_calls_reset();
    fake_handles_reset();
    fake_device_reset();
}

static bool set(const char *name, long long value) {
    if (!strcmp(name, "version")) fake_version = value;
    else if (!strcmp(name, "devices")) fake_device_count = value < DEVICES ? value : DEVICES;
    else if (!strcmp(name, "major")) fake_major = value;
    else if (!strcmp(name, "minor")) fake_minor = value;
    else if (!strcmp(name, "records_pageable")) fake_records_pageable = value;
    else if (!strcmp(name, "memory"))
        for (int i = 0; i < DEVICES; i++) fake_devices[i].total = (size_t)value;
    else return false;
    return true;
}

/* FAKE_CUDA="version=11040;memory=1048576;fail=cuMemAlloc_v2:3:2" */
static void from_environment(void) {
    const char *given = getenv("FAKE_CUDA");
    if (!given) return;
    char *text = strdup(given), *rest = text;
    for (char *item; (item = strsep(&rest, ";"));) {
        char name[64], function[64];
        long long value, nth;
        unsigned code;
        bool known = !*item;
        if (sscanf(item, "fail=%63[^:]:%lld:%u", function, &nth, &code) == 3) fake_fail_call(function, nth, code), known = true;
        else if (sscanf(item, "%63[^=]=%lld", name, &value) == 2) known = set(name, value);
        if (!known) {
            fprintf(stderr, "FAKE_CUDA: `%s` is neither name=value nor fail=function:n:code\n", item);
            abort();
        }
    }
    free(text);
}

static void start(void) {
    reset();
    from_environment();
}

/* When the library is loaded, so before the first call, which runs `start`. */
__attribute__((constructor)) static void loaded(void) { fake_start = start; }

/* Forgets everything: objects, failures, counts, settings. */
API void fake_reset(void) {
    fake_lock();
    reset();
    fake_unlock();
}

/* The `nth` call from now on (1 is the next) of the function (any function if NULL or "*") answers `code`, and does
 * nothing. */
API void fake_fail(const char *name, long long nth, CUresult code) {
    fake_lock();
    fake_fail_call(name, nth, code);
    fake_unlock();
}

/* Settings: version, devices, major, minor, memory. */
API bool fake_set(const char *name, long long value) {
    fake_lock();
    bool known = set(name, value);
    fake_unlock();
    return known;
}

static long long stat_of(const char *name) {
    static const struct {
        const char *name;
        enum kind kind;
    } kinds[] = {{"streams", STREAM}, {"events", EVENT}, {"modules", MODULE}, {"graphs", GRAPH}, {"execs", EXEC}};
    static const char *const counted[COUNTS] = {"double_frees", "uses_after_free", "bad_handles", "leaks", "launches",
                                               "overlapped", "failed_releases"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name, kinds[i].name)) return fake_live(kinds[i].kind);
    for (size_t i = 0; i < COUNTS; i++)
        if (!strcmp(name, counted[i])) return fake_counted(i);
    if (!strcmp(name, "calls")) return fake_calls(NULL);
    if (!strcmp(name, "blocks")) return fake_blocks(false);
    if (!strcmp(name, "host_blocks")) return fake_blocks(true);
    if (!strcmp(name, "bytes")) return (long long)fake_bytes();
    if (!strcmp(name, "contexts")) {
        long long sum = 0;
        for (int i = 0; i < DEVICES; i++) sum += fake_devices[i].references;
        return sum;
    }
    return fake_calls(name);
}

/* Live objects (streams, events, modules, graphs, execs, blocks, host_blocks, bytes, contexts), what went wrong
 * (double_frees, uses_after_free, bad_handles, leaks), `launches`, `overlapped` ones among them, `failed_releases` (told to
 * fail), `calls`, or the calls of one function. */
API long long fake_stat(const char *name) {
    fake_lock();
    long long value = stat_of(name);
    fake_unlock();
    return value;
}
