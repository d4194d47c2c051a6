/* The GPU device: how it is opened and closed, the implementation of operator_call, failures. One stream; see gpu.cuh.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/cuda/product.cuh"

void gpu_fail_as(struct gpu_device *device, enum status_code code, const char *operation, const char *what) {
    if (device->failure[0]) return;
    device->failure_code = code;
    snprintf(device->failure, sizeof device->failure, "%s failed in %s: %s", device->description, operation, what);
}

void gpu_fail(struct gpu_device *device, const char *operation, const char *what) {
    gpu_fail_as(device, STATUS_BUG, operation, what);
}

void gpu_fail_with(struct gpu_device *device, const char *operation, cudaError_t error) {
    gpu_fail_as(device, error == cudaErrorMemoryAllocation ? STATUS_MEMORY : STATUS_BUG, operation,
                cudaGetErrorString(error));
}

double *gpu_staging(struct gpu_device *gpu, size_t count) {
    if (count <= gpu->staged) return gpu->staging;
    cudaStreamSynchronize(gpu->stream); /* it may still copy from the old memory */
    cudaFreeHost(gpu->staging);
    gpu->staging = nullptr;
    gpu->staged = 0;
    cudaError_t error = cudaMallocHost((void **)&gpu->staging, count * sizeof *gpu->staging);
    if (error == cudaSuccess)
        gpu->staged = count;
    else
        gpu_fail_with(gpu, "memory for sums over ranks", error);
    return gpu->staging;
}

void gpu_sum_over_ranks(operator_call *c, const struct all_sum *all, double *sums, size_t count) {
    double *host = gpu_staging(c->gpu, count);
    if (!host) return; /* device_status reports it; peers that wait are notified when this process ends */
    if (c->is_ok()) c->check(cudaMemcpyAsync(host, sums, count * sizeof *sums, cudaMemcpyDeviceToHost, c->gpu->stream));
    if (c->is_ok()) c->check(cudaStreamSynchronize(c->gpu->stream));
    all->sum(all->user, host, count);
    if (c->is_ok()) c->check(cudaMemcpyAsync(sums, host, count * sizeof *sums, cudaMemcpyHostToDevice, c->gpu->stream));
}

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

operator_call::operator_call(struct device *device, const char *name)
    : gpu(gpu_of(device)), operation(name), start(gpu_of(device)->next_scratch), used(0) {
    check(cudaSetDevice(gpu->gpu));
    gpu_flush_values(gpu);
    gpu_merge_scratch(gpu);
}

operator_call::~operator_call() {
    for (int i = 0; i < used && is_ok(); i++)
        if (home[i]) read(home[i], own[i], home_bytes[i]);
    gpu->next_scratch = start;
}

void operator_call::check(cudaError_t error) {
    if (error != cudaSuccess) gpu_fail_with(gpu, operation, error);
}

void operator_call::read(void *to, const void *from, size_t bytes) {
    if (runs()) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, gpu->stream));
    if (runs()) check(cudaStreamSynchronize(gpu->stream));
}

__global__ static void add_parts(const double *parts, size_t count, double *total) {
    double sum = 0;
    for (size_t i = threadIdx.x; i < count; i += GPU_THREADS) sum += parts[i];
    sum = gpu_reduce(sum, gpu_add());
    if (threadIdx.x == 0) *total += sum;
}

/* [count]: at most GPU_PARTS, a few for a thread */
void operator_call::add_up(const double *parts, size_t count, double *total) {
    launch(add_parts, 1, GPU_THREADS, 0, parts, count, total);
}

/* In a test, operands may be in host memory. */
const void *operator_call::operand(const void *p, size_t bytes, bool is_read, bool is_written) {
    struct cudaPointerAttributes where = {};
    if (is_written) gpu_mark_written(gpu, p, bytes);
    if (!gpu->accepts_host_operands || !p || bytes == 0 || !is_ok()) return p;
    check(cudaPointerGetAttributes(&where, p));
    if (where.type == cudaMemoryTypeManaged || where.type == cudaMemoryTypeDevice) return p;
    if (used == GPU_OPERANDS) gpu_fail(gpu, operation, "too many operands");
    void *memory = gpu_scratch(gpu, operation, bytes);
    if (!is_ok()) return nullptr;
    if (is_read && runs()) check(cudaMemcpyAsync(memory, p, bytes, cudaMemcpyHostToDevice, gpu->stream));
    own[used] = memory;
    home[used] = is_written ? const_cast<void *>(p) : nullptr;
    home_bytes[used++] = bytes;
    return memory;
}

static void close(struct device *device) {
    struct gpu_device *gpu = gpu_of(device);
    cudaSetDevice(gpu->gpu);
    if (gpu->stream) cudaStreamSynchronize(gpu->stream);
    gpu_memory_close(gpu);
    cudaFree(gpu->workspace);
    gpu_products_close(gpu);
    gpu_convolutions_close(gpu);
    cudaFreeHost(gpu->staging);
    if (gpu->blas) cublasLtDestroy(gpu->blas);
    if (gpu->stream) cudaStreamDestroy(gpu->stream);
}

static status failed(cudaError_t error, const char *what) {
    return status_usage("train.device: cuda: %s: %s; check the output of nvidia-smi, or use device: cpu", what,
                        cudaGetErrorString(error));
}

