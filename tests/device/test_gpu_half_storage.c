/* The GPU's operators on 16-bit operands, in every combination with float32, against the same numbers in float32; what
 * cannot be 16 bits is refused. Skipped where there is no GPU. ctest-labels: gpu */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "gpu_work.h"

enum form { X = 1, OTHER = 2, Y = 4, DY = 8, DX = 16 };

struct operand {
    size_t count;
    enum form form; /* 0: always float32 */
    enum { READ, WRITTEN, ADDED_TO } use;
};

#define OPERANDS 8

struct work {
    const char *name;
    struct operand operands[OPERANDS];
    void (*run)(struct device *, const struct tensor p[OPERANDS]);
};

enum { ROWS = 37, IN = 24, OUT = 136, TOKENS = 33, HEADS = 2, SIZE = 16, WIDTH = HEADS * SIZE, CLASSES = 1000 };
enum { IMAGES = 3, SIDE = 5, CHANNELS = 16, ODD = 6, PIXELS = IMAGES * SIDE * SIDE };

static void linear_forward(struct device *d, const struct tensor *p) {
    device_ops(d)->linear_forward(d, &p[0], floats(&p[1]), floats(&p[2]), false, &p[3], ROWS, IN, OUT);
}
static void linear_without_bias(struct device *d, const struct tensor *p) {
    device_ops(d)->linear_forward(d, &p[0], floats(&p[1]), NULL, false, &p[3], ROWS, IN, OUT);
}
static void linear_relu(struct device *d, const struct tensor *p) {
    device_ops(d)->linear_forward(d, &p[0], floats(&p[1]), floats(&p[2]), true, &p[3], ROWS, IN, OUT);
}
static void linear_backward(struct device *d, const struct tensor *p) {
    const struct device_ops *ops = device_ops(d);
    ops->linear_backward_weight(d, &p[0], &p[1], floats(&p[3]), floats(&p[4]), ROWS, IN, OUT);
    ops->linear_backward_input(d, &p[0], floats(&p[2]), &p[5], ROWS, IN, OUT);
}
static void linear_backward_without_bias(struct device *d, const struct tensor *p) {
    device_ops(d)->linear_backward_weight(d, &p[0], &p[1], floats(&p[3]), NULL, ROWS, IN, OUT);
}
static void gelu(struct device *d, const struct tensor *p) {
    const struct gelu_ops *ops = device_ops(d)->gelu;
    struct tensor between[3];
    for (int i = 0; i < 3; i++) {
        between[i] = (struct tensor){.is_half = true};
        ck_assert(!device_alloc(d, ROWS * OUT * sizeof(float), "a test", &between[i].data));
    }
    ops->forward_before(d, &p[0], floats(&p[1]), floats(&p[2]), &between[0], &between[1], ROWS, IN, OUT);
    ops->forward_after(d, &between[1], floats(&p[3]), NULL, false, &p[4], ROWS, OUT, IN);
    ops->backward_after(d, &p[5], &between[1], floats(&p[3]), &between[0], floats(&p[6]), NULL, &between[2], ROWS, OUT,
                        IN);
    ops->backward_before(d, &between[2], &p[0], floats(&p[1]), floats(&p[7]), NULL, NULL, ROWS, IN, OUT);
    for (int i = 0; i < 3; i++) device_free(d, between[i].data);
}
static void gelu_input(struct device *d, const struct tensor *p) {
    struct tensor between = {.is_half = true};
    ck_assert(!device_alloc(d, ROWS * OUT * sizeof(float), "a test", &between.data));
    uint16_t *bits = guarded_malloc(ROWS * OUT * sizeof *bits);
    bool is_bfloat16 = strstr(device_describe(d), "bfloat16");
    for (size_t i = 0; i < ROWS * OUT; i++)
        bits[i] = is_bfloat16 ? bits_to_bfloat16(floats(&p[0])[i]) : bits_to_float16(floats(&p[0])[i]);
    device_upload(d, between.data, bits, ROWS * OUT * sizeof *bits);
    device_ops(d)->gelu->backward_before(d, &between, &p[1], floats(&p[2]), floats(&p[3]), floats(&p[4]), &p[5], ROWS,
                                         IN, OUT);
    ck_assert(!device_wait(d));
    device_free(d, between.data);
    guarded_free(bits);
}
static void layer_norm_forward(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->layer_norm_forward(d, floats(&p[0]), floats(&p[1]), floats(&p[2]), 1e-5f, &p[3],
                                                   floats(&p[4]), ROWS, OUT);
}
static void add_layer_norm(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->add_layer_norm_forward(d, &p[0], &p[1], floats(&p[2]), floats(&p[3]), floats(&p[4]),
                                                       1e-5f, &p[5], floats(&p[6]), ROWS, OUT);
}
static void add_rms_norm(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->add_rms_norm_forward(d, &p[0], &p[1], floats(&p[2]), floats(&p[3]), 1e-5f, &p[4],
                                                     floats(&p[5]), ROWS, OUT);
}
static void layer_norm_backward(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->layer_norm_backward(d, floats(&p[0]), floats(&p[1]), floats(&p[2]), &p[3], &p[4], true,
                                                    floats(&p[5]), floats(&p[6]), ROWS, OUT);
}
static void layer_norm_input(struct device *d, const struct tensor *p) { /* without parameters: another kernel */
    device_ops(d)->norm_layers->layer_norm_backward(d, floats(&p[0]), floats(&p[1]), floats(&p[2]), &p[3], &p[4], false,
                                                    NULL, NULL, ROWS, OUT);
}
static void rms_norm_forward(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->rms_norm_forward(d, floats(&p[0]), floats(&p[1]), 1e-5f, &p[2], floats(&p[3]), ROWS,
                                                 OUT);
}
static void rms_norm_backward(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->rms_norm_backward(d, floats(&p[0]), floats(&p[1]), floats(&p[2]), &p[3], &p[4], true,
                                                  floats(&p[5]), ROWS, OUT);
}
static const struct attention_shape heads = {
    .rows = 3, .tokens = TOKENS, .heads = HEADS, .head_size = SIZE, .is_causal = true};
