/* Modules: the kernels that an image declares (PTX text, alone or inside a fat binary), run as functions of the host that
 * are registered under their names. */
#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHARED = 227 << 10, DEFAULT_SHARED = 48 << 10 };

struct kernel {
    char name[256];
    Handle handle;
    size_t parameters, sizes[MOST_PARAMETERS], offsets[MOST_PARAMETERS], bytes;
    int most_dynamic;
};

struct module {
    struct kernel *kernels;
    size_t count;
};

struct registered {
    char name[256];
    Kernel run;
};

static struct registered *registry;
static size_t registry_count;

static void add(const char *name, Kernel run) {
    struct registered *place = fake_push((void **)&registry, &registry_count, sizeof *place);
    snprintf(place->name, sizeof place->name, "%s", name);
    place->run = run;
}

/* ---- kernels that are always there ---- */

/* scale_f32(float *x, float factor, unsigned n): x[i] *= factor */
static CUresult scale_f32(void *const *arguments, const uint32_t *grid, const uint32_t *block, uint32_t shared) {
    uint64_t address;
    float factor;
    uint32_t n, threads = grid[0] * block[0];
    memcpy(&address, arguments[0], sizeof address);
    memcpy(&factor, arguments[1], sizeof factor);
    memcpy(&n, arguments[2], sizeof n);
    (void)shared;
    if (n > threads) n = threads; /* one element for each thread, as on a device */
    float *x = fake_access(address, n * sizeof *x);
    if (!x) return ILLEGAL_ADDRESS;
    for (uint32_t i = 0; i < n; i++) x[i] *= factor;
    return SUCCESS;
}

static CUresult trap(void *const *arguments, const uint32_t *grid, const uint32_t *block, uint32_t shared) {
    (void)arguments, (void)grid, (void)block, (void)shared;
    return ILLEGAL_ADDRESS;
}

/* Kernels that do nothing but end with an error, or with nothing done. */
#define ENDS_WITH(name, code) \
    static CUresult name(void *const *arguments, const uint32_t *grid, const uint32_t *block, uint32_t shared) { \
        (void)arguments, (void)grid, (void)block, (void)shared; \
        return code; \
    }
ENDS_WITH(illegal_instruction, 715)
ENDS_WITH(misaligned_address, 716)
ENDS_WITH(unwritten, SUCCESS)

/* Makes launches of kernels of this name run `run`, from the next lookup on. */
API void fake_kernel(const char *name, Kernel run) {
    fake_enter("fake_kernel", FREE);
    add(name, run);
    fake_leave(SUCCESS);
}

static Kernel registered(const char *name) {
    for (size_t i = registry_count; i-- > 0;)
        if (!strcmp(registry[i].name, name)) return registry[i].run;
    return NULL;
}

void fake_module_free(void *object) {
    struct module *module = object;
    for (size_t i = 0; i < module->count; i++)
        if (module->kernels[i].handle) fake_release(FUNCTION, module->kernels[i].handle);
    free(module->kernels);
    free(module);
}

void fake_module_reset(void) {
    fake_forget_handles(MODULE, fake_module_free);
    free(registry);
    registry = NULL;
    registry_count = 0;
    add("scale_f32", scale_f32);
    add("trap", trap);
    add("illegal_address", trap);
    add("illegal_instruction", illegal_instruction);
    add("misaligned_address", misaligned_address);
    add("unwritten", unwritten);
}

/* ---- images ---- */

static size_t size_of_type(const char *type) {
    return (size_t)strtoul(type + strspn(type, ".abcdefghijklmnopqrstuvwxyz"), NULL, 10) / 8;
}

