/* Generated rows for tests and benchmarks. `uniform` is the toy dataset of the PyTorch tutorial, drawn row by row from
 * one generator; `linear` and `classes` can be learned. All rows are generated at the first read. */
#include <math.h>
#include <stdlib.h>

#include "base/numbers/rng.h"
#include "base/scoped.h"
#include "data/source/config.h"
#include "data/source/source.h"

/* ---- config ---- */

static const char *const kind_choices[] = {"uniform", "linear", "classes", NULL};

static const struct schema_row synthetic_rows[] = {
    SCHEMA_ROW(CHOICE, struct synthetic_config, kind, .fallback = "uniform", .choices = kind_choices,
               .doc = "uniform: each row is (torch.rand(inputs), torch.rand(targets)), as the PyTorch tutorial's toy "
                      "data; linear: targets are a linear function of the inputs plus noise; classes: one normal "
                      "distribution per class."),
    SCHEMA_ROW(INT, struct synthetic_config, rows, .fallback = "2048", .min = 1, .max = 1e12, .doc = "Number of rows."),
    SCHEMA_ROW(INT_LIST, struct synthetic_config, inputs, .fallback = "20", .min = 1, .max = 1e9,
               .doc = "Shape of one input row: 20 for a vector, [3, 32, 32] for an image."),
    SCHEMA_ROW(INT, struct synthetic_config, targets, .fallback = "1", .min = 1, .max = 1e9,
               .doc = "Values of one target row (uniform, linear)."),
    SCHEMA_ROW(INT, struct synthetic_config, classes, .fallback = "3", .min = 2, .max = 1e6,
               .doc = "Number of classes (classes)."),
    SCHEMA_ROW(REAL, struct synthetic_config, noise, .fallback = "0.1", .min = 0, .max = 1e6,
               .doc = "Standard deviation of the noise of the targets (linear), or of a class (classes)."),
    SCHEMA_ROW(INT, struct synthetic_config, seed, .fallback = "0",
               .doc = "The rows are drawn from PyTorch's generator with this seed (torch.manual_seed)."),
    {0},
};

static void check_synthetic(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct synthetic_config *synthetic = config;
    if (synthetic->inputs.count < 1 || synthetic->inputs.count > MAX_DIMS)
        problems_add(problems, dataset_place(where, "inputs"), path, "inputs must be a shape of 1 to %d numbers",
                     MAX_DIMS);
}

const struct schema synthetic_section =
    SCHEMA("dataset.synthetic", struct synthetic_config, .rows = synthetic_rows, .check = check_synthetic);

/* ---- rows ---- */

struct synthetic {
    struct source base;
    struct synthetic_config config; /* without inputs, which are in base.input_shape */
    float *rows;                    /* (rows, input_size + target_size); NULL before the first read */
};

/* (torch.rand(inputs), torch.rand(targets)) */
static void draw_uniform(const struct synthetic *s, struct rng *rng, const float *fixed, float *inputs,
                         float *targets) {
    (void)fixed;
    rng_uniform(rng, inputs, s->base.input_size, 0, 1);
    rng_uniform(rng, targets, s->base.target_size, 0, 1);
}

/* y = W x / sqrt(inputs) + b + noise; fixed: W (targets, inputs), then b (targets) */
static void draw_linear(const struct synthetic *s, struct rng *rng, const float *fixed, float *inputs, float *targets) {
    size_t size = s->base.input_size, n = s->base.target_size;
    rng_normal(rng, inputs, size, 0, 1);
    rng_normal(rng, targets, n, 0, s->config.noise);
    for (size_t t = 0; t < n; t++) {
        double sum = 0;
        for (size_t i = 0; i < size; i++) sum += (double)fixed[t * size + i] * (double)inputs[i];
        targets[t] = (float)(sum / sqrt((double)size) + (double)fixed[n * size + t] + (double)targets[t]);
    }
}

/* x = centre of its class + noise; fixed: centres (classes, inputs) */
static void draw_classes(const struct synthetic *s, struct rng *rng, const float *fixed, float *inputs,
                         float *targets) {
    size_t size = s->base.input_size, class = rng_u32(rng) % (uint32_t)s->config.classes;
    rng_normal(rng, inputs, size, 0, s->config.noise);
    for (size_t i = 0; i < size; i++) inputs[i] += fixed[class * size + i];
    targets[0] = (float)class;
}

