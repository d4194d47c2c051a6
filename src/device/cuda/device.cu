/* The GPU device: memory, operands, failures. One stream; see gpu.cuh. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/cuda/product.cuh"

#define MIB ((size_t)1 << 20)

void gpu_fail(struct gpu_device *device, const char *operation, const char *what) {
    if (!device->failure[0])
        snprintf(device->failure, sizeof device->failure, "%s failed in %s: %s", device->description, operation, what);
}

double *gpu_staging(struct gpu_device *gpu, size_t count) {
    if (count <= gpu->staged) return gpu->staging;
    cudaFreeHost(gpu->staging);
    gpu->staging = nullptr;
    gpu->staged = 0;
    cudaError_t error = cudaMallocHost((void **)&gpu->staging, count * sizeof *gpu->staging);
    if (error == cudaSuccess)
        gpu->staged = count;
    else
        gpu_fail(gpu, "memory for sums over processes", cudaGetErrorString(error));
    return gpu->staging;
}

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

call::call(struct device *device, const char *name) : gpu(gpu_of(device)), operation(name), used(0) {
    gpu->calls++;
    check(cudaSetDevice(gpu->gpu));
}

call::~call() {
    for (int i = 0; i < used && is_ok(); i++)
        if (home[i])
            check(cudaMemcpyAsync(home[i], gpu->memory[i], home_bytes[i], cudaMemcpyDeviceToHost, gpu->stream));
    if (is_ok()) check(cudaStreamSynchronize(gpu->stream));
}

void call::check(cudaError_t error) {
    if (error != cudaSuccess) gpu_fail(gpu, operation, cudaGetErrorString(error));
}

void call::to_host(void *to, const void *from, size_t bytes) {
    if (is_ok()) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, gpu->stream));
    if (is_ok()) check(cudaStreamSynchronize(gpu->stream));
}

/* The next piece of the device's own memory, made larger when it must; the call before has ended. */
void *call::take(size_t bytes) {
    if (used == GPU_OPERANDS) gpu_fail(gpu, operation, "too many operands");
    if (!is_ok()) return nullptr;
    int i = used++;
    home[i] = nullptr;
    if (bytes > gpu->bytes[i]) {
        check(cudaFree(gpu->memory[i]));
        gpu->memory[i] = nullptr;
        gpu->bytes[i] = 0;
        if (is_ok()) check(cudaMalloc(&gpu->memory[i], bytes));
        if (is_ok()) gpu->bytes[i] = bytes;
    }
    return gpu->memory[i];
}

const void *call::operand(const void *p, size_t bytes, bool is_read, bool is_written) {
    struct cudaPointerAttributes where = {};
    if (!p || bytes == 0 || !is_ok()) return p;
    check(cudaPointerGetAttributes(&where, p));
    if (where.type == cudaMemoryTypeManaged || where.type == cudaMemoryTypeDevice) return p;
    void *own = take(bytes);
    if (own && is_read) check(cudaMemcpyAsync(own, p, bytes, cudaMemcpyHostToDevice, gpu->stream));
    if (own && is_written) {
        home[used - 1] = const_cast<void *>(p);
        home_bytes[used - 1] = bytes;
    }
    return own;
}

static status failed(cudaError_t error, const char *what) {
    return status_new(STATUS_USAGE, "train.device: cuda: %s: %s; look at what nvidia-smi says, or use device: cpu",
                      what, cudaGetErrorString(error));
}

static status alloc(struct device *device, size_t bytes, const char *what, void **out) {
    struct gpu_device *gpu = gpu_of(device);
    size_t free_bytes = 0, all_bytes = 0;
    void *memory = nullptr;
    *out = nullptr;
    cudaError_t error = cudaSetDevice(gpu->gpu);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &all_bytes);
    if (error != cudaSuccess) return failed(error, what);
    if (bytes > free_bytes) /* managed memory could be more, and would crawl */
        return status_new(STATUS_USAGE, "%s: %zu MiB of memory are needed, and %s has %zu MiB of %zu MiB left", what,
                          bytes / MIB, gpu->description, free_bytes / MIB, all_bytes / MIB);
    if (bytes == 0) bytes = 1;
    error = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
    struct cudaMemLocation here = {};
    here.type = cudaMemLocationTypeDevice;
    here.id = gpu->gpu;
    if (error == cudaSuccess) error = cudaMemPrefetchAsync(memory, bytes, here, 0, gpu->stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, bytes, gpu->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(gpu->stream);
    if (error != cudaSuccess) {
        cudaFree(memory);
        return failed(error, what);
    }
    *out = memory;
    return OK;
}

static void release(struct device *device, void *memory) {
    cudaSetDevice(gpu_of(device)->gpu);
    cudaFree(memory);
}

