/* A GPU device, and the class `operator_call` for operators: it runs lambdas over elements, rows or sums on the
 * device's stream without waiting for them. Operands are addresses of GPU memory (memory.cu); nothing here reads a
 * result on the host, unless its name says so.
 *
 * Every sum is computed in an order that follows from the sizes alone; there are no atomics. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "device/cuda/shared.cuh"
#include "device/cuda/tensor_core.cuh"

extern "C" {
#include "base/bits.h"
#include "base/numbers/rng.h"
#include "device/internal.h"
#include "device/math.h"
}

/* ---- operands in GPU memory, float32 or 16 bits: how kernels read and write them ---- */

/* Largest power of two that divides an address, up to 256. */
static inline uint32_t alignment(const void *p) {
    uintptr_t lowest = (uintptr_t)p & -(uintptr_t)p;
    return lowest == 0 || lowest > 256 ? 256 : (uint32_t)lowest;
}

/* Converts two numbers to 16 bits each, the first in the lower bits, rounded as base/bits.h does; the payload of a
 * NaN may differ. */
__device__ static inline uint32_t gpu_to_half(bool is_bfloat16, float low, float high) {
    return is_bfloat16 ? bfloat16_factors::pair(low, high) : float16_factors::pair(low, high);
}

__device__ static inline uint16_t gpu_to_half(bool is_bfloat16, float x) {
    return (uint16_t)gpu_to_half(is_bfloat16, x, 0);
}

/* Converts back to float32. */
__device__ static inline float gpu_from_half(bool is_bfloat16, uint16_t bits) {
    return is_bfloat16 ? bits_from_bfloat16(bits) : float16_factors::widen(bits);
}

enum gpu_format { GPU_FLOAT32, GPU_BFLOAT16, GPU_FLOAT16 };

/* V adjacent numbers of one thread (V is 1 or 4): as floats, and as stored in memory. */
template <int V> struct gpu_several { float at[V]; };
template <int V> struct gpu_fetched { uint4 bits; };
template <> struct gpu_fetched<1> { uint32_t bits; };

/* An operand that is read. */
struct gpu_numbers {
    const void *at; /* NULL: none */
    enum gpu_format form;
    struct half_copy *copy; /* for products, on the host; NULL: none */

    bool is_half() const { return form != GPU_FLOAT32; }
    /* of float32 */
    const float *floats() const { return (const float *)at; }
    /* Whether four() may be used. */
    bool has_fours() const { return alignment(at) >= (is_half() ? sizeof(uint2) : sizeof(float4)); }

    __device__ float one(size_t i) const {
        if (form == GPU_FLOAT32) return ((const float *)at)[i];
        return gpu_from_half(form == GPU_BFLOAT16, ((const uint16_t *)at)[i]);
    }
    /* Numbers i to i + 3, i a multiple of 4, as stored in memory, so that several loads are in flight; a conversion
     * to float4 would wait for each. */
    __device__ uint4 fetch(size_t i) const {
        if (form == GPU_FLOAT32) return *(const uint4 *)((const float *)at + i);
        uint2 v = *(const uint2 *)((const uint16_t *)at + i);
        return {v.x, v.y, 0, 0};
    }
    __device__ float4 widen(uint4 v) const {
        if (form == GPU_FLOAT32)
            return {bits_to_float(v.x), bits_to_float(v.y), bits_to_float(v.z), bits_to_float(v.w)};
        if (form == GPU_BFLOAT16)
            return {bits_to_float(v.x << 16), bits_to_float(v.x & 0xffff0000u), bits_to_float(v.y << 16),
                    bits_to_float(v.y & 0xffff0000u)};
        return {gpu_from_half(false, (uint16_t)v.x), gpu_from_half(false, (uint16_t)(v.x >> 16)),
                gpu_from_half(false, (uint16_t)v.y), gpu_from_half(false, (uint16_t)(v.y >> 16))};
    }
    __device__ float4 four(size_t i) const { return widen(fetch(i)); }
    /* The same of V numbers, 1 or 4. */
    template <int V> __device__ gpu_fetched<V> fetch_some(size_t i) const {
        if constexpr (V == 4)
            return {fetch(i)};
        else
            return {form == GPU_FLOAT32 ? ((const uint32_t *)at)[i] : ((const uint16_t *)at)[i]};
    }
    template <int V> __device__ gpu_several<V> some(struct gpu_fetched<V> v) const {
        if constexpr (V == 4) {
            float4 f = widen(v.bits);
            return {{f.x, f.y, f.z, f.w}};
        } else {
            return {
                {form == GPU_FLOAT32 ? bits_to_float(v.bits) : gpu_from_half(form == GPU_BFLOAT16, (uint16_t)v.bits)}};
        }
    }
    template <int V> __device__ gpu_several<V> some_at(size_t i) const { return some<V>(fetch_some<V>(i)); }
    /* Those from number i on. */
    __device__ struct gpu_numbers from(size_t i) const {
        return {form == GPU_FLOAT32 ? (const void *)((const float *)at + i) : (const uint16_t *)at + i, form, nullptr};
    }
};

