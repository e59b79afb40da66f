/* A stand-in for NVML: two devices whose numbers never change. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { PROCESSES = 100 }; /* more than a caller has room for at first */

static int started;
static char names[2];

static unsigned put(char *target, unsigned length, const char *text) {
    if (!started) return UNINITIALIZED;
    return (unsigned)snprintf(target, length, "%s", text) < length ? SUCCESS : INSUFFICIENT_SIZE;
}

static unsigned index_of(const void *device) { return (unsigned)((const char *)device - names); }

API unsigned nvmlInit_v2(void) { return started += 1, SUCCESS; }
API unsigned nvmlShutdown(void) { return started ? (started -= 1, SUCCESS) : UNINITIALIZED; }
API int fake_nvml_started(void) { return started; }
API const char *nvmlErrorString(unsigned code) {
    return code == NOT_SUPPORTED ? "Not Supported" : code == NOT_FOUND ? "Not Found" : "Unknown Error";
}
API unsigned nvmlSystemGetDriverVersion(char *text, unsigned length) { return put(text, length, "580.00.01"); }
API unsigned nvmlSystemGetNVMLVersion(char *text, unsigned length) { return put(text, length, "13.580.00.01"); }
API unsigned nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 13000, SUCCESS; }
API unsigned nvmlSystemGetProcessName(unsigned pid, char *text, unsigned length) {
    return pid % 2 ? NOT_FOUND : put(text, length, "trainer");
}
API unsigned nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, started ? SUCCESS : UNINITIALIZED; }
API unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    return index < 2 ? (*device = names + index, SUCCESS) : INVALID_ARGUMENT;
}
API unsigned nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    for (unsigned i = 0; i < 2; i++) {
        char own[32];
        snprintf(own, sizeof own, "0000:%02u:00.0", i);
        if (!strcmp(bus_id, own)) return *device = names + i, SUCCESS;
    }
    return NOT_FOUND;
}
API unsigned nvmlDeviceGetName(void *device, char *text, unsigned length) {
    return put(text, length, index_of(device) ? "Fake GPU 1" : "Fake GPU 0");
}
API unsigned nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) {
    memory[0] = UINT64_C(80) << 30, memory[1] = (UINT64_C(80) << 30) - 1000, memory[2] = 1000 + index_of(device) * 0;
    return SUCCESS;
}
API unsigned nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    return rates[0] = 70 + index_of(device), rates[1] = 30, SUCCESS;
}

struct process {
    unsigned pid;
    uint64_t memory;
    unsigned gpu, compute;
};

API unsigned nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    unsigned room = *count, all = index_of(device) ? 0 : PROCESSES;
    *count = all;
    if (room < all) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < all; i++) processes[i] = (struct process){i, i ? UINT64_C(1) << 20 : UINT64_MAX, 0, 0};
    return SUCCESS;
}
API unsigned nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    return *milliwatts = 123456 + index_of(device), SUCCESS;
}
API unsigned nvmlDeviceGetTotalEnergyConsumption(void *device, uint64_t *millijoules) {
    return *millijoules = 5000, index_of(device) ? NOT_SUPPORTED : SUCCESS;
}
API unsigned nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *degrees) {
    return *degrees = 45 + index_of(device), sensor ? INVALID_ARGUMENT : SUCCESS;
}
API unsigned nvmlDeviceGetClockInfo(void *device, unsigned clock, unsigned *megahertz) {
    return *megahertz = 1000 * clock + index_of(device), SUCCESS;
}
API unsigned nvmlDeviceGetMaxClockInfo(void *device, unsigned clock, unsigned *megahertz) {
    return *megahertz = 2000 * clock + index_of(device), SUCCESS;
}
API unsigned nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *reasons) {
    return *reasons = index_of(device) ? 4 : 1, SUCCESS;
}