/* "cuda:0 (NVIDIA H100 PCIe, bfloat16)" */
static void describe(struct gpu_device *gpu) {
    static const char *const names[] = {"", ", tf32", ", bfloat16", ", float16"};
    snprintf(gpu->description, sizeof gpu->description, "cuda:%d (%s%s)", gpu->gpu, gpu->name, names[gpu->precision]);
}

static status set_precision(struct device *device, enum precision precision) {
    struct gpu_device *gpu = gpu_of(device);
    gpu->precision = precision;
    gpu->parameters.copy.source = nullptr;
    describe(gpu);
    return OK;
}

/* A driver without support for this module's PTX, or a GPU for which the module has neither machine code nor PTX. */
static status no_code(const struct gpu_device *gpu, const struct cudaDeviceProp *properties, cudaError_t error) {
    return status_usage("train.device: cuda needs code for compute capability %d.%d of %s: %s; update the driver, or "
                        "build with -DDDPTRAIN_CUDA_ARCHITECTURES=%d%d, or use device: cpu",
                        properties->major, properties->minor, gpu->description, cudaGetErrorString(error),
                        properties->major, properties->minor);
}

/* Machine code that the driver compiled from PTX has the GPU's version, its PTX an older one. */
static status find_code(struct gpu_device *gpu, const struct cudaDeviceProp *properties) {
    struct cudaFuncAttributes found;
    cudaError_t error = cudaFuncGetAttributes(&found, (const void *)add_parts);
    if (error != cudaSuccess) return no_code(gpu, properties, error);
    if (found.binaryVersion == found.ptxVersion)
        snprintf(gpu->code, sizeof gpu->code, "sm_%d", found.binaryVersion);
    else
        snprintf(gpu->code, sizeof gpu->code, "PTX of compute_%d, compiled by the driver for sm_%d", found.ptxVersion,
                 found.binaryVersion);
    return OK;
}

static status open(struct gpu_device *gpu) {
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu->gpu);
    if (error != cudaSuccess) return failed(error, "the GPU cannot be queried");
    memcpy(gpu->name, properties.name, sizeof gpu->name);
    gpu->max_shared = properties.sharedMemPerBlockOptin;
    describe(gpu);
    const char *operands = getenv("DDPTRAIN_GPU_OPERANDS");
    gpu->accepts_host_operands = operands && strcmp(operands, "host") == 0;
    error = cudaSetDevice(gpu->gpu);
    if (error == cudaSuccess) TRY(find_code(gpu, &properties));
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking);
    gpu->base.stream = gpu->stream;
    if (error == cudaSuccess) error = cudaMalloc(&gpu->workspace, GPU_WORKSPACE);
    if (error == cudaSuccess) error = gpu_memory_open(gpu);
    if (error != cudaSuccess) return failed(error, "the GPU cannot be used");
    cublasStatus_t made = cublasLtCreate(&gpu->blas);
    if (made != CUBLAS_STATUS_SUCCESS)
        return status_usage("train.device: cuda: cuBLASLt cannot be used: %s", cublasLtGetStatusString(made));
    return OK;
}

/* Rows of 16 bits are then multiples of 16 bytes, as products require. */
static bool can_be_half(const struct device *device, size_t features) {
    return gpu_factor_size((const struct gpu_device *)device) == 2 && features % 8 == 0;
}

static struct image_ops image_ops() {
    struct image_ops ops = gpu_images;
    ops.max_pool_forward = gpu_poolings.max_pool_forward;
    ops.max_pool_backward = gpu_poolings.max_pool_backward;
    ops.max_pool_gather = gpu_poolings.max_pool_gather;
    ops.avg_pool_forward = gpu_poolings.avg_pool_forward;
    ops.avg_pool_backward = gpu_poolings.avg_pool_backward;
    ops.batch_norm_forward = gpu_batch_norms.batch_norm_forward;
    ops.batch_norm_recompute = gpu_batch_norms.batch_norm_recompute;
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
    ops.round_parameters = gpu_round_parameters;
    ops.losses = &gpu_losses;
    ops.optimizers = &gpu_optimizers;
    ops.image = &images;
    ops.convolution = &gpu_convolutions;
    ops.norm_layers = &gpu_norms;
    ops.sequence = &gpu_sequences;
    ops.recurrent = &gpu_recurrent;
    ops.shapes = &gpu_shapes;
    ops.gelu = &gpu_gelu;
    ops.formulas = &gpu_formulas;
    ops.can_be_half = can_be_half;
    return ops;
}

status gpu_device_create(int number, struct device **out) {
    static const struct device_ops ops = all_ops();
    struct gpu_device *gpu = (struct gpu_device *)calloc(1, sizeof *gpu);
    *out = nullptr;
    if (!gpu) return status_memory("the GPU's device");
    gpu->gpu = number;
    gpu->base.ops = &ops;
    gpu->base.description = gpu->description;
    gpu->base.code = gpu->code;
    gpu->base.close = close;
    gpu->base.set_precision = set_precision;
    gpu->base.memory = &gpu_memory;
    status s = open(gpu);
    if (s) {
        close(&gpu->base);
        free(gpu);
        return s;
    }
    *out = &gpu->base;
    return OK;
}
