/* A libnvidia-ml.so.1 with fake GPUs for the real nvidia-ml-py.

The environment variable FAKE_NVML changes what it answers: entries KEY=VALUE, or KEY.GPU=VALUE
for one GPU, separated by semicolons. The name of a function as a key is the error that it
returns. There is one MIG instance, which counts as GPU 100. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, OPERATING_SYSTEM = 17 };
enum { ALL = -1, MIG = 100, SHORT = 40, LONG = 200 };

typedef int Return;
typedef void *Device;

struct Memory {
    unsigned long long total, free, used;
};

static int find(const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    const char *entry = getenv("FAKE_NVML");
    while (entry) {
        if (!strncmp(entry, key, length) && entry[length] == '=') {
            const char *begin = entry + length + 1;
            snprintf(value, size, "%.*s", (int)strcspn(begin, ";"), begin);
            return 1;
        }
        entry = strchr(entry, ';');
        entry = entry ? entry + 1 : NULL;
    }
    return 0;
}

/* Copy the setting of this GPU, or of all; return whether there is one. */
static int setting(const char *key, int gpu, char *value, size_t size) {
    char key_of_gpu[LONG];
    snprintf(key_of_gpu, sizeof key_of_gpu, "%s.%d", key, gpu);
    return find(key_of_gpu, value, size) || find(key, value, size);
}

static long long number(const char *key, int gpu, long long usual) {
    char value[SHORT];
    return setting(key, gpu, value, sizeof value) ? atoll(value) : usual;
}

static void text(const char *key, int gpu, const char *usual, char *value, size_t size) {
    if (!setting(key, gpu, value, size)) snprintf(value, size, "%s", usual);
}

static int index_of(Device device) { return (int)(long)device - 1; }
static Device device_of(int gpu) { return (Device)(long)(gpu + 1); }

#define FAIL_IF_SET(gpu)                             \
    do {                                             \
        Return error = (Return)number(__func__, gpu, SUCCESS); \
        if (error) return error;                     \
    } while (0)

Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    FAIL_IF_SET(ALL);
    return SUCCESS;
}

Return nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(Return error) {
    (void)error;
    return "an error of the fake";
}

Return nvmlSystemGetDriverVersion(char *version, unsigned size) {
    FAIL_IF_SET(ALL);
    text("driver", ALL, "fake", version, size);
    return SUCCESS;
}

Return nvmlDeviceGetCount_v2(unsigned *count) {
    FAIL_IF_SET(ALL);
    const char *devices = getenv("FAKE_DEVICES");
    *count = (unsigned)number("gpus", ALL, devices ? atoi(devices) : 2);
    return SUCCESS;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    FAIL_IF_SET((int)index);
    unsigned count;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count) return INVALID_ARGUMENT;
    *device = device_of((int)index);
    return SUCCESS;
}

Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    (void)uuid;
    FAIL_IF_SET(MIG);
    *device = device_of(MIG);
    return SUCCESS;
}

Return nvmlDeviceGetUUID(Device device, char *uuid, unsigned size) {
    int gpu = index_of(device);
    FAIL_IF_SET(gpu);
    char usual[SHORT];
    snprintf(usual, sizeof usual, "GPU-fake-%d", gpu);
    text("uuid", gpu, usual, uuid, size);
    return SUCCESS;
}

Return nvmlDeviceGetName(Device device, char *name, unsigned size) {
    FAIL_IF_SET(index_of(device));
    text("name", index_of(device), "Fake accelerator", name, size);
    return SUCCESS;
}

Return nvmlDeviceGetMemoryInfo(Device device, struct Memory *memory) {
    int gpu = index_of(device);
    FAIL_IF_SET(gpu);
    memory->total = (unsigned long long)number("total_gib", gpu, 4) << 30;
    memory->used = (unsigned long long)number("used_gib", gpu, 1) << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    FAIL_IF_SET(index_of(device));
    char capability[SHORT];
    text("capability", index_of(device), "8.0", capability, sizeof capability);
    return sscanf(capability, "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

Return nvmlDeviceGetClockInfo(Device device, int kind, unsigned *megahertz) {
    (void)kind;
    int gpu = index_of(device);
    FAIL_IF_SET(gpu);
    *megahertz = (unsigned)number("clock", gpu, 1000 + gpu);
    return SUCCESS;
}

Return nvmlDeviceGetMaxClockInfo(Device device, int kind, unsigned *megahertz) {
    (void)kind;
    FAIL_IF_SET(index_of(device));
    *megahertz = (unsigned)number("max_clock", index_of(device), 1980);
    return SUCCESS;
}

Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
    FAIL_IF_SET(index_of(device));
    *milliwatts = 1000 * (unsigned)number("power_limit", index_of(device), 700);
    return SUCCESS;
}

Return nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned *milliwatts) {
    FAIL_IF_SET(index_of(device));
    *milliwatts = 1000 * 700;
    return SUCCESS;
}

Return nvmlDeviceGetEccMode(Device device, int *current, int *pending) {
    FAIL_IF_SET(index_of(device));
    *current = *pending = (int)number("ecc", index_of(device), 1);
    return SUCCESS;
}

Return nvmlDeviceGetPersistenceMode(Device device, int *mode) {
    FAIL_IF_SET(index_of(device));
    *mode = (int)number("persistence", index_of(device), 0);
    return SUCCESS;
}

Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned *celsius) {
    (void)sensor;
    int gpu = index_of(device);
    FAIL_IF_SET(gpu);
    *celsius = (unsigned)number("temperature", gpu, 40 + gpu);
    return SUCCESS;
}

Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *bits) {
    FAIL_IF_SET(index_of(device));
    *bits = (unsigned long long)number("throttled", index_of(device), 4);
    return SUCCESS;
}

/* The energy of a constant power, unless it is set. */
Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *millijoules) {
    int gpu = index_of(device);
    FAIL_IF_SET(gpu);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long milliseconds = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    long long energy = number("watts", gpu, 100) * milliseconds;
    *millijoules = (unsigned long long)number("millijoules", gpu, energy);
    return SUCCESS;
}

/* Like the real one, tell the cores near the GPU whatever the process is bound to. */
Return nvmlDeviceGetCpuAffinity(Device device, unsigned int words, unsigned long *mask) {
    FAIL_IF_SET(index_of(device));
    char cores[LONG];
    text("cores", index_of(device), "0", cores, sizeof cores);
    for (unsigned int word = 0; word < words; word++)
        mask[word] = 0;
    for (char *core = strtok(cores, ","); core; core = strtok(NULL, ","))
        if ((unsigned)atoi(core) / 64 < words)
            mask[atoi(core) / 64] |= 1UL << atoi(core) % 64;
    return SUCCESS;
}
