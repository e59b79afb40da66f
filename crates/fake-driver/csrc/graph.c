/* Graphs: what a capture recorded, in the order of the calls, which satisfies every dependency between them. */
#include "fake.h"

static CUresult instantiate(Handle *exec, Handle handle, uint64_t flags) {
    struct graph *graph = fake_object(GRAPH, handle);
    if (!graph) return INVALID_HANDLE;
    if (!exec || flags & ~(uint64_t)0xf) return INVALID_VALUE;
    *exec = fake_handle(EXEC, fake_graph_copy(graph));
    return SUCCESS;
}

static CUresult launch(Handle handle, Handle stream) {
    struct graph *graph = fake_object(EXEC, handle);
    if (!graph || !fake_stream(stream)) return INVALID_HANDLE;
    CUresult code = SUCCESS;
    for (size_t i = 0; i < graph->count && code == SUCCESS; i++) code = fake_queue(stream, fake_op_copy(&graph->ops[i]));
    return code;
}

static CUresult upload(Handle handle, Handle stream) {
    return fake_object(EXEC, handle) && fake_stream(stream) ? SUCCESS : INVALID_HANDLE;
}

static CUresult destroy(enum kind kind, Handle handle) {
    struct graph *graph = fake_release(kind, handle);
    if (!graph) return INVALID_HANDLE;
    fake_graph_free(graph);
    return SUCCESS;
}

static CUresult nodes(Handle handle, Handle *array, size_t *count) {
    struct graph *graph = fake_object(GRAPH, handle);
    if (!graph) return INVALID_HANDLE;
    if (!count) return INVALID_VALUE;
    for (size_t i = 0; array && i < *count; i++) array[i] = i < graph->count ? (Handle)&graph->ops[i] : NULL;
    if (!array || *count > graph->count) *count = graph->count;
    return SUCCESS;
}

static CUresult node_type(Handle node, uint32_t *type) {
    const struct op *op = (const void *)node;
    if (!op || !type) return INVALID_VALUE;
    *type = op->node;
    return SUCCESS;
}

enum { HOST_MEMORY = 1, DEVICE_MEMORY = 2 };

struct copy_side {
    size_t x, y, z, level;
    uint32_t type;
    uint64_t host, device, array, reserved;
    size_t pitch, height;
};

struct copy {
    struct copy_side source, target;
    size_t width, height, depth;
};

static struct copy_side side(uint64_t address, bool is_host) {
    if (is_host) return (struct copy_side){.type = HOST_MEMORY, .host = address};
    return (struct copy_side){.type = DEVICE_MEMORY, .device = address};
}

static CUresult copy_parameters(Handle node, struct copy *parameters) {
    const struct op *op = (const void *)node;
    if (!op || !parameters || op->node != COPY_NODE) return INVALID_VALUE;
    *parameters = (struct copy){side(op->source, op->from_host), side(op->target, op->to_host), op->bytes, 1, 1};
    return SUCCESS;
}

struct update_result {
    int result; /* 0 done, 2 another topology, 3 another kind of node */
    Handle node, from;
};

static CUresult update(Handle exec_handle, Handle handle, struct update_result *result) {
    struct graph *exec = fake_object(EXEC, exec_handle), *graph = fake_object(GRAPH, handle);
    if (!exec || !graph) return INVALID_HANDLE;
    if (!result) return INVALID_VALUE;
    *result = (struct update_result){exec->count == graph->count ? 0 : 2, NULL, NULL};
    for (size_t i = 0; i < graph->count && result->result == 0; i++)
        if (exec->ops[i].run != graph->ops[i].run) result->result = 3;
    if (result->result) return GRAPH_EXEC_UPDATE_FAILURE;
    for (size_t i = 0; i < graph->count; i++) {
        fake_op_free(&exec->ops[i]);
        exec->ops[i] = fake_op_copy(&graph->ops[i]);
    }
    return SUCCESS;
}

API CUresult cuGraphInstantiateWithFlags(Handle *exec, Handle graph, uint64_t flags) {
    CALL(CONTEXT, instantiate(exec, graph, flags));
}
API CUresult cuGraphLaunch(Handle exec, Handle stream) { CALL(CONTEXT, launch(exec, stream)); }
API CUresult cuGraphUpload(Handle exec, Handle stream) { CALL(CONTEXT, upload(exec, stream)); }
API CUresult cuGraphExecDestroy(Handle exec) { CALL(CONTEXT, destroy(EXEC, exec)); }
API CUresult cuGraphDestroy(Handle graph) { CALL(INITIALISED, destroy(GRAPH, graph)); }
API CUresult cuGraphGetNodes(Handle graph, Handle *array, size_t *count) { CALL(INITIALISED, nodes(graph, array, count)); }
API CUresult cuGraphNodeGetType(Handle node, uint32_t *type) { CALL(INITIALISED, node_type(node, type)); }
API CUresult cuGraphMemcpyNodeGetParams(Handle node, struct copy *parameters) {
    CALL(INITIALISED, copy_parameters(node, parameters));
}
API CUresult cuGraphExecUpdate_v2(Handle exec, Handle graph, struct update_result *result) {
    CALL(CONTEXT, update(exec, graph, result));
}
