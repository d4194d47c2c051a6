/* A GPU device, and how an operator is written: as a `call`, which runs lambdas over elements, rows or sums on the
 * device's stream and does not wait for them. Operands are addresses of the GPU's memory (memory.cu); nothing here
 * reads a result on the host, except where its name says so.
 *
 * Every sum is taken in an order that follows from the sizes alone; there are no atomics. */
#ifndef DEVICE_CUDA_GPU_CUH
#define DEVICE_CUDA_GPU_CUH

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "device/cuda/numbers.cuh"

extern "C" {
#include "base/philox.h"
#include "device/internal.h"
#include "device/math.h"
}

#define GPU_OPERANDS 12
#define GPU_THREADS 256           /* of a block; a power of two */
#define GPU_PARTS 1024            /* most blocks of a sum */
#define GPU_AHEAD 4               /* numbers of a sum that a thread reads before it adds the first */
#define GPU_WORKSPACE (32u << 20) /* bytes for cuBLASLt */
#define GPU_CHUNKS 32
#define GPU_ANSWER 4096 /* bytes that can be read back without a copy in between */

struct gpu_plans;    /* product.cuh */
struct cudnn_module; /* cudnn/plans.h */
struct cudnn;

/* A 16-bit copy for products: of the matrix that the operator before wrote or read, or of weights. */
struct gpu_copy {
    const float *of;      /* NULL: none */
    size_t rows, columns; /* columns 0: rows are elements, of a matrix with any number of columns */
    uint64_t call;        /* the operator that made it */
    void *memory;
    size_t bytes; /* of memory */
};

/* The 16-bit copy of all parameters. Products read it as it is until the next gpu_round_parameters. */
struct gpu_parameters {
    struct gpu_copy copy; /* call: the newest gpu_round_parameters */
    bool is_current;      /* it is the parameters: nobody has written to them since, or an update has written both */
    const float *wanted;  /* while recording, (wanted_count): what must be current where it begins; NULL: nothing */
    size_t wanted_count;
};

/* Scratch memory, which operators use one after another from its start. How much of it they need a rehearsal finds out
 * (device_rehearse_begin); what was not rehearsed makes it grow. */
struct gpu_chunk {
    char *memory;
    size_t bytes;
};
struct gpu_place {
    int chunk;
    size_t at;
};

/* What device_alloc gave. */
struct gpu_array {
    void *memory, *view; /* view: its copy in the host's memory, for device_lend; NULL: not yet */
    size_t bytes;
    int lent; /* times that it is out, one within another */
    bool has_changed;
};

/* What is made of [bytes] at [p]: *made bytes of malloc; NULL: out of memory. */
typedef void *gpu_make(const void *p, size_t bytes, size_t *made);

struct gpu_constant {
    const void *home;
    gpu_make *make;      /* NULL: memory holds what home does */
    void *copy, *memory; /* copy: on the host, to see a change */
    size_t bytes, made;  /* of the copy; of memory */
};

/* Memory of the host from which the GPU copies by itself: two halves, one filled while the other is read. */
struct gpu_crossing {
    char *memory;
    size_t half, at; /* bytes of a half; of the current one in use */
    int current;
    cudaEvent_t is_read[2];
};

/* What crosses while operators run (beside.cu). */
struct gpu_answer {
    cudaStream_t stream; /* has nothing left once the answer is known */
    cudaEvent_t is_known;
    void *memory; /* (DEVICE_LATER), of the host, where the GPU can write */
};
struct gpu_beside {
    cudaStream_t copies;            /* of batches, to their places beside */
    cudaEvent_t is_there, is_taken; /* the newest one has come; it has left the places beside */
    struct gpu_answer answers[DEVICE_SLOTS];
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
    struct narrow narrow;     /* operands of the operators that are asked for */
    struct gpu_copy copy;
    struct gpu_parameters parameters, parameters_before; /* before: of the recording that is being made */
    uint64_t calls; /* operators so far; whatever else writes to memory of the device counts, too */
    struct gpu_chunk chunks[GPU_CHUNKS];
    int chunk_count;
    struct gpu_place place;   /* of the next scratch memory */
    bool is_rehearsing;       /* operators only say what they need: nothing is started or copied */
    size_t needed;            /* bytes of scratch memory in a rehearsal, the most so far */
    uint64_t moves;           /* times that memory moved which operators keep between them */
    struct gpu_array *arrays; /* (array_count) */
    size_t array_count;
    struct gpu_constant *constants; /* (constant_count) */
    size_t constant_count;
    struct gpu_crossing crossing;
    struct gpu_beside beside;
    void *answer; /* (GPU_ANSWER), of the host, where the GPU can write */
    bool is_recording;
    bool takes_host_operands; /* a test of operators: call::in and the like copy what lies in the host's memory */
    double *staging;          /* of the host, which the GPU copies from and to directly: sums of a batch norm */
    size_t staged;            /* doubles */
    const struct cudnn_module *cudnn_module; /* NULL until the first convolution */
    struct cudnn *cudnn;
};

