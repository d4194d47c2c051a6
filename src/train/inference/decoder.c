/* The model is planned for rows of one position, so that its layers compute one; layers that look at earlier positions
 * store what they need of them (layer->cached_positions). */
#include "train/inference/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "train/plan/plan.h"
#include "train/weights/weights.h"

struct decoder {
    struct plan *plan;
    size_t position; /* the next one */
    size_t logits;
};

/* *plan is NULL if the model cannot be planned for single positions; the plan for blocks then reports what is wrong. */
static status plan_positions(const struct config *config, size_t classes, size_t block, struct plan **plan) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct dataset_info info = {.input_kind = INPUT_TOKENS,
                                      .vocabulary = (int64_t)classes,
                                      .input_dims = 1,
                                      .input_shape = {1},
                                      .input_size = 1,
                                      .target_kind = TARGET_CLASS,
                                      .classes = (int64_t)classes,
                                      .target_size = 1};
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone, .info = &info, .cached_positions = block};
    status s = plan_create(config, &options, plan);
    if (status_code(s) != STATUS_USAGE) return s;
    status_free(s);
    *plan = NULL;
    return OK;
}

static status load(struct decoder *d, struct checkpoint *checkpoint, bool average) {
    struct model *model = d->plan->model;
    TRY(model_alloc(model, d->plan->device, 1));
    TRY(model_map(model));
    TRY(weights_load(model, checkpoint, average));
    return model_unmap(model, true);
}

status decoder_create(const struct config *config, size_t classes, size_t block, struct checkpoint *checkpoint,
                      bool average, struct decoder **out) {
    *out = NULL;
    struct decoder *d = calloc(1, sizeof *d);
    if (!d) return status_memory("the decoder");
    status s = plan_positions(config, classes, block, &d->plan);
    bool is_possible = !s && d->plan && device_is_host(d->plan->device) && d->plan->model->out_size >= classes;
    if (is_possible) s = load(d, checkpoint, average);
    if (s || !is_possible) {
        decoder_destroy(d);
        return s;
    }
    d->logits = d->plan->model->out_size;
    *out = d;
    return OK;
}

void decoder_destroy(struct decoder *d) {
    if (!d) return;
    plan_destroy(d->plan);
    free(d);
}

size_t decoder_logits(const struct decoder *d) { return d->logits; }

status decoder_run(struct decoder *d, const int32_t *tokens, size_t count, float *logits) {
    struct device *device = d->plan->device;
    const float *output = NULL;
    for (; d->position < count; d->position++) {
        struct pass pass = {.device = device, .rows = 1, .position = d->position};
        output = model_forward(d->plan->model, &pass, (const float *)(const void *)&tokens[d->position]);
    }
    return device_download(device, logits, output, d->logits * sizeof *logits);
}
