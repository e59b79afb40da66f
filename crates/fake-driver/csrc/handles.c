/* Handles, and counts of what went wrong with them: a handle is the number of a name and its kind, so that one that is no
 * longer valid is recognised. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct named {
    enum kind kind;
    void *object; /* NULL once released */
};

static struct named *names;
static size_t name_count;
static long long counts[COUNTS];

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

long long fake_counted(enum count which) { return counts[which]; }

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

void fake_handles_reset(void) {
    free(names);
    names = NULL;
    name_count = 0;
    memset(counts, 0, sizeof counts);
}