/* Bytes of an element of what products read: 4, or 2. */
static inline size_t gpu_factor_size(const struct gpu_device *gpu) {
    return gpu->precision == PRECISION_BFLOAT16 || gpu->precision == PRECISION_FLOAT16 ? 2 : 4;
}

/* What 16 bits are in its precision. */
static inline enum gpu_form gpu_narrow_form(const struct gpu_device *gpu) {
    return gpu->precision == PRECISION_BFLOAT16 ? GPU_BFLOAT16 : GPU_FLOAT16;
}

status gpu_device_create(int gpu, struct device **out);

extern const struct memory_ops gpu_memory;

/* ---- beside.cu: of struct memory_ops ---- */

void gpu_upload_beside(struct device *device, const struct device_piece *pieces, size_t count);
status gpu_upload_wait(struct device *device);
void gpu_pin(struct device *device, void *memory, size_t bytes);
void gpu_unpin(struct device *device, void *memory);
void gpu_download_later(struct device *device, int slot, const void *from, size_t bytes);
status gpu_download_end(struct device *device, int slot, void *to, size_t bytes);
void *gpu_download_stream(const struct device *device, int slot);
cudaError_t gpu_beside_open(struct gpu_device *gpu);
void gpu_beside_close(struct gpu_device *gpu);

/* ---- recording.cu: of struct memory_ops ---- */

uint64_t gpu_moves(const struct device *device);
status gpu_record_begin(struct device *device, status *why);
status gpu_record_end(struct device *device, struct device_recording **out, status *why);
bool gpu_replay(struct device *device, const struct device_recording *recording);
void gpu_recording_destroy(struct device *device, struct device_recording *recording);

/* ---- memory.cu ---- */

/* What device_alloc and the rest need, and its end. */
cudaError_t gpu_memory_open(struct gpu_device *gpu);
void gpu_memory_close(struct gpu_device *gpu);
/* [bytes] of scratch memory from gpu->place on; NULL after a failure. */
void *gpu_take(struct gpu_device *gpu, const char *operation, size_t bytes);
/* Makes one chunk of several; at the start of an operator. */
void gpu_tidy(struct gpu_device *gpu);
/* The copy on the GPU of what lies at [p] of the host and never changes, or of what [make] makes of it; made once, and
 * kept. */
const void *gpu_constant(struct gpu_device *gpu, const char *operation, const void *p, size_t bytes,
                         gpu_make *make = nullptr);

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
extern const struct convolution_ops gpu_convolutions;
void gpu_convolutions_close(struct gpu_device *gpu);
extern const struct gelu_ops gpu_gelu;
void gpu_linear_forward(struct device *, const float *x, const float *w, const float *bias, bool has_relu, float *y,
                        size_t rows, size_t in, size_t out);
void gpu_linear_backward_input(struct device *, const float *dy, const float *w, float *dx, size_t rows, size_t in,
                               size_t out);
void gpu_linear_backward_weight(struct device *, const float *dy, const float *x, float *dw, float *dbias, size_t rows,
                                size_t in, size_t out);
void gpu_cross_entropy(struct device *, const struct cross_entropy_options *, const float *logits,
                       const int64_t *targets, size_t positions, size_t classes, float scale, float *dlogits,
                       struct loss_sums *sums);
void gpu_embedding_backward(struct device *, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                            size_t vocabulary, size_t size);
void gpu_attention_forward(struct device *, const struct attention_shape *, const float *qkv, float *y,
                           float *softmaxes);
void gpu_attention_backward(struct device *, const struct attention_shape *, const float *qkv, const float *y,
                            const float *softmaxes, const float *dy, float *dqkv);
void gpu_round_parameters(struct device *, const float *values, size_t count);
/* The parameters that [recorded] wants to be current become so. */
void gpu_parameters_want(struct gpu_device *gpu, const struct gpu_parameters *recorded);