static void attention_forward(struct device *d, const struct tensor *p) {
    device_ops(d)->sequence->attention_forward(d, &heads, &p[0], &p[1], floats(&p[2]));
}
static void attention_backward(struct device *d, const struct tensor *p) { /* any softmaxes */
    device_ops(d)->sequence->attention_backward(d, &heads, &p[0], &p[1], floats(&p[4]), &p[2], &p[3]);
}
static void add(struct device *d, const struct tensor *p) { device_ops(d)->add(d, &p[0], &p[1], &p[2], ROWS * IN); }
static void add_odd(struct device *d, const struct tensor *p) {
    device_ops(d)->add(d, &p[0], &p[1], &p[2], ROWS * IN - 3);
}
static void add_relu(struct device *d, const struct tensor *p) {
    device_ops(d)->image->add_relu(d, &p[0], &p[1], &p[2], ROWS * IN);
}
static void relu_backward(struct device *d, const struct tensor *p) {
    device_ops(d)->image->relu_backward(d, &p[0], &p[1], &p[2], ROWS * IN);
}
static void copy(struct device *d, const struct tensor *p) { device_ops(d)->copy(d, &p[0], &p[1], ROWS * IN); }
static void activate(struct device *d, const struct tensor *p) {
    for (int f = 0; f < ACTIVATION_COUNT; f++)
        device_ops(d)->activation_forward(d, (enum activation)f, &p[0], &p[1], ROWS * IN);
}
static void activate_back(struct device *d, const struct tensor *p) {
    device_ops(d)->activation_backward(d, ACTIVATION_GELU_TANH, &p[0], &p[1], &p[2], &p[3], ROWS * IN);
    device_ops(d)->activation_backward(d, ACTIVATION_TANH, &p[0], &p[1], &p[2], &p[4], ROWS * IN);
}
/* y is gelu(x): with 16 bits backward does not read it */
static void exact_gelu(struct device *d, const struct tensor *p) {
    device_ops(d)->activation_forward(d, ACTIVATION_GELU, &p[0], &p[1], ROWS * IN);
    device_ops(d)->activation_backward(d, ACTIVATION_GELU, &p[0], &p[1], &p[2], &p[3], ROWS * IN);
}
static void leak(struct device *d, const struct tensor *p) {
    const struct keyed_activation f = {KEYED_LEAKY_RELU, 0.1f, 0};
    device_ops(d)->keyed_forward(d, &f, &p[0], &p[1], ROWS * IN);
    device_ops(d)->keyed_backward(d, &f, &p[0], &p[2], &p[3], ROWS * IN);
}
static void drop(struct device *d, const struct tensor *p) {
    static const uint64_t pass = 3;
    struct draw_key key = {.seed = 1, .stream = 2, .pass = &pass, .row_stride = 1};
    device_ops(d)->dropout(d, &key, 0.3f, &p[0], &p[1], ROWS, IN);
}
static void cross_entropy_of(struct device *d, const struct tensor *p, float smoothing, size_t rows, size_t classes) {
    int64_t targets[ROWS];
    struct loss_sums sums = {0};
    struct cross_entropy_options o = {.ignored = -100, .label_smoothing = smoothing};
    for (size_t i = 0; i < rows; i++) targets[i] = i % 5 == 3 ? -100 : (int64_t)(i * 31 % classes);
    device_ops(d)->losses->cross_entropy(d, &o, &p[0], targets, rows, classes, 100, &p[1], &sums);
    floats(&p[2])[0] = (float)sums.loss;
    floats(&p[2])[1] = (float)sums.correct;
}
static void cross_entropy(struct device *d, const struct tensor *p) { cross_entropy_of(d, p, 0, ROWS, CLASSES); }
static void cross_entropy_smoothed(struct device *d, const struct tensor *p) {
    cross_entropy_of(d, p, 0.1f, ROWS, CLASSES);
}
static void cross_entropy_full(struct device *d, const struct tensor *p) { cross_entropy_of(d, p, 0, 1, 21128); }
static void cross_entropy_long(struct device *d, const struct tensor *p) {
    cross_entropy_of(d, p, 0, 2, ROWS * CLASSES / 2);
}

