/* Devices, primary contexts, peers, and the names of codes. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long long fake_device_count, fake_version, fake_major, fake_minor;

void fake_device_reset(void) {
    memset(fake_devices, 0, sizeof fake_devices);
    fake_device_count = 2, fake_version = 13000, fake_major = 9, fake_minor = 0;
    for (int i = 0; i < DEVICES; i++) {
        fake_devices[i].total = (size_t)1 << 30;
        fake_devices[i].context = fake_handle(CONTEXT_HANDLE, &fake_devices[i]);
        fake_devices[i].pool = fake_handle(POOL, &fake_devices[i]);
    }
}

struct device *fake_device(CUdevice device) {
    return device >= 0 && device < fake_device_count ? &fake_devices[device] : NULL;
}

/* At a synchronisation the pool gives back what it holds above its threshold. */
void fake_pool_settle(struct device *device) {
    uint64_t keep = device->pooled > device->threshold ? device->pooled : device->threshold;
    if (device->reserved > keep) device->reserved = keep;
}

static CUresult put(void *target, const void *value, size_t bytes) {
    if (!target) return INVALID_VALUE;
    memcpy(target, value, bytes);
    return SUCCESS;
}

static CUresult put_int(int *target, long long value) {
    int narrow = (int)value;
    return put(target, &narrow, sizeof narrow);
}

static CUresult put_text(char *target, int length, CUdevice device, const char *format) {
    if (!target || length < 1) return INVALID_VALUE;
    if (!fake_device(device)) return INVALID_DEVICE;
    snprintf(target, (size_t)length, format, device);
    return SUCCESS;
}

static CUresult attribute(int *value, int which, CUdevice device) {
    if (!fake_device(device)) return INVALID_DEVICE;
    switch (which) {
    case 1: case 2: case 3: return put_int(value, 1024);      /* threads per block; block x, y */
    case 4: return put_int(value, 64);                        /* block z */
    case 5: return put_int(value, 2147483647);                /* grid x */
    case 6: case 7: return put_int(value, 65535);             /* grid y, z */
    case 8: return put_int(value, 48 << 10);                  /* shared memory per block */
    case 10: return put_int(value, 32);                       /* warp */
    case 12: case 82: return put_int(value, 65536);           /* registers */
    case 13: case 36: return put_int(value, 1000000);         /* clocks in kHz */
    case 16: return put_int(value, 8);                        /* multiprocessors */
    case 17: case 20: case 32: return put_int(value, 0);
    case 37: return put_int(value, 512);                      /* bus width */
    case 38: return put_int(value, 4 << 20);                  /* L2 cache */
    case 39: return put_int(value, 2048);                     /* threads per multiprocessor */
    case 75: return put_int(value, fake_major);
    case 76: return put_int(value, fake_minor);
    case 81: return put_int(value, 228 << 10);
    case 97: return put_int(value, 227 << 10);                /* shared memory per block, opt-in */
    case 115: case 120: return put_int(value, 1);             /* pools, clusters */
    default: return which > 0 && which < 150 ? put_int(value, 0) : INVALID_VALUE;
    }
}

static CUresult retain(Handle *context, CUdevice device) {
    struct device *found = fake_device(device);
    if (!found) return INVALID_DEVICE;
    if (found->sticky) return found->sticky;
    found->references += 1;
    return put(context, &found->context, sizeof *context);
}

static CUresult set_current(Handle context) {
    if (!context) return fake_set_current(NULL), SUCCESS;
    struct device *device = fake_object(CONTEXT_HANDLE, context);
    if (!device || device->references == 0) return INVALID_CONTEXT;
    fake_set_current(device);
    return SUCCESS;
}

static CUresult get_current(Handle *context) {
    struct device *device = fake_current();
    Handle handle = device ? device->context : NULL;
    return put(context, &handle, sizeof handle);
}

static CUresult get_pool(Handle *pool, CUdevice device) {
    return fake_device(device) ? put(pool, &fake_device(device)->pool, sizeof *pool) : INVALID_DEVICE;
}

