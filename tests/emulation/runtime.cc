/* The emulated GPU: its settings (from the environment), errors, and the operations of a stream that copy bytes or
 * start a kernel. */
#include <cstdarg>
#include <string>
#include <unistd.h>

#include "emulation.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"

namespace emulation {

cudaError_t sticky = cudaSuccess;

namespace {

cudaError_t last_error = cudaSuccess;
std::map<std::string, long> calls; /* of the operations that can fail */
std::map<const void *, size_t> shared_allowed;
thread_local int current_device;

long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtol(value, nullptr, 10) : otherwise;
}

/* The number of GPUs, limited to those in CUDA_VISIBLE_DEVICES if it is set. */
int visible_gpus() {
    long gpus = number("DDPTRAIN_EMULATED_GPUS", 1), named = 0;
    const char *list = getenv(VISIBLE);
    if (!list) return (int)gpus;
    for (const char *p = list; *p; p = *p ? p + 1 : p) {
        char *end;
        long gpu = strtol(p, &end, 10);
        if (end == p || gpu < 0 || gpu >= gpus) break;
        named++;
        p = end;
        if (!*p) break;
    }
    return (int)named;
}

} // namespace

int physical(int device) {
    const char *list = getenv(VISIBLE);
    for (int i = 0; list && i < device && strchr(list, ','); i++) list = strchr(list, ',') + 1;
    return list ? atoi(list) : device;
}

namespace {

/* Writes the counts of the process as JSON to the file DDPTRAIN_EMULATED_COUNTS, which is whole at any time: that of
 * the last of several processes. */
void write_counts() {
    const char *path = getenv("DDPTRAIN_EMULATED_COUNTS");
    std::string own = std::string(path ? path : "") + "." + std::to_string(getpid());
    FILE *file = path && allocations_made ? fopen(own.c_str(), "w") : nullptr;
    if (!file) return;
    fprintf(file,
            "{\"peak_bytes\": %zu, \"pinned_bytes\": %zu, \"allocations\": %ld, \"late_allocations\": %ld, "
            "\"idle_waits\": %ld, \"graphs\": "
            "%ld, \"memsets\": %ld, \"copies\": %ld, \"products\": %ld, "
            "\"kernels\": {",
            max_used(), max_pinned(), allocations_made, late_allocations, idle_waits, graphs_launched, memsets_done,
            copies_done, products_done);
    const char *comma = "";
    for (const auto &[name, count] : kernels_run) {
        fprintf(file, "%s\n\"%s\": %ld", comma, name.c_str(), count);
        comma = ",";
    }
    fprintf(file, "}}\n");
    if (fclose(file) == 0) rename(own.c_str(), path);
}

enum settings::order order_of(const char *word) {
    if (word && strcmp(word, "reverse") == 0) return settings::REVERSE;
    return word && strcmp(word, "shuffled") == 0 ? settings::SHUFFLED : settings::FORWARD;
}

settings read_settings() {
    settings s = {};
    atexit(write_counts);
    s.gpus = visible_gpus();
    s.driver = (int)number("DDPTRAIN_EMULATED_DRIVER", CUDART_VERSION);
    s.capability = (int)number("DDPTRAIN_EMULATED_CAPABILITY", 90);
    s.memory = (size_t)number("DDPTRAIN_EMULATED_MIB", 2048) << 20;
    s.refusal_ms = (unsigned)number("DDPTRAIN_EMULATED_REFUSAL_MS", 0);
    s.has_epilogues = number("DDPTRAIN_EMULATED_EPILOGUES", 1) != 0;
    s.has_half = number("DDPTRAIN_EMULATED_HALF", 1) != 0;
    const char *streams = getenv("DDPTRAIN_EMULATED_STREAMS"), *threads = getenv("DDPTRAIN_EMULATED_THREADS");
    s.streams = streams && strcmp(streams, "random") == 0 ? settings::RANDOM : settings::LATE;
    s.threads = order_of(threads);
    s.blocks = order_of(getenv("DDPTRAIN_EMULATED_BLOCKS"));
    s.seed = (unsigned)number("DDPTRAIN_EMULATED_SEED", 1);
    const char *fails = getenv("DDPTRAIN_EMULATED_FAIL"); /* "kernel:12" */
    if (fails) sscanf(fails, "%31[a-z]:%ld", s.fails, &s.fails_at);
    return s;
}

const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion",
     "the provided PTX was compiled with an unsupported toolchain."},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capture sequence contains work which was not joined to the primary stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

