/* Streams and events: work is queued, and done when somebody waits for it, so that order and lifetimes matter as they do
 * on a device. */
#include "fake.h"

#include <stdlib.h>

static _Thread_local unsigned char this_thread; /* its address names the thread */
static _Thread_local uint32_t thread_mode;      /* 0 global, 1 thread-local, 2 relaxed */
static struct stream **all;                     /* every stream, the default ones included */
static size_t all_count;
static struct stream *defaults[DEVICES];
static uint64_t last_number, tick;

struct event {
    bool recorded, timing;
    uint64_t stream, sequence; /* happens when that stream has done that many; */
    uint64_t capture;          /* or recorded into the capture that began in that stream */
    uint64_t time;
};

static struct stream *new_stream(int device) {
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    stream->device = device;
    stream->number = ++last_number;
    *(struct stream **)fake_push((void **)&all, &all_count, sizeof stream) = stream;
    return stream;
}

static int current(void) { return (int)(fake_current() - fake_devices); }

static struct stream *numbered(uint64_t number) {
    for (size_t i = 0; i < all_count; i++)
        if (all[i]->number == number) return all[i];
    return NULL;
}

struct stream *fake_stream(Handle handle) {
    if (handle) return fake_object(STREAM, handle);
    struct stream **standard = &defaults[current()];
    if (!*standard) *standard = new_stream(current());
    return *standard;
}

/* Ends a capture in every stream that takes part. */
static struct graph *leave_capture(uint64_t origin) {
    struct graph *graph = NULL;
    for (size_t i = 0; i < all_count; i++) {
        if (!all[i]->capture || all[i]->origin != origin) continue;
        graph = all[i]->capture;
        all[i]->capture = NULL;
        all[i]->invalidated = false;
    }
    return graph;
}

static CUresult invalidate(uint64_t origin) {
    for (size_t i = 0; i < all_count; i++)
        if (all[i]->capture && all[i]->origin == origin) all[i]->invalidated = true;
    return CAPTURE_UNSUPPORTED;
}

void fake_stream_free(void *object) {
    struct stream *stream = object;
    for (size_t i = 0; i < all_count; i++)
        if (all[i] == stream) all[i] = all[--all_count];
    for (size_t i = stream->done; i < stream->count; i++) fake_op_free(&stream->ops[i]);
    free(stream->ops);
    if (stream->capture && stream->origin == stream->number) {
        struct graph *graph = stream->capture;
        leave_capture(stream->number);
        fake_graph_free(graph);
    }
    free(stream);
}

void fake_stream_reset(void) {
    fake_forget_handles(STREAM, fake_stream_free);
    fake_forget_handles(EVENT, free);
    fake_forget_handles(GRAPH, fake_graph_free);
    fake_forget_handles(EXEC, fake_graph_free);
    while (all_count) fake_stream_free(all[0]); /* the default streams */
    for (int i = 0; i < DEVICES; i++) defaults[i] = NULL;
    free(all);
    all = NULL;
    tick = 0;
}

CUresult fake_queue(Handle handle, struct op op) {
    struct stream *stream = fake_stream(handle);
    CUresult code = !stream ? INVALID_HANDLE : stream->invalidated ? CAPTURE_INVALIDATED : SUCCESS;
    if (code) return fake_op_free(&op), code;
    struct op *place = stream->capture
        ? fake_push((void **)&stream->capture->ops, &stream->capture->count, sizeof op)
        : fake_push((void **)&stream->ops, &stream->count, sizeof op);
    *place = op;
    return SUCCESS;
}

CUresult fake_drain(struct stream *stream, uint64_t sequence) {
    struct device *device = &fake_devices[stream->device];
    while (stream->done < stream->count && stream->done < sequence && !device->sticky) {
        struct op op = stream->ops[stream->done];
        CUresult code = op.run(&op);
        fake_op_free(&op);
        stream->done += 1;
        tick += 1;
        if (code) device->sticky = code;
    }
    return device->sticky;
}

CUresult fake_drain_all(int device) {
    CUresult code = SUCCESS;
    for (size_t i = 0; i < all_count && code == SUCCESS; i++)
        if (all[i]->device == device) code = fake_drain(all[i], UINT64_MAX);
    return code;
}

CUresult fake_not_captured(struct stream *stream) { return stream->capture ? invalidate(stream->origin) : SUCCESS; }

