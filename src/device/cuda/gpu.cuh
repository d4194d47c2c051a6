/* A GPU device, and how an operator is written: as a `call`, which makes sure that its operands are where the GPU sees
 * them, runs lambdas over elements or rows, and waits for the end.
 *
 * First step: memory is managed (host and GPU see the same addresses) and each operator waits until it is done, so that
 * initialisation, checkpoints, the reducer and logging work as on the CPU. What replaces it: memory of the GPU alone,
 * events between the streams, and the whole step as a graph.
 *
 * Every sum is taken in an order that follows from the sizes alone; there are no atomics. */
#ifndef DEVICE_CUDA_GPU_CUH
#define DEVICE_CUDA_GPU_CUH

#include <cublasLt.h>
#include <cuda_runtime.h>

extern "C" {
#include "base/philox.h"
#include "device/internal.h"
#include "device/math.h"
}

#define GPU_OPERANDS 12
#define GPU_THREADS 256           /* of a block; a power of two */
#define GPU_PARTS 256             /* most blocks of a sum */
#define GPU_WORKSPACE (32u << 20) /* bytes for cuBLASLt */

struct gpu_plans; /* product.cuh */

/* The 16-bit copy of a matrix that the next operator may use again. */
struct gpu_copy {
    const float *of; /* NULL: none */
    size_t rows, columns;
    uint64_t call; /* the operator that made it */
    void *memory;
    size_t bytes; /* of memory */
};

struct gpu_device {
    struct device base;
    int gpu;
    char name[256];
    char description[320];
    char failure[512]; /* what went wrong first; "": nothing */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* (GPU_WORKSPACE), on the GPU */
    struct gpu_plans *plans;
    enum precision precision; /* of products */
    struct gpu_copy copy;
    uint64_t calls;             /* operators so far; whatever else writes to memory of the device counts, too */
    void *memory[GPU_OPERANDS]; /* on the GPU, for operands that lie in memory of the host, and for partial results */
    size_t bytes[GPU_OPERANDS];
    double *staging; /* of the host, which the GPU copies from and to directly */
    size_t staged;   /* doubles */
};

/* Bytes of an element of what products read: 4, or 2. */
static inline size_t gpu_factor_size(const struct gpu_device *gpu) {
    return gpu->precision == PRECISION_BFLOAT16 || gpu->precision == PRECISION_FLOAT16 ? 2 : 4;
}

status gpu_device_create(int gpu, struct device **out);

/* Remembers the first failure of the device. */
void gpu_fail(struct gpu_device *device, const char *operation, const char *what);

/* Memory of the host for [count] doubles on their way to it or from it, until the next call; NULL after a failure. */
double *gpu_staging(struct gpu_device *device, size_t count);

extern const struct optimizer_ops gpu_optimizers;
extern const struct loss_ops gpu_losses;
extern const struct norm_ops gpu_norms;
/* Each has the operators of one file; the rest is NULL. */
extern const struct image_ops gpu_images, gpu_poolings, gpu_batch_norms, gpu_group_norms;
extern const struct sequence_ops gpu_sequences;
void gpu_linear_forward(struct device *, const float *x, const float *w, const float *bias, bool has_relu, float *y,
                        size_t rows, size_t in, size_t out);
void gpu_linear_backward_input(struct device *, const float *dy, const float *w, float *dx, size_t rows, size_t in,
                               size_t out);
void gpu_linear_backward_weight(struct device *, const float *dy, const float *x, float *dw, float *dbias, size_t rows,
                                size_t in, size_t out);
void gpu_attention_forward(struct device *, const struct attention_shape *, const float *qkv, float *y,
                           float *log_sums);
void gpu_attention_backward(struct device *, const struct attention_shape *, const float *qkv, const float *y,
                            const float *log_sums, const float *dy, float *dqkv);
extern const struct device_ops gpu_elementwise; /* add to copy of struct device_ops; the rest is 0 */

#define GPU_SHARED (48u << 10) /* bytes of dynamic shared memory that a kernel gets without asking */

/* Starts [kernel] on a stream with [shared] bytes of dynamic shared memory: all kernels are started here. */
template <typename... Parameters, typename... Arguments>
cudaError_t gpu_launch_on(cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                          Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaError_t error = cudaSuccess;
    if (shared > GPU_SHARED)
        error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return error == cudaSuccess ? cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...) : error;
}

