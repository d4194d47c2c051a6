/* device: owns the memory of tensors and runs operators. The model, the losses and the optimizers use only this table.
 * src/device/cpu implements it for the CPU, src/device/cuda for a GPU; an operator that may be NULL says so, all others
 * every device has. Tensors are row-major and contiguous, float32 unless device/tensor.h says more; the batch is the
 * first dimension.
 *
 * Operators work on device memory, which the host cannot access unless the device is the CPU: the host reads and
 * writes it through device_map, device_upload and device_download. GPU operators are asynchronous: they are enqueued
 * and run in order. Functions below that wait say so.
 *
 * Numbers: element-wise operators match PyTorch's CPU kernels to the bit (every fused multiply-add is written as
 * fmaf); each element of a matrix product is summed over k in order, so a result does not depend on the blocking or
 * the instruction set. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "device/activations.h"
#include "device/gpus.h"
#include "device/image.h"
#include "device/losses.h"
#include "device/norm.h"
#include "device/optimizers.h"
#include "device/recurrent.h"
#include "device/sequence.h"
#include "device/shapes.h"
#include "device/tensor.h"

/* Key of a pass's random numbers. The generator is counter-based (Philox 4x32-10): a number depends only on (seed,
 * stream, pass, row of the global batch, element), not on numbers generated before. */
struct draw_key {
    uint64_t seed;
    uint32_t stream;      /* number of the layer */
    const uint64_t *pass; /* number of the pass: of the micro-batch in the run; in device memory */
    uint64_t first_row;   /* global row of local row 0 */
    uint64_t row_stride;  /* between local rows: the world size */
};

/* Numbers of 16 bits that hold a bit for each element of a row (dropout_saving). */
#define DROPOUT_BITS(size) (((size) + 15) / 16)

/* Elements [begin, end). */
struct device_range {
    size_t begin, end;
};

struct clip_norm {
    float norm;
    float clip; /* min(max / (norm + 1e-6), 1) / scale */
};

struct device;
struct formula_ops;

/* A linear layer, GELU by tanh and another linear layer, fused, where no other node reads the tensors between them,
 * which are 16 bits: [kept] (rows, hidden), the input of GELU, its gradient [dkept], and [y], the output of GELU. */
struct gelu_ops {
    /* kept = x (rows, in) w^T + bias, y = gelu(kept); w (hidden, in); bias (hidden) or NULL */
    void (*forward_before)(struct device *, const struct tensor *x, const float *w, const float *bias,
                           const struct tensor *kept, const struct tensor *y, size_t rows, size_t in, size_t hidden);
    /* to (rows, out) = y w^T + bias, as linear_forward */
    void (*forward_after)(struct device *, const struct tensor *y, const float *w, const float *bias, bool has_relu,
                          const struct tensor *to, size_t rows, size_t hidden, size_t out);
    /* dw (out, hidden) += dy^T y; dbias (out) += column sums of dy, NULL: none; dkept = (dy w) gelu'(kept), NULL: not
     * needed */
    void (*backward_after)(struct device *, const struct tensor *dy, const struct tensor *y, const float *w,
                           const struct tensor *kept, float *dw, float *dbias, const struct tensor *dkept, size_t rows,
                           size_t hidden, size_t out);
    /* dw (hidden, in) += dkept^T x; dbias (hidden) += column sums of dkept, NULL: none; dx = dkept w, NULL: not needed
     */
    void (*backward_before)(struct device *, const struct tensor *dkept, const struct tensor *x, const float *w,
                            float *dw, float *dbias, const struct tensor *dx, size_t rows, size_t in, size_t hidden);
};

/* Receives rows [first, first + count) of a result when they are complete. */
struct part_receiver {
    void (*receive)(void *user, size_t first, size_t count);
    void *user;
};

