/* Device memory: pages of an address range that no block shares and none gets twice, so that a use after free is seen. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum origin { IMMEDIATE, ORDERED, CAPTURED, HOST };

long long fake_records_pageable;

struct block {
    uint64_t address;
    size_t bytes, span; /* asked for; pages in bytes */
    enum origin origin;
    int device;
    bool live, freeing; /* usable; its free is queued */
};

static const size_t RANGE = (size_t)1 << 38, PAGE = 4096, POISONED = (size_t)1 << 20;
static char *range;
static size_t next;
static struct block *blocks; /* in increasing order of address */
static size_t block_count;

void fake_memory_reset(void) {
    if (range) munmap(range, RANGE);
    free(blocks);
    range = NULL, blocks = NULL;
    next = block_count = 0;
    fake_records_pageable = 0;
}

/* A block that is not yet usable, behind a page that never is. */
static struct block *reserve(size_t bytes, enum origin origin, int device) {
    if (!range) {
        range = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) range = NULL;
    }
    size_t span = (bytes + PAGE - 1) / PAGE * PAGE;
    if (!range || bytes > RANGE || next + span + PAGE > RANGE) return NULL;
    struct block *block = fake_push((void **)&blocks, &block_count, sizeof *block);
    *block = (struct block){(uintptr_t)range + next, bytes, span, origin, device, false, false};
    next += span + PAGE;
    return block;
}

static struct block *last_at_or_before(uint64_t address) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (blocks[middle].address <= address) low = middle + 1;
        else high = middle;
    }
    return low ? &blocks[low - 1] : NULL;
}

static struct block *block_at(uint64_t address) {
    struct block *block = last_at_or_before(address);
    return block && block->address == address ? block : NULL;
}

void *fake_access(uint64_t address, size_t bytes) {
    struct block *block = last_at_or_before(address);
    if (!block || address - block->address >= block->span) return NULL;
    if (!block->live) fake_count(USES_AFTER_FREE);
    uint64_t offset = address - block->address;
    bool inside = block->live && offset <= block->bytes && bytes <= block->bytes - offset;
    return inside ? (void *)(uintptr_t)address : NULL;
}

bool fake_is_pinned(const void *pointer, size_t bytes) {
    struct block *block = last_at_or_before((uintptr_t)pointer);
    if (!block || block->origin != HOST || !block->live) return false;
    uint64_t offset = (uintptr_t)pointer - block->address;
    return offset <= block->bytes && bytes <= block->bytes - offset;
}

long long fake_blocks(bool host) {
    long long live = 0;
    for (size_t i = 0; i < block_count; i++) live += blocks[i].live && (blocks[i].origin == HOST) == host;
    return live;
}

size_t fake_bytes(void) {
    size_t sum = 0;
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].live && blocks[i].origin != HOST) sum += blocks[i].bytes;
    return sum;
}

static bool pooled(const struct block *block) { return block->origin == ORDERED || block->origin == CAPTURED; }

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static CUresult block_start(struct block *block) {
    if (block->live) return INVALID_VALUE;
    struct device *device = &fake_devices[block->device];
    if (block->origin != HOST) {
        size_t slack = device->reserved - device->pooled, free = device->total - device->used;
        if (block->span > free) return OUT_OF_MEMORY;
        /* What the pool holds unused serves the pool, and is given up when others need it. */
        if (pooled(block)) device->reserved += block->span > slack ? block->span - slack : 0;
        else if (block->span > free - slack) device->reserved = device->pooled;
        device->used += block->span;
        device->pooled += pooled(block) ? block->span : 0;
        device->pooled_high = most(device->pooled_high, device->pooled);
        device->reserved_high = most(device->reserved_high, device->reserved);
    }
    void *memory = (void *)(uintptr_t)block->address;
    if (mprotect(memory, block->span, PROT_READ | PROT_WRITE)) abort();
    memset(memory, 0xcb, block->span < POISONED ? block->span : POISONED);
    block->live = true;
    return SUCCESS;
}

static void block_end(struct block *block) {
    struct device *device = &fake_devices[block->device];
    void *memory = (void *)(uintptr_t)block->address;
    if (!block->live || madvise(memory, block->span, MADV_DONTNEED) || mprotect(memory, block->span, PROT_NONE)) abort();
    block->live = block->freeing = false;
    if (block->origin == HOST) return;
    device->used -= block->span;
    device->pooled -= pooled(block) ? block->span : 0;
}

void fake_memory_release(int device, bool count_leaks) {
    for (size_t i = 0; i < block_count; i++) {
        if (!blocks[i].live || blocks[i].device != device) continue;
        if (count_leaks) fake_count(LEAKS);
        block_end(&blocks[i]);
    }
    fake_devices[device].reserved = 0;
}

/* ---- calls ---- */

static CUresult run_start(const struct op *op) { return block_start(block_at(op->target)) ? LAUNCH_FAILED : SUCCESS; }

static CUresult run_end(const struct op *op) {
    struct block *block = block_at(op->target);
    if (!block || !block->live) return ILLEGAL_ADDRESS;
    return block_end(block), SUCCESS;
}

static int current(void) { return (int)(fake_current() - fake_devices); }

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, enum origin origin) {
    if (!pointer || !bytes) return INVALID_VALUE;
    struct block *block = reserve(bytes, origin, current());
    if (!block) return OUT_OF_MEMORY;
    uint64_t address = block->address;
    CUresult code = block_start(block);
    if (code == OUT_OF_MEMORY && origin == ORDERED) { /* frees that are queued would make room */
        code = fake_drain_all(current());
        if (code == SUCCESS) code = block_start(block_at(address));
    }
    if (code == SUCCESS) *pointer = address;
    return code;
}