size_t error_index(cudaError_t error) {
    size_t i = 0, last = sizeof errors / sizeof *errors - 1;
    while (i < last && errors[i].error != error) i++;
    return i;
}

} // namespace

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "\nemulated GPU: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

long idle_waits, allocations_made, late_allocations, kernels_started, graphs_launched, memsets_done, copies_done,
    products_done;
std::map<std::string, long> kernels_run;

const settings &get_settings() {
    static const settings s = read_settings();
    return s;
}

bool is_to_fail(const char *what) {
    const settings &s = get_settings();
    return s.fails_at && strcmp(s.fails, what) == 0 && ++calls[what] == s.fails_at;
}

namespace {

/* Whether a copy of [kind] is allowed between these kinds of memory. */
bool is_possible(cudaMemcpyKind kind, place to, place from) {
    bool to_gpu = to == DEVICE || to == MANAGED, to_host = to != DEVICE;
    bool from_gpu = from == DEVICE || from == MANAGED, from_host = from != DEVICE;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return to_host && from_host;
    case cudaMemcpyHostToDevice:
        return to_gpu && from_host;
    case cudaMemcpyDeviceToHost:
        return to_host && from_gpu;
    case cudaMemcpyDeviceToDevice:
        return to_gpu && from_gpu;
    case cudaMemcpyDefault:
        break;
    }
    return true;
}

/* rows of [width] bytes; [pitch] bytes from one row to the next */
struct rectangle {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
};

void copy_rows(const rectangle &r) {
    for (size_t i = 0; i < r.height; i++) memmove(r.to + i * r.to_pitch, r.from + i * r.from_pitch, r.width);
}

/* Pageable host memory is read and written before the call returns; pinned memory later. */
cudaError_t copy(rectangle r, cudaMemcpyKind kind, cudaStream_t stream) {
    if (sticky != cudaSuccess || r.width == 0 || r.height == 0) return sticky;
    if (is_to_fail("copy")) return result(cudaErrorInvalidValue);
    place to = place_of(r.to, (r.height - 1) * r.to_pitch + r.width, "a copy's target");
    place from = place_of(r.from, (r.height - 1) * r.from_pitch + r.width, "a copy's source");
    if (!is_possible(kind, to, from)) die("a copy of kind %d from %d to %d", kind, from, to);
    if ((to == PAGEABLE || from == PAGEABLE) && is_capturing(stream)) die("a copy of pageable host memory in a graph");
    if (from != PAGEABLE) {
        cudaError_t error = enqueue(stream, [r]() {
            copy_rows(r);
            copies_done++;
        });
        return error == cudaSuccess && to == PAGEABLE ? cudaStreamSynchronize(stream) : error;
    }
    auto staged = std::make_shared<std::vector<unsigned char>>(r.width * r.height);
    rectangle in = {staged->data(), r.from, r.width, r.from_pitch, r.width, r.height};
    copy_rows(in);
    return enqueue(stream, [r, staged]() {
        copy_rows({r.to, staged->data(), r.to_pitch, r.width, r.width, r.height});
        copies_done++;
    });
}

} // namespace
} // namespace emulation

using namespace emulation;

const char *cudaGetErrorName(cudaError_t error) { return errors[error_index(error)].name; }
const char *cudaGetErrorString(cudaError_t error) { return errors[error_index(error)].text; }

cudaError_t cudaGetLastError() {
    guard g(lock);
    cudaError_t error = sticky != cudaSuccess ? sticky : last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return sticky != cudaSuccess ? sticky : last_error; }