static status state(const struct device *device) {
    const struct gpu_device *gpu = gpu_of(device);
    return gpu->failure[0] ? status_new(STATUS_BUG, "%s", gpu->failure) : OK;
}

static void at_end(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    for (int i = 0; i < GPU_OPERANDS; i++) cudaFree(gpu->memory[i]);
    cudaFree(gpu->workspace);
    gpu_products_close(gpu);
    cudaFreeHost(gpu->staging);
    if (gpu->blas) cublasLtDestroy(gpu->blas);
    if (gpu->stream) cudaStreamDestroy(gpu->stream);
}

/* "cuda:0 (NVIDIA H100 PCIe, bfloat16)" */
static void describe(struct gpu_device *gpu) {
    static const char *const names[] = {"", ", tf32", ", bfloat16", ", float16"};
    snprintf(gpu->description, sizeof gpu->description, "cuda:%d (%s%s)", gpu->gpu, gpu->name, names[gpu->precision]);
}

static status set_precision(struct device *device, enum precision precision) {
    struct gpu_device *gpu = gpu_of(device);
    gpu->precision = precision;
    describe(gpu);
    return OK;
}

static status open(struct gpu_device *gpu) {
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu->gpu);
    if (error != cudaSuccess) return failed(error, "the GPU cannot be asked");
    memcpy(gpu->name, properties.name, sizeof gpu->name);
    describe(gpu);
    if (properties.major < 8)
        return status_new(STATUS_USAGE,
                          "train.device: cuda needs compute capability 8.0 or higher, and %s has %d.%d: "
                          "use device: cpu",
                          gpu->description, properties.major, properties.minor);
    if (!properties.concurrentManagedAccess)
        return status_new(STATUS_USAGE,
                          "train.device: cuda needs a GPU and driver that share memory with the host while "
                          "they compute, which %s does not: use device: cpu",
                          gpu->description);
    error = cudaSetDevice(gpu->gpu);
    if (error == cudaSuccess) error = cudaStreamCreate(&gpu->stream);
    gpu->base.stream = gpu->stream;
    if (error == cudaSuccess) error = cudaMalloc(&gpu->workspace, GPU_WORKSPACE);
    if (error != cudaSuccess) return failed(error, "the GPU cannot be used");
    cublasStatus_t made = cublasLtCreate(&gpu->blas);
    if (made != CUBLAS_STATUS_SUCCESS)
        return status_new(STATUS_USAGE, "train.device: cuda: cuBLASLt cannot be used: %s",
                          cublasLtGetStatusString(made));
    return OK;
}

static struct image_ops image_ops() {
    struct image_ops ops = gpu_images;
    ops.max_pool_forward = gpu_poolings.max_pool_forward;
    ops.max_pool_backward = gpu_poolings.max_pool_backward;
    ops.avg_pool_forward = gpu_poolings.avg_pool_forward;
    ops.avg_pool_backward = gpu_poolings.avg_pool_backward;
    ops.batch_norm_forward = gpu_batch_norms.batch_norm_forward;
    ops.batch_norm_again = gpu_batch_norms.batch_norm_again;
    ops.batch_norm_backward = gpu_batch_norms.batch_norm_backward;
    ops.group_norm_forward = gpu_group_norms.group_norm_forward;
    ops.group_norm_backward = gpu_group_norms.group_norm_backward;
    return ops;
}

static struct device_ops all_ops() {
    static const struct image_ops images = image_ops();
    struct device_ops ops = gpu_elementwise;
    ops.linear_forward = gpu_linear_forward;
    ops.linear_backward_input = gpu_linear_backward_input;
    ops.linear_backward_weight = gpu_linear_backward_weight;
    ops.losses = &gpu_losses;
    ops.optimizers = &gpu_optimizers;
    ops.image = &images;
    ops.norm_layers = &gpu_norms;
    ops.sequence = &gpu_sequences;
    return ops;
}

status gpu_device_create(int number, struct device **out) {
    static const struct device_ops ops = all_ops();
    struct gpu_device *gpu = (struct gpu_device *)calloc(1, sizeof *gpu);
    *out = nullptr;
    if (!gpu) return status_new(STATUS_BUG, "out of memory");
    gpu->gpu = number;
    gpu->base.ops = &ops;
    gpu->base.description = gpu->description;
    gpu->base.at_end = at_end;
    gpu->base.set_precision = set_precision;
    gpu->base.alloc = alloc;
    gpu->base.release = release;
    gpu->base.state = state;
    status s = open(gpu);
    if (s) {
        at_end(&gpu->base);
        free(gpu);
        return s;
    }
    *out = &gpu->base;
    return OK;
}