static CUresult allocate_at_once(CUdeviceptr *pointer, size_t bytes) {
    CUresult code = fake_unsafe_in_capture();
    return code ? code : allocate(pointer, bytes, IMMEDIATE);
}

static CUresult allocate_host(void **pointer, size_t bytes) {
    CUdeviceptr address;
    CUresult code = pointer ? allocate(&address, bytes, HOST) : INVALID_VALUE;
    if (code == SUCCESS) *pointer = (void *)(uintptr_t)address;
    return code;
}

static CUresult allocate_ordered(CUdeviceptr *pointer, size_t bytes, Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!stream->capture) return allocate(pointer, bytes, ORDERED);
    struct block *block = pointer && bytes ? reserve(bytes, CAPTURED, current()) : NULL;
    if (!block) return INVALID_VALUE;
    *pointer = block->address;
    return fake_queue(handle, (struct op){.run = run_start, .node = ALLOCATION_NODE, .target = block->address});
}

static struct block *to_free(uint64_t address, bool host) {
    struct block *block = block_at(address);
    bool known = block && (block->origin == HOST) == host;
    if (known && (!block->live || block->freeing) && block->origin != CAPTURED) fake_count(DOUBLE_FREES), known = false;
    return known ? block : NULL;
}

static CUresult free_at_once(uint64_t address, bool host) {
    CUresult code = fake_unsafe_in_capture();
    if (code) return code;
    struct block *block = to_free(address, host);
    if (!block || !block->live) return INVALID_VALUE;
    code = fake_drain_all(block->device); /* as the driver does: work that uses it is done first */
    block_end(block_at(address));
    return code;
}

static CUresult free_ordered(uint64_t address, Handle handle) {
    struct stream *stream = fake_stream(handle);
    struct block *block = to_free(address, false);
    if (!stream || !block) return stream ? INVALID_VALUE : INVALID_HANDLE;
    if (stream->capture && block->origin != CAPTURED) return CAPTURE_UNSUPPORTED;
    block->freeing = !stream->capture;
    return fake_queue(handle, (struct op){.run = run_end, .node = FREE_NODE, .target = address});
}

static CUresult info(size_t *free, size_t *total) {
    if (!free || !total) return INVALID_VALUE;
    struct device *device = fake_current();
    *total = device->total;
    *free = device->total - (device->used - device->pooled) - device->reserved;
    return SUCCESS;
}

static CUresult trim(Handle pool, size_t keep) {
    struct device *device = fake_object(POOL, pool);
    if (!device) return INVALID_HANDLE;
    keep = most(keep, device->pooled);
    if (device->reserved > keep) device->reserved = keep;
    return SUCCESS;
}

static CUresult pool_attribute(Handle pool, unsigned which, void *value, bool set) {
    struct device *device = fake_object(POOL, pool);
    if (!device) return INVALID_HANDLE;
    if (!value) return INVALID_VALUE;
    uint64_t given, now;
    memcpy(&given, value, sizeof given);
    switch (which) {
    case 4:
        if (set) device->threshold = given;
        now = device->threshold;
        break;
    case 5: now = device->reserved; break;
    case 6:
        if (set) device->reserved_high = device->reserved;
        now = device->reserved_high;
        break;
    case 7: now = device->pooled; break;
    case 8:
        if (set) device->pooled_high = device->pooled;
        now = device->pooled_high;
        break;
    default: return INVALID_VALUE;
    }
    if (set && (which == 5 || which == 7 || (which != 4 && given))) return INVALID_VALUE;
    if (!set) memcpy(value, &now, sizeof now);
    return SUCCESS;
}

static CUresult set_access(Handle pool, const void *access, size_t count) {
    if (!fake_object(POOL, pool)) return INVALID_HANDLE;
    return access && count ? SUCCESS : INVALID_VALUE;
}

static CUresult pointer_attribute(void *value, unsigned which, CUdeviceptr pointer) {
    enum { DEVICE_ORDINAL = 9 };
    struct block *block = last_at_or_before(pointer);
    if (!value || which != DEVICE_ORDINAL || !block || pointer - block->address >= block->span) return INVALID_VALUE;
    *(int *)value = block->device;
    return SUCCESS;
}

API CUresult cuPointerGetAttribute(void *value, unsigned which, CUdeviceptr pointer) {
    CALL(INITIALISED, pointer_attribute(value, which, pointer));
}
API CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { CALL(CONTEXT, info(free, total)); }
API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) { CALL(CONTEXT, allocate_at_once(pointer, bytes)); }
API CUresult cuMemFree_v2(CUdeviceptr pointer) { CALL(CONTEXT, free_at_once(pointer, false)); }
API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, Handle stream) {
    CALL(CONTEXT, allocate_ordered(pointer, bytes, stream));
}
API CUresult cuMemFreeAsync(CUdeviceptr pointer, Handle stream) { CALL(CONTEXT, free_ordered(pointer, stream)); }
API CUresult cuMemPoolTrimTo(Handle pool, size_t keep) { CALL(INITIALISED, trim(pool, keep)); }
API CUresult cuMemPoolSetAttribute(Handle pool, unsigned which, void *value) {
    CALL(INITIALISED, pool_attribute(pool, which, value, true));
}
API CUresult cuMemPoolGetAttribute(Handle pool, unsigned which, void *value) {
    CALL(INITIALISED, pool_attribute(pool, which, value, false));
}
API CUresult cuMemPoolSetAccess(Handle pool, const void *access, size_t count) {
    CALL(INITIALISED, set_access(pool, access, count));
}
API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    CALL(CONTEXT, flags > 7 ? INVALID_VALUE : allocate_host(pointer, bytes));
}
API CUresult cuMemFreeHost(void *pointer) { CALL(CONTEXT, free_at_once((uintptr_t)pointer, true)); }
