/* Pieces of work: how they are done, and the calls that queue copies and fills. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

void fake_op_free(struct op *op) {
    free(op->staged);
    free(op->arguments);
    op->staged = op->arguments = NULL;
}

static void *duplicate(const void *bytes, size_t count) {
    if (!bytes) return NULL;
    void *copy = malloc(count ? count : 1);
    if (!copy) abort();
    return memcpy(copy, bytes, count);
}

struct op fake_op_copy(const struct op *op) {
    struct op copy = *op;
    copy.staged = duplicate(op->staged, op->bytes);
    copy.arguments = duplicate(op->arguments, op->argument_bytes);
    return copy;
}

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

static CUresult run_kernel(const struct op *op) {
    void *arguments[MOST_PARAMETERS];
    for (size_t i = 0; i < op->parameters; i++) arguments[i] = (char *)op->arguments + op->offsets[i];
    fake_count(LAUNCHES);
    return op->kernel(arguments, op->grid, op->block, op->shared);
}

CUresult fake_op_run(struct op *op) {
    struct block *block;
    switch (op->what) {
    case COPY: return run_copy(op);
    case FILL8: return run_fill(op, 1);
    case FILL32: return run_fill(op, 4);
    case KERNEL: return run_kernel(op);
    case BLOCK_START: return fake_block_start(fake_block(op->target)) ? LAUNCH_FAILED : SUCCESS;
    case BLOCK_END:
        block = fake_block(op->target);
        if (!block || !block->live) return ILLEGAL_ADDRESS;
        return fake_block_end(block), SUCCESS;
    default: return SUCCESS; /* RECORD and WAIT are the stream's own */
    }
}

/* ---- calls ---- */

static CUresult from_host(CUdeviceptr target, const void *source, size_t bytes, Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!source || (!stream->capture && !fake_access(target, bytes))) return INVALID_VALUE;
    struct op op = {.what = COPY, .target = target, .source = (uintptr_t)source, .bytes = bytes, .from_host = true};
    if (!fake_is_pinned(source, bytes)) {
        CUresult code = fake_not_captured(stream);
        if (code) return code;
        op.staged = duplicate(source, bytes);
    }
    return fake_queue(handle, op);
}

static CUresult to_host(void *target, CUdeviceptr source, size_t bytes, Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!target || (!stream->capture && !fake_access(source, bytes))) return INVALID_VALUE;
    struct op op = {.what = COPY, .target = (uintptr_t)target, .source = source, .bytes = bytes, .to_host = true};
    if (fake_is_pinned(target, bytes)) return fake_queue(handle, op);
    CUresult code = fake_not_captured(stream);
    if (code == SUCCESS) code = fake_queue(handle, op);
    return code ? code : fake_drain(stream, UINT64_MAX); /* returns when the copy is done */
}

static CUresult on_device(CUdeviceptr target, CUdeviceptr source, size_t bytes, Handle stream) {
    return fake_queue(stream, (struct op){.what = COPY, .target = target, .source = source, .bytes = bytes});
}

static bool contexts(Handle one, Handle other) {
    return fake_object(CONTEXT_HANDLE, one) && fake_object(CONTEXT_HANDLE, other);
}

static CUresult fill(int what, CUdeviceptr target, uint32_t value, size_t count, Handle stream) {
    if (what == FILL32 && target % 4) return INVALID_VALUE;
    struct op op = {.target = target, .bytes = count, .value = value};
    op.what = what;
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
    CALL(CONTEXT, fill(FILL8, target, value, count, stream));
}
API CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, Handle stream) {
    CALL(CONTEXT, fill(FILL32, target, value, count, stream));
}