/* The 16-bit result of an operator, or the copy of its result, for elements of y (count). */
struct gpu_half_output {
    uint16_t *to; /* NULL: not written */
    bool is_bfloat16;

    __device__ void put(size_t i, float y) const {
        if (to) to[i] = gpu_to_half(is_bfloat16, y);
    }
    /* Elements i to i + 3, i a multiple of 4. */
    __device__ void put(size_t i, float4 y) const {
        if (to) *(uint2 *)(to + i) = of(y);
    }
    __device__ uint2 of(float4 y) const {
        return {gpu_to_half(is_bfloat16, y.x, y.y), gpu_to_half(is_bfloat16, y.z, y.w)};
    }
};

/* An operand that is written: in float32, in 16 bits, or in float32 with its copy for products (struct half_copy). */
struct gpu_result {
    float *to; /* NULL: in 16 bits only, or not at all */
    struct gpu_half_output half_output;
    struct half_copy *copy; /* of [to], for products, on the host; NULL: none */

    __host__ __device__ bool is_wanted() const { return to || half_output.to; }
    bool is_half() const { return !to && half_output.to; }
    bool has_fours() const { return alignment(to) >= sizeof(float4) && alignment(half_output.to) >= sizeof(uint2); }

    __device__ void put(size_t i, float y) const {
        if (to) to[i] = y;
        half_output.put(i, y);
    }
    /* Elements i to i + 3, i a multiple of 4. */
    __device__ void put(size_t i, float4 y) const {
        if (to) *(float4 *)(to + i) = y;
        half_output.put(i, y);
    }
    __device__ void put(size_t i, struct gpu_several<1> y) const { put(i, y.at[0]); }
    __device__ void put(size_t i, struct gpu_several<4> y) const { put(i, float4{y.at[0], y.at[1], y.at[2], y.at[3]}); }
    /* Those from element i on. */
    __device__ struct gpu_result from(size_t i) const {
        return {
            to ? to + i : nullptr, {half_output.to ? half_output.to + i : nullptr, half_output.is_bfloat16}, nullptr};
    }
};

/* ---- the device and its operators ---- */

#define GPU_OPERANDS 12
#define GPU_THREADS 256           /* of a block; a power of two */
#define GPU_PARTS 1024            /* maximum blocks of a sum */
#define GPU_AHEAD 4               /* numbers of a sum that a thread reads before it adds the first */
#define GPU_WORKSPACE (32u << 20) /* bytes for cuBLASLt */
#define GPU_CHUNKS 32
#define GPU_READBACK 4096 /* maximum bytes of a download without an intermediate copy */

struct gpu_plans;    /* product.cuh */
struct cudnn_module; /* cudnn/plans.h */
struct cudnn;

/* A 16-bit copy of weights for products: of all parameters, or of those of a convolution. */
struct gpu_copy {
    const float *source; /* (count), what was copied; NULL: nothing */
    size_t count;
    uint64_t version; /* gpu_device.versions when it was made */
    void *memory;
    size_t bytes; /* of memory */
};

/* The 16-bit copy of all parameters. Products use it without a check until the next gpu_round_parameters. */
struct gpu_parameters {
    struct gpu_copy copy; /* version: of the newest gpu_round_parameters */
    bool is_current; /* the copy equals the parameters: nothing has changed them since, or an update has written both */
    const float *required; /* while recording, (required_count): parameters whose copy must be current at its start;
                              NULL: none */
    size_t required_count;
};

/* Scratch memory: each operator uses it from the start. A dry run (device_dry_run_begin) determines the size; an
 * operator without a dry run lets it grow. */
struct gpu_chunk {
    char *memory;
    size_t bytes;
};
struct gpu_scratch_mark {
    int chunk;
    size_t at;
};

