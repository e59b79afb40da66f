/* A stand-in for cuBLASLt: products of matrices in host memory, computed when they are queued. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum { HANDLE = 1, DESCRIPTION, LAYOUT, PREFERENCE };

struct object {
    int kind, compute, scale, type, first, second, batch, order;
    uint64_t rows, columns, workspace;
    int64_t stride, batch_stride;
    uint32_t reductions, alignment;
};

struct result {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

static int live;

API int fake_cublaslt_live(void) { return live; }
API const char *cublasLtGetStatusString(int status) {
    return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "another status";
}
API int cublasLtGetProperty(int which, int *value) {
    static const int version[] = {13, 1, 2};
    return which < 0 || which > 2 ? INVALID_VALUE : (*value = version[which], SUCCESS);
}

static int create(struct object **target, struct object object) {
    *target = malloc(sizeof object);
    if (!*target) abort();
    **target = object;
    live += 1;
    return SUCCESS;
}

static int destroy(struct object *object, int kind) {
    if (!object || object->kind != kind) return INVALID_VALUE;
    object->kind = 0;
    free(object);
    live -= 1;
    return SUCCESS;
}

API int cublasLtCreate(struct object **handle) { return create(handle, (struct object){.kind = HANDLE}); }
API int cublasLtDestroy(struct object *handle) { return destroy(handle, HANDLE); }
API int cublasLtMatmulDescCreate(struct object **object, int compute, int scale) {
    return create(object, (struct object){.kind = DESCRIPTION, .compute = compute, .scale = scale});
}
API int cublasLtMatmulDescDestroy(struct object *object) { return destroy(object, DESCRIPTION); }
API int cublasLtMatmulDescSetAttribute(struct object *object, int which, const int *value, size_t bytes) {
    if (object->kind != DESCRIPTION || bytes != 4 || *value < 0 || *value > 1) return INVALID_VALUE;
    if (which == 3) object->first = *value;
    else if (which == 4) object->second = *value;
    else return INVALID_VALUE;
    return SUCCESS;
}
API int cublasLtMatrixLayoutCreate(struct object **object, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    if (stride < (int64_t)rows) return INVALID_VALUE; /* stored by columns */
    return create(object, (struct object){.kind = LAYOUT, .type = type, .rows = rows, .columns = columns, .stride = stride,
                                          .batch = 1});
}
API int cublasLtMatrixLayoutDestroy(struct object *object) { return destroy(object, LAYOUT); }
API int cublasLtMatrixLayoutSetAttribute(struct object *object, int which, const void *value, size_t bytes) {
    if (object->kind != LAYOUT) return INVALID_VALUE;
    if (which == 5 && bytes == 4) return memcpy(&object->batch, value, 4), SUCCESS;
    if (which == 6 && bytes == 8) return memcpy(&object->batch_stride, value, 8), SUCCESS;
    return INVALID_VALUE;
}
API int cublasLtMatmulPreferenceCreate(struct object **object) {
    return create(object, (struct object){.kind = PREFERENCE, .reductions = 7, .alignment = 256});
}
API int cublasLtMatmulPreferenceDestroy(struct object *object) { return destroy(object, PREFERENCE); }
API int cublasLtMatmulPreferenceSetAttribute(struct object *object, int which, const void *value, size_t bytes) {
    if (object->kind != PREFERENCE) return INVALID_VALUE;
    if (which == 1 && bytes == 8) return memcpy(&object->workspace, value, 8), SUCCESS;
    if (which == 3 && bytes == 4) return memcpy(&object->reductions, value, 4), SUCCESS;
    if (which >= 5 && which <= 8 && bytes == 4) return memcpy(&object->alignment, value, 4), SUCCESS;
    return INVALID_VALUE;
}

