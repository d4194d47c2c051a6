/* device: where tensors live and operators run. The model, the losses and the optimizers know only this table; the CPU
 * fills it in src/device/cpu, a GPU in src/device/cuda, with NULL for what it has not (whole groups, or operators of
 * struct image_ops). Tensors are float32, row-major and contiguous; a batch is the first dimension.
 *
 * Operators work on the device's memory, which the host does not see unless the device is the CPU: what it wants to
 * read or to write crosses by device_lend, device_upload and device_download. An operator of a GPU is only asked for:
 * they run one after another, and who asks goes on. What is below and waits says so.
 *
 * Numbers: element-wise operators follow PyTorch's CPU kernels to the bit (every fused multiply-add is written as
 * fmaf); sums of a matrix product run over k in order for each element, so a result does not depend on the blocking or
 * the instruction set. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "device/gpus.h"
#include "device/image.h"
#include "device/losses.h"
#include "device/norm.h"
#include "device/optimizers.h"
#include "device/sequence.h"

enum activation {
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_SILU
};

/* Where random numbers of a pass come from: a counter-based generator (Philox 4x32-10), so that a number depends only
 * on what it is for, not on what was drawn before: (seed, stream, step, row of the global batch, element). */
struct draw_key {
    uint64_t seed;
    uint32_t stream;      /* one per layer */
    const uint64_t *step; /* of the run, micro-batches counted; in the device's memory */
    uint64_t first_row;   /* global row of local row 0 */
    uint64_t row_stride;  /* between local rows: the world size */
};

/* Elements [begin, end). */
struct device_range {
    size_t begin, end;
};

struct clip_norm {
    float norm;
    float clip; /* min(most / (norm + 1e-6), 1) / scale */
};

struct device;

/* A linear layer, GELU by tanh and another linear layer, when nobody else looks at what lies between them, and that is
 * kept in 16 bits (struct narrow): [kept] (rows, hidden), which GELU is of, its gradient [dkept], and [y], the GELU. */
struct gelu_ops {
    /* kept = x (rows, in) w^T + bias, y = gelu(kept); w (hidden, in); bias (hidden) or NULL */
    void (*forward)(struct device *, const float *x, const float *w, const float *bias, void *kept, void *y,
                    size_t rows, size_t in, size_t hidden);
    /* out (rows, out) = y w^T + bias, as linear_forward */
    void (*forward_after)(struct device *, const void *y, const float *w, const float *bias, bool has_relu, float *to,
                          size_t rows, size_t hidden, size_t out);
    /* dw (out, hidden) += dy^T y; dbias (out) += column sums of dy, NULL: none; dkept = (dy w) gelu'(kept), NULL: not
     * needed */
    void (*backward_after)(struct device *, const float *dy, const void *y, const float *w, const void *kept, float *dw,
                           float *dbias, void *dkept, size_t rows, size_t hidden, size_t out);
    /* dw (hidden, in) += dkept^T x; dbias (hidden) += column sums of dkept, NULL: none; dx = dkept w, NULL: not needed
     */
    void (*backward)(struct device *, const void *dkept, const float *x, const float *w, float *dw, float *dbias,
                     float *dx, size_t rows, size_t in, size_t hidden);
};

/* Operands of operators that are kept in 16 bits, the type of the precision's factors, instead of float32: the names
 * are those of the operators' arguments; of a sum they are [x] and [other], of a loss [x] (the output) and [dx] (its
 * gradient). Such a matrix takes the room of half as many floats, and is passed as if it were floats. */
struct narrow {
    bool x, other, y, dy, dx;
};

struct narrow_ops {
    /* Whether matrices with rows of [features] can be kept so in the device's precision. */
    bool (*applies)(const struct device *, size_t features);
    /* The operands of all operators from now on. Those of products, attention, layer_norm, rms_norm, cross_entropy,
     * is_finite and what works element by element may be 16 bits; others fail. */
    void (*set)(struct device *, struct narrow operands);
};