CUresult fake_unsafe_in_capture(void) {
    if (thread_mode == 2) return SUCCESS;
    for (size_t i = 0; i < all_count; i++) {
        struct stream *stream = all[i];
        if (!stream->capture || stream->mode == 2) continue;
        if (stream->thread == &this_thread || (stream->mode == 0 && thread_mode == 0)) return invalidate(stream->origin);
    }
    return SUCCESS;
}

/* ---- streams ---- */

static CUresult create(Handle *handle, unsigned flags) {
    if (!handle || flags > 1) return INVALID_VALUE;
    *handle = fake_handle(STREAM, new_stream(current()));
    return SUCCESS;
}

static CUresult destroy(Handle handle) {
    struct stream *stream = fake_release(STREAM, handle);
    if (!stream) return INVALID_HANDLE;
    fake_drain(stream, UINT64_MAX); /* what is queued is finished; an error shows at the next call */
    fake_stream_free(stream);
    return SUCCESS;
}

static CUresult synchronize(Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    CUresult code = fake_not_captured(stream);
    if (code == SUCCESS) code = fake_drain(stream, UINT64_MAX);
    fake_pool_settle(&fake_devices[stream->device]);
    return code;
}

static CUresult synchronize_all(void) {
    CUresult code = fake_unsafe_in_capture();
    if (code == SUCCESS) code = fake_drain_all(current());
    fake_pool_settle(fake_current());
    return code;
}

/* Does one piece of work, so that asking again and again comes to an end. */
static CUresult query(Handle handle) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    CUresult code = fake_not_captured(stream);
    if (code || stream->done == stream->count) return code;
    code = fake_drain(stream, stream->done + 1);
    return code ? code : NOT_READY;
}

static CUresult begin(Handle handle, unsigned mode) {
    if (!handle) return CAPTURE_UNSUPPORTED;
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (mode > 2) return INVALID_VALUE;
    if (stream->capture) return ILLEGAL_STATE;
    stream->capture = calloc(1, sizeof *stream->capture);
    if (!stream->capture) abort();
    stream->origin = stream->number;
    stream->mode = mode;
    stream->thread = &this_thread;
    return SUCCESS;
}

static CUresult end(Handle handle, Handle *result) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!result) return INVALID_VALUE;
    if (!stream->capture || stream->origin != stream->number) return ILLEGAL_STATE;
    if (stream->mode != 2 && stream->thread != &this_thread) return CAPTURE_WRONG_THREAD;
    bool invalidated = stream->invalidated;
    struct graph *graph = leave_capture(stream->number);
    *result = NULL;
    if (invalidated) return fake_graph_free(graph), CAPTURE_INVALIDATED;
    *result = fake_handle(GRAPH, graph);
    return SUCCESS;
}

static CUresult is_capturing(Handle handle, unsigned *status) {
    struct stream *stream = fake_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!status) return INVALID_VALUE;
    *status = stream->invalidated ? 2 : stream->capture ? 1 : 0;
    return SUCCESS;
}

static CUresult exchange(unsigned *mode) {
    if (!mode || *mode > 2) return INVALID_VALUE;
    uint32_t before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SUCCESS;
}

API CUresult cuStreamCreate(Handle *stream, unsigned flags) { CALL(CONTEXT, create(stream, flags)); }
API CUresult cuStreamCreateWithPriority(Handle *stream, unsigned flags, int priority) {
    (void)priority; /* any is taken as the nearest there is */
    CALL(CONTEXT, create(stream, flags));
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CALL(CONTEXT, least && greatest ? (*least = 0, *greatest = -5, SUCCESS) : INVALID_VALUE);
}
API CUresult cuStreamDestroy_v2(Handle stream) { CALL(CONTEXT, destroy(stream)); }
API CUresult cuStreamSynchronize(Handle stream) { CALL(CONTEXT, synchronize(stream)); }
API CUresult cuCtxSynchronize(void) { CALL(CONTEXT, synchronize_all()); }
API CUresult cuStreamQuery(Handle stream) { CALL(CONTEXT, query(stream)); }
API CUresult cuStreamBeginCapture_v2(Handle stream, unsigned mode) { CALL(CONTEXT, begin(stream, mode)); }
API CUresult cuStreamEndCapture(Handle stream, Handle *graph) { CALL(CONTEXT, end(stream, graph)); }
API CUresult cuStreamIsCapturing(Handle stream, unsigned *status) { CALL(CONTEXT, is_capturing(stream, status)); }
API CUresult cuThreadExchangeStreamCaptureMode(unsigned *mode) { CALL(INITIALISED, exchange(mode)); }

/* ---- events ---- */

