/* batch_norm: torch.nn.BatchNorm1d and BatchNorm2d by the input's dimensions; the first dimension of a row is the
 * channels. Training normalises by the batch statistics and updates the running ones; evaluation uses the running
 * ones, which are saved with the parameters. */
#include <math.h>

#include "model/layers/layers.h"

struct batch_norm_config {
    double momentum, eps;
    bool affine, track_running_stats, sync;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(REAL, struct batch_norm_config, momentum, .fallback = "0.1", .min = 0, .max = 1,
               .doc = "Weight of a new batch in the running statistics."),
    SCHEMA_ROW(REAL, struct batch_norm_config, eps, .fallback = "1.0e-5", .min = 0, .max = 1, .excludes_min = true,
               .doc = "Added to the variance."),
    SCHEMA_ROW(BOOL, struct batch_norm_config, affine, .fallback = "true",
               .doc = "Whether a learned weight and bias per channel are applied."),
    SCHEMA_ROW(BOOL, struct batch_norm_config, track_running_stats, .fallback = "true",
               .doc = "Whether evaluation uses running statistics; false: evaluation uses the statistics of each "
                      "batch, so its results depend on sampler.batch_size and the number of processes."),
    SCHEMA_ROW(BOOL, struct batch_norm_config, sync, .fallback = "false",
               .doc = "Whether training computes the statistics over the rows of all processes "
                      "(torch.nn.SyncBatchNorm), not of each process."),
    {0},
};

static const struct schema schema = SCHEMA("model.layers.batch_norm", struct batch_norm_config, .rows = rows);

static const struct batch_norm_config *config_of(const struct layer *layer) { return layer->config; }

static status plan(struct layer *layer, struct planning *planning) {
    const struct batch_norm_config *c = config_of(layer);
    layer->out = layer->in;
    const struct {
        struct params *into;
        bool is_wanted;
        const char *name;
    } tensors[] = {{planning->params, c->affine, "weight"},
                   {planning->params, c->affine, "bias"},
                   {planning->buffers, c->track_running_stats, "running_mean"},
                   {planning->buffers, c->track_running_stats, "running_var"}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].is_wanted)
            params_declare(tensors[i].into, planning->arena,
                           arena_printf(planning->arena, "%s.%s", layer->name, tensors[i].name), 1, layer->in.size);
    return OK;
}

static void fill(float *values, size_t count, float value) {
    for (size_t i = 0; i < count; i++) values[i] = value;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    if (!config_of(layer)->affine) return;
    size_t first = layer->first_param, channels = (size_t)layer->in.size[0];
    fill(params_value(params, first), channels, 1);
    fill(params_value(params, first + 1), channels, 0);
}

static void init_buffers(const struct layer *layer, const struct params *buffers) {
    if (!config_of(layer)->track_running_stats) return;
    fill(params_value(buffers, layer->first_buffer + 1), (size_t)layer->in.size[0], 1);
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    return device_alloc(device, BATCH_NORM_WORK((size_t)layer->in.size[0]) * sizeof(float), layer->path,
                        &layer->runtime);
}

static void release(struct layer *layer, struct device *device) { device_free(device, layer->runtime); }

static struct batch_norm norm_of(const struct layer *layer, const struct pass *pass) {
    const struct batch_norm_config *c = config_of(layer);
    return (struct batch_norm){.channels = (size_t)layer->in.size[0],
                               .eps = (float)c->eps,
                               .momentum = (float)c->momentum,
                               .uses_batch = pass->is_training || !c->track_running_stats,
                               .has_relu = layer->has_relu,
                               .adds_to_dx = layer->adds_to_dx,
                               .sync = c->sync && pass->is_training ? pass->all_sum : NULL};
}

static size_t positions(const struct layer *layer, const struct pass *pass) {
    return pass->rows * (layer->in_size / (size_t)layer->in.size[0]);
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct batch_norm_config *c = config_of(layer);
    struct batch_norm norm = norm_of(layer, pass);
    size_t p = layer->first_param, b = layer->first_buffer;
    bool is_tracked = c->track_running_stats && !pass->is_repeated; /* updated once */
    pass->ops->image->batch_norm_forward(
        pass->device, &norm, o.x, c->affine ? params_value(pass->params, p) : NULL,
        c->affine ? params_value(pass->params, p + 1) : NULL, is_tracked ? params_value(pass->buffers, b) : NULL,
        is_tracked ? params_value(pass->buffers, b + 1) : NULL, layer->runtime, o.y, positions(layer, pass));
}

