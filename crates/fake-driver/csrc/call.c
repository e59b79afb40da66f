/* What every call begins with: the lock, its counter, a failure that a test asked for, and the state of this thread's
 * context. */
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

struct device fake_devices[DEVICES];
void (*fake_start)(void);

static pthread_mutex_t mutex;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct counter *counters;
static size_t counter_count;
static struct failure *failures;
static size_t failure_count;
static long long calls;
static bool initialised;
static _Thread_local struct device *current;

struct device *fake_current(void) { return current; }

void fake_set_current(struct device *device) { current = device; }

static void first(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
    fake_start();
}

void fake_lock(void) {
    pthread_once(&once, first);
    pthread_mutex_lock(&mutex);
}

void fake_unlock(void) { pthread_mutex_unlock(&mutex); }

void fake_calls_reset(void) {
    free(counters);
    free(failures);
    counters = NULL, failures = NULL;
    counter_count = failure_count = 0;
    calls = 0;
    initialised = false;
}

void fake_fail_call(const char *name, long long nth, CUresult code) {
    struct failure *failure = fake_push((void **)&failures, &failure_count, sizeof *failure);
    snprintf(failure->name, sizeof failure->name, "%s", name && strcmp(name, "*") ? name : "");
    failure->left = nth;
    failure->code = code;
}

long long fake_calls(const char *name) {
    if (!name) return calls;
    for (size_t i = 0; i < counter_count; i++)
        if (!strcmp(name, counters[i].name)) return counters[i].calls;
    return 0;
}

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
    fake_lock();
    count_call(name);
    CUresult told = SUCCESS;
    for (size_t i = 0; i < failure_count; i++) {
        struct failure *failure = &failures[i];
        if (*failure->name && strcmp(failure->name, name)) continue;
        if (failure->left > 0 && --failure->left == 0 && told == SUCCESS) told = failure->code;
    }
    if (!strcmp(name, "cuInit") && told == SUCCESS) initialised = true;
    if (needs >= INITIALISED && !initialised) return NOT_INITIALIZED;
    struct device *device = current;
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
    fake_unlock();
    return code;
}