struct device_ops {
    /* y (rows, out) = x (rows, in) w^T + bias, with [has_relu] max(0, it); w (out, in); bias (out) or NULL */
    void (*linear_forward)(struct device *, const float *x, const float *w, const float *bias, bool has_relu, float *y,
                           size_t rows, size_t in, size_t out);
    /* dx (rows, in) = dy (rows, out) w */
    void (*linear_backward_input)(struct device *, const float *dy, const float *w, float *dx, size_t rows, size_t in,
                                  size_t out);
    /* dw (out, in) += dy^T x; dbias (out) += column sums of dy; dbias may be NULL */
    void (*linear_backward_weight)(struct device *, const float *dy, const float *x, float *dw, float *dbias,
                                   size_t rows, size_t in, size_t out);
    /* Parameters as products see them from now until this is called again, at the start of a pass: weights that lie in
     * [values] (count) may be rounded to the precision once, here; nothing is done where they are as they were, or only
     * an update has changed them, which writes the rounded ones, too (optimizers.h). In a recording that is looked at
     * when it is run. NULL: they are rounded in each product, or not at all. */
    void (*round_parameters)(struct device *, const float *values, size_t count);
    /* Rows [first, first + count) of dw and dbias alone, made anew: dw (count, in), dbias (count) or NULL. The bits of
     * linear_backward_weight on zeros. */
    void (*linear_backward_weight_rows)(struct device *, const float *dy, const float *x, float *dw, float *dbias,
                                        size_t rows, size_t in, size_t out, size_t first, size_t count);
    /* y (count) = a + b; y may be one of them */
    void (*add)(struct device *, const float *a, const float *b, float *y, size_t count);
    /* y (count) = f(x) */
    void (*activation_forward)(struct device *, enum activation f, const float *x, float *y, size_t count);
    /* dx (count) = dy f'(x), from x or y as f needs */
    void (*activation_backward)(struct device *, enum activation f, const float *x, const float *y, const float *dy,
                                float *dx, size_t count);
    /* y (rows, size) = x * mask / (1 - p); the same call with dy gives dx, since the mask is drawn again from the key
     */
    void (*dropout)(struct device *, const struct draw_key *key, float p, const float *x, float *y, size_t rows,
                    size_t size);

    const struct loss_ops *losses;
    const struct optimizer_ops *optimizers;
    /* Euclidean norm (float32, as torch's norm of one tensor up to rounding); waits for it */
    float (*norm)(struct device *, const float *x, size_t count);
    /* What clip_grad_norm_(most) finds out: the norm of the norms of [count] ranges of x, which stands multiplied by
     * [scale]; most 0: no clipping. [ranges] lie in the host's memory and never change. */
    void (*clip_norm)(struct device *, const float *x, const struct device_range *ranges, size_t count, float most,
                      float scale, struct clip_norm *out);
    const struct image_ops *image;
    const struct convolution_ops *convolution;
    /* Whether every element is finite; waits for it. */
    bool (*is_finite)(struct device *, const float *x, size_t count);
    /* *bad += 1 unless every element is finite. */
    void (*note_bad)(struct device *, const float *x, size_t count, double *bad);
    /* Decides about an update where the host does not wait to do it: *held += 1 when *loss or *norm is not finite or
     * one of bad ([bads]) is above 0; while *held is not 0 *clip becomes NaN (optimizers.h). */
    void (*hold)(struct device *, const double *loss, const float *norm, const double *bad, size_t bads, double *held,
                 float *clip);
    /* *x = NaN when *loss is not finite or *bad is above 0: a sum over ranks then shows it to all. */
    void (*spoil)(struct device *, const double *loss, const double *bad, float *x);

    /* y (count) = x > 0 ? x : slope x;  dx = x > 0 ? dy : slope dy */
    void (*leaky_relu_forward)(struct device *, float slope, const float *x, float *y, size_t count);
    void (*leaky_relu_backward)(struct device *, float slope, const float *x, const float *dy, float *dx, size_t count);
    /* y (count) = x */
    void (*copy)(struct device *, const float *x, float *y, size_t count);

    const struct norm_ops *norm_layers;
    const struct sequence_ops *sequence;
    const struct narrow_ops *narrow; /* NULL: all operands are float32 */
    const struct gelu_ops *gelu;     /* NULL where narrow is */
};

/* [name]: "cpu" or "cuda". "cuda" where the module, one of its libraries, the driver or a GPU is missing: STATUS_USAGE
 * saying which of them and what to do. */
/* Whether device_create could open [name], without touching the device. */
status device_check(const char *name);

status device_create(const char *name, struct device **out); /* the first GPU */
/* One GPU for each process of a host: gpus_choose. */
status device_create_local(const char *name, const struct gpus_place *place, struct device **out);
void device_destroy(struct device *device); /* takes NULL */

/* What the factors of matrix products are rounded to; all that is stored or summed is float32. */
enum precision {
    PRECISION_FLOAT32,
    PRECISION_TF32, /* float32 with 10 bits of fraction, on GPUs; the CPU does not round */
    PRECISION_BFLOAT16,
    PRECISION_FLOAT16 /* GPUs; numbers of 65520 and more become infinite */
};

/* The arithmetic of linear_forward, the two linear_backward and attention from now on, and of what else the device has
 * products for. STATUS_USAGE where the device has not the instructions, naming what it lacks. */
status device_set_precision(struct device *device, enum precision precision);

const struct device_ops *device_ops(const struct device *device);
/* Where the device's operators run in order, as CUDA's libraries know it (a cudaStream_t), for what must run before or
 * behind them; NULL: the CPU. */
void *device_stream(const struct device *device);
/* "cpu (avx512)": for the log */
const char *device_describe(const struct device *device);

