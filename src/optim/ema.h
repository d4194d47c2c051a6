/* ema: a second set of weights, the exponential moving average of those that are trained
 * (torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn): the first update copies them, each further one
 * moves the average by 1 - decay of the way. */
#ifndef OPTIM_EMA_H
#define OPTIM_EMA_H

#include "base/schema.h"
#include "model/params.h"

/* `train.ema:` */
struct ema_config {
    double decay;  /* 0: no average */
    bool evaluate; /* evaluations use it */
};
extern const struct schema ema_schema;

/* Whether evaluations of such a run use the average. */
static inline bool ema_is_used(const struct ema_config *config) { return config->decay > 0 && config->evaluate; }

struct ema {
    struct device *device;
    float weight;  /* 1 - decay */
    float *values; /* (params->total) */
    bool evaluates;
};

/* *out NULL when the config asks for none. */
status ema_create(const struct ema_config *config, const struct params *params, struct device *device,
                  struct ema **out);
void ema_destroy(struct ema *ema); /* takes NULL */

/* After update number [t] (from 1), which *clip (device/optimizers.h) may hold back where t > 1. Takes NULL. */
void ema_update(struct ema *ema, const struct params *params, int64_t t, const float *clip);

/* Exchanges the model's values and the average's, and back, around an evaluation that uses it. Takes NULL. */
void ema_swap(struct ema *ema, struct params *params);

#endif
