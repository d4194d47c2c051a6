/* The average is a flat buffer, updated in one pass. */
#include "optim/ema.h"

#include <stdlib.h>

static const struct schema_row rows[] = {
    SCHEMA_ROW(REAL, struct ema_config, decay, .fallback = "0", .min = 0, .max = 1, .excludes_max = true,
               .doc = "Weight of the old average in each update, such as 0.999; 0: no average."),
    SCHEMA_ROW(BOOL, struct ema_config, evaluate, .fallback = "true", .flags = SCHEMA_EXTENDS,
               .doc = "Evaluations use the average instead of the weights; so do `eval`, `predict`, `generate` and "
                      "`export` unless `--weights` is given."),
    {0},
};
const struct schema ema_schema = SCHEMA("train.ema", struct ema_config, .rows = rows, .shorthand = "decay");

/* The values that are averaged: those of this rank's shard where not all exist, without the frozen ones. */
static float *values_of(const struct params *params) { return params->own ? params->own : params->values; }

static size_t values_count(const struct params *params) { return params->own ? params->own_count : params->total; }

status ema_create(const struct ema_config *config, const struct params *params, struct device *device,
                  struct ema **out) {
    *out = NULL;
    if (config->decay == 0) return OK;
    struct ema *ema = calloc(1, sizeof *ema);
    if (!ema) return status_memory("the average of the weights");
    *ema = (struct ema){.device = device, .weight = (float)(1 - config->decay), .evaluates = ema_is_used(config)};
    status s =
        device_alloc(device, values_count(params) * sizeof(float), "the average of the weights", (void **)&ema->values);
    if (s) ema_destroy(ema);
    if (!s) *out = ema;
    return s;
}

void ema_destroy(struct ema *ema) {
    if (!ema) return;
    device_free(ema->device, ema->values);
    free(ema);
}

void ema_start(struct ema *ema, const struct params *params) {
    if (ema) device_ops(ema->device)->copy(ema->device, F32(values_of(params)), F32(ema->values), values_count(params));
}

void ema_update(struct ema *ema, const struct params *params, int64_t t, const float *clip) {
    if (!ema) return;
    if (t == 1)
        ema_start(ema, params);
    else
        device_ops(ema->device)
            ->optimizers->average(ema->device, ema->weight, clip, values_of(params), ema->values, values_count(params));
}

void ema_swap(struct ema *ema, struct params *params) {
    if (!ema || !ema->evaluates) return;
    float **weights = params->own ? &params->own : &params->values, *values = *weights;
    *weights = ema->values;
    ema->values = values;
}
