/* multi_margin: torch.nn.MultiMarginLoss, of several classes as a support vector machine is. The model's output are
 * scores, shaped as for cross_entropy. */
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
static const struct schema schema = {
    .name = "loss.multi_margin", .size = sizeof(struct multi_margin_config), .rows = keys, .shorthand = "margin"};

static struct real_list *class_weight(void *config) { return &((struct multi_margin_config *)config)->weight; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return loss_check_classes("multi_margin", &((const struct multi_margin_config *)config)->weight, output,
                              target_size, classes);
}

static void run(const void *config, struct device *device, const struct shape *output_shape,
                const struct tensor *output, const void *targets, const struct row_weights *weights, size_t rows,
                float scale, const struct tensor *gradient, struct loss_sums *sums) {
    const struct multi_margin_config *c = config;
    struct cross_entropy_options options = {.margin = (float)c->margin,
                                            .squares = c->p == 2,
                                            .weight = c->weight.count ? c->weight.items : NULL,
                                            .ignored = INT64_MIN, /* none but padding */
                                            .rows = *weights,
                                            .row_positions = loss_positions_of(output_shape, 1).positions};
    struct loss_positions p = loss_positions_of(output_shape, rows);
    device_ops(device)->losses->multi_margin(device, &options, floats(output), targets, p.positions, p.classes, scale,
                                             floats(gradient), sums);
}

/* Names in other programs. */
static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "MultiMarginLoss multi_margin_loss categorical_hinge CategoricalHinge multiclass_hinge",
                "multi_margin"),
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
