/* Counting calls, making them fail, naming objects, and the functions by which a test controls all that. */
#define _GNU_SOURCE
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counter {
    char name[64];
    long long calls;
};

struct failure {
    char name[64]; /* empty: any function */
    long long left; /* fails when this reaches zero */
    CUresult code;
};

struct named {
    enum kind kind;
    void *object; /* NULL once released */
};

static pthread_mutex_t mutex;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct counter *counters;
static size_t counter_count;
static struct failure *failures;
static size_t failure_count;
static struct named *names;
static size_t name_count;
static long long counts[COUNTS], calls;
static bool initialised;

void *fake_push(void **array, size_t *count, size_t size) {
    void *grown = realloc(*array, (*count + 1) * size);
    if (!grown) abort();
    *array = grown;
    void *last = (char *)grown + *count * size;
    memset(last, 0, size);
    *count += 1;
    return last;
}

void fake_count(enum count which) { counts[which] += 1; }

/* ---- control ---- */

static void reset(void) {
    fake_stream_reset();
    fake_module_reset();
    fake_memory_reset();
    free(names);
    free(counters);
    free(failures);
    names = NULL, counters = NULL, failures = NULL;
    name_count = counter_count = failure_count = 0;
    memset(counts, 0, sizeof counts);
    calls = 0;
    initialised = false;
    fake_device_reset();
}

static bool set(const char *name, long long value) {
    if (!strcmp(name, "version")) fake_version = value;
    else if (!strcmp(name, "devices")) fake_device_count = value < DEVICES ? value : DEVICES;
    else if (!strcmp(name, "major")) fake_major = value;
    else if (!strcmp(name, "minor")) fake_minor = value;
    else if (!strcmp(name, "memory"))
        for (int i = 0; i < DEVICES; i++) fake_devices[i].total = (size_t)value;
    else return false;
    return true;
}

static void fail(const char *name, long long nth, CUresult code) {
    struct failure *failure = fake_push((void **)&failures, &failure_count, sizeof *failure);
    snprintf(failure->name, sizeof failure->name, "%s", name && strcmp(name, "*") ? name : "");
    failure->left = nth;
    failure->code = code;
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
        if (sscanf(item, "fail=%63[^:]:%lld:%u", function, &nth, &code) == 3) fail(function, nth, code), known = true;
        else if (sscanf(item, "%63[^=]=%lld", name, &value) == 2) known = set(name, value);
        if (!known) {
            fprintf(stderr, "FAKE_CUDA: `%s` is neither name=value nor fail=function:n:code\n", item);
            abort();
        }
    }
    free(text);
}

static void start(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
    reset();
    from_environment();
}

static void lock(void) {
    pthread_once(&once, start);
    pthread_mutex_lock(&mutex);
}

/* Forgets everything: objects, failures, counts, settings. */
API void fake_reset(void) {
    lock();
    reset();
    pthread_mutex_unlock(&mutex);
}

/* The `nth` call from now on (1 is the next) of the function (any function if NULL or "*") answers `code`, and does
 * nothing. */
API void fake_fail(const char *name, long long nth, CUresult code) {
    lock();
    fail(name, nth, code);
    pthread_mutex_unlock(&mutex);
}

/* Settings: version, devices, major, minor, memory. */
API bool fake_set(const char *name, long long value) {
    lock();
    bool known = set(name, value);
    pthread_mutex_unlock(&mutex);
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
        if (!strcmp(name, counted[i])) return counts[i];
    if (!strcmp(name, "calls")) return calls;
    if (!strcmp(name, "blocks")) return fake_blocks(false);
    if (!strcmp(name, "host_blocks")) return fake_blocks(true);
    if (!strcmp(name, "bytes")) return (long long)fake_bytes();
    if (!strcmp(name, "contexts")) {
        long long sum = 0;
        for (int i = 0; i < DEVICES; i++) sum += fake_devices[i].references;
        return sum;
    }
    for (size_t i = 0; i < counter_count; i++)
        if (!strcmp(name, counters[i].name)) return counters[i].calls;
    return 0;
}

