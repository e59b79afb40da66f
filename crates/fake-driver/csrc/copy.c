/* Copies and fills of memory. */
#include "fake.h"

#include <string.h>

static CUresult run_copy(const struct op *op) {
    void *target = op->to_host ? (void *)(uintptr_t)op->target : fake_access(op->target, op->bytes);
    void *source = op->staged      ? op->staged
                   : op->from_host ? (void *)(uintptr_t)op->source
                                   : fake_access(op->source, op->bytes);
    if (!target || !source) return ILLEGAL_ADDRESS;
    memmove(target, source, op->bytes);
    return SUCCESS;
}

static CUresult run_fill(const struct op *op, size_t size) {
    unsigned char *target = fake_access(op->target, op->bytes * size);
    if (!target) return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < op->bytes; i++) memcpy(target + i * size, &op->value, size); /* little-endian hosts only */
    return SUCCESS;
}

/* Two functions, because updates of graphs tell kinds of work apart by what runs them. */
static CUresult run_fill8(const struct op *op) { return run_fill(op, 1); }

static CUresult run_fill32(const struct op *op) { return run_fill(op, 4); }

/* Whether host memory is left where it is until the copy is done. */
static bool is_recorded(const struct stream *stream, const void *host, size_t bytes) {
    return fake_is_pinned(host, bytes) || (stream->capture && fake_records_pageable);
}

static CUresult from_host(CUdeviceptr target, const void *source, size_t bytes, Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!source || (!stream->capture && !fake_access(target, bytes))) return INVALID_VALUE;
    struct op op = {.run = run_copy, .node = COPY_NODE, .target = target, .source = (uintptr_t)source, .bytes = bytes,
                    .from_host = true};
    if (!is_recorded(stream, source, bytes)) {
        CUresult code = fake_not_captured(stream);
        if (code) return code;
        op.staged = fake_duplicate(source, bytes);
    }
    return fake_queue(handle, op);
}

static CUresult to_host(void *target, CUdeviceptr source, size_t bytes, Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!target || (!stream->capture && !fake_access(source, bytes))) return INVALID_VALUE;
    struct op op = {.run = run_copy, .node = COPY_NODE, .target = (uintptr_t)target, .source = source, .bytes = bytes,
                    .to_host = true};
    if (is_recorded(stream, target, bytes)) return fake_queue(handle, op);
    CUresult code = fake_not_captured(stream);
    if (code == SUCCESS) code = fake_queue(handle, op);
    return code ? code : fake_drain(stream, UINT64_MAX); /* returns when the copy is done */
}

static CUresult on_device(CUdeviceptr target, CUdeviceptr source, size_t bytes, Handle stream) {
    struct op op = {.run = run_copy, .node = COPY_NODE, .target = target, .source = source, .bytes = bytes};
    return fake_queue(stream, op);
}

static bool contexts(Handle one, Handle other) {
    return fake_object(CONTEXT_HANDLE, one) && fake_object(CONTEXT_HANDLE, other);
}

static CUresult fill8(CUdeviceptr target, uint32_t value, size_t count, Handle stream) {
    struct op op = {.run = run_fill8, .node = FILL_NODE, .target = target, .bytes = count, .value = value};
    return fake_queue(stream, op);
}

static CUresult fill32(CUdeviceptr target, uint32_t value, size_t count, Handle stream) {
    if (target % 4) return INVALID_VALUE;
    struct op op = {.run = run_fill32, .node = FILL_NODE, .target = target, .bytes = count, .value = value};
    return fake_queue(stream, op);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, Handle stream) {
    CALL(CONTEXT, from_host(target, source, bytes, stream));
}
API CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, Handle stream) {
    CALL(CONTEXT, to_host(target, source, bytes, stream));
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, Handle stream) {
    CALL(CONTEXT, on_device(target, source, bytes, stream));
}
API CUresult cuMemcpyPeerAsync(CUdeviceptr target, Handle target_context, CUdeviceptr source, Handle source_context,
                               size_t bytes, Handle stream) {
    CALL(CONTEXT, contexts(target_context, source_context) ? on_device(target, source, bytes, stream) : INVALID_CONTEXT);
}
API CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, Handle stream) {
    CALL(CONTEXT, fill8(target, value, count, stream));
}
API CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, Handle stream) {
    CALL(CONTEXT, fill32(target, value, count, stream));
}