/* Memory returned by device_alloc. */
struct gpu_array {
    void *memory, *view; /* view: its copy in host memory that is not pinned, for device_map; NULL: never mapped */
    size_t bytes;
    int map_count; /* nested maps */
    bool has_changed;
};

/* Converts [bytes] at [p] to *converted_bytes bytes allocated by malloc; NULL: out of memory. */
typedef void *gpu_make(const void *p, size_t bytes, size_t *converted_bytes);

struct gpu_constant {
    const void *source;         /* in host memory */
    gpu_make *make;             /* NULL: memory is a copy of source */
    void *copy, *memory;        /* copy: on the host, to detect a change */
    size_t bytes, memory_bytes; /* bytes: of the copy */
};

/* Pinned host memory that the GPU copies from: two halves, one is filled while the other is read. */
struct gpu_pinned_buffer {
    char *memory;
    size_t half, at; /* bytes of a half; of the current one in use */
    int current;
    cudaEvent_t is_copied[2];
};

#define GPU_VALUES 8          /* small uploads at the same time */
#define GPU_VALUE_BYTES 256   /* of one */
#define GPU_VALUES_BYTES 1024 /* of all */

/* Small uploads that no operator has needed yet: one kernel writes all of them before the next work on the stream. */
struct gpu_values {
    unsigned count;
    struct {
        uint32_t *to;
        unsigned at, words; /* in [data] */
    } values[GPU_VALUES];
    unsigned used; /* words of data */
    uint32_t data[GPU_VALUES_BYTES / sizeof(uint32_t)];
};

/* Asynchronous copies (memory.cu). */
struct gpu_download {
    cudaStream_t stream; /* idle once the download is complete */
    cudaEvent_t is_complete;
    void *memory; /* (DEVICE_DOWNLOAD_MAX), pinned host memory */
};
struct gpu_async_copies {
    cudaStream_t copies; /* for uploads of batches to their staging memory */
    cudaEvent_t is_uploaded,
        is_consumed; /* the newest batch has arrived in staging memory; it has left staging memory */
    struct gpu_download downloads[DEVICE_DOWNLOAD_SLOTS];
};

struct gpu_device {
    struct device base;
    int gpu;
    char name[256];
    char description[320];
    char code[64];     /* device_code */
    size_t max_shared; /* bytes of shared memory that a block can have */
    char failure[512]; /* the first failure; "": none */
    enum status_code failure_code;
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* (GPU_WORKSPACE), on the GPU */
    struct gpu_plans *plans;
    enum precision precision;                            /* of products */
    struct gpu_parameters parameters, parameters_before; /* before: of the recording in progress */
    uint64_t versions; /* of the parameters so far: calls of gpu_round_parameters and replays */
    struct gpu_chunk chunks[GPU_CHUNKS];
    int chunk_count;
    struct gpu_scratch_mark next_scratch;
    bool is_dry_run;          /* operators only determine what they need: nothing is started or copied */
    size_t needed;            /* maximum bytes of scratch memory in a dry run so far */
    uint64_t moves;           /* number of times that memory kept by operators was moved */
    struct gpu_array *arrays; /* (array_count) */
    size_t array_count;
    struct gpu_constant *constants; /* (constant_count) */
    size_t constant_count;
    struct gpu_pinned_buffer pinned_buffer;
    struct gpu_values values;
    struct gpu_async_copies async;
    void *readback; /* (GPU_READBACK) bytes of pinned host memory */
    bool is_recording;
    bool accepts_host_operands; /* for tests of operators: operator_call::in and the like copy operands from host memory
                                 */
    size_t world_size;          /* of a loss that compares rows: gpu_contrastive_prepare; 0: none */
    double *staging;            /* pinned host memory: sums of a batch norm, rows of a loss */
    size_t staged;              /* doubles */
    const struct cudnn_module *cudnn_module; /* NULL until the first convolution */
    struct cudnn *cudnn;
};

/* Bytes of a factor of products: 4, or 2. */
static inline size_t gpu_factor_size(const struct gpu_device *gpu) {
    return gpu->precision == PRECISION_BFLOAT16 || gpu->precision == PRECISION_FLOAT16 ? 2 : 4;
}

/* The 16-bit format of its precision. */
static inline enum gpu_format gpu_half_format(const struct gpu_device *gpu) {
    return gpu->precision == PRECISION_BFLOAT16 ? GPU_BFLOAT16 : GPU_FLOAT16;
}

