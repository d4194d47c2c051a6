/* multi_margin: torch.nn.MultiMarginLoss, of several classes as a support vector machine is. The model's output are
 * scores, shaped as for cross_entropy. multilabel_margin: torch.nn.MultiLabelMarginLoss, of a list of classes for each
 * row. */
#include "model/losses/losses.h"

struct multi_margin_config {
    double margin;
    int64_t p;
    struct real_list weight;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(INT, struct multi_margin_config, p, .fallback = "1", .min = 1, .max = 2,
               .doc = "The power of what a score lacks of the margin: 1 or 2."),
    SCHEMA_ROW(REAL, struct multi_margin_config, margin, .fallback = "1", .min = -INFINITY, .max = INFINITY,
               .doc = "By how much the score of the target must be larger than every other one."),
    SCHEMA_ROW(REAL_LIST, struct multi_margin_config, weight, .fallback = "null", .min = 0, .max = INFINITY,
               .choices = (const char *const[]){"balanced", NULL},
               .doc = "A weight per class, of the losses with this target; the mean is over all rows. balanced: as of "
                      "cross_entropy. Null: all 1."),
    {0},
};
static const struct schema schema =
    SCHEMA("loss.multi_margin", struct multi_margin_config, .rows = keys, .shorthand = "margin");

static struct real_list *class_weight(void *config) { return &((struct multi_margin_config *)config)->weight; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return loss_check_classes("multi_margin", &((const struct multi_margin_config *)config)->weight, output,
                              target_size, classes);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct multi_margin_config *c = config;
    struct cross_entropy_options options = {.margin = (float)c->margin,
                                            .squares = c->p == 2,
                                            .weight = c->weight.count ? c->weight.items : NULL,
                                            .ignored = INT64_MIN, /* none but padding */
                                            .rows = *b->weights,
                                            .row_positions = loss_positions_of(b->shape, 1).positions};
    struct loss_positions p = loss_positions_of(b->shape, b->rows);
    device_ops(b->device)->losses->multi_margin(b->device, &options, floats(b->output), b->targets, p.positions,
                                                p.classes, b->scale, floats(b->gradient), b->sums);
}

static status check_lists(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    size_t positions = loss_row_positions(output), scores = shape_elements(output) / positions;
    bool fits = output->dims == (output->lengths ? 2 : 1) && target_size % positions == 0;
    (void)config;
    if (fits && target_size / positions <= scores && (size_t)classes <= scores) return OK;
    if (fits && (size_t)classes > scores)
        return status_new(STATUS_USAGE,
                          "the model's output is %s, but the targets have %lld classes (0 to %lld): multilabel_margin "
                          "needs one output per class",
                          shape_text(output).s, (long long)classes, (long long)classes - 1);
    return status_new(
        STATUS_USAGE,
        "the model's output is %s, but a target row has %zu values: multilabel_margin needs an output (classes), or "
        "(positions, classes) of rows of different lengths, and a list of at most as many classes for each",
        shape_text(output).s, target_size);
}

static void run_lists(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_MULTILABEL_MARGIN,
                                      .parts = 1,
                                      .targets = b->weights->target_size / loss_row_positions(b->shape)};
    (void)config;
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "MultiMarginLoss multi_margin_loss categorical_hinge CategoricalHinge multiclass_hinge",
                "multi_margin"),
    VALUE_ALIAS("loss", "MultiLabelMarginLoss multilabel_margin_loss multi_label_margin", "multilabel_margin"),
    {0},
};

const struct loss_type loss_multi_margin = {
    .aliases = aliases,
    .variant = {"multi_margin", &schema,
                "The sum over the other classes of max(0, margin - score of the target + score), divided by the number "
                "of classes; mean over rows or positions (torch.nn.MultiMarginLoss)."},
    .wants_classes = true,
    .class_weight = class_weight,
    .check = check,
    .run = run,
    .pytorch = "multi_margin_loss({y}, {t}{weight}{,p}{,margin})",
};
const struct loss_type loss_multilabel_margin = {
    .variant =
        {"multilabel_margin", NULL,
         "Of targets that are lists of classes, each of which ends before its first negative value: the sum, over the "
         "classes of the list and those that are not in it, of max(0, 1 - score of the one + score of the other), "
         "divided by the number of classes; mean over rows or positions (torch.nn.MultiLabelMarginLoss)."},
    .targets = "lists of classes",
    .is_class_list = true,
    .check = check_lists,
    .run = run_lists,
    .pytorch = "multilabel_margin_loss({y}, {t})",
};
