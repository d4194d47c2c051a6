/* ctc: torch.nn.CTCLoss. The model's output are log-probabilities (steps, classes); with lengths of rows the first
 * steps (input_lengths), else all. */
#include "model/losses/losses.h"

struct ctc_config {
    int64_t blank, padding;
    bool zero_infinity;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(INT, struct ctc_config, blank, .fallback = "0", .min = 0, .max = INT32_MAX,
               .doc = "The class of no label."),
    SCHEMA_ROW(BOOL, struct ctc_config, zero_infinity, .fallback = "false",
               .doc = "Rows whose targets need more steps than there are have no loss and no gradient, instead of an "
                      "infinite loss."),
    SCHEMA_ROW(INT, struct ctc_config, padding, .fallback = "-100",
               .doc = "The targets of a row end before the first of this value (target_lengths); it may be the blank."),
    {0},
};
static const struct schema schema = SCHEMA("loss.ctc", struct ctc_config, .rows = keys, .shorthand = "blank");

static int64_t padding_of(const void *config) { return ((const struct ctc_config *)config)->padding; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct ctc_config *c = config;
    int64_t outputs = output->dims > 0 ? output->size[output->dims - 1] : 0;
    if (output->dims == 2 && outputs >= classes && c->blank < outputs) return OK;
    if (output->dims == 2 && c->blank >= outputs)
        return status_usage("the blank is class %lld, but the model has %lld classes (0 to %lld)", (long long)c->blank,
                            (long long)outputs, (long long)outputs - 1);
    return status_usage("the model's output is %s, but the targets have %lld classes (0 to %lld): ctc needs an output "
                        "(steps, classes) of log-probabilities",
                        shape_text(output).s, (long long)classes, (long long)classes - 1);
}

static status prepare(const void *config, struct device *device, const struct shape *output, size_t target_size,
                      size_t rows, size_t world_size) {
    const struct loss_ops *ops = device_ops(device)->losses;
    return ops->ctc_prepare(device, rows, (size_t)output->size[0], (size_t)output->size[1], target_size);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct ctc_config *c = config;
    struct ctc_options options = {.blank = c->blank,
                                  .padding = c->padding,
                                  .zero_infinity = c->zero_infinity,
                                  .steps = (size_t)b->shape->size[0],
                                  .classes = (size_t)b->shape->size[1],
                                  .rows = *b->weights};
    device_ops(b->device)->losses->ctc(b->device, &options, floats(b->output), b->targets, b->rows,
                                       b->scale / (float)b->rows, floats(b->gradient), b->sums);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "CTCLoss ctc_loss", "ctc"),
    {0},
};

const struct loss_type loss_ctc = {
    .aliases = aliases,
    .variant = {"ctc", &schema,
                "Connectionist temporal classification, for a model that ends in log_softmax: targets are found in the "
                "steps of an output, in their order; loss per target, mean over rows (torch.nn.CTCLoss)."},
    .wants_classes = true,
    .aligns_targets = true,
    .ignored = padding_of,
    .takes_logarithms = true,
    .ignored_key = "padding",
    .check = check,
    .prepare = prepare,
    .run = run,
    .pytorch = "ctc_loss({y}, {t}, {lengths}{,blank}{,zero_infinity}{,padding})",
};