status gpu_device_create(int gpu, struct device **out);

extern const struct memory_ops gpu_memory;

/* ---- memory.cu ---- */

/* Allocates the buffers of device_alloc and other functions, and frees them. */
cudaError_t gpu_memory_open(struct gpu_device *gpu);
void gpu_memory_close(struct gpu_device *gpu);
/* Writes the small uploads that are not yet on the stream; before any other work on it. */
void gpu_flush_values(struct gpu_device *gpu);
/* [bytes] of scratch memory at gpu->next_scratch; NULL after a failure. */
void *gpu_scratch(struct gpu_device *gpu, const char *operation, size_t bytes);
/* Merges several chunks into one; at the start of an operator. */
void gpu_merge_scratch(struct gpu_device *gpu);
/* The copy on the GPU of host memory at [p], which never changes, or of what [make] makes of it; created once and
 * kept. */
const void *gpu_constant(struct gpu_device *gpu, const char *operation, const void *p, size_t bytes,
                         gpu_make *make = nullptr);

/* Stores the first failure of the device; with [error], STATUS_MEMORY where memory is missing, else STATUS_BUG. */
void gpu_fail_as(struct gpu_device *device, enum status_code code, const char *operation, const char *what);
void gpu_fail(struct gpu_device *device, const char *operation, const char *what);
void gpu_fail_with(struct gpu_device *device, const char *operation, cudaError_t error);

/* Pinned host memory for [count] doubles, until the next call; NULL after a failure. */
double *gpu_staging(struct gpu_device *device, size_t count);

extern const struct optimizer_ops gpu_optimizers;
extern const struct loss_ops gpu_losses;
extern const struct norm_ops gpu_norms;
/* Each has the operators of one file; the rest is NULL. */
extern const struct image_ops gpu_images, gpu_poolings, gpu_batch_norms, gpu_group_norms;
extern const struct sequence_ops gpu_sequences;
extern const struct recurrent_ops gpu_recurrent;
extern const struct shape_ops gpu_shapes;
extern const struct convolution_ops gpu_convolutions;
void gpu_convolutions_close(struct gpu_device *gpu);
extern const struct gelu_ops gpu_gelu;
extern const struct formula_ops gpu_formulas;
void gpu_linear_forward(struct device *, const struct tensor *x, const float *w, const float *bias, bool has_relu,
                        const struct tensor *y, size_t rows, size_t in, size_t out);
void gpu_linear_backward_input(struct device *, const struct tensor *dy, const float *w, const struct tensor *dx,
                               size_t rows, size_t in, size_t out);
void gpu_linear_backward_weight(struct device *, const struct tensor *dy, const struct tensor *x, float *dw,
                                float *dbias, size_t rows, size_t in, size_t out);
void gpu_cross_entropy(struct device *, const struct cross_entropy_options *, const struct tensor *logits,
                       const int64_t *targets, size_t positions, size_t classes, float scale,
                       const struct tensor *dlogits, struct loss_sums *sums);
void gpu_ctc(struct device *, const struct ctc_options *o, const float *log_probabilities, const int64_t *targets,
             size_t rows, float factor, float *dx, struct loss_sums *sums);
status gpu_ctc_prepare(struct device *, size_t rows, size_t steps, size_t classes, size_t target_size);
void gpu_contrastive(struct device *, const struct contrastive_options *o, const float *outputs, size_t rows,
                     float factor, float *doutputs, struct loss_sums *sums);
status gpu_contrastive_prepare(struct device *, size_t rows, size_t world_size, size_t size);
void gpu_embedding_backward(struct device *, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                            size_t vocabulary, size_t size);
void gpu_attention_forward(struct device *, const struct attention_shape *, const struct tensor *qkv,
                           const struct tensor *y, float *softmaxes);
void gpu_attention_backward(struct device *, const struct attention_shape *, const struct tensor *qkv,
                            const struct tensor *y, const float *softmaxes, const struct tensor *dy,
                            const struct tensor *dqkv);
void gpu_cross_attention_forward(struct device *, const struct attention_shape *, const float *q, const float *kv,
                                 const struct tensor *y, float *softmaxes);
void gpu_cross_attention_backward(struct device *, const struct attention_shape *, const float *q, const float *kv,
                                  const float *y, const float *softmaxes, const float *dy, float *dq, float *dkv);