/* ---- images ---- */

static void convolve_forward(struct device *d, const struct tensor *p, struct convolution c) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct device_convolution *made;
    ck_assert(!ops->create(d, &c, IMAGES, &made));
    ops->forward(made, &p[0], floats(&p[1]), c.has_bias ? floats(&p[2]) : NULL, &p[3], IMAGES);
    ops->destroy(made);
}
static void convolve_back(struct device *d, const struct tensor *p, struct convolution c) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct device_convolution *made;
    ck_assert(!ops->create(d, &c, IMAGES, &made));
    ops->backward(made, &p[0], floats(&p[1]), &p[2], &p[3], floats(&p[4]), c.has_bias ? floats(&p[5]) : NULL, IMAGES);
    ops->destroy(made);
}
#define CONVOLUTION(bias, relu)                                                                                        \
    (struct convolution) { {SIDE, SIDE, IN}, {SIDE, SIDE, CHANNELS}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, bias, relu }
static void convolution(struct device *d, const struct tensor *p) { convolve_forward(d, p, CONVOLUTION(false, false)); }
static void convolution_bias(struct device *d, const struct tensor *p) {
    convolve_forward(d, p, CONVOLUTION(true, false));
}
static void convolution_relu(struct device *d, const struct tensor *p) {
    convolve_forward(d, p, CONVOLUTION(true, true));
}
static void convolution_back(struct device *d, const struct tensor *p) {
    convolve_back(d, p, CONVOLUTION(false, false));
}
static void convolution_back_bias(struct device *d, const struct tensor *p) {
    convolve_back(d, p, CONVOLUTION(true, true));
}

static void ignore_sum(void *user, double *values, size_t count) { (void)user, (void)values, (void)count; }
static const struct all_sum alone = {ignore_sum, NULL};
/* Forward, twice, and backward. */
static void normalise(struct device *d, const struct tensor *p, size_t channels, bool has_relu,
                      const struct all_sum *sync) {
    const struct image_ops *ops = device_ops(d)->image;
    size_t count = IMAGES * SIDE * SIDE;
    struct batch_norm norm = {
        .channels = channels, .eps = 1e-5f, .momentum = 0.1f, .uses_batch = true, .has_relu = has_relu, .sync = sync};
    float *work;
    ck_assert(!device_alloc(d, BATCH_NORM_WORK(channels) * sizeof *work, "a test", (void **)&work));
    ops->batch_norm_forward(d, &norm, &p[0], floats(&p[1]), floats(&p[1]), floats(&p[6]), floats(&p[7]), work, &p[2],
                            count);
    ops->batch_norm_recompute(d, &norm, &p[0], work, &p[2], count);
    ops->batch_norm_backward(d, &norm, &p[0], &p[3], work, &p[4], floats(&p[5]), floats(&p[5]) + channels, count);
    device_free(d, work);
}
static void batch_norm(struct device *d, const struct tensor *p) { normalise(d, p, CHANNELS, false, NULL); }
static void batch_norm_relu(struct device *d, const struct tensor *p) { normalise(d, p, CHANNELS, true, NULL); }
static void batch_norm_sync(struct device *d, const struct tensor *p) { normalise(d, p, CHANNELS, true, &alone); }
static void batch_norm_odd(struct device *d, const struct tensor *p) { normalise(d, p, ODD, true, NULL); }
static void batch_norm_running(struct device *d, const struct tensor *p) {
    struct batch_norm norm = {.channels = CHANNELS, .eps = 1e-5f, .momentum = 0.1f, .has_relu = true};
    float *work, variance[CHANNELS];
    for (size_t i = 0; i < CHANNELS; i++) variance[i] = fabsf(floats(&p[3])[i]) + 0.5f;
    ck_assert(!device_alloc(d, BATCH_NORM_WORK(CHANNELS) * sizeof *work, "a test", (void **)&work));
    device_ops(d)->image->batch_norm_forward(d, &norm, &p[0], floats(&p[1]), floats(&p[1]), floats(&p[1]), variance,
                                             work, &p[2], IMAGES * SIDE * SIDE);
    device_free(d, work);
}
static void group_norm(struct device *d, const struct tensor *p) {
    const struct group_norm norm = {CHANNELS, 4, SIDE * SIDE, 1e-5f};
    const struct image_ops *ops = device_ops(d)->image;
    float *saved;
    ck_assert(!device_alloc(d, 2 * 4 * IMAGES * sizeof *saved, "a test", (void **)&saved));
    ops->group_norm_forward(d, &norm, &p[0], floats(&p[1]), floats(&p[1]), saved, &p[2], IMAGES);
    ops->group_norm_backward(d, &norm, &p[0], floats(&p[1]), saved, &p[3], &p[4], floats(&p[5]),
                             floats(&p[5]) + CHANNELS, IMAGES);
    device_free(d, saved);
}
static void pool_max(struct device *d, const struct tensor *p, size_t channels) {
    const struct image_ops *ops = device_ops(d)->image;
    uint8_t *index;
    ck_assert(!device_alloc(d, IMAGES * SIDE * SIDE * channels, "a test", (void **)&index));
    for (int has_relu = 0; has_relu < 2; has_relu++) {
        const struct pooling max = {.in = {SIDE, SIDE, channels},
                                    .out = {SIDE, SIDE, channels},
                                    .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                    .has_relu = has_relu};
        ops->max_pool_forward(d, &max, &p[0], &p[1], index, IMAGES);
        ops->max_pool_backward(d, &max, &p[1], index, &p[2], &p[3 + has_relu], IMAGES);
        ops->max_pool_gather(d, &max, index, &p[0], &p[1], IMAGES);
    }
    device_free(d, index);
}
static void max_pool(struct device *d, const struct tensor *p) { pool_max(d, p, CHANNELS); }
static void max_pool_odd(struct device *d, const struct tensor *p) { pool_max(d, p, ODD); }
static void average(struct device *d, const struct tensor *p, size_t channels) {
    const struct pooling all = {.in = {SIDE, SIDE, channels}, .out = {2, 1, channels}, .is_adaptive = true};
    device_ops(d)->image->avg_pool_forward(d, &all, &p[0], &p[1], IMAGES);
    device_ops(d)->image->avg_pool_backward(d, &all, &p[2], &p[3], IMAGES);
}
static void avg_pool(struct device *d, const struct tensor *p) { average(d, p, CHANNELS); }
static void avg_pool_odd(struct device *d, const struct tensor *p) { average(d, p, ODD); }
static void transpose(struct device *d, const struct tensor *p) {
    device_ops(d)->image->transpose(d, &p[0], &p[1], IMAGES, SIDE, CHANNELS);
}

