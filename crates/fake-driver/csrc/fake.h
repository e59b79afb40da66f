/* A stand-in for the CUDA driver in host memory: handles, blocks and queues that are checked at every use, and calls that
 * can be told to fail. One mutex guards all state; every exported function takes it in `fake_enter` and gives it back in
 * `fake_leave`. No header of CUDA is used. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef uint32_t CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct handle *Handle; /* never dereferenced: see fake_handle */

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    GRAPH_EXEC_UPDATE_FAILURE = 910,
    INVALID_CLUSTER_SIZE = 912,
};

/* Each part uses those above it alone: a test of the workspace (tests/modules) finds circles. */

/* ---- handles.c ---- */

enum kind { STREAM = 1, EVENT, MODULE, FUNCTION, GRAPH, EXEC, POOL, CONTEXT_HANDLE, KINDS };

Handle fake_handle(enum kind kind, void *object);        /* a new name for `object` */
void *fake_object(enum kind kind, Handle handle);        /* what it names; NULL, and counted, if it names nothing */
void *fake_release(enum kind kind, Handle handle);       /* the same, and the name ends */
void *fake_peek(enum kind kind, Handle handle);          /* the same, without counting */
long long fake_live(enum kind kind);
void fake_forget_handles(enum kind kind, void (*release)(void *));
void fake_handles_reset(void); /* forgets the counts, too */

enum count {
    DOUBLE_FREES,
    USES_AFTER_FREE,
    BAD_HANDLES,
    LEAKS,
    LAUNCHES,
    OVERLAPPED,
    FAILED_RELEASES,
    COUNTS,
};
void fake_count(enum count which);
long long fake_counted(enum count which);

/* Grows an array by one element of zeros and gives its address. Ends the process if the host is out of memory. */
void *fake_push(void **array, size_t *count, size_t size);

/* ---- call.c ---- */

enum { DEVICES = 4 };

struct device {
    size_t total;    /* bytes of memory */
    size_t used;     /* bytes in live blocks, pool included */
    size_t pooled;   /* bytes of live blocks of the pool */
    size_t reserved; /* bytes the pool holds: never less than `pooled` */
    uint64_t pooled_high, reserved_high, threshold;
    int references; /* to the primary context */
    Handle context, pool;
    CUresult sticky; /* what every call answers from now on */
    bool peers[DEVICES];
};

extern struct device fake_devices[DEVICES];
struct device *fake_current(void); /* of this thread's context; NULL without one */
void fake_set_current(struct device *device);

enum { FREE = 0, INITIALISED = 1, CONTEXT = 2 }; /* what a call needs; CONTEXT implies INITIALISED */

CUresult fake_enter(const char *name, int needs);
CUresult fake_leave(CUresult code);

/* The body of every exported function: counted, perhaps told to fail, otherwise `expression`. */
#define CALL(needs, expression)                     \
    do {                                            \
        CUresult code_ = fake_enter(__func__, needs); \
        if (code_ == SUCCESS) code_ = (expression); \
        return fake_leave(code_);                   \
    } while (0)

extern void (*fake_start)(void); /* runs before the first call; set when the library is loaded */
void fake_lock(void);
void fake_unlock(void);
void fake_fail_call(const char *name, long long nth, CUresult code); /* see fake_fail */
long long fake_calls(const char *name);                              /* of one function; of all if NULL */
void fake_calls_reset(void);

/* ---- device.c ---- */

extern long long fake_device_count, fake_version, fake_major, fake_minor;
struct device *fake_device(CUdevice device); /* NULL if there is none of this number */
void fake_pool_settle(struct device *device);
void fake_device_reset(void);

/* ---- op.c ---- */

enum { COPY_NODE = 1, FILL_NODE = 2, ALLOCATION_NODE = 10, FREE_NODE = 11 };

enum { MOST_PARAMETERS = 256 };

typedef CUresult (*Kernel)(void *const *arguments, const uint32_t *grid, const uint32_t *block, uint32_t shared);

struct op {
    CUresult (*run)(const struct op *op); /* does it; what follows is for this function */
    uint32_t node;           /* the kind of its node in a graph, CU_GRAPH_NODE_TYPE_*; 0 is a kernel */
    uint64_t target, source; /* addresses */
    size_t bytes;            /* of a copy; elements of a fill */
    uint32_t value;
    void *staged; /* host bytes taken at the call, owned */
    bool to_host, from_host;
    Kernel kernel;
    uint32_t grid[3], block[3], shared;
    size_t parameters, offsets[MOST_PARAMETERS];
    void *arguments; /* owned */
    size_t argument_bytes;
    Handle event;
    uint64_t stream, sequence; /* the number of a stream, and how many pieces it has done */
};

struct graph {
    struct op *ops;
    size_t count;
};

void *fake_duplicate(const void *bytes, size_t count);
void fake_op_free(struct op *op);
struct op fake_op_copy(const struct op *op);
void fake_graph_free(void *graph);
struct graph *fake_graph_copy(const struct graph *graph);

/* ---- stream.c; graph.c and copy.c have calls alone ---- */

struct stream {
    uint64_t number; /* never used again */
    int device;
    struct op *ops; /* ops[done..count] are queued */
    size_t count, done;
    struct graph *capture; /* being recorded into, owned by the stream where the capture began: */
    uint64_t origin;
    uint32_t mode;
    const void *thread;
    bool invalidated;
};

struct stream *fake_stream(Handle handle);                     /* the device's default stream if null */
CUresult fake_queue(Handle stream, struct op op);              /* takes what the op owns, also when it fails */
CUresult fake_drain(struct stream *stream, uint64_t sequence); /* does what is queued, up to that many in all */
CUresult fake_drain_all(int device);
CUresult fake_unsafe_in_capture(void); /* for calls that a capture forbids */
CUresult fake_not_captured(struct stream *stream);
void fake_stream_reset(void);
void fake_stream_free(void *stream);

/* ---- memory.c ---- */

void fake_memory_reset(void);
void fake_memory_release(int device, bool count_leaks); /* its context ends */
long long fake_blocks(bool host);
size_t fake_bytes(void);
/* The bytes at `address`, if all of them lie in one live block. */
void *fake_access(uint64_t address, size_t bytes);
bool fake_is_pinned(const void *pointer, size_t bytes);
/* Whether copies from and to pageable host memory are recorded, with its address, rather than refused. */
extern long long fake_records_pageable;

/* ---- module.c; control.c is on top of all ---- */

void fake_module_reset(void);
void fake_module_free(void *module);