struct device_ops {
    /* y (rows, out) = x (rows, in) w^T + bias, with [has_relu] max(0, y); w (out, in); bias (out) or NULL */
    void (*linear_forward)(struct device *, const struct tensor *x, const float *w, const float *bias, bool has_relu,
                           const struct tensor *y, size_t rows, size_t in, size_t out);
    /* dx (rows, in) = dy (rows, out) w */
    void (*linear_backward_input)(struct device *, const struct tensor *dy, const float *w, const struct tensor *dx,
                                  size_t rows, size_t in, size_t out);
    /* dw (out, in) += dy^T x; dbias (out) += column sums of dy; dbias may be NULL */
    void (*linear_backward_weight)(struct device *, const struct tensor *dy, const struct tensor *x, float *dw,
                                   float *dbias, size_t rows, size_t in, size_t out);
    /* Called at the start of a pass: from now on products use the parameters in [values] (count) as they are at this
     * call, which may round them to the precision once, here. Does nothing if they have not changed, or if only an
     * update changed them, which also writes the rounded copy (optimizers.h). A recording checks this when it is
     * replayed. NULL: each product rounds them, or nothing is rounded. */
    void (*round_parameters)(struct device *, const float *values, size_t count);
    /* The same, one part of at most [max_rows] rows of dw after the other, each in the memory [dw] (max_rows, in). It
     * and dbias are set instead of added. The same bits as linear_backward_weight on zeros, if all are finite.
     * [receiver] runs only operators without a workspace: updates, norms. */
    void (*linear_backward_weight_in_parts)(struct device *, const float *dy, const float *x, float *dw, float *dbias,
                                            size_t rows, size_t in, size_t out, size_t max_rows,
                                            const struct part_receiver *receiver);
    /* y (count) = a + b; y may be a or b */
    void (*add)(struct device *, const struct tensor *a, const struct tensor *b, const struct tensor *y, size_t count);
    /* y (count) = f(x) */
    void (*activation_forward)(struct device *, enum activation f, const struct tensor *x, const struct tensor *y,
                               size_t count);
    /* dx (count) = dy f'(x), from x or y as f needs */
    void (*activation_backward)(struct device *, enum activation f, const struct tensor *x, const struct tensor *y,
                                const struct tensor *dy, const struct tensor *dx, size_t count);
    /* The same for functions with keys: y (count) = f(x);  dx (count) = dy f'(x) */
    void (*keyed_forward)(struct device *, const struct keyed_activation *f, const struct tensor *x,
                          const struct tensor *y, size_t count);
    void (*keyed_backward)(struct device *, const struct keyed_activation *f, const struct tensor *x,
                           const struct tensor *dy, const struct tensor *dx, size_t count);
    /* y (rows, size) = x * mask / (1 - p); the same call with dy gives dx, because the mask follows from the key */
    void (*dropout)(struct device *, const struct draw_key *key, float p, const struct tensor *x,
                    const struct tensor *y, size_t rows, size_t size);
    /* The same, where it is faster to read which elements were kept than to draw them again; NULL elsewhere: forward
     * writes a bit for each element to kept (rows, DROPOUT_BITS(size)), from which the second one makes dx. */
    void (*dropout_saving)(struct device *, const struct draw_key *key, float p, const struct tensor *x,
                           const struct tensor *y, uint16_t *kept, size_t rows, size_t size);
    void (*dropout_saved)(struct device *, float p, uint16_t *kept, const struct tensor *dy, const struct tensor *dx,
                          size_t rows, size_t size);
    /* The same as dropout for whole channels: the elements i of a row with equal i % channels have one draw; channels
     * divides size, and 1 is the whole row. */
    void (*dropout_channels)(struct device *, const struct draw_key *key, float p, const struct tensor *x,
                             const struct tensor *y, size_t rows, size_t size, size_t channels);
    /* to (rows, size) = from where x is above 0, else from times a slope between [low] and [high] that follows from
     * the key: from x it is y, from dy it is dx */
    void (*rrelu)(struct device *, const struct draw_key *key, float low, float high, const float *x, const float *from,
                  float *to, size_t rows, size_t size);
    /* z (rows, size) = mean + exp(log_variance / 2) e, where e are standard normal numbers that follow from the key */
    void (*sample_normal)(struct device *, const struct draw_key *key, const float *mean, const float *log_variance,
                          float *z, size_t rows, size_t size);
    /* dlog_variance (rows, size) = dz exp(log_variance / 2) e / 2; that of the mean is dz */
    void (*sample_normal_backward)(struct device *, const struct draw_key *key, const float *log_variance,
                                   const float *dz, float *dlog_variance, size_t rows, size_t size);