#define READS(count, form)                                                                                             \
    { count, form, READ }
#define WRITES(count, form)                                                                                            \
    { count, form, WRITTEN }
#define ADDS(count)                                                                                                    \
    { count, 0, ADDED_TO }

#define NORM(channels)                                                                                                 \
    {                                                                                                                  \
        READS(PIXELS *channels, X), READS(channels, 0), WRITES(PIXELS *channels, Y), READS(PIXELS *channels, DY),      \
            WRITES(PIXELS *channels, DX), ADDS(2 * channels), ADDS(channels), ADDS(channels)                           \
    }
#define POOL(channels)                                                                                                 \
    {                                                                                                                  \
        READS(PIXELS *channels, X), WRITES(PIXELS *channels, Y), READS(PIXELS *channels, DY),                          \
            WRITES(PIXELS *channels, DX), WRITES(PIXELS *channels, DX)                                                 \
    }
#define AVERAGE(channels)                                                                                              \
    {                                                                                                                  \
        READS(PIXELS *channels, X), WRITES(2 * IMAGES * channels, Y), READS(2 * IMAGES * channels, DY),                \
            WRITES(PIXELS *channels, DX)                                                                               \
    }

static const struct work works[] = {
    {"linear_forward", {READS(ROWS * IN, X), READS(OUT *IN, 0), READS(OUT, 0), WRITES(ROWS *OUT, Y)}, linear_forward},
    {"linear_forward without bias",
     {READS(ROWS * IN, X), READS(OUT *IN, 0), READS(1, 0), WRITES(ROWS *OUT, Y)},
     linear_without_bias},
    {"linear_forward with relu",
     {READS(ROWS * IN, X), READS(OUT *IN, 0), READS(OUT, 0), WRITES(ROWS *OUT, Y)},
     linear_relu},
    {"linear_backward",
     {READS(ROWS * OUT, DY), READS(ROWS *IN, X), READS(OUT *IN, 0), ADDS(OUT *IN), ADDS(OUT), WRITES(ROWS *IN, DX)},
     linear_backward},
    {"linear_backward_weight without bias",
     {READS(ROWS * OUT, DY), READS(ROWS *IN, X), READS(1, 0), ADDS(OUT *IN)},
     linear_backward_without_bias},
    {"gelu",
     {READS(ROWS * IN, X), READS(OUT *IN, 0), READS(OUT, 0), READS(OUT *IN, 0), WRITES(ROWS *IN, Y),
      READS(ROWS *IN, DY), ADDS(OUT *IN), ADDS(OUT *IN)},
     gelu},
    {"gelu's input",
     {READS(ROWS * OUT, 0), READS(ROWS *IN, X), READS(OUT *IN, 0), ADDS(OUT *IN), ADDS(OUT), WRITES(ROWS *IN, DX)},
     gelu_input},
    {"layer_norm_forward",
     {READS(ROWS * OUT, 0), READS(OUT, 0), READS(OUT, 0), WRITES(ROWS *OUT, Y), WRITES(2 * ROWS, 0)},
     layer_norm_forward},
    {"add_layer_norm_forward",
     {READS(ROWS * OUT, X), READS(ROWS *OUT, OTHER), WRITES(ROWS *OUT, 0), READS(OUT, 0), READS(OUT, 0),
      WRITES(ROWS *OUT, Y), WRITES(2 * ROWS, 0)},
     add_layer_norm},
    {"add_rms_norm_forward",
     {READS(ROWS * OUT, X), READS(ROWS *OUT, OTHER), WRITES(ROWS *OUT, 0), READS(OUT, 0), WRITES(ROWS *OUT, Y),
      WRITES(ROWS, 0)},
     add_rms_norm},
    {"layer_norm_backward",
     {READS(ROWS * OUT, 0), READS(OUT, 0), READS(2 * ROWS, 0), READS(ROWS *OUT, DY), ADDS(ROWS *OUT), ADDS(OUT),
      ADDS(OUT)},
     layer_norm_backward},
    {"layer_norm_backward's input",
     {READS(ROWS * OUT, 0), READS(OUT, 0), READS(2 * ROWS, 0), READS(ROWS *OUT, DY), WRITES(ROWS *OUT, 0)},
     layer_norm_input},
    {"rms_norm_forward",
     {READS(ROWS * OUT, 0), READS(OUT, 0), WRITES(ROWS *OUT, Y), WRITES(ROWS, 0)},
     rms_norm_forward},
    {"rms_norm_backward",
     {READS(ROWS * OUT, 0), READS(OUT, 0), READS(ROWS, 0), READS(ROWS *OUT, DY), ADDS(ROWS *OUT), ADDS(OUT)},
     rms_norm_backward},
    {"attention_forward",
     {READS(9 * TOKENS * WIDTH, X), WRITES(3 * TOKENS * WIDTH, Y), WRITES(6 * HEADS * TOKENS, 0)},
     attention_forward},
    {"attention_backward",
     {READS(9 * TOKENS * WIDTH, X), READS(3 * TOKENS * WIDTH, Y), READS(3 * TOKENS * WIDTH, DY),
      WRITES(9 * TOKENS * WIDTH, DX), READS(6 * HEADS * TOKENS, 0)},
     attention_backward},
    {"add", {READS(ROWS * IN, X), READS(ROWS *IN, OTHER), WRITES(ROWS *IN, Y)}, add},
    {"add, not in fours", {READS(ROWS * IN - 3, X), READS(ROWS *IN - 3, OTHER), WRITES(ROWS *IN - 3, Y)}, add_odd},
    {"add_relu", {READS(ROWS * IN, X), READS(ROWS *IN, OTHER), WRITES(ROWS *IN, Y)}, add_relu},
    {"relu_backward", {READS(ROWS * IN, Y), READS(ROWS *IN, DY), WRITES(ROWS *IN, DX)}, relu_backward},
    {"copy", {READS(ROWS * IN, X), WRITES(ROWS *IN, Y)}, copy},
    {"activation_forward", {READS(ROWS * IN, X), WRITES(ROWS *IN, Y)}, activate},
    {"activation_backward",
     {READS(ROWS * IN, X), READS(ROWS *IN, Y), READS(ROWS *IN, DY), WRITES(ROWS *IN, DX), WRITES(ROWS *IN, DX)},
     activate_back},
    {"exact gelu", {READS(ROWS * IN, X), WRITES(ROWS *IN, Y), READS(ROWS *IN, DY), WRITES(ROWS *IN, DX)}, exact_gelu},
    {"leaky_relu", {READS(ROWS * IN, X), WRITES(ROWS *IN, Y), READS(ROWS *IN, DY), WRITES(ROWS *IN, DX)}, leak},
    {"dropout", {READS(ROWS * IN, X), WRITES(ROWS *IN, Y)}, drop},
    {"cross_entropy", {READS(ROWS * CLASSES, X), WRITES(ROWS *CLASSES, DX), WRITES(2, 0)}, cross_entropy},
    {"cross_entropy, smoothed",
     {READS(ROWS * CLASSES, X), WRITES(ROWS *CLASSES, DX), WRITES(2, 0)},
     cross_entropy_smoothed},
    {"cross_entropy, 48 KB of dynamic shared memory",
     {READS(21128, X), WRITES(21128, DX), WRITES(2, 0)},
     cross_entropy_full},
    {"cross_entropy, long rows",
     {READS(ROWS * CLASSES, X), WRITES(ROWS *CLASSES, DX), WRITES(2, 0)},
     cross_entropy_long},
    {"convolution",
     {READS(PIXELS * IN, X), READS(9 * CHANNELS * IN, 0), READS(1, 0), WRITES(PIXELS *CHANNELS, Y)},
     convolution},
    {"convolution with bias",
     {READS(PIXELS * IN, X), READS(9 * CHANNELS * IN, 0), READS(CHANNELS, 0), WRITES(PIXELS *CHANNELS, Y)},
     convolution_bias},
    {"convolution with relu",
     {READS(PIXELS * IN, X), READS(9 * CHANNELS * IN, 0), READS(CHANNELS, 0), WRITES(PIXELS *CHANNELS, Y)},
     convolution_relu},
    {"convolution's gradients",
     {READS(PIXELS * IN, X), READS(9 * CHANNELS * IN, 0), READS(PIXELS *CHANNELS, DY), WRITES(PIXELS *IN, DX),
      ADDS(9 * CHANNELS * IN), READS(1, 0)},
     convolution_back},
    {"convolution's gradients with bias",
     {READS(PIXELS * IN, X), READS(9 * CHANNELS * IN, 0), READS(PIXELS *CHANNELS, DY), WRITES(PIXELS *IN, DX),
      ADDS(9 * CHANNELS * IN), ADDS(CHANNELS)},
     convolution_back_bias},
    {"batch_norm", NORM(CHANNELS), batch_norm},
    {"batch_norm with relu", NORM(CHANNELS), batch_norm_relu},
    {"batch_norm of all processes", NORM(CHANNELS), batch_norm_sync},
    {"batch_norm, not in fours", NORM(ODD), batch_norm_odd},
    {"batch_norm of running statistics",
     {READS(PIXELS * CHANNELS, X), READS(CHANNELS, 0), WRITES(PIXELS *CHANNELS, Y), READS(CHANNELS, 0)},
     batch_norm_running},
    {"group_norm",
     {READS(PIXELS * CHANNELS, X), READS(CHANNELS, 0), WRITES(PIXELS *CHANNELS, Y), READS(PIXELS *CHANNELS, DY),
      WRITES(PIXELS *CHANNELS, DX), ADDS(2 * CHANNELS)},
     group_norm},
    {"max_pool", POOL(CHANNELS), max_pool},
    {"max_pool, not in fours", POOL(ODD), max_pool_odd},
    {"avg_pool", AVERAGE(CHANNELS), avg_pool},
    {"avg_pool, not in fours", AVERAGE(ODD), avg_pool_odd},
    {"transpose", {READS(PIXELS * CHANNELS, X), WRITES(PIXELS *CHANNELS, Y)}, transpose},
};