cudaError_t cudaDriverGetVersion(int *version) {
    *version = get_settings().driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    const settings &s = get_settings();
    if (s.driver < CUDART_VERSION) return result(cudaErrorInsufficientDriver);
    if (s.gpus == 0) return result(cudaErrorNoDevice);
    *count = s.gpus;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= get_settings().gpus) return result(cudaErrorInvalidDevice);
    current_device = device;
    return sticky;
}

cudaError_t cudaSetDeviceFlags(unsigned) { return sticky; }

cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    const settings &s = get_settings();
    if (device < 0 || device >= s.gpus) return result(cudaErrorInvalidDevice);
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "Emulated GPU");
    properties->uuid.bytes[0] = (char)(physical(device) + 1);
    properties->totalGlobalMem = s.memory;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = max_shared();
    properties->major = s.capability / 10;
    properties->minor = s.capability % 10;
    properties->multiProcessorCount = 4;
    properties->concurrentManagedAccess = 1;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->l2CacheSize = 1 << 20;
    properties->pciBusID = physical(device) + 1;
    properties->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess) return error;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrConcurrentManagedAccess:
        *value = p.concurrentManagedAccess;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *name, int size, int device) {
    snprintf(name, (size_t)size, "0000:%02X:00.0", physical(device) + 1);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    guard g(lock);
    return copy({(unsigned char *)to, (const unsigned char *)from, bytes, bytes, bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    guard g(lock);
    return copy({(unsigned char *)to, (const unsigned char *)from, to_pitch, from_pitch, width, height}, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    guard g(lock);
    if (bytes == 0) return sticky;
    if (place_of(to, bytes, "cudaMemset") == PAGEABLE) die("cudaMemset of host memory");
    return enqueue(stream, [to, value, bytes]() {
        memset(to, value, bytes);
        memsets_done++;
    });
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

/* CUDA's programming guide, "Compute Capabilities" */
size_t emulation::max_shared() {
    switch (get_settings().capability) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    default:
        return 227 << 10;
    }
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    guard g(lock);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > max_shared()) return result(cudaErrorInvalidValue);
    shared_allowed[kernel] = (size_t)value;
    return cudaSuccess;
}

/* DDPTRAIN_EMULATED_CODE: the compute capabilities of machine code and PTX, "80,90"; PTX is of the last. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *) {
    guard g(lock);
    int own = get_settings().capability, ptx = 0, best = 0;
    const char *list = getenv("DDPTRAIN_EMULATED_CODE");
    if (is_to_fail("code")) return result(cudaErrorUnsupportedPtxVersion);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
        ptx = atoi(at);
        if (ptx / 10 == own / 10 && ptx <= own) best = ptx;
    }
    if (!list) best = ptx = own;
    if (!best && ptx > own) return result(cudaErrorNoKernelImageForDevice);
    *attributes = best ? cudaFuncAttributes{best, best} : cudaFuncAttributes{ptx, own};
    return cudaSuccess;
}

cudaError_t emulated_launch(const cudaLaunchConfig_t *config, const void *kernel, const char *name,
                            std::function<void()> thread) {
    guard g(lock);
    dim3 grid = config->gridDim, block = config->blockDim;
    auto allowed = shared_allowed.find(kernel);
    bool has_attribute = allowed != shared_allowed.end();
    size_t limit = has_attribute ? std::max(allowed->second, (size_t)48 << 10) : (size_t)48 << 10;
    if (sticky != cudaSuccess) return sticky;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return result(cudaErrorInvalidConfiguration);
    if (block.x == 0 || block.y == 0 || block.z == 0 || block.z > 64 || (size_t)block.x * block.y * block.z > 1024)
        return result(cudaErrorInvalidConfiguration);
    if (config->dynamicSmemBytes > limit) return result(cudaErrorInvalidValue);
    kernels_started++;
    auto l =
        std::make_shared<launch>(launch{grid, block, config->dynamicSmemBytes, has_attribute, name, std::move(thread)});
    return enqueue(config->stream, [l]() {
        if (is_to_fail("kernel"))
            sticky = cudaErrorLaunchFailure;
        else
            run_kernel(*l);
    });
}