    const struct loss_ops *losses;
    const struct optimizer_ops *optimizers;
    /* Euclidean norm (float32, as torch's norm of one tensor up to rounding); waits for it */
    float (*norm)(struct device *, const float *x, size_t count);
    /* The result of clip_grad_norm_(max): the norm of the norms of [count] ranges of x, which is multiplied by
     * [scale]; max 0: no clipping. [ranges] are in host memory and never change. */
    void (*clip_norm)(struct device *, const float *x, const struct device_range *ranges, size_t count, float max,
                      float scale, struct clip_norm *out);
    /* sums (count), on the host, = the sum of the squares of each range of x; ranges as for clip_norm; waits for it */
    void (*squares)(struct device *, const float *x, const struct device_range *ranges, size_t count, double *sums);
    const struct image_ops *image;
    const struct convolution_ops *convolution;
    /* Whether every element is finite; waits for it. */
    bool (*is_finite)(struct device *, const struct tensor *x, size_t count);
    /* *nonfinite += 1 unless every element is finite. */
    void (*check_finite)(struct device *, const float *x, size_t count, double *nonfinite);
    /* Decides on the device whether the next update is applied, so that the host need not wait: first checks x
     * (count), as check_finite into nonfinite[0]; count 0: nothing. Then *found_inf += 1 when *loss or *norm is not
     * finite or one of nonfinite (nonfinite_count) is above 0; while *found_inf is above 0, *clip becomes NaN and
     * updates are skipped (optimizers.h). */
    void (*skip_if_nonfinite)(struct device *, const float *x, size_t count, const double *loss, const float *norm,
                              double *nonfinite, size_t nonfinite_count, double *found_inf, float *clip);
    /* *x = NaN when *loss is not finite or *nonfinite is above 0; after the sum over ranks it is NaN on all of them. */
    void (*propagate_nonfinite)(struct device *, const double *loss, const double *nonfinite, float *x);

    /* y (count) = x > 0 ? x : a x of element i of x with slopes[i % channels]; channels is 1 or divides count.
     * backward: dx, unless NULL, = x > 0 ? dy : a dy; dslopes += sums of x dy where x <= 0 */
    void (*prelu_forward)(struct device *, const float *x, const float *slopes, size_t channels, float *y,
                          size_t count);
    void (*prelu_backward)(struct device *, const float *x, const float *slopes, size_t channels, const float *dy,
                           float *dx, float *dslopes, size_t count);
    /* y (count) = x a of element i of x with scales[i % channels]; channels divides count.
     * backward: dx, unless NULL, = dy a; dscales += sums of x dy */
    void (*scale_forward)(struct device *, const float *x, const float *scales, size_t channels, float *y,
                          size_t count);
    void (*scale_backward)(struct device *, const float *x, const float *scales, size_t channels, const float *dy,
                           float *dx, float *dscales, size_t count);
    /* y (count) = x */
    void (*copy)(struct device *, const struct tensor *x, const struct tensor *y, size_t count);
    /* y (count) = a * b; y may be a or b */
    void (*multiply)(struct device *, const float *a, const float *b, float *y, size_t count);
    /* [count] columns of matrices whose rows are [x_stride] and [y_stride] apart: y[r y_stride + c] = x[r x_stride + c]
     */
    void (*copy_columns)(struct device *, const float *x, size_t x_stride, float *y, size_t y_stride, size_t rows,
                         size_t count);

