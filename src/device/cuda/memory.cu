/* Memory of a GPU: arrays with their copies on the host, scratch memory of operators, constants, copies between host
 * and GPU, and recordings, which hold addresses of it. A dry run determines what operators need; it is allocated then,
 * and nothing later. */
#include <cstdlib>
#include <cstring>

#include "device/cuda/gpu.cuh"

extern "C" {
#include "base/buffer.h"
}

#define MIB ((size_t)1 << 20)
#define LINE 256        /* bytes: what cudaMalloc aligns to */
#define PIECE (8 * MIB) /* maximum bytes of one copy, and of a half of the pinned buffer */

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

static bool has_failed(const struct gpu_device *gpu) { return gpu->failure[0] != 0; }

static bool is_inactive(const struct gpu_device *gpu) { return has_failed(gpu) || gpu->is_dry_run; }

static bool check(struct gpu_device *gpu, const char *operation, cudaError_t error) {
    if (error != cudaSuccess) gpu_fail_with(gpu, operation, error);
    return !gpu->failure[0];
}

static void mark_written(struct device *device, const void *memory, size_t bytes) {
    gpu_mark_written(gpu_of(device), memory, bytes);
}

/* ---- arrays ---- */

static status failed(cudaError_t error, const char *what) {
    if (error == cudaErrorMemoryAllocation) return status_memory("%s on the GPU", what);
    return status_usage("train.device: cuda: %s: %s; check the output of nvidia-smi, or use device: cpu", what,
                        cudaGetErrorString(error));
}

static status info(struct device *device, size_t *left, size_t *all) {
    cudaError_t error = cudaSetDevice(gpu_of(device)->gpu);
    if (error == cudaSuccess) error = cudaMemGetInfo(left, all);
    return error == cudaSuccess ? OK : failed(error, "its memory cannot be queried");
}

static size_t used(const struct device *device) {
    const struct gpu_device *gpu = gpu_of(device);
    size_t bytes = GPU_WORKSPACE + gpu->parameters.copy.bytes;
    for (size_t i = 0; i < gpu->array_count; i++) bytes += gpu->arrays[i].bytes;
    for (size_t i = 0; i < gpu->constant_count; i++) bytes += gpu->constants[i].memory_bytes;
    for (int i = 0; i < gpu->chunk_count; i++) bytes += gpu->chunks[i].bytes;
    return bytes;
}

static status alloc(struct device *device, size_t bytes, const char *what, void **out) {
    struct gpu_device *gpu = gpu_of(device);
    size_t free_bytes = 0, all_bytes = 0;
    void *memory = nullptr;
    *out = nullptr;
    TRY(info(device, &free_bytes, &all_bytes));
    if (bytes > free_bytes)
        return status_memory("%s: %zu MiB are needed, and %s has %zu MiB of %zu MiB free", what, bytes / MIB,
                             gpu->description, free_bytes / MIB, all_bytes / MIB);
    if (bytes == 0) bytes = 1;
    struct gpu_array *arrays = (struct gpu_array *)realloc(gpu->arrays, (gpu->array_count + 1) * sizeof *gpu->arrays);
    if (!arrays) return status_memory("the list of the GPU's arrays");
    gpu->arrays = arrays;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, bytes, gpu->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(gpu->stream);
    if (error != cudaSuccess) {
        cudaFree(memory);
        return failed(error, what);
    }
    arrays[gpu->array_count++] = {memory, nullptr, bytes, 0, false};
    *out = memory;
    return OK;
}

/* By its address on the GPU or, while it is mapped, by the address of its copy on the host. */
static struct gpu_array *find(struct gpu_device *gpu, const void *address) {
    for (size_t i = 0; i < gpu->array_count; i++)
        if (gpu->arrays[i].memory == address || gpu->arrays[i].view == address) return &gpu->arrays[i];
    return nullptr;
}

static void release(struct device *device, void *memory) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_array *array = find(gpu, memory);
    cudaSetDevice(gpu->gpu);
    if (!array) return;
    if (gpu->parameters.copy.source == memory) gpu->parameters.copy.source = nullptr;
    gpu_flush_values(gpu);
    cudaFree(array->memory); /* waits for its users */
    buffer_free(array->view);
    *array = gpu->arrays[--gpu->array_count];
}

