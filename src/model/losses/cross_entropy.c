/* cross_entropy: torch.nn.CrossEntropyLoss. An output (C) is one position with C classes; an output (T, C) is T
 * positions, each with its own target. */
#include "model/losses/losses.h"

struct cross_entropy_config {
    double label_smoothing;
    struct real_list weight;
    int64_t ignore_index;
};

static const struct schema_row keys[] = {
    {.key = "label_smoothing",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct cross_entropy_config, label_smoothing),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .doc = "Fraction of the target that is distributed evenly over all classes."},
    {.key = "weight",
     .type = SCHEMA_REAL_LIST,
     .offset = offsetof(struct cross_entropy_config, weight),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "A weight per class; the mean is then weighted by the targets' classes. Null: all 1."},
    {.key = "ignore_index",
     .type = SCHEMA_INT,
     .offset = offsetof(struct cross_entropy_config, ignore_index),
     .fallback = "-100",
     .doc = "Targets of this class are ignored: no loss, no gradient, no accuracy."},
    {0},
};

static const struct schema schema = {
    .name = "loss.cross_entropy", .size = sizeof(struct cross_entropy_config), .rows = keys};

static int64_t ignored(const void *config) { return ((const struct cross_entropy_config *)config)->ignore_index; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct cross_entropy_config *c = config;
    bool is_sequence = output->dims == 2, fits = output->dims == 1 ? target_size == 1 : is_sequence;
    int64_t outputs = output->dims > 0 ? output->size[output->dims - 1] : 0;
    if (is_sequence) fits = (size_t)output->size[0] == target_size;
    bool has_weight = c->weight.count == 0;
    for (size_t i = 0; i < c->weight.count; i++) has_weight = has_weight || c->weight.items[i] > 0;
    if (!has_weight) return status_new(STATUS_USAGE, "weight: at least one must be greater than 0");
    if (fits && outputs >= classes && (c->weight.count == 0 || (int64_t)c->weight.count == outputs)) return OK;
    if (fits && outputs >= classes)
        return status_new(STATUS_USAGE, "weight has %zu numbers, but the model has %lld classes", c->weight.count,
                          (long long)outputs);
    struct text shape = {0};
    shape_print(output, &shape);
    status s;
    if (fits || target_size == 1)
        s = status_new(STATUS_USAGE,
                       "the model's output is %s, but the targets have %lld classes (0 to %lld): cross_entropy needs "
                       "one output per class",
                       text_string(&shape), (long long)classes, (long long)classes - 1);
    else
        s = status_new(
            STATUS_USAGE,
            "the model's output is %s, but a target row has %zu classes: cross_entropy needs an output (%zu, "
            "%lld)",
            text_string(&shape), target_size, target_size, (long long)classes);
    text_free(&shape);
    return s;
}

static void run(const void *config, struct device *device, const struct shape *output_shape, const float *output,
                const void *targets, size_t rows, float scale, float *gradient, struct loss_sums *sums) {
    const struct cross_entropy_config *c = config;
    struct cross_entropy_options options = {.label_smoothing = (float)c->label_smoothing,
                                            .weight = c->weight.count ? c->weight.items : NULL,
                                            .ignored = c->ignore_index};
    size_t classes = (size_t)output_shape->size[output_shape->dims - 1];
    size_t positions = rows * (shape_elements(output_shape) / classes);
    device_ops(device)->losses->cross_entropy(device, &options, output, targets, positions, classes, scale, gradient,
                                              sums);
}

const struct loss_type loss_cross_entropy = {
    .variant = {"cross_entropy", &schema,
                "Softmax and negative log likelihood of integer classes, mean over rows or positions "
                "(torch.nn.CrossEntropyLoss)."},
    .wants_classes = true,
    .own_activation = "softmax",
    .ignored = ignored,
    .check = check,
    .run = run,
    .accepts_half = true,
};