    const struct norm_ops *norm_layers;
    const struct sequence_ops *sequence;
    const struct recurrent_ops *recurrent;
    const struct shape_ops *shapes;
    /* Whether operands (struct tensor) with rows of [features] can be 16 bits in the device's precision. NULL: never.
     */
    bool (*can_be_half)(const struct device *, size_t features);
    const struct gelu_ops *gelu;        /* NULL if can_be_half is NULL */
    const struct formula_ops *formulas; /* device/expression.h */
};

/* [name]: "cpu" or "cuda", here the first GPU. STATUS_USAGE for "cuda" if the module, one of its libraries, the driver
 * or a GPU is missing, with the reason and a hint. */
status device_create(const char *name, struct device **out);
/* One GPU per process of a host: gpus_choose. */
status device_create_local(const char *name, const struct gpus_process *process, struct device **out);
void device_destroy(struct device *device); /* takes NULL */

/* Checks whether device_create could open [name], without initialising the device. */
status device_check(const char *name);

/* The type to which factors of matrix products are rounded; stored values and sums are float32. */
enum precision {
    PRECISION_FLOAT32,
    /* On GPUs float32 with 10 bits of fraction; on CPUs with AMX the sum of two bfloat16, of 16 bits; other CPUs do not
     * round. */
    PRECISION_TF32,
    PRECISION_BFLOAT16,
    PRECISION_FLOAT16, /* on GPUs; numbers of 65520 and more become infinite */
    /* Only of CPUs: with AMX the factors of large products are three bfloat16, which together have all bits of float32.
     * A result is as exact as with PRECISION_FLOAT32 but depends on the number of rows: for training. Without AMX: as
     * PRECISION_FLOAT32. */
    PRECISION_FLOAT32_SPLIT,
    /* Only of CPUs: PRECISION_FLOAT32 by algorithms that do not depend on the instruction set or the number of threads.
     * Sets with fused multiply-add (AVX2, AVX-512, NEON) give the same bits. */
    PRECISION_FLOAT32_PORTABLE
};

/* Sets the precision of linear_forward, linear_backward_*, attention and the device's other matrix products from now
 * on. STATUS_USAGE naming what is missing if the device has no instructions for it. */
status device_set_precision(struct device *device, enum precision precision);

/* Whether PRECISION_TF32 differs from PRECISION_FLOAT32 on a device of this [name] of this machine. */
bool device_has_tf32(const char *name);

const struct device_ops *device_ops(const struct device *device);
/* The stream of the device's operators (a cudaStream_t), for work that must run before or after them; NULL: the CPU. */
void *device_stream(const struct device *device);
/* "cpu (avx512)": for the log */
const char *device_describe(const struct device *device);
/* The code of a GPU's kernels: "sm_90", or PTX that the driver compiled; NULL on the CPU. */
const char *device_code(const struct device *device);

/* Operators return nothing. This returns the first known failure of an operator since the device was created, or OK.
 * After a failure operators do nothing, so results are valid only if this returns OK afterwards. A failure on a GPU
 * is known after a function has waited for it. */
status device_status(const struct device *device);
/* Waits for all operators, then returns device_status. */
status device_wait(struct device *device);

/* ---- memory ---- */

/* Allocates zeroed memory on the device, 64-byte aligned; [what]: its name in the message of STATUS_MEMORY. */
status device_alloc(struct device *device, size_t bytes, const char *what, void **out);
void device_free(struct device *device, void *memory); /* takes NULL */

/* Free and total bytes of a GPU's memory, over all processes. Not if the device is the host. */
status device_memory_info(struct device *device, size_t *free_bytes, size_t *total);

/* Bytes of GPU memory that this process uses: allocations, workspace of operators and of libraries. Not if the device
 * is the host. */
size_t device_memory_used(const struct device *device);