static status state(const struct device *device) {
    const struct gpu_device *gpu = gpu_of(device);
    return has_failed(gpu) ? status_new(gpu->failure_code, "%s", gpu->failure) : OK;
}

static status wait(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    gpu_flush_values(gpu);
    if (!has_failed(gpu)) check(gpu, "an operator", cudaStreamSynchronize(gpu->stream));
    return state(device);
}

/* ---- copies through the pinned buffer ---- */

/* Allocates both halves again, of at least [bytes]; waits for pending reads of the old ones. */
static cudaError_t allocate_pinned_buffer(struct gpu_device *gpu, size_t bytes) {
    struct gpu_pinned_buffer *s = &gpu->pinned_buffer;
    cudaError_t error = cudaStreamSynchronize(gpu->stream);
    if (s->memory) cudaFreeHost(s->memory);
    s->memory = nullptr;
    s->half = s->at = 0;
    s->current = 0;
    if (error == cudaSuccess) error = cudaHostAlloc((void **)&s->memory, 2 * bytes, cudaHostAllocDefault);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        if (!s->is_copied[i]) error = cudaEventCreateWithFlags(&s->is_copied[i], cudaEventDisableTiming);
    if (error == cudaSuccess) s->half = bytes;
    return error;
}

/* Switches to the other half, once the copies from it are complete. */
static cudaError_t switch_half(struct gpu_device *gpu) {
    struct gpu_pinned_buffer *s = &gpu->pinned_buffer;
    cudaError_t error = cudaEventRecord(s->is_copied[s->current], gpu->stream);
    s->current = 1 - s->current;
    s->at = 0;
    return error == cudaSuccess ? cudaEventSynchronize(s->is_copied[s->current]) : error;
}

__global__ static void put_values(struct gpu_values v) {
    for (unsigned i = 0; i < v.count; i++)
        if (threadIdx.x < v.values[i].words) v.values[i].to[threadIdx.x] = v.data[v.values[i].at + threadIdx.x];
}

void gpu_flush_values(struct gpu_device *gpu) {
    struct gpu_values *v = &gpu->values;
    if (v->count == 0) return;
    if (!is_inactive(gpu))
        check(gpu, "a copy from the host",
              gpu_launch_on(gpu->stream, put_values, 1, GPU_VALUE_BYTES / sizeof(uint32_t), 0, *v));
    v->count = v->used = 0;
}

/* Keeps a small upload for gpu_flush_values; false: it must be copied. A later one to the same address is written by
 * the same threads, or by a later kernel. */
static bool keep_value(struct gpu_device *gpu, void *to, const void *from, size_t bytes) {
    struct gpu_values *v = &gpu->values;
    size_t words = bytes / sizeof(uint32_t);
    if (bytes > GPU_VALUE_BYTES || bytes % sizeof(uint32_t) || (uintptr_t)to % sizeof(uint32_t) || gpu->is_recording)
        return false;
    bool overlaps = false;
    for (unsigned i = 0; i < v->count; i++) {
        const uint32_t *begin = v->values[i].to, *end = begin + v->values[i].words;
        overlaps = overlaps || ((const uint32_t *)to < end && begin < (const uint32_t *)to + words);
    }
    if (overlaps || v->count == GPU_VALUES || v->used + words > GPU_VALUES_BYTES / sizeof(uint32_t))
        gpu_flush_values(gpu);
    v->values[v->count++] = {(uint32_t *)to, v->used, (unsigned)words};
    memcpy(v->data + v->used, from, bytes);
    v->used += (unsigned)words;
    return true;
}

static void upload_piece(struct gpu_device *gpu, void *to, const void *from, size_t bytes) {
    struct gpu_pinned_buffer *s = &gpu->pinned_buffer;
    if (has_failed(gpu)) return;
    cudaError_t error = cudaSuccess;
    if (bytes > s->half)
        error = allocate_pinned_buffer(gpu, rounded(bytes, MIB));
    else if (s->at + bytes > s->half)
        error = switch_half(gpu);
    if (error == cudaSuccess) {
        char *here = s->memory + (size_t)s->current * s->half + s->at;
        memcpy(here, from, bytes);
        s->at += rounded(bytes, LINE);
        if (s->at > s->half) s->at = s->half;
        error = cudaMemcpyAsync(to, here, bytes, cudaMemcpyHostToDevice, gpu->stream);
    }
    check(gpu, "a copy from the host", error);
}