static uint16_t to_bits(enum precision precision, float x) {
    return precision == PRECISION_FLOAT16 ? bits_to_float16(x) : bits_to_bfloat16(x);
}

static float from_bits(enum precision precision, uint16_t x) {
    return precision == PRECISION_FLOAT16 ? bits_from_float16(x) : bits_from_bfloat16(x);
}

/* Numbers that are exact in 16 bits; [p] are float32. */
static void fill(enum precision precision, const struct work *w, float *p[OPERANDS]) {
    for (size_t i = 0; i < OPERANDS; i++) {
        p[i] = random_values(w->operands[i].count, i + 1);
        for (size_t k = 0; k < w->operands[i].count; k++) p[i][k] = from_bits(precision, to_bits(precision, p[i][k]));
    }
}

static void half_run(struct device *d, enum precision precision, const struct work *w, int forms, float *p[OPERANDS]) {
    uint16_t *bits[OPERANDS] = {NULL};
    struct tensor given[OPERANDS];
    for (size_t i = 0; i < OPERANDS; i++) {
        const struct operand *o = &w->operands[i];
        given[i] = *F32(p[i]);
        if (!(o->form & forms)) continue;
        bits[i] = guarded_malloc(o->count * sizeof *bits[i]);
        for (size_t k = 0; k < o->count; k++) bits[i][k] = to_bits(precision, p[i][k]);
        given[i] = (struct tensor){.data = bits[i], .is_half = true};
    }
    w->run(d, given);
    status s = device_wait(d);
    ck_assert_msg(!s, "%s", status_message(s));
    for (size_t i = 0; i < OPERANDS; i++) {
        for (size_t k = 0; bits[i] && k < w->operands[i].count; k++) p[i][k] = from_bits(precision, bits[i][k]);
        guarded_free(bits[i]);
    }
}

