/* bce_with_logits: torch.nn.BCEWithLogitsLoss, for one or several independent binary targets. */
#include "model/losses/losses.h"

struct bce_config {
    struct real_list pos_weight;
    int reduction;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL_LIST, struct bce_config, pos_weight, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "Weight of the positive targets: one for all outputs or one for each; of an output (positions, "
                      "classes) or (classes, height, width) one for each class. null: 1."),
    LOSS_REDUCTION_ROW(bce_config,
                       "`batchmean`: the sum over a row, mean over rows, as in a VAE; `mean`: over all elements."),
    {0},
};
static const struct schema schema = SCHEMA("loss.bce_with_logits", struct bce_config, .rows = keys);

/* Classes of an output of several positions or of images; 0: none. */
static size_t classes_of(const struct shape *output) {
    return output->dims < 2 ? 0 : (size_t)output->size[output->dims == 2 ? 1 : 0];
}

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct bce_config *c = config;
    size_t count = c->pos_weight.count;
    (void)classes;
    TRY(loss_check_values(config, output, target_size, classes));
    if (count <= 1 || count == target_size || count == classes_of(output)) return OK;
    if (classes_of(output))
        return status_new(STATUS_USAGE, "pos_weight has %zu numbers, but the model has %zu classes and %zu outputs",
                          count, classes_of(output), target_size);
    return status_new(STATUS_USAGE, "pos_weight has %zu numbers, but the model has %zu outputs", count, target_size);
}

/* Consecutive elements with one weight: of images, whose classes are the first dimension, all pixels. */
static size_t run_of(const struct bce_config *c, const struct shape *output) {
    size_t elements = shape_elements(output), count = c->pos_weight.count;
    bool is_by_class = output->dims > 2 && count > 1 && count != elements;
    return is_by_class ? elements / count : 1;
}

static void run(const void *config, const struct loss_batch *b) {
    const struct bce_config *c = config;
    struct elementwise_options options = {.loss = LOSS_BCE_WITH_LOGITS,
                                          .pos_weight = c->pos_weight.items,
                                          .pos_weights = c->pos_weight.count,
                                          .pos_weight_run = run_of(c, b->shape),
                                          .is_row_mean = c->reduction == REDUCTION_BATCHMEAN};
    loss_mean_of_elements(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "BCEWithLogitsLoss bce_logits binary_cross_entropy_with_logits sigmoid_cross_entropy",
                "bce_with_logits"),
    VALUE_ALIAS_NOTE("loss", "MultiLabelSoftMarginLoss multilabel_soft_margin multilabel_soft_margin_loss",
                     "bce_with_logits", "It is the same loss"),
    VALUE_ALIAS_NOTE("loss", "bce BCELoss binary_crossentropy binary_cross_entropy BinaryCrossentropy",
                     "bce_with_logits", "It has its own sigmoid: end the model without one"),
    {0},
};

const struct loss_type loss_bce_with_logits = {
    .aliases = aliases,
    .variant = {"bce_with_logits", &schema,
                "Sigmoid and binary cross entropy of targets between 0 and 1, mean over all elements "
                "(torch.nn.BCEWithLogitsLoss)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = check,
    .run = run,
    .pytorch = "binary_cross_entropy({y}, {t}{,pos_weight}{,reduction})",
};