/* One parameter: `.param .u64 name` or `.param .align 8 .b8 name[24]`. */
static bool parse_parameter(char *text, struct kernel *kernel) {
    size_t size = 0, align = 0, elements = 1;
    char *bracket = strchr(text, '[');
    if (bracket) elements = strtoul(bracket + 1, NULL, 10);
    for (char *word; (word = strsep(&text, " \t\r\n"));) {
        if (!strcmp(word, ".align") && text) align = strtoul(text, NULL, 10);
        else if (*word == '.' && strcmp(word, ".param") && strcmp(word, ".ptr") && strcmp(word, ".global") && !size)
            size = size_of_type(word);
    }
    if (!size || !elements || kernel->parameters == MOST_PARAMETERS) return false;
    if (!align) align = size;
    size_t offset = (kernel->bytes + align - 1) / align * align, index = kernel->parameters++;
    kernel->offsets[index] = offset;
    kernel->sizes[index] = size * elements;
    kernel->bytes = offset + size * elements;
    return true;
}

static bool parse_entry(const char *text, const char *end, struct module *module) {
    struct kernel *kernel = fake_push((void **)&module->kernels, &module->count, sizeof *kernel);
    while (text < end && isspace((unsigned char)*text)) text++;
    size_t length = 0;
    while (text + length < end && (isalnum((unsigned char)text[length]) || strchr("_$", text[length]))) length++;
    if (!length || length >= sizeof kernel->name) return false;
    memcpy(kernel->name, text, length);
    kernel->most_dynamic = DEFAULT_SHARED;
    text += length;
    while (text < end && isspace((unsigned char)*text)) text++;
    if (text == end || *text != '(') return true; /* no parameters */
    const char *close = memchr(text, ')', (size_t)(end - text));
    if (!close) return false;
    char *list = strndup(text + 1, (size_t)(close - text - 1)), *rest = list;
    bool good = list != NULL;
    for (char *item; good && (item = strsep(&rest, ","));)
        if (item[strspn(item, " \t\r\n")]) good = parse_parameter(item, kernel);
    free(list);
    return good;
}

static CUresult parse_ptx(const char *text, size_t length, struct module *module, char *log, size_t log_size) {
    const char *version = memmem(text, length, ".version ", 9), *end = text + length;
    if (!version) return snprintf(log, log_size, "fake ptxas: no .version directive"), INVALID_PTX;
    if (strtod(version + 9, NULL) >= 10) return UNSUPPORTED_PTX_VERSION;
    while ((text = memmem(text, (size_t)(end - text), ".entry", 6))) {
        text += 6;
        if (!parse_entry(text, end, module))
            return snprintf(log, log_size, "fake ptxas: malformed .entry"), INVALID_PTX;
    }
    return SUCCESS;
}

static CUresult parse(const void *image, struct module *module, char *log, size_t log_size) {
    static const char fat[] = "\x50\xed\x55\xba", machine[] = "\x7f" "ELF";
    uint64_t size;
    if (!strncmp(image, fat, 4)) { /* a fat binary: magic, version and header size (16 bits each), size of the rest */
        memcpy(&size, (const char *)image + 8, sizeof size);
        const char *body = (const char *)image + 16;
        return memmem(body, size, ".version ", 9) ? parse_ptx(body, size, module, log, log_size) : NO_BINARY_FOR_GPU;
    }
    if (!strncmp(image, machine, 4)) return NO_BINARY_FOR_GPU;
    const char *text = image;
    if (!isprint((unsigned char)*text) && !isspace((unsigned char)*text)) return INVALID_IMAGE;
    return parse_ptx(text, strlen(text), module, log, log_size);
}

static CUresult load(Handle *handle, const void *image, unsigned count, const unsigned *names, void *const *values) {
    if (!handle || !image) return INVALID_VALUE;
    CUresult code = fake_unsafe_in_capture();
    if (code) return code;
    char *log = NULL;
    size_t log_size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (names[i] == 5) log = values[i];
        if (names[i] == 6) log_size = (uintptr_t)values[i];
    }
    struct module *module = calloc(1, sizeof *module);
    if (!module) abort();
    code = parse(image, module, log, log ? log_size : 0);
    if (code) return fake_module_free(module), code;
    for (size_t i = 0; i < module->count; i++)
        module->kernels[i].handle = fake_handle(FUNCTION, &module->kernels[i]);
    *handle = fake_handle(MODULE, module);
    return SUCCESS;
}