static void wide_run(struct device *d, const struct work *w, float *const p[OPERANDS]) {
    struct tensor given[OPERANDS];
    for (size_t i = 0; i < OPERANDS; i++) given[i] = *F32(p[i]);
    w->run(d, given);
}

/* Sums in another order may be rounded to the adjacent number. */
static void compare(const struct work *w, enum precision precision, int forms, float *const wide[OPERANDS],
                    float *const half[OPERANDS]) {
    double step = precision == PRECISION_FLOAT16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < OPERANDS; i++) {
        const struct operand *o = &w->operands[i];
        double slack = o->form & forms ? step : 4e-6;
        for (size_t k = 0; o->use != READ && k < o->count; k++) {
            double a = (double)wide[i][k], b = (double)half[i][k], min = o->form & forms ? step * 1e-2 : 1e-5;
            if (!(fabs(a - b) <= slack * fabs(a) + min))
                ck_abort_msg("%s, precision %d, forms %d: operand %zu, number %zu: %.9g, with 16 bits %.9g", w->name,
                             (int)precision, forms, i, k, a, b);
        }
    }
}

/* The second time without cuBLASLt's epilogues, if they can be disabled: kernels replace them. */
TEST_LOOP(operands_of_16_bits, 0, 2 * (int)(sizeof works / sizeof *works)) {
    const struct work *w = &works[_i / 2];
    setenv("DDPTRAIN_EMULATED_EPILOGUES", _i % 2 ? "0" : "1", 1);
    static const enum precision precisions[] = {PRECISION_BFLOAT16, PRECISION_FLOAT16};
    int known = 0, mixes = 0;
    for (size_t i = 0; i < OPERANDS; i++) known |= (int)w->operands[i].form;
    for (size_t t = 0; t < 2; t++) {
        struct device *d;
        ck_assert(!device_create("cuda", &d));
        ck_assert(!device_set_precision(d, precisions[t]));
        float *wide[OPERANDS];
        fill(precisions[t], w, wide);
        wide_run(d, w, wide);
        for (int forms = 1; forms < 32; forms++) {
            float *half[OPERANDS];
            if (forms & ~known) continue;
            fill(precisions[t], w, half);
            half_run(d, precisions[t], w, forms, half);
            compare(w, precisions[t], forms, wide, half);
            for (size_t i = 0; i < OPERANDS; i++) guarded_free(half[i]);
            mixes++;
        }
        for (size_t i = 0; i < OPERANDS; i++) guarded_free(wide[i]);
        device_destroy(d);
    }
    ck_assert_int_gt(mixes, 0);
}