/* The same on the device's stream. */
template <typename... Parameters, typename... Arguments>
cudaError_t gpu_launch(struct gpu_device *gpu, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                       Arguments... arguments) {
    return gpu_launch_on(gpu->stream, kernel, grid, block, shared, arguments...);
}

/* A block's dynamic shared memory, aligned to 128 bytes. */
template <typename T> __device__ T *gpu_shared() {
#ifdef __CUDACC__
    extern __shared__ __align__(128) unsigned char gpu_shared_bytes[];
    return (T *)gpu_shared_bytes;
#else
    return (T *)emulated_shared_bytes();
#endif
}

/* One thread per element. */
template <typename F> __global__ void gpu_each(size_t count, F f) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) f(i);
}

/* One block per row. */
template <typename F> __global__ void gpu_rows(F f) { f((size_t)blockIdx.x); }

/* The block's values by [op], pair by pair in a fixed tree; all threads get the result. */
template <typename T, typename Op> __device__ T gpu_reduce(T value, Op op) {
    __shared__ T values[GPU_THREADS];
    unsigned own = threadIdx.x;
    values[own] = value;
    __syncthreads();
    for (unsigned half = GPU_THREADS / 2; half > 0; half /= 2) {
        if (own < half) values[own] = op(values[own], values[own + half]);
        __syncthreads();
    }
    T result = values[0];
    __syncthreads();
    return result;
}

struct gpu_add {
    template <typename T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct gpu_max {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};
struct gpu_min {
    __device__ size_t operator()(size_t a, size_t b) const { return a < b ? a : b; }
};

template <typename F> __global__ void gpu_sums(size_t count, F f, double *parts) {
    double sum = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) sum += (double)f(i);
    sum = gpu_reduce(sum, gpu_add());
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/* An operator while it runs. After a failure nothing runs any more: device_status tells. */
class call {
  public:
    call(struct device *device, const char *operation);
    ~call(); /* waits, and brings results to the host that belong there */
    call(const call &) = delete;
    call &operator=(const call &) = delete;

    /* The operand's address on the GPU, NULL for NULL: [count] elements that are read, written, or both. */
    template <typename T> const T *in(const T *p, size_t count) {
        return (const T *)operand(p, count * sizeof(T), true, false);
    }
    template <typename T> T *out(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), false, true); }
    template <typename T> T *inout(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), true, true); }
    /* Memory of the GPU until the call ends. */
    template <typename T> T *scratch(size_t count) { return (T *)take(count * sizeof(T)); }

    bool is_ok() const { return gpu->failure[0] == 0; }
    void check(cudaError_t error);

    template <typename F> void each(size_t count, F f) {
        size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS, most = (size_t)1 << 30;
        if (count > 0) launch(gpu_each<F>, (unsigned)(blocks < most ? blocks : most), GPU_THREADS, 0, count, f);
    }

    template <typename F> void rows(size_t count, F f) { /* below 2^31 */
        if (count > 0) launch(gpu_rows<F>, (unsigned)count, GPU_THREADS, 0, f);
    }

    /* A kernel of its own, see gpu_launch. */
    template <typename... Parameters, typename... Arguments>
    void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, Arguments... arguments) {
        if (is_ok()) check(gpu_launch(gpu, kernel, grid, block, shared, arguments...));
    }

    /* Waits for the sum of f(i) over [0, count). */
    template <typename F> double sum(size_t count, F f) {
        double parts[GPU_PARTS], total = 0;
        size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS;
        double *on_gpu = scratch<double>(GPU_PARTS);
        if (count == 0 || !is_ok()) return 0;
        if (blocks > GPU_PARTS) blocks = GPU_PARTS;
        launch(gpu_sums<F>, (unsigned)blocks, GPU_THREADS, 0, count, f, on_gpu);
        to_host(parts, on_gpu, blocks * sizeof *parts);
        for (size_t i = 0; i < blocks && is_ok(); i++) total += parts[i];
        return total;
    }

    struct gpu_device *gpu;

  private:
    const void *operand(const void *p, size_t bytes, bool is_read, bool is_written);
    void *take(size_t bytes);
    void to_host(void *to, const void *from, size_t bytes);

    const char *operation;
    int used;                 /* of gpu->memory */
    void *home[GPU_OPERANDS]; /* where memory[i] goes at the end; NULL: nowhere */
    size_t home_bytes[GPU_OPERANDS];
};

#endif