static void recompute(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct batch_norm norm = norm_of(layer, pass);
    pass->ops->image->batch_norm_recompute(pass->device, &norm, o.x, layer->runtime, o.y, positions(layer, pass));
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    bool affine = config_of(layer)->affine;
    struct batch_norm norm = norm_of(layer, pass);
    size_t p = layer->first_param;
    pass->ops->image->batch_norm_backward(pass->device, &norm, o.x, o.dy, layer->runtime, o.dx,
                                          affine ? params_gradient(pass->params, p) : NULL,
                                          affine ? params_gradient(pass->params, p + 1) : NULL, positions(layer, pass));
}

static bool sums_over_ranks(const struct layer *layer) { return config_of(layer)->sync; }

/* The variance of a single value is always 0; PyTorch rejects it: "Expected more than 1 value per channel when
 * training". */
static size_t min_rows(const struct layer *layer) { return layer->in_size > (size_t)layer->in.size[0] ? 1 : 2; }

static void facts(const struct layer *layer, struct layer_facts *to) {
    to->uses_batch = !config_of(layer)->track_running_stats;
}

static const char *write_onnx(const struct onnx_call *c) {
    const struct layer *layer = c->layer;
    size_t channels = (size_t)layer->in.size[0];
    bool affine = config_of(layer)->affine;
    struct text attributes = {0};
    onnx_float(&attributes, "epsilon", (float)config_of(layer)->eps);
    const char *inputs[] = {c->x, onnx_param_or(c->g, affine ? layer->first_param : NO_PARAM, channels, 1),
                            onnx_param_or(c->g, affine ? layer->first_param + 1 : NO_PARAM, channels, 0),
                            onnx_buffer(c->g, layer->first_buffer), onnx_buffer(c->g, layer->first_buffer + 1)};
    return onnx_node(c->g, "BatchNormalization", inputs, 5, &attributes);
}

/* The formulas of batch_norm_forward of the CPU. */
static void write_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    size_t channels = (size_t)layer->in.size[0], count = layer->in_size / channels;
    const float *mean = c->c->m->buffers[layer->first_buffer], *variance = c->c->m->buffers[layer->first_buffer + 1];
    bool affine = config_of(layer)->affine;
    const float *weight = affine ? c->c->m->params[layer->first_param] : NULL;
    const float *bias = affine ? c->c->m->params[layer->first_param + 1] : NULL;
    float *scale = arena_alloc(c->c->arena, channels * sizeof *scale);
    float *shift = arena_alloc(c->c->arena, channels * sizeof *shift);
    for (size_t i = 0; i < channels; i++) {
        float inverse = (float)(1 / sqrt((double)variance[i] + (double)(float)config_of(layer)->eps));
        scale[i] = weight ? weight[i] * inverse : inverse;
        shift[i] = fmaf(-mean[i], scale[i], bias ? bias[i] : 0);
    }
    const char *scales = c_table(c, scale, channels, "scale of a batch norm");
    const char *shifts = c_table(c, shift, channels, "shift of a batch norm");
    text_printf(&c->c->body, "    batch_norm(%s, %s, %s, %s, %zu, %zu);\n", c->x, scales, shifts, c->y, count,
                channels);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "BatchNorm1d BatchNorm2d bn", "batch_norm"),
    VALUE_ALIAS_NOTE("layer", "BatchNormalization", "batch_norm",
                     "Keras's momentum is 1 minus this one: 0.99 there is 0.01 here"),
    VALUE_ALIAS_NOTE("layer", "SyncBatchNorm", "batch_norm", "Write 'batch_norm: {sync: true}'"),
    KEY_ALIAS("layer.batch_norm", "epsilon", ".eps"),
    CALL_ALIAS("layer", "batch_norm", "- eps momentum affine track_running_stats"),
    CALL_ALIAS("layer", "BatchNormalization", ""),
    {0},
};

const struct layer_type layer_batch_norm = {
    .aliases = aliases,
    .variant = {"batch_norm", &schema,
                "Normalises each channel over the batch of one process (torch.nn.BatchNorm1d, BatchNorm2d), or of all "
                "(`sync`). The running statistics are those of rank 0, as in DistributedDataParallel."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .relu = RELU_INSIDE,
    .ignores = IGNORES_Y,
    .takes_strides = true,
    .plan = plan,
    .alloc = alloc,
    .release = release,
    .init = init,
    .init_buffers = init_buffers,
    .forward = forward,
    .keeps_buffers = true,
    .backward = backward,
    .recompute = recompute,
    .half = HALF_ALL,
    .sums_over_ranks = sums_over_ranks,
    .min_rows = min_rows,
    .facts = facts,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "{batch_norm}({channels}{,eps}{,momentum}{,affine}{,track_running_stats})",
};