static void upload_pieces(struct gpu_device *gpu, void *to, const void *from, size_t bytes) {
    gpu_flush_values(gpu);
    for (size_t at = 0; at < bytes; at += PIECE)
        upload_piece(gpu, (char *)to + at, (const char *)from + at, bytes - at < PIECE ? bytes - at : PIECE);
}

/* Starts the copy of a piece to half [i]. */
static void download_piece(struct gpu_device *gpu, int i, const void *from, size_t bytes) {
    struct gpu_pinned_buffer *s = &gpu->pinned_buffer;
    cudaError_t error =
        cudaMemcpyAsync(s->memory + (size_t)i * s->half, from, bytes, cudaMemcpyDeviceToHost, gpu->stream);
    if (error == cudaSuccess) error = cudaEventRecord(s->is_copied[i], gpu->stream);
    check(gpu, "a copy to the host", error);
}

/* Copies to host memory that is not pinned, and waits. One half is copied from the GPU while the host copies the other
 * one; uploads that still read the halves are earlier in the stream. */
static void download_pieces(struct gpu_device *gpu, void *to, const void *from, size_t bytes) {
    gpu_flush_values(gpu);
    struct gpu_pinned_buffer *s = &gpu->pinned_buffer;
    size_t piece = bytes < PIECE ? bytes : PIECE;
    if (!has_failed(gpu) && piece > s->half)
        check(gpu, "a copy to the host", allocate_pinned_buffer(gpu, rounded(piece, MIB)));
    for (size_t at = 0; at < bytes + piece && !has_failed(gpu); at += piece) {
        int i = (int)(at / piece % 2);
        if (at < bytes) download_piece(gpu, i, (const char *)from + at, bytes - at < piece ? bytes - at : piece);
        if (at == 0 || has_failed(gpu)) continue;
        size_t last = at - piece, left = bytes - last;
        check(gpu, "a copy to the host", cudaEventSynchronize(s->is_copied[1 - i]));
        memcpy((char *)to + last, s->memory + (size_t)(1 - i) * s->half, left < piece ? left : piece);
    }
    s->at = 0;
}

/* ---- arrays in host memory ---- */

static status not_an_array(const struct gpu_device *gpu) {
    return status_new(STATUS_BUG, "%s: the address is not that of an array of this device", gpu->description);
}

static status map(struct device *device, void **address) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_array *array = find(gpu, *address);
    if (!array) return not_an_array(gpu);
    cudaSetDevice(gpu->gpu);
    if (!array->view) TRY(buffer_new(array->bytes, "a copy of the GPU's memory", &array->view));
    if (array->map_count++ == 0) {
        array->has_changed = false;
        download_pieces(gpu, array->view, array->memory, array->bytes);
    }
    *address = array->view;
    return wait(device);
}

static status unmap(struct device *device, void **address, bool has_changed) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_array *array = find(gpu, *address);
    if (!array || array->map_count == 0) return not_an_array(gpu);
    array->has_changed |= has_changed;
    if (--array->map_count > 0) return OK;
    *address = array->memory;
    if (!array->has_changed) return OK;
    cudaSetDevice(gpu->gpu);
    mark_written(device, array->memory, array->bytes);
    upload_pieces(gpu, array->memory, array->view, array->bytes);
    return wait(device);
}

/* ---- copies of any memory ---- */

static void upload(struct device *device, void *to, const void *from, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    mark_written(device, to, bytes);
    if (!gpu->is_dry_run && !keep_value(gpu, to, from, bytes)) upload_pieces(gpu, to, from, bytes);
}

static status download(struct device *device, void *to, const void *from, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    if (bytes > GPU_READBACK) {
        download_pieces(gpu, to, from, bytes);
        return wait(device);
    }
    gpu_flush_values(gpu);
    if (!has_failed(gpu))
        check(gpu, "a copy to the host",
              cudaMemcpyAsync(gpu->readback, from, bytes, cudaMemcpyDeviceToHost, gpu->stream));
    TRY(wait(device));
    memcpy(to, gpu->readback, bytes);
    return OK;
}