static CUresult unload(Handle handle) {
    struct module *module = fake_release(MODULE, handle);
    if (!module) return INVALID_HANDLE;
    fake_module_free(module);
    return SUCCESS;
}

static CUresult get_function(Handle *function, Handle handle, const char *name) {
    struct module *module = fake_object(MODULE, handle);
    if (!module) return INVALID_HANDLE;
    if (!function || !name) return INVALID_VALUE;
    for (size_t i = 0; i < module->count; i++)
        if (!strcmp(module->kernels[i].name, name)) return *function = module->kernels[i].handle, SUCCESS;
    return NOT_FOUND;
}

static CUresult function_count(unsigned *count, Handle handle) {
    struct module *module = fake_object(MODULE, handle);
    if (!module || !count) return module ? INVALID_VALUE : INVALID_HANDLE;
    *count = (unsigned)module->count;
    return SUCCESS;
}

static CUresult enumerate(Handle *functions, unsigned count, Handle handle) {
    struct module *module = fake_object(MODULE, handle);
    if (!module || !functions) return module ? INVALID_VALUE : INVALID_HANDLE;
    for (unsigned i = 0; i < count && i < module->count; i++) functions[i] = module->kernels[i].handle;
    return SUCCESS;
}

API CUresult cuModuleLoadDataEx(Handle *module, const void *image, unsigned count, unsigned *names, void **values) {
    CALL(CONTEXT, load(module, image, count, names, values));
}
API CUresult cuModuleLoadData(Handle *module, const void *image) { CALL(CONTEXT, load(module, image, 0, NULL, NULL)); }
API CUresult cuModuleUnload(Handle module) { CALL(CONTEXT, unload(module)); }
API CUresult cuModuleGetFunction(Handle *function, Handle module, const char *name) {
    CALL(CONTEXT, get_function(function, module, name));
}
API CUresult cuModuleGetFunctionCount(unsigned *count, Handle module) { CALL(CONTEXT, function_count(count, module)); }
API CUresult cuModuleEnumerateFunctions(Handle *functions, unsigned count, Handle module) {
    CALL(CONTEXT, enumerate(functions, count, module));
}
/* Libraries are modules here: there is one image for all devices anyway. */
API CUresult cuLibraryLoadData(Handle *library, const void *code, unsigned *names, void **values, unsigned count,
                               void *library_names, void **library_values, unsigned library_count) {
    (void)library_names, (void)library_values, (void)library_count;
    CALL(INITIALISED, load(library, code, count, names, values));
}
API CUresult cuLibraryUnload(Handle library) { CALL(INITIALISED, unload(library)); }
API CUresult cuLibraryGetKernel(Handle *kernel, Handle library, const char *name) {
    CALL(INITIALISED, get_function(kernel, library, name));
}
API CUresult cuKernelGetFunction(Handle *function, Handle kernel) {
    CALL(CONTEXT, fake_object(FUNCTION, kernel) && function ? (*function = kernel, SUCCESS) : INVALID_HANDLE);
}

/* ---- kernels ---- */

static CUresult get_name(const char **name, Handle function) {
    struct kernel *kernel = fake_object(FUNCTION, function);
    if (!kernel || !name) return kernel ? INVALID_VALUE : INVALID_HANDLE;
    return *name = kernel->name, SUCCESS;
}

static CUresult get_attribute(int *value, int which, Handle function) {
    struct kernel *kernel = fake_object(FUNCTION, function);
    if (!kernel || !value) return kernel ? INVALID_VALUE : INVALID_HANDLE;
    static const int values[] = {1024, 0, 0, 0, 32, 75, 90, 0};
    if (which < 0 || which > 15) return INVALID_VALUE;
    *value = which == 8 ? kernel->most_dynamic : which < 8 ? values[which] : 0;
    return SUCCESS;
}

