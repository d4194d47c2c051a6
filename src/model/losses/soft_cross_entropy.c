/* soft_cross_entropy: torch.nn.CrossEntropyLoss with probabilities of the classes as targets: one-hot rows, mixtures of
 * classes, the output of another model. An output (C) is one position with C classes, (T, C) are T positions. */
#include "model/losses/losses.h"

struct soft_config {
    double label_smoothing;
    struct real_list weight;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct soft_config, label_smoothing, .fallback = "0", .min = 0, .max = 1,
               .doc = "Fraction of the target that is distributed evenly over all classes."),
    SCHEMA_ROW(REAL_LIST, struct soft_config, weight, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "A weight per class; unlike that of cross_entropy it does not change the divisor of the mean. "
                      "Null: all 1."),
    {0},
};
static const struct schema schema = SCHEMA("loss.soft_cross_entropy", struct soft_config, .rows = keys);

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct soft_config *c = config;
    size_t count = (size_t)output->size[output->dims - 1];
    TRY(loss_check_values(config, output, target_size, classes));
    if (output->dims > 2)
        return status_new(STATUS_USAGE,
                          "the model's output is %s: soft_cross_entropy needs (classes) or (positions, classes)",
                          shape_text(output).s);
    if (c->weight.count == 0 || c->weight.count == count) return OK;
    return status_new(STATUS_USAGE, "weight has %zu numbers, but the model has %zu classes", c->weight.count, count);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct soft_config *c = config;
    struct loss_positions p = loss_positions_of(b->shape, b->rows);
    struct rowwise_options options = {.loss = ROWWISE_CROSS_ENTROPY,
                                      .smooth = (float)c->label_smoothing,
                                      .weight = c->weight.count ? c->weight.items : NULL,
                                      .parts = 1,
                                      .targets = p.classes,
                                      .rows = *b->weights,
                                      .row_masks = loss_positions_of(b->shape, 1).positions};
    device_ops(b->device)->losses->rowwise(b->device, &options, floats(b->output), b->targets, p.positions, p.classes,
                                           p.positions ? b->scale / (float)p.positions : 0, floats(b->gradient),
                                           b->sums);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS_NOTE(
        "loss", "categorical_crossentropy CategoricalCrossentropy SoftTargetCrossEntropy soft_target_cross_entropy",
        "soft_cross_entropy",
        "Its targets are one-hot rows or probabilities; of numbers of classes it is cross_entropy"),
    {0},
};

const struct loss_type loss_soft_cross_entropy = {
    .aliases = aliases,
    .variant = {"soft_cross_entropy", &schema,
                "Softmax and cross entropy of probabilities of the classes, such as one-hot rows; mean over rows or "
                "positions (torch.nn.CrossEntropyLoss with probabilities)."},
    .own_activation = "softmax",
    .check = check,
    .run = run,
    .pytorch = "soft_cross_entropy({y}, {t}{,weight}{,label_smoothing})",
};
