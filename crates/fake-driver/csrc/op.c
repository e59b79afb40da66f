/* Pieces of work and lists of them (graphs), and the memory that they own. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

void fake_op_free(struct op *op) {
    free(op->staged);
    free(op->arguments);
    op->staged = op->arguments = NULL;
}

void *fake_duplicate(const void *bytes, size_t count) {
    if (!bytes) return NULL;
    void *copy = malloc(count ? count : 1);
    if (!copy) abort();
    return memcpy(copy, bytes, count);
}

struct op fake_op_copy(const struct op *op) {
    struct op copy = *op;
    copy.staged = fake_duplicate(op->staged, op->bytes);
    copy.arguments = fake_duplicate(op->arguments, op->argument_bytes);
    return copy;
}

void fake_graph_free(void *object) {
    struct graph *graph = object;
    for (size_t i = 0; graph && i < graph->count; i++) fake_op_free(&graph->ops[i]);
    if (graph) free(graph->ops);
    free(graph);
}

struct graph *fake_graph_copy(const struct graph *graph) {
    struct graph *made = calloc(1, sizeof *made);
    if (!made) abort();
    for (size_t i = 0; i < graph->count; i++)
        *(struct op *)fake_push((void **)&made->ops, &made->count, sizeof *made->ops) = fake_op_copy(&graph->ops[i]);
    return made;
}