static CUresult set_attribute(Handle function, int which, int value) {
    struct kernel *kernel = fake_object(FUNCTION, function);
    if (!kernel) return INVALID_HANDLE;
    if (which == 9 && value >= -1 && value <= 100) return SUCCESS; /* preferred carve-out */
    if (which == 14 && (value == 0 || value == 1)) return SUCCESS; /* clusters of more than eight blocks */
    if (which != 8 || value < 0 || value > MOST_SHARED) return INVALID_VALUE;
    kernel->most_dynamic = value;
    return SUCCESS;
}

static CUresult parameter(Handle function, size_t index, size_t *offset, size_t *size) {
    struct kernel *kernel = fake_object(FUNCTION, function);
    if (!kernel) return INVALID_HANDLE;
    if (!offset || index >= kernel->parameters) return INVALID_VALUE;
    *offset = kernel->offsets[index];
    if (size) *size = kernel->sizes[index];
    return SUCCESS;
}

static CUresult occupancy(int *blocks, Handle function, int threads, size_t shared) {
    if (!fake_object(FUNCTION, function)) return INVALID_HANDLE;
    if (!blocks || threads < 1) return INVALID_VALUE;
    int by_threads = 2048 / ((threads + 31) / 32 * 32), by_shared = shared ? (int)((228 << 10) / (shared + 1024)) : 32;
    int most = by_threads < by_shared ? by_threads : by_shared;
    *blocks = threads > 1024 ? 0 : most < 32 ? most : 32;
    return SUCCESS;
}

static CUresult best_block(int *grid, int *block, Handle function, size_t shared, int limit) {
    int most = limit > 0 && limit < 1024 ? limit : 1024, blocks = 0;
    if (!grid || !block) return INVALID_VALUE;
    CUresult code = occupancy(&blocks, function, most, shared);
    if (code == SUCCESS) *block = most, *grid = blocks * 8;
    return code;
}

static CUresult run_kernel(const struct op *op) {
    void *arguments[MOST_PARAMETERS];
    for (size_t i = 0; i < op->parameters; i++) arguments[i] = (char *)op->arguments + op->offsets[i];
    fake_count(LAUNCHES);
    return op->kernel(arguments, op->grid, op->block, op->shared);
}

static CUresult launch(Handle function, const uint32_t *grid, const uint32_t *block, uint32_t shared, Handle stream,
                       void *const *arguments) {
    struct kernel *kernel = fake_object(FUNCTION, function);
    if (!kernel) return INVALID_HANDLE;
    bool fits = grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2] && block[2] <= 64 && grid[1] <= 65535 &&
                grid[2] <= 65535 && (uint64_t)block[0] * block[1] * block[2] <= 1024;
    if (!fits || shared > (uint32_t)kernel->most_dynamic || (kernel->parameters && !arguments)) return INVALID_VALUE;
    struct op op = {.run = run_kernel, .shared = shared, .parameters = kernel->parameters, .kernel = registered(kernel->name)};
    if (!op.kernel) return NOT_SUPPORTED; /* no function is registered under this name */
    memcpy(op.grid, grid, sizeof op.grid);
    memcpy(op.block, block, sizeof op.block);
    memcpy(op.offsets, kernel->offsets, sizeof op.offsets);
    op.argument_bytes = kernel->bytes;
    op.arguments = calloc(1, kernel->bytes + 1);
    if (!op.arguments) abort();
    for (size_t i = 0; i < kernel->parameters; i++)
        memcpy((char *)op.arguments + kernel->offsets[i], arguments[i], kernel->sizes[i]);
    return fake_queue(stream, op);
}

struct launch_attribute {
    unsigned id;
    char pad[4];
    union {
        unsigned cluster[3];
        int overlapped;
        char bytes[64];
    } value;
};

struct launch_config {
    unsigned grid[3], block[3], shared;
    Handle stream;
    const struct launch_attribute *attributes;
    unsigned count;
};