static void zero(struct device *device, void *memory, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    mark_written(device, memory, bytes);
    gpu_flush_values(gpu);
    if (!is_inactive(gpu)) check(gpu, "zeros", cudaMemsetAsync(memory, 0, bytes, gpu->stream));
}

/* ---- scratch memory, constants ---- */

static void add_chunk(struct gpu_device *gpu, const char *operation, size_t bytes) {
    struct gpu_chunk *chunk = &gpu->chunks[gpu->chunk_count];
    if (gpu->is_recording) gpu_fail(gpu, operation, "it needs more memory than in the dry run");
    if (has_failed(gpu)) return;
    if (gpu->chunk_count == GPU_CHUNKS) {
        gpu_fail(gpu, operation, "too many pieces of scratch memory");
        return;
    }
    chunk->bytes = rounded(bytes, MIB);
    check(gpu, operation, cudaMalloc((void **)&chunk->memory, chunk->bytes));
    if (!has_failed(gpu)) gpu->chunk_count++;
}

/* In a dry run an address that is not used, with the same alignment. */
void *gpu_scratch(struct gpu_device *gpu, const char *operation, size_t bytes) {
    struct gpu_scratch_mark *p = &gpu->next_scratch;
    bytes = rounded(bytes ? bytes : 1, LINE);
    if (gpu->is_dry_run) {
        p->at += bytes;
        if (p->at > gpu->needed) gpu->needed = p->at;
        return (void *)(MIB + p->at - bytes);
    }
    while (p->chunk < gpu->chunk_count && gpu->chunks[p->chunk].bytes - p->at < bytes) *p = {p->chunk + 1, 0};
    if (!has_failed(gpu) && p->chunk == gpu->chunk_count) add_chunk(gpu, operation, bytes);
    if (has_failed(gpu)) return nullptr;
    void *memory = gpu->chunks[p->chunk].memory + p->at;
    p->at += bytes;
    return memory;
}

static size_t scratch_bytes(const struct gpu_device *gpu) {
    size_t bytes = 0;
    for (int i = 0; i < gpu->chunk_count; i++) bytes += gpu->chunks[i].bytes;
    return bytes;
}

/* Allocates all of it again, in one chunk. */
static void allocate_scratch(struct gpu_device *gpu, size_t bytes) {
    for (int i = 0; i < gpu->chunk_count; i++) cudaFree(gpu->chunks[i].memory); /* waits for its users */
    gpu->chunk_count = 0;
    gpu->moves++;
    add_chunk(gpu, "scratch memory", bytes);
}

void gpu_merge_scratch(struct gpu_device *gpu) {
    if (gpu->is_recording || gpu->is_dry_run || gpu->chunk_count < 2) return;
    if (gpu->next_scratch.chunk == 0 && gpu->next_scratch.at == 0) allocate_scratch(gpu, scratch_bytes(gpu));
}

static void dry_run_begin(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    gpu->is_dry_run = true;
    gpu->needed = 0;
}

/* The 16-bit copy of the parameters is invalid: nothing has written it. */
static status dry_run_end(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    gpu->is_dry_run = false;
    gpu->parameters.copy.source = nullptr;
    gpu->parameters.is_current = false;
    if (gpu->needed > 0 && (gpu->chunk_count > 1 || scratch_bytes(gpu) < gpu->needed))
        allocate_scratch(gpu, gpu->needed);
    return state(device);
}

static const void *add_constant(struct gpu_device *gpu, const char *operation, const void *p, size_t bytes,
                                gpu_make *make) {
    if (gpu->is_recording) gpu_fail(gpu, operation, "it needs a constant that the dry run did not need");
    if (has_failed(gpu)) return nullptr;
    struct gpu_constant *all =
        (struct gpu_constant *)realloc(gpu->constants, (gpu->constant_count + 1) * sizeof *gpu->constants);
    if (all) gpu->constants = all;
    struct gpu_constant c = {p, make, malloc(bytes), nullptr, bytes, bytes};
    void *converted = make ? make(p, bytes, &c.memory_bytes) : c.copy;
    if (!all || !c.copy || !converted) {
        if (make) free(converted);
        free(c.copy);
        gpu_fail_as(gpu, STATUS_MEMORY, operation, "out of memory");
        return nullptr;
    }
    memcpy(c.copy, p, bytes);
    check(gpu, operation, cudaMalloc(&c.memory, c.memory_bytes));
    if (!has_failed(gpu)) /* on the stream of its readers: other streams do not wait for it */
        check(gpu, operation,
              cudaMemcpyAsync(c.memory, converted, c.memory_bytes, cudaMemcpyHostToDevice, gpu->stream));
    if (!has_failed(gpu)) check(gpu, operation, cudaStreamSynchronize(gpu->stream));
    if (make) free(converted);
    gpu->constants[gpu->constant_count++] = c;
    return has_failed(gpu) ? nullptr : c.memory;
}

