/* cross_entropy: torch.nn.CrossEntropyLoss. An output (C) is one position with C classes; an output (T, C) is T
 * positions, each with its own target. */
#include "model/losses/losses.h"

struct cross_entropy_config {
    double label_smoothing;
    struct real_list weight;
    int64_t ignore_index;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct cross_entropy_config, label_smoothing, .fallback = "0", .min = 0, .max = 1,
               .doc = "Fraction of the target that is distributed evenly over all classes."),
    LOSS_WEIGHT_ROW(cross_entropy_config),
    LOSS_IGNORE_ROW(cross_entropy_config),
    {0},
};

static const struct schema schema = SCHEMA("loss.cross_entropy", struct cross_entropy_config, .rows = keys);

static int64_t ignored(const void *config) { return ((const struct cross_entropy_config *)config)->ignore_index; }

static struct real_list *class_weight(void *config) { return &((struct cross_entropy_config *)config)->weight; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return loss_check_classes("cross_entropy", &((const struct cross_entropy_config *)config)->weight, output,
                              target_size, classes);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct cross_entropy_config *c = config;
    struct cross_entropy_options options = {.label_smoothing = (float)c->label_smoothing,
                                            .weight = c->weight.count ? c->weight.items : NULL,
                                            .ignored = c->ignore_index};
    options.rows = *b->weights;
    options.row_positions = loss_positions_of(b->shape, 1).positions;
    struct loss_positions p = loss_positions_of(b->shape, b->rows);
    device_ops(b->device)->losses->cross_entropy(b->device, &options, b->output, b->targets, p.positions, p.classes,
                                                 b->scale, b->gradient, b->sums);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss",
                "CrossEntropyLoss ce xent softmax_cross_entropy log_loss crossentropy sparse_categorical_crossentropy "
                "SparseCategoricalCrossentropy softmax",
                "cross_entropy"),
    {0},
};

const struct loss_type loss_cross_entropy = {
    .aliases = aliases,
    .variant = {"cross_entropy", &schema,
                "Softmax and negative log likelihood of integer classes, mean over rows or positions "
                "(torch.nn.CrossEntropyLoss)."},
    .wants_classes = true,
    .own_activation = "softmax",
    .ignored = ignored,
    .ignored_key = "ignore_index",
    .class_weight = class_weight,
    .divides_by_weights = true,
    .check = check,
    .run = run,
    .accepts_half = true,
    .pytorch = "F.cross_entropy({y}, {t}{weight}{,ignore_index}{,label_smoothing})",
};