/* One number of x is NaN: the same results are NaN as in float32. */
TEST_EACH(a_nan_is_propagated, works) {
    const struct work *w = &works[_i];
    int known = 0;
    for (size_t i = 0; i < OPERANDS; i++) known |= (int)w->operands[i].form;
    if (w->operands[0].form != X) return;
    for (enum precision precision = PRECISION_BFLOAT16; precision <= PRECISION_FLOAT16; precision++) {
        struct device *d;
        float *wide[OPERANDS], *half[OPERANDS];
        size_t found = 0;
        ck_assert(!device_create("cuda", &d));
        ck_assert(!device_set_precision(d, precision));
        fill(precision, w, wide);
        fill(precision, w, half);
        wide[0][7] = half[0][7] = NAN;
        wide_run(d, w, wide);
        half_run(d, precision, w, known, half);
        for (size_t i = 0; i < OPERANDS; i++) {
            const struct operand *o = &w->operands[i];
            for (size_t k = 0; o->use != READ && k < o->count; k++) {
                if (isnan(wide[i][k]) != isnan(half[i][k]))
                    ck_abort_msg("%s, precision %d: operand %zu, number %zu", w->name, (int)precision, i, k);
                found += isnan(wide[i][k]);
            }
            guarded_free(wide[i]), guarded_free(half[i]);
        }
        ck_assert_msg(found > 0, "%s", w->name);
        device_destroy(d);
    }
}

/* Logits below float16's smallest number become -inf, masked ones are -inf, in all of the first half of each row; one
 * above the largest number makes the last row NaN. */
TEST(logits_that_overflow) {
    const struct work w = {
        "cross_entropy", {READS(ROWS * CLASSES, X), WRITES(ROWS * CLASSES, DX), WRITES(2, 0)}, cross_entropy};
    for (int turn = 0; turn < 4; turn++) {
        enum precision precision = turn % 2 ? PRECISION_FLOAT16 : PRECISION_BFLOAT16;
        float *wide[OPERANDS], *half[OPERANDS], low = precision == PRECISION_FLOAT16 ? -1e5f : -INFINITY;
        struct device *d;
        ck_assert(!device_create("cuda", &d));
        ck_assert(!device_set_precision(d, precision));
        fill(precision, &w, half);
        for (size_t i = 0; i < ROWS * CLASSES; i++)
            if (i % CLASSES < CLASSES / 2 && i % CLASSES != i / CLASSES * 31) half[0][i] = low;
        if (turn > 1) half[0][(ROWS - 1) * CLASSES + 7] = -2 * low;
        fill(precision, &w, wide);
        for (size_t i = 0; i < ROWS * CLASSES; i++) wide[0][i] = from_bits(precision, to_bits(precision, half[0][i]));
        wide_run(d, &w, wide);
        half_run(d, precision, &w, X, half);
        ck_assert_int_eq(isnan(wide[2][0]) != 0, turn > 1);
        for (size_t i = 0; i < (ROWS - (turn > 1)) * CLASSES; i++)
            ck_assert_msg(fabsf(wide[1][i] - half[1][i]) <= 1e-5f + 4e-6f * fabsf(wide[1][i]), "%d: %zu", turn, i);
        ck_assert_int_eq(isnan(half[2][0]) != 0, turn > 1);
        for (size_t i = 0; i < OPERANDS; i++) guarded_free(wide[i]), guarded_free(half[i]);
        device_destroy(d);
    }
}

/* Rows that a block keeps in shared memory: an ignored one; targets that are the first of the largest logits, a later
 * one of them, and none; masked logits. Its gradient may replace the logits. */
