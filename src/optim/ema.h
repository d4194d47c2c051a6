/* ema: the exponential moving average of the weights (torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn):
 * the first update copies the weights, later ones compute average += (1 - decay) * (weights - average). */
#pragma once

#include "base/schema/schema.h"
#include "model/params.h"

/* `train.ema:` */
struct ema_config {
    double decay;  /* 0: no average */
    bool evaluate; /* evaluations use it */
};
extern const struct schema ema_schema;

/* Whether evaluations use the average. */
static inline bool ema_is_used(const struct ema_config *config) { return config->decay > 0 && config->evaluate; }

struct ema {
    struct device *device;
    float weight;   /* 1 - decay */
    float *values;  /* (params->total, or params->own_count where not all values exist at once) */
    bool evaluates; /* evaluations use it */
};

/* *out is NULL when decay is 0. */
status ema_create(const struct ema_config *config, const struct params *params, struct device *device,
                  struct ema **out);
void ema_destroy(struct ema *ema); /* takes NULL */

/* Before the first update: the average is the weights. Takes NULL. */
void ema_start(struct ema *ema, const struct params *params);

/* After update number [t] (from 1). With t > 1 does nothing if *clip is NaN (device/optimizers.h). Takes NULL. */
void ema_update(struct ema *ema, const struct params *params, int64_t t, const float *clip);

/* Exchanges the values of the model and of the average, before and after an evaluation that uses the average. Takes
 * NULL. */
void ema_swap(struct ema *ema, struct params *params);
