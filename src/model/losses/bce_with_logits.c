/* bce_with_logits: torch.nn.BCEWithLogitsLoss, for one or several independent binary targets. */
#include "model/losses/losses.h"

struct bce_config {
    struct real_list pos_weight;
};

static const struct schema_row keys[] = {
    {.key = "pos_weight",
     .type = SCHEMA_REAL_LIST,
     .offset = offsetof(struct bce_config, pos_weight),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "Weight of the positive targets: one for all outputs or one for each. null: 1."},
    {0},
};
static const struct schema schema = {.name = "loss.bce_with_logits", .size = sizeof(struct bce_config), .rows = keys};

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct bce_config *c = config;
    (void)classes;
    TRY(loss_check_values(config, output, target_size, classes));
    if (c->pos_weight.count > 1 && c->pos_weight.count != target_size)
        return status_new(STATUS_USAGE, "pos_weight has %zu numbers, but the model has %zu outputs",
                          c->pos_weight.count, target_size);
    return OK;
}

static void run(const void *config, struct device *device, const struct shape *output_shape, const float *output,
                const void *targets, const struct row_weights *weights, size_t rows, float scale, float *gradient,
                struct loss_sums *sums) {
    const struct bce_config *c = config;
    struct elementwise_options options = {
        .loss = LOSS_BCE_WITH_LOGITS, .pos_weight = c->pos_weight.items, .pos_weights = c->pos_weight.count};
    loss_mean_of_elements(&options, device, output_shape, output, targets, weights, rows, scale, gradient, sums);
}

const struct loss_type loss_bce_with_logits = {
    .variant = {"bce_with_logits", &schema,
                "Sigmoid and binary cross entropy of targets between 0 and 1, mean over all elements "
                "(torch.nn.BCEWithLogitsLoss)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = check,
    .run = run,
    .masks_positions = true,
};