TEST_LOOP(long_rows, 0, 2) {
    enum { LONG_ROWS = 5, LONG = 17412, ALL = LONG_ROWS * LONG };
    static const int64_t targets[LONG_ROWS] = {-100, 9000, 17411, 3, 5000};
    struct cross_entropy_options o = {.ignored = -100};
    enum precision precision = _i ? PRECISION_FLOAT16 : PRECISION_BFLOAT16;
    struct loss_sums sums[3] = {{.loss = 0}};
    struct device *d;
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, precision));
    float *x = random_values(ALL, 1), *dx = random_values(ALL, 2);
    uint16_t *bits = guarded_malloc(ALL * sizeof *bits), *dbits = guarded_malloc(ALL * sizeof *dbits);
    x[LONG + 9000] = x[LONG + 9001] = x[LONG + 17000] = 4;
    x[2 * LONG + 17411] = x[2 * LONG + 40] = 4;
    for (size_t i = 0; i < 8000; i++) x[4 * LONG + i * 2] = -INFINITY;
    x[4 * LONG + 5000] = 0.5f;
    for (size_t i = 0; i < ALL; i++) {
        bits[i] = to_bits(precision, x[i]);
        x[i] = from_bits(precision, bits[i]);
    }
    const struct device_ops *ops = device_ops(d);
    ops->losses->cross_entropy(d, &o, F32(x), targets, LONG_ROWS, LONG, 1, F32(dx), &sums[0]);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct tensor logits = {.data = bits, .is_half = true};
        struct tensor gradient = {.data = in_place ? bits : dbits, .is_half = true};
        ops->losses->cross_entropy(d, &o, &logits, targets, LONG_ROWS, LONG, 1, &gradient, &sums[1 + in_place]);
        ck_assert(!device_wait(d));
    }
    ck_assert(sums[0].correct == 1 && sums[0].count == 4 && isfinite(sums[0].loss));
    for (int i = 1; i < 3; i++) {
        ck_assert(sums[i].correct == 1 && sums[i].count == 4);
        ck_assert(fabs(sums[i].loss - sums[0].loss) <= 1e-5 * sums[0].loss);
    }
    double step = precision == PRECISION_FLOAT16 ? 0x1p-10 : 0x1p-7, min = precision == PRECISION_FLOAT16 ? 0x1p-24 : 0;
    for (size_t i = 0; i < ALL; i++) {
        double found = (double)from_bits(precision, dbits[i]);
        ck_assert_msg(fabs(found - (double)dx[i]) <= step * fabs((double)dx[i]) + min, "%zu: %g and %g", i,
                      (double)dx[i], found);
    }
    ck_assert_mem_eq(bits, dbits, ALL * sizeof *bits);
    guarded_free(x), guarded_free(dx), guarded_free(bits), guarded_free(dbits);
    device_destroy(d);
}

/* [run] with operands of zeros, of which [half] is 16 bits, fails. */
static void check_refused(enum precision precision, const char *operation, size_t half,
                          void (*run)(struct device *, const struct tensor *p)) {
    struct device *d;
    struct tensor p[OPERANDS];
    for (size_t i = 0; i < OPERANDS; i++)
        p[i] = (struct tensor){.data = guarded_calloc(4096, sizeof(float)), .is_half = i == half};
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, precision));
    run(d, p);
    status s = device_status(d);
    ck_assert_msg(s && strstr(status_message(s), operation) && strstr(status_message(s), "cannot be 16 bits"), "%s: %s",
                  operation, status_message(s));
    status_free(s);
    device_destroy(d);
    for (size_t i = 0; i < OPERANDS; i++) guarded_free(p[i].data);
}

static void norm_backward(struct device *d, const struct tensor *p) {
    device_ops(d)->norm_layers->rms_norm_backward(d, floats(&p[0]), NULL, floats(&p[1]), &p[2], &p[3], false, NULL, 2,
                                                  8);
}
static void small_heads(struct device *d, const struct tensor *p) {
    static const struct attention_shape shape = {.rows = 1, .tokens = 4, .heads = 2, .head_size = 4, .is_causal = true};
    device_ops(d)->sequence->attention_forward(d, &shape, &p[0], &p[1], floats(&p[2]));
}
static void large_heads(struct device *d, const struct tensor *p) {
    static const struct attention_shape shape = {
        .rows = 1, .tokens = 2, .heads = 1, .head_size = 136, .is_causal = true};
    device_ops(d)->sequence->attention_backward(d, &shape, &p[0], &p[1], floats(&p[2]), &p[3], &p[4]);
}

TEST(what_cannot_be_half_is_refused) {
    struct device *d;
    check_refused(PRECISION_BFLOAT16, "rms_norm_backward", 3, norm_backward);
    for (size_t half = 0; half < 2; half++) check_refused(PRECISION_BFLOAT16, "attention_forward", half, small_heads);
    for (size_t half = 0; half < 5; half++)
        if (half != 2) check_refused(PRECISION_BFLOAT16, "attention_backward", half, large_heads);
    check_refused(PRECISION_TF32, "add", 1, add); /* in this precision nothing is */
    check_refused(PRECISION_FLOAT32, "copy", 0, copy);
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, PRECISION_BFLOAT16));
    ck_assert(device_ops(d)->can_be_half(d, 16));
    ck_assert(!device_ops(d)->can_be_half(d, 12));
    device_destroy(d);
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_ops(d)->can_be_half(d, 16)); /* float32 */
    device_destroy(d);
}

int main(void) { return gpu_run("gpu_to_half"); }