struct kind {
    void (*draw)(const struct synthetic *s, struct rng *rng, const float *fixed, float *inputs, float *targets);
    bool has_classes;
};

static const struct kind kinds[] = {
    [SYNTHETIC_UNIFORM] = {draw_uniform, false},
    [SYNTHETIC_LINEAR] = {draw_linear, false},
    [SYNTHETIC_CLASSES] = {draw_classes, true},
};

/* The number of values that all rows share, which are drawn from N(0, 1) before the first row. */
static size_t fixed_size(const struct synthetic *s) {
    if (s->config.kind == SYNTHETIC_LINEAR) return (s->base.input_size + 1) * s->base.target_size;
    return s->config.kind == SYNTHETIC_CLASSES ? s->base.input_size * (size_t)s->config.classes : 0;
}

static status draw_rows(struct synthetic *s) {
    size_t size = s->base.input_size, total = size + s->base.target_size;
    SCOPED_BUFFER float *fixed = NULL;
    TRY(rows_alloc(fixed_size(s), sizeof(float), "the synthetic dataset", &fixed));
    TRY(rows_alloc(s->base.rows, total * sizeof(float), "the synthetic dataset", &s->rows));
    struct rng rng;
    rng_seed(&rng, (uint64_t)s->config.seed);
    if (fixed_size(s) > 0) rng_normal(&rng, fixed, fixed_size(s), 0, 1);
    for (size_t i = 0; i < s->base.rows; i++)
        kinds[s->config.kind].draw(s, &rng, fixed, s->rows + i * total, s->rows + i * total + size);
    return OK;
}

static void close_synthetic(struct source *source) {
    struct synthetic *s = (struct synthetic *)source;
    buffer_free(s->rows);
    free(s);
}

static status set_shape(struct synthetic *s, const struct synthetic_config *config, bool wants_classes) {
    bool has_classes = kinds[config->kind].has_classes;
    if (wants_classes && !has_classes)
        return status_usage("dataset.synthetic: the loss needs classes; use kind: classes");
    s->base.rows = (size_t)config->rows;
    s->base.target_size = has_classes ? 1 : (size_t)config->targets;
    s->base.classes = has_classes ? config->classes : 0;
    s->base.input_dims = (int)config->inputs.count;
    double size = 1;
    for (size_t i = 0; i < config->inputs.count; i++) {
        s->base.input_shape[i] = config->inputs.items[i];
        size *= (double)config->inputs.items[i];
    }
    if (size > 1e9) return status_usage("dataset.synthetic.inputs: a row of %g values is too large", size);
    s->base.input_size = (size_t)size;
    return OK;
}

static status open_synthetic(const struct dataset_config *config, const char *path, bool wants_classes,
                             const struct source *train, struct source **out) {
    (void)path, (void)train;
    struct synthetic *s = calloc(1, sizeof *s);
    if (!s) return status_memory("a dataset");
    s->base.format = &dataset_synthetic;
    s->base.is_small = true;
    s->base.is_float32 = true;
    s->config = config->synthetic;
    s->config.inputs = (struct int_list){0};
    status result = set_shape(s, &config->synthetic, wants_classes);
    if (result == OK)
        *out = &s->base;
    else
        close_synthetic(&s->base);
    return result;
}

static status read_synthetic(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct synthetic *s = (struct synthetic *)source;
    if (!s->rows) TRY(draw_rows(s));
    size_t size = source->input_size, total = size + source->target_size;
    for (size_t row = 0; row < count; row++) {
        const float *values = s->rows + (first + row) * total;
        for (size_t i = 0; i < size && inputs; i++) inputs[row * size + i] = (double)values[i];
        for (size_t i = size; i < total && targets; i++) targets[row * (total - size) + i - size] = (double)values[i];
    }
    return OK;
}

static void describe_synthetic(const struct source *source, enum row_value kind, size_t row, size_t element,
                               struct text *out) {
    (void)source;
    text_printf(out, "synthetic dataset: row %zu, %s %zu", row, kind == ROW_TARGET ? "target" : "input", element);
}

const struct dataset_format dataset_synthetic = {.name = "synthetic",
                                                 .keys = KEY_SYNTHETIC,
                                                 .open = open_synthetic,
                                                 .read = read_synthetic,
                                                 .describe = describe_synthetic,
                                                 .close = close_synthetic,
                                                 .pytorch = "synthetic({synthetic})"};