void gpu_round_parameters(struct device *, const float *values, size_t count);
/* Updates the parameters' copy as [recorded] requires. */
void gpu_parameters_refresh(struct gpu_device *gpu, const struct gpu_parameters *recorded);

/* [bytes] at [memory] are written by an operator, or by other work on the stream: the copy of the parameters is no
 * longer valid. An operator that writes it, too, calls this first. */
static inline void gpu_mark_written(struct gpu_device *gpu, const void *memory, size_t bytes) {
    struct gpu_parameters *p = &gpu->parameters;
    const char *at = (const char *)memory, *of = (const char *)p->copy.source;
    if (at && of && at < of + p->copy.count * sizeof(float) && of < at + bytes) p->is_current = false;
}

extern const struct device_ops gpu_elementwise; /* add to copy of struct device_ops; the rest is 0 */

/* Bytes of shared memory available to a kernel without an attribute, static and dynamic together. */
#define GPU_SHARED (48u << 10)
#define GPU_SHARED_STATIC (16u << 10) /* static ones of a kernel that also has dynamic ones, at most */

/* Launches [kernel] on a stream with [shared] bytes of dynamic shared memory. All kernels are launched here. */
template <typename... Parameters, typename... Arguments>
cudaError_t gpu_launch_on(cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                          Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaError_t error = cudaSuccess;
    if (shared > GPU_SHARED - GPU_SHARED_STATIC)
        error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return error == cudaSuccess ? cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...) : error;
}

/* The same on the device's stream. */
template <typename... Parameters, typename... Arguments>
cudaError_t gpu_launch(struct gpu_device *gpu, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                       Arguments... arguments) {
    if (gpu->is_dry_run) return cudaSuccess;
    return gpu_launch_on(gpu->stream, kernel, grid, block, shared, arguments...);
}

/* One thread per element. */
template <typename F> __global__ void gpu_each(size_t count, F f) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) f(i);
}

/* One block per row. */
template <typename F> __global__ void gpu_rows(F f) { f((size_t)blockIdx.x); }

/* Reduces the block's values by [op] in a fixed tree; all threads get the result. */
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
struct gpu_add_sums {
    __device__ struct loss_sums operator()(struct loss_sums a, struct loss_sums b) const {
        return {a.loss + b.loss, a.count + b.count, a.correct + b.correct, a.scored + b.scored};
    }
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
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (GPU_AHEAD - 1) * step < count; i += GPU_AHEAD * step) {
        double terms[GPU_AHEAD];
#pragma unroll
        for (int k = 0; k < GPU_AHEAD; k++) terms[k] = (double)f(i + k * step);
#pragma unroll
        for (int k = 0; k < GPU_AHEAD; k++) sum += terms[k];
    }
    for (; i < count; i += step) sum += (double)f(i);
    sum = gpu_reduce(sum, gpu_add());
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/* An operator while it is enqueued. After a failure nothing runs any more, and device_status returns it. */
class operator_call {
  public:
    operator_call(struct device *device, const char *operation);
    ~operator_call();
    operator_call(const operator_call &) = delete;
    operator_call &operator=(const operator_call &) = delete;