static bool fits(const struct object *d, const struct object *a, const struct object *b, const struct object *c) {
    uint64_t rows = d->first ? a->columns : a->rows, inner = d->first ? a->rows : a->columns;
    uint64_t other = d->second ? b->columns : b->rows, columns = d->second ? b->rows : b->columns;
    bool types = a->type == b->type && b->type == c->type && (d->compute == 70) == (a->type == F64) &&
                 d->scale == (a->type == F64 ? F64 : F32) && (d->compute != 77 || a->type == F32);
    return types && rows == c->rows && columns == c->columns && inner == other && a->batch == b->batch && b->batch == c->batch;
}

API int cublasLtMatmulAlgoGetHeuristic(struct object *handle, struct object *d, struct object *a, struct object *b,
                                       struct object *c, struct object *out, struct object *preference, int most,
                                       struct result *results, int *found) {
    *found = 0;
    if (handle->kind != HANDLE || preference->kind != PREFERENCE || preference->reductions & 1) return INVALID_VALUE;
    if (!fits(d, a, b, c) || !fits(d, a, b, out)) return INVALID_VALUE;
    if (a->type == F16) return NOT_SUPPORTED;
    static const size_t workspaces[] = {0, 1024, 1 << 20};
    for (int i = 0; i < 3 && *found < most; i++) {
        if (workspaces[i] > preference->workspace) continue;
        results[*found] = (struct result){{0x60d, (uint64_t)i, workspaces[i]}, workspaces[i], SUCCESS, 1, {0}};
        *found += 1;
    }
    return SUCCESS;
}

static double load(const void *matrix, int type, int64_t i) {
    if (type == F64) return ((const double *)matrix)[i];
    if (type == F32) return ((const float *)matrix)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)matrix)[i] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void store(void *matrix, int type, int64_t i, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    if (type == F64) ((double *)matrix)[i] = value;
    else if (type == F32) ((float *)matrix)[i] = single;
    else ((uint16_t *)matrix)[i] = (uint16_t)(bits >> 16); /* values of the tests are exact */
}

API int cublasLtMatmul(struct object *handle, struct object *d, const void *alpha, const void *a, struct object *a_layout,
                       const void *b, struct object *b_layout, const void *beta, const void *c, struct object *c_layout,
                       void *out, struct object *out_layout, const uint64_t *algorithm, void *workspace, size_t bytes,
                       void *stream) {
    if (handle->kind != HANDLE || d->kind != DESCRIPTION || !stream) return NOT_INITIALIZED;
    if (!fits(d, a_layout, b_layout, c_layout) || c != out || c_layout->kind != LAYOUT) return INVALID_VALUE;
    if (algorithm[0] != 0x60d || algorithm[2] > bytes || (algorithm[2] && !workspace)) return INVALID_VALUE;
    double scale = load(alpha, d->scale, 0), keep = load(beta, d->scale, 0);
    uint64_t inner = d->first ? a_layout->rows : a_layout->columns;
    for (int batch = 0; batch < c_layout->batch; batch++) {
        int64_t a0 = batch * a_layout->batch_stride, b0 = batch * b_layout->batch_stride, c0 = batch * c_layout->batch_stride;
        for (uint64_t i = 0; i < c_layout->rows; i++)
            for (uint64_t j = 0; j < c_layout->columns; j++) {
                double sum = 0;
                for (uint64_t k = 0; k < inner; k++) {
                    int64_t ak = d->first ? (int64_t)k + (int64_t)i * a_layout->stride : (int64_t)i + (int64_t)k * a_layout->stride;
                    int64_t bk = d->second ? (int64_t)j + (int64_t)k * b_layout->stride : (int64_t)k + (int64_t)j * b_layout->stride;
                    sum += load(a, a_layout->type, a0 + ak) * load(b, b_layout->type, b0 + bk);
                }
                int64_t at = c0 + (int64_t)i + (int64_t)j * out_layout->stride;
                store(out, out_layout->type, at, scale * sum + (keep ? keep * load(c, c_layout->type, at) : 0));
            }
    }
    return SUCCESS;
}