/* Live objects (streams, events, modules, graphs, execs, blocks, host_blocks, bytes, contexts), what went wrong
 * (double_frees, uses_after_free, bad_handles, leaks), `launches`, `overlapped` ones among them, `failed_releases` (told to fail), `calls`, or the calls of one function. */
API long long fake_stat(const char *name) {
    lock();
    long long value = stat_of(name);
    pthread_mutex_unlock(&mutex);
    return value;
}

/* ---- calls ---- */

static void count_call(const char *name) {
    calls += 1;
    for (size_t i = 0; i < counter_count; i++) {
        if (strcmp(name, counters[i].name)) continue;
        counters[i].calls += 1;
        return;
    }
    struct counter *counter = fake_push((void **)&counters, &counter_count, sizeof *counter);
    snprintf(counter->name, sizeof counter->name, "%s", name);
    counter->calls = 1;
}

static bool is_release(const char *name) {
    static const char *const words[] = {"Destroy", "Free", "Unload", "Release", "Disable", "EndCapture"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i])) return true;
    return false;
}

CUresult fake_enter(const char *name, int needs) {
    lock();
    count_call(name);
    CUresult told = SUCCESS;
    for (size_t i = 0; i < failure_count; i++) {
        struct failure *failure = &failures[i];
        if (*failure->name && strcmp(failure->name, name)) continue;
        if (failure->left > 0 && --failure->left == 0 && told == SUCCESS) told = failure->code;
    }
    if (!strcmp(name, "cuInit") && told == SUCCESS) initialised = true;
    if (needs >= INITIALISED && !initialised) return NOT_INITIALIZED;
    struct device *device = fake_current();
    if (device && told >= 700 && told < 800 && told != PEER_ACCESS_ALREADY_ENABLED && told != PEER_ACCESS_NOT_ENABLED)
        device->sticky = told;
    if (told != SUCCESS) {
        if (is_release(name)) fake_count(FAILED_RELEASES);
        return told;
    }
    if (needs < CONTEXT) return SUCCESS;
    if (!device || device->references == 0) return INVALID_CONTEXT;
    return device->sticky;
}

CUresult fake_leave(CUresult code) {
    pthread_mutex_unlock(&mutex);
    return code;
}

API CUresult cuInit(unsigned flags) { CALL(FREE, flags ? INVALID_VALUE : fake_device_count ? SUCCESS : NO_DEVICE); }

/* ---- handles: the number of a name and its kind, so that one that is no longer valid is recognised ---- */

Handle fake_handle(enum kind kind, void *object) {
    struct named *named = fake_push((void **)&names, &name_count, sizeof *named);
    named->kind = kind;
    named->object = object;
    return (Handle)(((uintptr_t)name_count << 8) | (uintptr_t)kind);
}

static struct named *find(enum kind kind, Handle handle) {
    uintptr_t bits = (uintptr_t)handle, number = bits >> 8;
    bool valid = (bits & 0xff) == (uintptr_t)kind && number >= 1 && number <= name_count;
    struct named *named = valid ? &names[number - 1] : NULL;
    return named && named->kind == kind && named->object ? named : NULL;
}

void *fake_peek(enum kind kind, Handle handle) {
    struct named *named = find(kind, handle);
    return named ? named->object : NULL;
}

void *fake_object(enum kind kind, Handle handle) {
    void *object = fake_peek(kind, handle);
    if (!object) fake_count(BAD_HANDLES);
    return object;
}

void *fake_release(enum kind kind, Handle handle) {
    struct named *named = find(kind, handle);
    if (!named) return fake_count(BAD_HANDLES), NULL;
    void *object = named->object;
    named->object = NULL;
    return object;
}

long long fake_live(enum kind kind) {
    long long live = 0;
    for (size_t i = 0; i < name_count; i++) live += names[i].kind == kind && names[i].object;
    return live;
}

void fake_forget_handles(enum kind kind, void (*release)(void *)) {
    for (size_t i = 0; i < name_count; i++) {
        if (names[i].kind != kind || !names[i].object) continue;
        release(names[i].object);
        names[i].object = NULL;
    }
}
