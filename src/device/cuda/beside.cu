/* What crosses while operators run: batches, copied on a stream of their own, and answers that are awaited later. */
#include <cstring>

#include "device/cuda/gpu.cuh"

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

static bool check(struct gpu_device *gpu, const char *operation, cudaError_t error) {
    if (error != cudaSuccess) gpu_fail(gpu, operation, cudaGetErrorString(error));
    return !gpu->failure[0];
}

static cudaError_t new_stream(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); }

static cudaError_t new_event(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDisableTiming); }

cudaError_t gpu_beside_open(struct gpu_device *gpu) {
    struct gpu_beside *b = &gpu->beside;
    cudaError_t error = new_stream(&b->copies);
    if (error == cudaSuccess) error = new_event(&b->is_there);
    if (error == cudaSuccess) error = new_event(&b->is_taken);
    for (int i = 0; i < DEVICE_SLOTS; i++) {
        struct gpu_answer *a = &b->answers[i];
        if (error == cudaSuccess) error = new_stream(&a->stream);
        if (error == cudaSuccess) error = new_event(&a->is_known);
        if (error == cudaSuccess) error = cudaHostAlloc(&a->memory, DEVICE_LATER, cudaHostAllocDefault);
    }
    return error;
}

void gpu_beside_close(struct gpu_device *gpu) {
    struct gpu_beside *b = &gpu->beside;
    if (b->copies) cudaStreamDestroy(b->copies);
    if (b->is_there) cudaEventDestroy(b->is_there);
    if (b->is_taken) cudaEventDestroy(b->is_taken);
    for (int i = 0; i < DEVICE_SLOTS; i++) {
        if (b->answers[i].stream) cudaStreamDestroy(b->answers[i].stream);
        if (b->answers[i].is_known) cudaEventDestroy(b->answers[i].is_known);
        cudaFreeHost(b->answers[i].memory);
    }
}

/* ---- batches ---- */

/* The copies wait until the batch before was taken, not for what is done with it. */
void gpu_upload_beside(struct device *device, const struct device_piece *pieces, size_t count) {
    static const char operation[] = "the copy of a batch";
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_beside *b = &gpu->beside;
    cudaSetDevice(gpu->gpu);
    gpu->calls++;
    if (gpu->is_rehearsing) return;
    if (gpu->failure[0] || !check(gpu, operation, cudaStreamWaitEvent(b->copies, b->is_taken, 0))) return;
    for (size_t i = 0; i < count; i++)
        if (pieces[i].bytes)
            check(
                gpu, operation,
                cudaMemcpyAsync(pieces[i].beside, pieces[i].from, pieces[i].bytes, cudaMemcpyHostToDevice, b->copies));
    check(gpu, operation, cudaEventRecord(b->is_there, b->copies));
    check(gpu, operation, cudaStreamWaitEvent(gpu->stream, b->is_there, 0));
    for (size_t i = 0; i < count && !gpu->failure[0]; i++)
        if (pieces[i].bytes)
            check(gpu, operation,
                  cudaMemcpyAsync(pieces[i].to, pieces[i].beside, pieces[i].bytes, cudaMemcpyDeviceToDevice,
                                  gpu->stream));
    check(gpu, operation, cudaEventRecord(b->is_taken, gpu->stream));
}

status gpu_upload_wait(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, "the copy of a batch", cudaEventSynchronize(gpu->beside.is_there));
    return device_status(device);
}

/* Where it is refused, copies go by way of memory of the driver. */
void gpu_pin(struct device *device, void *memory, size_t bytes) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
}

void gpu_unpin(struct device *device, void *memory) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError(); /* waits for its copies */
}

/* ---- answers ---- */

void gpu_download_later(struct device *device, int slot, const void *from, size_t bytes) {
    static const char operation[] = "a copy to the host";
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_answer *a = &gpu->beside.answers[slot];
    cudaSetDevice(gpu->gpu);
    if (gpu->failure[0]) return;
    check(gpu, operation, cudaMemcpyAsync(a->memory, from, bytes, cudaMemcpyDeviceToHost, gpu->stream));
    check(gpu, operation, cudaEventRecord(a->is_known, gpu->stream));
    check(gpu, operation, cudaStreamWaitEvent(a->stream, a->is_known, 0));
}

status gpu_download_end(struct device *device, int slot, void *to, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_answer *a = &gpu->beside.answers[slot];
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, "an operator", cudaStreamSynchronize(a->stream));
    TRY(device_status(device));
    memcpy(to, a->memory, bytes);
    return OK;
}

void *gpu_download_stream(const struct device *device, int slot) { return gpu_of(device)->beside.answers[slot].stream; }