const void *gpu_constant(struct gpu_device *gpu, const char *operation, const void *p, size_t bytes, gpu_make *make) {
    if (!p || bytes == 0 || has_failed(gpu)) return nullptr;
    for (size_t i = 0; i < gpu->constant_count; i++) {
        const struct gpu_constant *c = &gpu->constants[i];
        if (c->source == p && c->make == make && c->bytes == bytes && memcmp(c->copy, p, bytes) == 0) return c->memory;
    }
    return add_constant(gpu, operation, p, bytes, make);
}

/* ---- copies that overlap with operators ---- */

static cudaError_t new_stream(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); }

static cudaError_t new_event(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDisableTiming); }

static cudaError_t open_copies(struct gpu_device *gpu) {
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

static void close_copies(struct gpu_device *gpu) {
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

/* ---- copies of batches ---- */

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
static void upload_async(struct device *device, const struct device_transfer *transfers, size_t count) {
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

static status upload_wait(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, operation, cudaEventSynchronize(gpu->async.is_uploaded));
    return device_status(device);
}

/* If pinning is not allowed, copies go through memory of the driver. */
static void pin(struct device *device, void *memory, size_t bytes) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
}

static void unpin(struct device *device, void *memory) {
    cudaSetDevice(gpu_of(device)->gpu);
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError(); /* waits for its copies */
}

/* ---- downloads ---- */

static void download_begin(struct device *device, int slot, const void *from, size_t bytes) {
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

static status download_end(struct device *device, int slot, void *to, size_t bytes) {
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_download *a = &gpu->async.downloads[slot];
    cudaSetDevice(gpu->gpu);
    if (!gpu->failure[0]) check(gpu, "an operator", cudaStreamSynchronize(a->stream));
    TRY(device_status(device));
    memcpy(to, a->memory, bytes);
    return OK;
}

static void *download_stream(const struct device *device, int slot) {
    return gpu_of(device)->async.downloads[slot].stream;
}

/* ---- recordings: CUDA graphs, captured from the stream while operators are enqueued once ---- */

struct device_recording {
    cudaGraphExec_t work;
    uint64_t moves;                   /* gpu->moves when it was recorded */
    struct gpu_parameters parameters; /* the copy that it requires, and its state afterwards */
};

/* Saves the state of the parameters' copy: the recording must not depend on whether it is current now. */
static void save_parameters(struct gpu_device *gpu) {
    gpu->parameters_before = gpu->parameters;
    gpu->parameters.copy.source = nullptr;
    gpu->parameters.is_current = false;
    gpu->parameters.required = nullptr;
}

/* A failure during capture has no effects, because nothing ran. */
static status cancel(struct gpu_device *gpu) {
    status why = status_new(gpu->failure_code, "%s", gpu->failure);
    gpu->failure[0] = 0;
    cudaGetLastError();
    return why;
}

static uint64_t moves(const struct device *device) { return gpu_of(device)->moves; }

static status record_begin(struct device *device, status *why) {
    struct gpu_device *gpu = gpu_of(device);
    *why = OK;
    TRY(device_status(device));
    check(gpu, "a CUDA graph", cudaSetDevice(gpu->gpu));
    gpu_flush_values(gpu);
    check(gpu, "a CUDA graph", cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    gpu->is_recording = gpu->failure[0] == 0;
    if (gpu->is_recording)
        save_parameters(gpu);
    else
        *why = cancel(gpu);
    return OK;
}

static struct device_recording *create(struct gpu_device *gpu, cudaGraph_t graph) {
    struct device_recording *recording = (struct device_recording *)calloc(1, sizeof *recording);
    if (!recording) {
        gpu_fail_as(gpu, STATUS_MEMORY, "a CUDA graph", "out of memory");
        return nullptr;
    }
    recording->moves = gpu->moves;
    recording->parameters = gpu->parameters;
    /* the NCCL part keeps the priority of its stream */
    check(gpu, "a CUDA graph", cudaGraphInstantiate(&recording->work, graph, cudaGraphInstantiateFlagUseNodePriority));
    if (!gpu->failure[0]) return recording;
    free(recording);
    return nullptr;
}

static status record_end(struct device *device, struct device_recording **out, status *why) {
    struct gpu_device *gpu = gpu_of(device);
    cudaGraph_t graph = nullptr;
    *out = nullptr;
    *why = OK;
    gpu->is_recording = false;
    check(gpu, "a CUDA graph", cudaStreamEndCapture(gpu->stream, &graph));
    if (!gpu->failure[0]) *out = create(gpu, graph);
    gpu->parameters = gpu->parameters_before;
    if (graph) cudaGraphDestroy(graph);
    if (!*out) *why = cancel(gpu);
    return OK;
}

static bool replay(struct device *device, const struct device_recording *recording) {
    struct gpu_device *gpu = gpu_of(device);
    if (recording->moves != gpu->moves) return false;
    cudaSetDevice(gpu->gpu);
    gpu_parameters_refresh(gpu, &recording->parameters);
    gpu_flush_values(gpu);
    if (recording->moves != gpu->moves) return false;
    if (!gpu->failure[0]) check(gpu, "a CUDA graph", cudaGraphLaunch(recording->work, gpu->stream));
    gpu->parameters = recording->parameters;
    gpu->parameters.copy.version = ++gpu->versions;
    return true;
}

static void recording_destroy(struct device *device, struct device_recording *recording) {
    cudaSetDevice(gpu_of(device)->gpu);
    cudaGraphExecDestroy(recording->work);
    free(recording);
}

/* ---- opening and closing ---- */

cudaError_t gpu_memory_open(struct gpu_device *gpu) {
    cudaError_t error = cudaHostAlloc(&gpu->readback, GPU_READBACK, cudaHostAllocDefault);
    if (error == cudaSuccess) error = allocate_pinned_buffer(gpu, MIB);
    return error == cudaSuccess ? open_copies(gpu) : error;
}

void gpu_memory_close(struct gpu_device *gpu) {
    close_copies(gpu);
    for (int i = 0; i < gpu->chunk_count; i++) cudaFree(gpu->chunks[i].memory);
    for (size_t i = 0; i < gpu->constant_count; i++) {
        cudaFree(gpu->constants[i].memory);
        free(gpu->constants[i].copy);
    }
    for (size_t i = 0; i < gpu->array_count; i++) {
        cudaFree(gpu->arrays[i].memory);
        buffer_free(gpu->arrays[i].view);
    }
    for (int i = 0; i < 2; i++)
        if (gpu->pinned_buffer.is_copied[i]) cudaEventDestroy(gpu->pinned_buffer.is_copied[i]);
    cudaFreeHost(gpu->pinned_buffer.memory);
    cudaFreeHost(gpu->readback);
    free(gpu->constants);
    free(gpu->arrays);
}

const struct memory_ops gpu_memory = {.alloc = alloc,
                                      .release = release,
                                      .info = info,
                                      .used = used,
                                      .map = map,
                                      .unmap = unmap,
                                      .upload = upload,
                                      .download = download,
                                      .zero = zero,
                                      .mark_written = mark_written,
                                      .upload_async = upload_async,
                                      .upload_wait = upload_wait,
                                      .pin = pin,
                                      .unpin = unpin,
                                      .download_begin = download_begin,
                                      .download_end = download_end,
                                      .download_stream = download_stream,
                                      .state = state,
                                      .wait = wait,
                                      .dry_run_begin = dry_run_begin,
                                      .dry_run_end = dry_run_end,
                                      .moves = moves,
                                      .record_begin = record_begin,
                                      .record_end = record_end,
                                      .replay = replay,
                                      .recording_destroy = recording_destroy};