static CUresult total(size_t *bytes, CUdevice device) {
    return fake_device(device) ? put(bytes, &fake_device(device)->total, sizeof *bytes) : INVALID_DEVICE;
}

static CUresult can_access(int *can, CUdevice device, CUdevice peer) {
    return fake_device(device) && fake_device(peer) ? put_int(can, device != peer) : INVALID_DEVICE;
}

static CUresult peer_access(Handle context, bool enable) {
    struct device *peer = fake_object(CONTEXT_HANDLE, context);
    if (!peer || peer->references == 0 || peer == fake_current()) return INVALID_CONTEXT;
    bool *enabled = &fake_current()->peers[peer - fake_devices];
    if (*enabled == enable) return enable ? PEER_ACCESS_ALREADY_ENABLED : PEER_ACCESS_NOT_ENABLED;
    *enabled = enable;
    return SUCCESS;
}

static CUresult api_version(Handle context, unsigned *version) {
    struct device *device = fake_object(CONTEXT_HANDLE, context);
    return device && device->references ? put_int((int *)version, 3020) : INVALID_CONTEXT;
}

API CUresult cuInit(unsigned flags) { CALL(FREE, flags ? INVALID_VALUE : fake_device_count ? SUCCESS : NO_DEVICE); }
API CUresult cuDriverGetVersion(int *version) { CALL(FREE, put_int(version, fake_version)); }
API CUresult cuDeviceGetCount(int *count) { CALL(INITIALISED, put_int(count, fake_device_count)); }
API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CALL(INITIALISED, fake_device(ordinal) ? put_int(device, ordinal) : INVALID_DEVICE);
}
API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CALL(INITIALISED, put_text(name, length, device, "Fake GPU %d"));
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { CALL(INITIALISED, total(bytes, device)); }
API CUresult cuDeviceGetAttribute(int *value, int which, CUdevice device) {
    CALL(INITIALISED, attribute(value, which, device));
}
API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    CALL(INITIALISED, put_text(text, length, device, "0000:%02d:00.0"));
}
API CUresult cuDeviceGetDefaultMemPool(Handle *pool, CUdevice device) { CALL(INITIALISED, get_pool(pool, device)); }
API CUresult cuDevicePrimaryCtxRetain(Handle *context, CUdevice device) { CALL(INITIALISED, retain(context, device)); }
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    CALL(INITIALISED, !fake_device(device) ? INVALID_DEVICE : flags > 0x1f ? INVALID_VALUE : SUCCESS);
}
API CUresult cuCtxSetCurrent(Handle context) { CALL(INITIALISED, set_current(context)); }
API CUresult cuCtxGetCurrent(Handle *context) { CALL(INITIALISED, get_current(context)); }
API CUresult cuCtxGetDevice(CUdevice *device) { CALL(CONTEXT, put_int(device, fake_current() - fake_devices)); }
API CUresult cuCtxGetApiVersion(Handle context, unsigned *version) { CALL(INITIALISED, api_version(context, version)); }
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CALL(INITIALISED, can_access(can, device, peer));
}
API CUresult cuCtxEnablePeerAccess(Handle peer, unsigned flags) {
    CALL(CONTEXT, flags ? INVALID_VALUE : peer_access(peer, true));
}
API CUresult cuCtxDisablePeerAccess(Handle peer) { CALL(CONTEXT, peer_access(peer, false)); }
API CUresult cuProfilerStart(void) { CALL(CONTEXT, SUCCESS); }
API CUresult cuProfilerStop(void) { CALL(CONTEXT, SUCCESS); }

/* ---- names of codes: never counted and never told to fail, for they explain the calls that are ---- */

static const struct {
    CUresult code;
    const char *name, *text;
} words[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX was compiled with an unsupported toolchain"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a capture from another thread"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "a cluster size that the device cannot run"},
    {GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"},
};

static CUresult word(CUresult code, const char **target, bool name) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].code == code) return *target = name ? words[i].name : words[i].text, SUCCESS;
    *target = NULL;
    return INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult code, const char **name) { return word(code, name, true); }
API CUresult cuGetErrorString(CUresult code, const char **text) { return word(code, text, false); }