/* Starts a dry run: operators, device_upload, device_upload_async and device_zero only determine what they will need
 * (workspace, plans, constants) and do nothing else. Pass the sizes and addresses of the real run; sums that an
 * operator returns are 0. Not if the device is the host. */
void device_dry_run_begin(struct device *device);
/* Ends the dry run and allocates what was determined. Returns device_status. */
status device_dry_run_end(struct device *device);

/* Whether the host can access device memory; if so, the functions below copy nothing and wait for nothing. */
bool device_is_host(const struct device *device);

/* Maps *array, from device_alloc, for the host: it becomes the address of a copy in host memory (always the same one).
 * Waits for the operators before; returns device_status. */
status device_map(struct device *device, void **array);
/* Ends the mapping: *array is the device address again; [has_changed] copies what the host wrote. Waits. */
status device_unmap(struct device *device, void **array, bool has_changed);

/* to (device) = from (host), after the operators enqueued before; [from] may change on return. */
void device_upload(struct device *device, void *to, const void *from, size_t bytes);
/* to (host) = from (device), after the operators enqueued before. Waits; returns device_status. */
status device_download(struct device *device, void *to, const void *from, size_t bytes);
/* Writes [bytes] zeros, after the operators enqueued before. */
void device_zero(struct device *device, void *memory, size_t bytes);
/* Reports that [bytes] at [memory] are written by another library, such as NCCL: the device's rounded copy of them
 * (round_parameters) is out of date. */
void device_mark_written(struct device *device, const void *memory, size_t bytes);

/* ---- asynchronous copies; only if the device is not the host ---- */

/* Part of a batch: [bytes] are copied from the host to [staging] and from there to [to], both on the device. */
struct device_transfer {
    void *to, *staging;
    const void *from;
    size_t bytes;
};
/* As device_upload of each, but the copies to [staging] overlap with operators enqueued before; they wait only until
 * the previous batch has left [staging]. The host memory may change after device_upload_wait, or, if it is not
 * pinned, on return. */
void device_upload_async(struct device *device, const struct device_transfer *transfers, size_t count);
/* Waits until the newest batch has been read from host memory; returns device_status. */
status device_upload_wait(struct device *device);
/* Pins [memory] of the host, so that the device copies from it directly, until device_unpin; if the system allows it.
 */
void device_pin(struct device *device, void *memory, size_t bytes);
void device_unpin(struct device *device, void *memory);

#define DEVICE_DOWNLOAD_SLOTS 2  /* downloads that may be pending */
#define DEVICE_DOWNLOAD_MAX 1024 /* maximum bytes of a download */

/* Starts to copy [from] to the host after the operators enqueued before; device_download_end of the same slot
 * completes it. The slot must have no pending download. */
void device_download_begin(struct device *device, int slot, const void *from, size_t bytes);
/* Waits for the download, but not for operators enqueued later; returns device_status. */
status device_download_end(struct device *device, int slot, void *to, size_t bytes);
/* A stream (device_stream) that is idle once the slot's download is complete. */
void *device_download_stream(const struct device *device, int slot);

/* ---- recordings ---- */

/* Recorded operators that the device replays by one call: a CUDA graph. */
struct device_recording;

bool device_can_record(const struct device *device);
/* How often memory that operators keep between calls was moved; a move invalidates earlier recordings. */
uint64_t device_moves(const struct device *device);
/* Records operators instead of running them from now on. *why is set if the device cannot; then nothing is recorded,
 * and device_record_end is not called. */
status device_record_begin(struct device *device, status *why);
/* *out: the operators since device_record_begin. *why is set if the device cannot record them; then *out is NULL, and
 * they have not run. */
status device_record_end(struct device *device, struct device_recording **out, status *why);
/* Replays it after the operators enqueued before; false, without running anything, if memory that it uses was moved. */
bool device_replay(struct device *device, const struct device_recording *recording);
void device_recording_destroy(struct device *device, struct device_recording *recording); /* takes NULL */