static CUresult create_event(Handle *handle, unsigned flags) {
    if (!handle || flags > 7) return INVALID_VALUE;
    struct event *event = calloc(1, sizeof *event);
    if (!event) abort();
    event->timing = !(flags & 2);
    *handle = fake_handle(EVENT, event);
    return SUCCESS;
}

static CUresult destroy_event(Handle handle) {
    void *event = fake_release(EVENT, handle);
    free(event);
    return event ? SUCCESS : INVALID_HANDLE;
}

static CUresult run_record(const struct op *op) {
    struct event *event = fake_peek(EVENT, op->event);
    if (event && event->stream == op->stream) event->time = tick;
    return SUCCESS;
}

/* A stream that is gone has finished; one that waits for itself finds that done which came before. */
static CUresult run_wait(const struct op *op) {
    struct stream *other = numbered(op->stream);
    return other ? fake_drain(other, op->sequence) : SUCCESS;
}

static CUresult record(Handle handle, Handle stream_handle) {
    struct event *event = fake_object(EVENT, handle);
    struct stream *stream = fake_stream(stream_handle);
    if (!event || !stream) return INVALID_HANDLE;
    event->capture = stream->capture ? stream->origin : 0;
    if (stream->capture) return SUCCESS; /* the order within a capture is the order of calls */
    event->recorded = true;
    event->stream = stream->number;
    event->sequence = stream->count + 1;
    return fake_queue(stream_handle, (struct op){.run = run_record, .event = handle, .stream = stream->number});
}

static CUresult wait(Handle stream_handle, Handle handle) {
    struct event *event = fake_object(EVENT, handle);
    struct stream *stream = fake_stream(stream_handle);
    if (!event || !stream) return INVALID_HANDLE;
    if (event->capture) {
        struct stream *origin = numbered(event->capture);
        if (!origin || !origin->capture) return CAPTURED_EVENT;
        if (stream->capture && stream->origin != origin->number) return CAPTURE_ISOLATION;
        stream->capture = origin->capture; /* joins */
        stream->origin = origin->number;
        stream->mode = origin->mode;
        stream->thread = origin->thread;
        stream->invalidated = origin->invalidated;
        return SUCCESS;
    }
    if (stream->capture) return event->recorded ? CAPTURE_ISOLATION : SUCCESS;
    if (!event->recorded) return SUCCESS;
    struct op op = {.run = run_wait, .stream = event->stream, .sequence = event->sequence};
    return fake_queue(stream_handle, op);
}

static bool happened(const struct event *event) {
    struct stream *stream = event->recorded ? numbered(event->stream) : NULL;
    return !stream || stream->done >= event->sequence;
}

static CUresult await(Handle handle, bool all_of_it) {
    struct event *event = fake_object(EVENT, handle);
    if (!event) return INVALID_HANDLE;
    if (event->capture) return invalidate(event->capture), CAPTURED_EVENT;
    if (happened(event)) return fake_current()->sticky;
    struct stream *stream = numbered(event->stream);
    CUresult code = fake_drain(stream, all_of_it ? event->sequence : stream->done + 1);
    return code || all_of_it ? code : NOT_READY;
}

static CUresult elapsed(float *milliseconds, Handle start_handle, Handle end_handle) {
    struct event *start = fake_object(EVENT, start_handle), *end = fake_object(EVENT, end_handle);
    if (!start || !end || !start->timing || !end->timing) return INVALID_HANDLE;
    if (!milliseconds) return INVALID_VALUE;
    if (!start->recorded || !end->recorded) return INVALID_HANDLE;
    if (!happened(start) || !happened(end)) return NOT_READY;
    *milliseconds = ((float)end->time - (float)start->time) * 1e-3f; /* a microsecond for each piece of work */
    return SUCCESS;
}

API CUresult cuEventCreate(Handle *event, unsigned flags) { CALL(CONTEXT, create_event(event, flags)); }
API CUresult cuEventDestroy_v2(Handle event) { CALL(CONTEXT, destroy_event(event)); }
API CUresult cuEventRecord(Handle event, Handle stream) { CALL(CONTEXT, record(event, stream)); }
API CUresult cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
    CALL(CONTEXT, flags ? INVALID_VALUE : wait(stream, event));
}
API CUresult cuEventSynchronize(Handle event) { CALL(CONTEXT, await(event, true)); }
API CUresult cuEventQuery(Handle event) { CALL(CONTEXT, await(event, false)); }
API CUresult cuEventElapsedTime(float *milliseconds, Handle start, Handle end) {
    CALL(CONTEXT, elapsed(milliseconds, start, end));
}