/* [bytes] at [memory] are written by an operator, or by somebody else on the stream. */
static inline void gpu_wrote(struct gpu_device *gpu, const void *memory, size_t bytes) {
    struct gpu_parameters *p = &gpu->parameters;
    const char *at = (const char *)memory, *of = (const char *)p->copy.of;
    if (at && of && at < of + p->copy.rows * sizeof(float) && of < at + bytes) p->is_current = false;
}

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
    if (gpu->is_rehearsing) return cudaSuccess;
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

/* An operator while it is asked for. After a failure nothing runs any more: device_status tells. */
class call {
  public:
    call(struct device *device, const char *operation);
    ~call();
    call(const call &) = delete;
    call &operator=(const call &) = delete;

    /* The operand's address on the GPU, NULL for NULL: [count] elements that are read, written, or both. */
    template <typename T> const T *in(const T *p, size_t count) {
        return (const T *)operand(p, count * sizeof(T), true, false);
    }
    template <typename T> T *out(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), false, true); }
    template <typename T> T *inout(T *p, size_t count) { return (T *)operand(p, count * sizeof(T), true, true); }
    /* Which operands are 16 bits. Who does not ask has none, and fails when it is given one. */
    const struct narrow &narrow() {
        knows_narrow = true;
        return gpu->narrow;
    }
    /* Fails when an operand is 16 bits that cannot be. */
    void refuse_narrow(bool is_narrow) {
        if (is_narrow) gpu_fail(gpu, operation, "its operands cannot be 16 bits");
    }
    /* Operands that may be 16 bits. */
    struct gpu_numbers in(const float *p, size_t count, bool is_narrow) {
        const void *at = is_narrow ? (const void *)in((const uint16_t *)p, count) : in(p, count);
        return {at, is_narrow ? gpu_narrow_form(gpu) : GPU_FLOAT32};
    }
    struct gpu_result out(float *p, size_t count, bool is_narrow) {
        if (!is_narrow) return {out(p, count), {nullptr, false}};
        return {nullptr, {out((uint16_t *)p, count), gpu->precision == PRECISION_BFLOAT16}};
    }
    /* The same for numbers of the host that never change, such as a config's. */
    template <typename T> const T *constant(const T *p, size_t count) {
        return (const T *)gpu_constant(gpu, operation, p, count * sizeof(T));
    }
    /* The same for what [make] makes of them. */
    template <typename Made, typename T> const Made *constant(const T *p, size_t count, gpu_make *make) {
        return (const Made *)gpu_constant(gpu, operation, p, count * sizeof(T), make);
    }
    /* Memory of the GPU until the call ends. */
    template <typename T> T *scratch(size_t count) { return (T *)gpu_take(gpu, operation, count * sizeof(T)); }

    bool is_ok() const { return gpu->failure[0] == 0; }
    /* The same, and it is no rehearsal. */
    bool runs() const { return is_ok() && !gpu->is_rehearsing; }
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

    /* *total (of the GPU's memory) += the sum of f(i) over [0, count). */
    template <typename F> void sum(size_t count, F f, double *total) {
        size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS;
        double *parts = scratch<double>(GPU_PARTS);
        if (count == 0 || !is_ok()) return;
        if (blocks > GPU_PARTS) blocks = GPU_PARTS;
        launch(gpu_sums<F>, (unsigned)blocks, GPU_THREADS, 0, count, f, parts);
        add_up(parts, blocks, total);
    }

    /* The sum; waits for it. */
    template <typename F> double read_sum(size_t count, F f) {
        double *total = scratch<double>(1), result = 0;
        if (runs()) check(cudaMemsetAsync(total, 0, sizeof *total, gpu->stream));
        sum(count, f, total);
        read(&result, total, sizeof result);
        return result;
    }

    struct gpu_device *gpu;

  private:
    const void *operand(const void *p, size_t bytes, bool is_read, bool is_written);
    void add_up(const double *parts, size_t count, double *total);
    void read(void *to, const void *from, size_t bytes);

    const char *operation;
    bool knows_narrow;
    struct gpu_place start; /* of its scratch memory */
    /* of a test's operands */
    int used;
    void *own[GPU_OPERANDS], *home[GPU_OPERANDS]; /* what own[i] holds goes to home[i] at the end */
    size_t home_bytes[GPU_OPERANDS];
};

#endif
