/* Copies that overlap with operators: batches, on their own stream, and asynchronous downloads. */
#include <cstring>

#include "device/cuda/gpu.cuh"

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

static bool check(struct gpu_device *gpu, const char *operation, cudaError_t error) {
    if (error != cudaSuccess) gpu_fail_with(gpu, operation, error);
    return !gpu->failure[0];
}

static cudaError_t new_stream(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); }

static cudaError_t new_event(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDisableTiming); }

cudaError_t gpu_async_copies_open(struct gpu_device *gpu) {
    struct gpu_async_copies *b = &gpu->async;
    cudaError_t error = new_stream(&b->copies);
    if (error == cudaSuccess) error = new_event(&b->is_uploaded);
    if (error == cudaSuccess) error = new_event(&b->is_consumed);
    for (int i = 0; i < DEVICE_DOWNLOAD_SLOTS; i++) {
        struct gpu_download *a = &b->downloads[i];
        if (error == cudaSuccess) error = new_stream(&a->stream);
        if (error == cudaSuccess) error = new_event(&a->is_complete);
        if (error == cudaSuccess) error = cudaHostAlloc(&a->memory, DEVICE_DOWNLOAD_MAX, cudaHostAllocDefault);
    }
    return error;
}

void gpu_async_copies_close(struct gpu_device *gpu) {
    struct gpu_async_copies *b = &gpu->async;
    if (b->copies) cudaStreamDestroy(b->copies);
    if (b->is_uploaded) cudaEventDestroy(b->is_uploaded);
    if (b->is_consumed) cudaEventDestroy(b->is_consumed);
    for (int i = 0; i < DEVICE_DOWNLOAD_SLOTS; i++) {
        if (b->downloads[i].stream) cudaStreamDestroy(b->downloads[i].stream);
        if (b->downloads[i].is_complete) cudaEventDestroy(b->downloads[i].is_complete);
        cudaFreeHost(b->downloads[i].memory);
    }
}

/* ---- batches ---- */

#define SMALL (64u << 10) /* bytes of a batch that is copied without staging memory */

static const char operation[] = "the copy of a batch";

/* A small batch is copied to its place at once: nothing that could overlap takes as long as another copy. */
static void upload_small(struct gpu_device *gpu, const struct device_transfer *transfers, size_t count) {
    struct gpu_async_copies *b = &gpu->async;
    for (size_t i = 0; i < count; i++)
        if (transfers[i].bytes)
            check(gpu, operation,
                  cudaMemcpyAsync(transfers[i].to, transfers[i].from, transfers[i].bytes, cudaMemcpyHostToDevice,
                                  gpu->stream));
    check(gpu, operation, cudaEventRecord(b->is_uploaded, gpu->stream));
}

/* The copies wait until the previous batch has left the staging memory, not for the operators that use it. */
void gpu_upload_async(struct device *device, const struct device_transfer *transfers, size_t count) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_async_copies *b = &gpu->async;
    cudaSetDevice(gpu->gpu);
    if (gpu->is_dry_run || gpu->failure[0]) return;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += transfers[i].bytes;
    if (bytes <= SMALL) {
        upload_small(gpu, transfers, count);
        return;
    }
    if (!check(gpu, operation, cudaStreamWaitEvent(b->copies, b->is_consumed, 0))) return;
    for (size_t i = 0; i < count; i++)
        if (transfers[i].bytes)
            check(gpu, operation,
                  cudaMemcpyAsync(transfers[i].staging, transfers[i].from, transfers[i].bytes, cudaMemcpyHostToDevice,
                                  b->copies));
    check(gpu, operation, cudaEventRecord(b->is_uploaded, b->copies));
    check(gpu, operation, cudaStreamWaitEvent(gpu->stream, b->is_uploaded, 0));
    for (size_t i = 0; i < count && !gpu->failure[0]; i++)
        if (transfers[i].bytes)
            check(gpu, operation,
                  cudaMemcpyAsync(transfers[i].to, transfers[i].staging, transfers[i].bytes, cudaMemcpyDeviceToDevice,
                                  gpu->stream));
    check(gpu, operation, cudaEventRecord(b->is_consumed, gpu->stream));
}

status gpu_upload_wait(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, operation, cudaEventSynchronize(gpu->async.is_uploaded));
    return device_status(device);
}

/* If pinning is not allowed, copies go through memory of the driver. */
void gpu_pin(struct device *device, void *memory, size_t bytes) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
}

void gpu_unpin(struct device *device, void *memory) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError(); /* waits for its copies */
}

/* ---- downloads ---- */

void gpu_download_begin(struct device *device, int slot, const void *from, size_t bytes) {
    static const char operation[] = "a copy to the host";
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_download *a = &gpu->async.downloads[slot];
    cudaSetDevice(gpu->gpu);
    gpu_flush_values(gpu);
    if (gpu->failure[0]) return;
    check(gpu, operation, cudaMemcpyAsync(a->memory, from, bytes, cudaMemcpyDeviceToHost, gpu->stream));
    check(gpu, operation, cudaEventRecord(a->is_complete, gpu->stream));
    check(gpu, operation, cudaStreamWaitEvent(a->stream, a->is_complete, 0));
}

status gpu_download_end(struct device *device, int slot, void *to, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_download *a = &gpu->async.downloads[slot];
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, "an operator", cudaStreamSynchronize(a->stream));
    TRY(device_status(device));
    memcpy(to, a->memory, bytes);
    return OK;
}

void *gpu_download_stream(const struct device *device, int slot) {
    return gpu_of(device)->async.downloads[slot].stream;
}