    /* The operand's address on the GPU, NULL for NULL: [count] elements that are read, written, or both. */
    template <typename T> const T *in(const T *p, size_t count) {
        return (const T *)operand(p, count * sizeof(T), true, false);
    }
    template <typename T> T *out(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), false, true); }
    template <typename T> T *inout(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), true, true); }
    /* Fails if [is_half], for an operand that does not support 16 bits. */
    void reject_half(bool is_half) {
        if (is_half) gpu_fail(gpu, operation, "its operands cannot be 16 bits");
    }
    /* Operands that may be 16 bits. One that is written invalidates its copy, which the operator may write then. */
    struct gpu_numbers in(const struct tensor *t, size_t count) {
        if (!t || !t->data) return {nullptr, GPU_FLOAT32, nullptr};
        if (!is_half(t)) return {in((const float *)t->data, count), GPU_FLOAT32, t->copy};
        return {in((const uint16_t *)t->data, count), gpu_half_format(gpu), nullptr};
    }
    struct gpu_result out(const struct tensor *t, size_t count) {
        return result(t, count, false);
    }
    /* A result that is read, too, or of which only some elements are written. */
    struct gpu_result inout(const struct tensor *t, size_t count) {
        return result(t, count, true);
    }
    /* The same for host memory that never changes, such as a config's. */
    template <typename T> const T *constant(const T *p, size_t count) {
        return (const T *)gpu_constant(gpu, operation, p, count * sizeof(T));
    }
    /* The same for the result of [make]. */
    template <typename Made, typename T> const Made *constant(const T *p, size_t count, gpu_make *make) {
        return (const Made *)gpu_constant(gpu, operation, p, count * sizeof(T), make);
    }
    /* Memory of the GPU until the call ends. */
    template <typename T> T *scratch(size_t count) { return (T *)gpu_scratch(gpu, operation, count * sizeof(T)); }

    bool is_ok() const { return gpu->failure[0] == 0; }
    /* is_ok, and not in a dry run. */
    bool runs() const { return is_ok() && !gpu->is_dry_run; }
    void check(cudaError_t error);

    template <typename F> void each(size_t count, F f) {
        size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS, limit = (size_t)1 << 30;
        if (count > 0) launch(gpu_each<F>, (unsigned)(blocks < limit ? blocks : limit), GPU_THREADS, 0, count, f);
    }

    template <typename F> void rows(size_t count, F f) { /* below 2^31 */
        if (count > 0) launch(gpu_rows<F>, (unsigned)count, GPU_THREADS, 0, f);
    }

    /* Launches a kernel, see gpu_launch. */
    template <typename... Parameters, typename... Arguments>
    void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, Arguments... arguments) {
        if (is_ok()) check(gpu_launch(gpu, kernel, grid, block, shared, arguments...));
    }

    /* *total (GPU memory) += the sum of f(i) over [0, count). */
    template <typename F> void sum(size_t count, F f, double *total) {
        size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS;
        double *parts = scratch<double>(GPU_PARTS);
        if (count == 0 || !is_ok()) return;
        if (blocks > GPU_PARTS) blocks = GPU_PARTS;
        launch(gpu_sums<F>, (unsigned)blocks, GPU_THREADS, 0, count, f, parts);
        add_up(parts, blocks, total);
    }

    /* Returns the sum; waits for it. */
    template <typename F> double read_sum(size_t count, F f) {
        double *total = scratch<double>(1), result = 0;
        if (runs()) check(cudaMemsetAsync(total, 0, sizeof *total, gpu->stream));
        sum(count, f, total);
        read(&result, total, sizeof result);
        return result;
    }

    /* Copies from the GPU to host memory; waits for it. */
    void read(void *to, const void *from, size_t bytes);

    struct gpu_device *gpu;

  private:
    const void *operand(const void *p, size_t bytes, bool is_read, bool is_written);
    void add_up(const double *parts, size_t count, double *total);
    /* Fails if the device's precision has no 16 bits. */
    bool is_half(const struct tensor *t) {
        if (t->is_half) reject_half(gpu_factor_size(gpu) != 2);
        return t->is_half;
    }
    struct gpu_result result(const struct tensor *t, size_t count, bool is_read) {
        if (!t || !t->data) return {nullptr, {nullptr, false}, nullptr};
        if (t->copy) t->copy->is_valid = false;
        float *wide = (float *)t->data;
        uint16_t *half = (uint16_t *)t->data;
        if (!is_half(t)) return {is_read ? inout(wide, count) : out(wide, count), {nullptr, false}, t->copy};
        half = is_read ? inout(half, count) : out(half, count);
        return {nullptr, {half, gpu->precision == PRECISION_BFLOAT16}, nullptr};
    }

    const char *operation;
    struct gpu_scratch_mark start; /* of its scratch memory */
    /* for operands of tests */
    int used;
    void *own[GPU_OPERANDS], *home[GPU_OPERANDS]; /* own[i] is copied to home[i] at the end */
    size_t home_bytes[GPU_OPERANDS];
};

/* Replaces sums (count), on the GPU, by those over all ranks; waits for the GPU. */
void gpu_sum_over_ranks(operator_call *c, const struct all_sum *all, double *sums, size_t count);

/* The targets of a loss with classes: those of padding (struct row_weights) are o->ignored; takes scratch memory. */
const int64_t *gpu_real_targets(operator_call *c, const struct cross_entropy_options *o, const int64_t *targets,
                                size_t positions);
/* to += the sum of rows (count); takes scratch memory. */
void gpu_add_loss_sums(operator_call *c, const struct loss_sums *rows, size_t count, struct loss_sums *to);
/* embedding_backward within an operator, of its addresses; takes scratch memory. */
void gpu_embedding_gather(operator_call *c, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                          size_t vocabulary, size_t size);