static CUresult launch_ex(const struct launch_config *config, Handle function, void *const *arguments) {
    if (!config || (config->count && !config->attributes)) return INVALID_VALUE;
    for (unsigned i = 0; i < config->count; i++) {
        if (config->attributes[i].id == 6 && config->attributes[i].value.overlapped) {
            if (fake_major < 9) return NOT_SUPPORTED;
            fake_count(OVERLAPPED);
        }
        if (config->attributes[i].id != 4) continue;
        const unsigned *cluster = config->attributes[i].value.cluster;
        uint64_t blocks = (uint64_t)cluster[0] * cluster[1] * cluster[2];
        if (blocks < 1 || blocks > 8) return INVALID_CLUSTER_SIZE;
        for (int axis = 0; axis < 3; axis++)
            if (config->grid[axis] % cluster[axis]) return INVALID_CLUSTER_SIZE;
    }
    return launch(function, config->grid, config->block, config->shared, config->stream, arguments);
}

API CUresult cuFuncGetName(const char **name, Handle function) { CALL(CONTEXT, get_name(name, function)); }
API CUresult cuFuncGetAttribute(int *value, int which, Handle function) {
    CALL(CONTEXT, get_attribute(value, which, function));
}
API CUresult cuFuncSetAttribute(Handle function, int which, int value) {
    CALL(CONTEXT, set_attribute(function, which, value));
}
API CUresult cuFuncGetParamInfo(Handle function, size_t index, size_t *offset, size_t *size) {
    CALL(CONTEXT, parameter(function, index, offset, size));
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Handle function, int threads, size_t shared) {
    CALL(CONTEXT, occupancy(blocks, function, threads, shared));
}
API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Handle function, void *size_of_block, size_t shared,
                                              int limit) {
    CALL(CONTEXT, size_of_block ? NOT_SUPPORTED : best_block(grid, block, function, shared, limit));
}
API CUresult cuOccupancyMaxActiveClusters(int *clusters, Handle function, const struct launch_config *config) {
    CALL(CONTEXT, fake_object(FUNCTION, function) && clusters && config ? (*clusters = 1, SUCCESS) : INVALID_VALUE);
}
API CUresult cuLaunchKernel(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, Handle stream, void **arguments,
                            void **extra) {
    const uint32_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    CALL(CONTEXT, extra ? NOT_SUPPORTED : launch(function, grid, block, shared, stream, arguments));
}
API CUresult cuLaunchKernelEx(const struct launch_config *config, Handle function, void **arguments, void **extra) {
    CALL(CONTEXT, extra ? NOT_SUPPORTED : launch_ex(config, function, arguments));
}

/* ---- tensor maps: only the conditions on the arguments ---- */

static CUresult encode(void *map, unsigned rank, uintptr_t address, const uint64_t *sizes, const uint64_t *strides,
                       const uint32_t *box, const uint32_t *steps) {
    if (!map || (uintptr_t)map % 64 || rank < 1 || rank > 5 || address % 16) return INVALID_VALUE;
    if (!sizes || !box || !steps || (rank > 1 && !strides)) return INVALID_VALUE;
    for (unsigned i = 0; i < rank; i++) {
        if (!sizes[i] || sizes[i] > UINT64_C(1) << 32 || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8)
            return INVALID_VALUE;
        if (i + 1 < rank && (!strides[i] || strides[i] % 16 || strides[i] >= UINT64_C(1) << 40)) return INVALID_VALUE;
    }
    memset(map, 0x5a, 128);
    memcpy(map, &address, sizeof address);
    return SUCCESS;
}

API CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes,
                                    const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                    int swizzle, int promotion, int fill) {
    bool known = type >= 0 && type <= 15 && interleave >= 0 && interleave <= 2 && swizzle >= 0 && swizzle <= 7 &&
                 promotion >= 0 && promotion <= 3 && fill >= 0 && fill <= 1;
    CALL(FREE, known ? encode(map, rank, (uintptr_t)address, sizes, strides, box, steps) : INVALID_VALUE);
}