/* Operators return nothing: what is known to have gone wrong in one since the device was made, NULL when nothing is.
 * After a failure no operator does anything any more, so results count only when the answer is NULL afterwards. What
 * went wrong on a GPU is known once somebody has waited for it. */
status device_status(const struct device *device);
/* Waits for all operators; then device_status. */
status device_wait(struct device *device);

/* ---- memory ---- */

/* Zeroed memory on the device, 64-byte aligned; [what] for the message when there is not enough. */
status device_alloc(struct device *device, size_t bytes, const char *what, void **out);
void device_free(struct device *device, void *memory); /* takes NULL */

/* Bytes of memory that a GPU has left, for anyone, and in all. Not where the device is the host. */
status device_room(struct device *device, size_t *left, size_t *all);

/* Bytes of its memory that this process has taken: what was allocated, and what operators and libraries work in. Not
 * where the device is the host. */
size_t device_taken(const struct device *device);

/* From here on operators, and device_upload, device_upload_beside and device_zero, do nothing but find out what they
 * will need: memory to work in, plans, constants. Not where the device is the host. Sizes and addresses of operands are
 * to be those that will come; sums that an operator returns are 0. */
void device_rehearse_begin(struct device *device);
/* The device has what was found out. The answer is device_status. */
status device_rehearse_end(struct device *device);

/* Whether the host sees the device's memory as its own; then what follows moves nothing and waits for nothing. */
bool device_is_host(const struct device *device);

/* For the host to work on: *array, of device_alloc, becomes its copy in the host's memory (always the same one), as
 * operators left it. Waits; the answer is device_status. */
status device_lend(struct device *device, void **array);
/* The end of it: *array is the device's again, with what the host wrote where [has_changed]. Waits. */
status device_take_back(struct device *device, void **array, bool has_changed);

/* to (device) = from (host), after the operators asked for before; [from] may change at once. */
void device_upload(struct device *device, void *to, const void *from, size_t bytes);
/* to (host) = from (device), after the operators asked for before. Waits; the answer is device_status. */
status device_download(struct device *device, void *to, const void *from, size_t bytes);
/* [bytes] zeros, after the operators asked for before. */
void device_zero(struct device *device, void *memory, size_t bytes);
/* Somebody else than the device, such as NCCL, was asked to write [bytes] at [memory]: what the device keeps of them
 * beside (round_parameters) is out of date. */
void device_wrote(struct device *device, const void *memory, size_t bytes);

/* ---- what crosses while operators run: where the device is not the host ---- */

/* Part of a batch: [bytes] from the host by way of [beside] to [to], both on the device. */
struct device_piece {
    void *to, *beside;
    const void *from;
    size_t bytes;
};
/* device_upload of each, but their way to [beside] begins while operators that were asked for before still run: it
 * waits only until the batch before has left it. The host's memory may change after device_upload_wait, or, where it is
 * not pinned, at once. */
void device_upload_beside(struct device *device, const struct device_piece *pieces, size_t count);
/* Waits until the newest batch has left the host's memory; the answer is device_status. */
status device_upload_wait(struct device *device);
/* The device copies from [memory] of the host by itself from now on, until device_unpin, if the system lets it. */
void device_pin(struct device *device, void *memory, size_t bytes);
void device_unpin(struct device *device, void *memory);

#define DEVICE_SLOTS 2    /* answers that may be under way */
#define DEVICE_LATER 1024 /* most bytes of one */

/* What lies at [from] when the operators asked for before are done, for device_download_end of the same slot, which
 * must have ended what the slot had before. */
void device_download_later(struct device *device, int slot, const void *from, size_t bytes);
/* Waits for it, not for what was asked for since; the answer is device_status. */
status device_download_end(struct device *device, int slot, void *to, size_t bytes);
/* A stream (device_stream) that has nothing left to do when the slot's answer is there. */
void *device_download_stream(const struct device *device, int slot);

/* ---- work that is done again and again ---- */

/* Operators that a device did once and does again by one call: a CUDA graph. */
struct device_recording;

bool device_can_record(const struct device *device);
/* How often memory has moved that operators keep: what was recorded before does not hold any more. */
uint64_t device_moves(const struct device *device);
/* From here on operators are recorded instead of run. *why, when the device cannot: then they are not, and no end
 * follows. */
status device_record_begin(struct device *device, status *why);
/* *out: what was asked for since. *why, when the device cannot record it: then *out is NULL, and nothing has been done.
 */
status device_record_end(struct device *device, struct device_recording **out, status *why);
/* Does it, after what was asked for before; false, and nothing is done, when memory that it uses has moved. */
bool device_replay(struct device *device, const struct device_recording *recording);
void device_recording_destroy(struct device *device, struct device_recording *recording); /* takes NULL */

#endif
