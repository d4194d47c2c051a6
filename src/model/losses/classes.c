/* Losses of scores of classes: cross_entropy, nll and multi_margin (torch.nn.CrossEntropyLoss, NLLLoss and
 * MultiMarginLoss), whose targets are classes: an output (C) is one position with C classes, an output (T, C) is T
 * positions, each with its own target; soft_cross_entropy, whose targets are probabilities of the classes: one-hot
 * rows, mixtures of classes, the output of another model; multilabel_margin (torch.nn.MultiLabelMarginLoss), of a list
 * of classes for each row. */
#include "model/losses/losses.h"

/* The keys of all of them. */
struct class_config {
    double label_smoothing, margin;
    int64_t ignore_index, p;
    struct real_list weight;
};

#define SMOOTHING_ROW                                                                                                  \
    SCHEMA_ROW(REAL, struct class_config, label_smoothing, .fallback = "0", .min = 0, .max = 1,                        \
               .doc = "Fraction of the target that is distributed evenly over all classes.")
#define WEIGHT_ROW(doc_, ...)                                                                                          \
    SCHEMA_ROW(REAL_LIST, struct class_config, weight, .fallback = "null", .min = 0, .max = INFINITY, .doc = doc_,     \
               __VA_ARGS__)
#define BALANCED                                                                                                       \
    .choices = (const char *const[]) { "balanced", NULL }
#define MEAN_WEIGHT_ROW                                                                                                \
    WEIGHT_ROW("A weight per class; the mean is then weighted by the targets' classes. balanced: scikit-learn's "      \
               "class_weight, rows / (classes * rows of the class), of the training rows. Null: all 1.",               \
               BALANCED)
#define IGNORE_ROW                                                                                                     \
    SCHEMA_ROW(INT, struct class_config, ignore_index, .fallback = "-100",                                             \
               .doc = "Targets of this class are ignored: no loss, no gradient, no accuracy.")

static const struct schema_row cross_entropy_rows[] = {SMOOTHING_ROW, MEAN_WEIGHT_ROW, IGNORE_ROW, {0}};
static const struct schema_row nll_rows[] = {MEAN_WEIGHT_ROW, IGNORE_ROW, {0}};
static const struct schema_row margin_rows[] = {
    SCHEMA_ROW(INT, struct class_config, p, .fallback = "1", .min = 1, .max = 2,
               .doc = "The power of what a score lacks of the margin: 1 or 2."),
    SCHEMA_ROW(REAL, struct class_config, margin, .fallback = "1", .min = -INFINITY, .max = INFINITY,
               .doc = "By how much the score of the target must be larger than every other one."),
    WEIGHT_ROW("A weight per class, of the losses with this target; the mean is over all rows. balanced: as of "
               "cross_entropy. Null: all 1.",
               BALANCED),
    {0},
};
static const struct schema_row soft_rows[] = {
    SMOOTHING_ROW,
    WEIGHT_ROW("A weight per class; unlike that of cross_entropy it does not change the divisor of the mean. Null: all "
               "1.", ),
    {0},
};

static const struct schema cross_entropy_schema =
    SCHEMA("loss.cross_entropy", struct class_config, .rows = cross_entropy_rows);
static const struct schema nll_schema = SCHEMA("loss.nll", struct class_config, .rows = nll_rows);
static const struct schema margin_schema =
    SCHEMA("loss.multi_margin", struct class_config, .rows = margin_rows, .shorthand = "margin");
static const struct schema soft_schema = SCHEMA("loss.soft_cross_entropy", struct class_config, .rows = soft_rows);

static int64_t ignored(const void *config) { return ((const struct class_config *)config)->ignore_index; }

bool loss_is_plain_cross_entropy(const struct loss_type *loss, const void *config) {
    const struct class_config *c = config;
    return loss == &loss_cross_entropy && c->label_smoothing == 0 && c->weight.count == 0 && !c->weight.word;
}

static struct real_list *class_weight(void *config) { return &((struct class_config *)config)->weight; }

/* Positions of a batch with a class each, and the number of classes. */
struct positions {
    size_t positions, classes;
};

static struct positions positions_of(const struct shape *output, size_t rows) {
    size_t classes = (size_t)output->size[output->dims - 1];
    return (struct positions){rows * (shape_elements(output) / classes), classes};
}

/* An output (C) and one target, or an output (T, C) and T targets; with a weight, one number for each class. [name]: of
 * the loss. */
static status check_classes(const char *name, const void *config, const struct shape *output, size_t target_size,
                            int64_t classes) {
    const struct real_list *weight = &((const struct class_config *)config)->weight;
    bool is_sequence = output->dims == 2, fits = output->dims == 1 ? target_size == 1 : is_sequence;
    int64_t outputs = output->dims > 0 ? output->size[output->dims - 1] : 0;
    bool is_turned = is_sequence && (size_t)output->size[1] == target_size && output->size[0] >= classes;
    if (is_sequence) fits = (size_t)output->size[0] == target_size;
    bool has_weight = weight->count == 0;
    for (size_t i = 0; i < weight->count; i++) has_weight = has_weight || weight->items[i] > 0;
    if (!has_weight) return status_usage("weight: at least one must be greater than 0");
    if (fits && outputs >= classes && (weight->count == 0 || (int64_t)weight->count == outputs)) return OK;
    if (fits && outputs >= classes)
        return status_usage("weight has %zu numbers, but the model has %lld classes", weight->count,
                            (long long)outputs);
    if (fits || target_size == 1)
        return status_new(
            STATUS_USAGE,
            "the model's output is %s, but the targets have %lld classes (0 to %lld): %s needs one output per class%s",
            shape_text(output).s, (long long)classes, (long long)classes - 1, name,
            is_sequence && classes == 256 ? "; if 255 means that a pixel has no class, write loss: {ignore_index: "
                                            "255}; masks of 0 and 255 need bce_with_logits"
                                          : "");
    return status_usage(
        "the model's output is %s, but a target row has %zu classes: %s needs an output (%zu, %lld), or "
        "(%lld, height, width) with %zu pixels%s",
        shape_text(output).s, target_size, name, target_size, (long long)classes, (long long)classes, target_size,
        output->dims == 1 ? " (for one-hot targets store the index of the 1, one class per row)"
        : is_turned       ? "; insert '- permute: [0, 2, 1]' after the last layer, for (positions, classes)"
                          : "");
}

static status check_cross_entropy(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return check_classes("cross_entropy", config, output, target_size, classes);
}
static status check_nll(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return check_classes("nll", config, output, target_size, classes);
}
static status check_margin(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return check_classes("multi_margin", config, output, target_size, classes);
}

static struct cross_entropy_options options_of(const struct class_config *c, const struct loss_batch *b) {
    return (struct cross_entropy_options){.label_smoothing = (float)c->label_smoothing,
                                          .margin = (float)c->margin,
                                          .squares = c->p == 2,
                                          .weight = c->weight.count ? c->weight.items : NULL,
                                          .ignored = c->ignore_index,
                                          .rows = *b->weights,
                                          .row_positions = positions_of(b->shape, 1).positions};
}

static void run_cross_entropy(const void *config, const struct loss_batch *b) {
    struct cross_entropy_options options = options_of(config, b);
    struct positions p = positions_of(b->shape, b->rows);
    device_ops(b->device)->losses->cross_entropy(b->device, &options, b->output, b->targets, p.positions, p.classes,
                                                 b->scale, b->gradient, b->sums);
}

static void run_nll(const void *config, const struct loss_batch *b) {
    struct cross_entropy_options options = options_of(config, b);
    struct positions p = positions_of(b->shape, b->rows);
    device_ops(b->device)->losses->nll(b->device, &options, floats(b->output), b->targets, p.positions, p.classes,
                                       b->scale, floats(b->gradient), b->sums);
}

static void run_margin(const void *config, const struct loss_batch *b) {
    struct cross_entropy_options options = options_of(config, b);
    struct positions p = positions_of(b->shape, b->rows);
    options.ignored = INT64_MIN; /* none but padding */
    device_ops(b->device)->losses->multi_margin(b->device, &options, floats(b->output), b->targets, p.positions,
                                                p.classes, b->scale, floats(b->gradient), b->sums);
}

/* ---- soft_cross_entropy ---- */

static status check_soft(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct class_config *c = config;
    size_t count = (size_t)output->size[output->dims - 1];
    TRY(loss_check_values(config, output, target_size, classes));
    if (output->dims > 2)
        return status_usage("the model's output is %s: soft_cross_entropy needs (classes) or (positions, classes)",
                            shape_text(output).s);
    if (c->weight.count == 0 || c->weight.count == count) return OK;
    return status_usage("weight has %zu numbers, but the model has %zu classes", c->weight.count, count);
}

static void run_soft(const void *config, const struct loss_batch *b) {
    const struct class_config *c = config;
    struct positions p = positions_of(b->shape, b->rows);
    struct rowwise_options options = {.loss = ROWWISE_CROSS_ENTROPY,
                                      .smooth = (float)c->label_smoothing,
                                      .weight = c->weight.count ? c->weight.items : NULL,
                                      .parts = 1,
                                      .targets = p.classes,
                                      .rows = *b->weights,
                                      .row_masks = positions_of(b->shape, 1).positions};
    device_ops(b->device)->losses->rowwise(b->device, &options, floats(b->output), b->targets, p.positions, p.classes,
                                           p.positions ? b->scale / (float)p.positions : 0, floats(b->gradient),
                                           b->sums);
}

/* ---- multilabel_margin ---- */

static status check_lists(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    size_t positions = loss_row_positions(output), scores = shape_elements(output) / positions;
    bool fits = output->dims == (output->lengths ? 2 : 1) && target_size % positions == 0;
    if (fits && target_size / positions <= scores && (size_t)classes <= scores) return OK;
    if (fits && (size_t)classes > scores)
        return status_usage(
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
    loss_mean_of_rows(&options, b);
}

/* ---- the table ---- */

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss",
                "CrossEntropyLoss ce xent softmax_cross_entropy log_loss crossentropy sparse_categorical_crossentropy "
                "SparseCategoricalCrossentropy softmax",
                "cross_entropy"),
    VALUE_ALIAS("loss", "NLLLoss nll_loss", "nll"),
    VALUE_ALIAS_NOTE(
        "loss", "categorical_crossentropy CategoricalCrossentropy SoftTargetCrossEntropy soft_target_cross_entropy",
        "soft_cross_entropy",
        "Its targets are one-hot rows or probabilities; of numbers of classes it is cross_entropy"),
    VALUE_ALIAS("loss", "MultiMarginLoss multi_margin_loss categorical_hinge CategoricalHinge multiclass_hinge",
                "multi_margin"),
    VALUE_ALIAS("loss", "MultiLabelMarginLoss multilabel_margin_loss multi_label_margin", "multilabel_margin"),
    {0},
};

const struct loss_type loss_cross_entropy = {
    .aliases = aliases,
    .variant = {"cross_entropy", &cross_entropy_schema,
                "Softmax and negative log likelihood of integer classes, mean over rows or positions "
                "(torch.nn.CrossEntropyLoss)."},
    .wants_classes = true,
    .own_activation = "softmax",
    .ignored = ignored,
    .ignored_key = "ignore_index",
    .class_weight = class_weight,
    .divides_by_weights = true,
    .check = check_cross_entropy,
    .run = run_cross_entropy,
    .accepts_half = true,
    .pytorch = "F.cross_entropy({y}, {t}{weight}{,ignore_index}{,label_smoothing})",
};
const struct loss_type loss_nll = {
    .variant = {"nll", &nll_schema,
                "Negative log likelihood of integer classes, for a model that ends in log_softmax; mean over rows or "
                "positions (torch.nn.NLLLoss)."},
    .wants_classes = true,
    .ignored = ignored,
    .takes_logarithms = true,
    .ignored_key = "ignore_index",
    .class_weight = class_weight,
    .divides_by_weights = true,
    .check = check_nll,
    .run = run_nll,
    .pytorch = "F.nll_loss({y}, {t}{weight}{,ignore_index})",
};
const struct loss_type loss_multi_margin = {
    .variant = {"multi_margin", &margin_schema,
                "The sum over the other classes of max(0, margin - score of the target + score), divided by the number "
                "of classes; mean over rows or positions (torch.nn.MultiMarginLoss)."},
    .wants_classes = true,
    .class_weight = class_weight,
    .check = check_margin,
    .run = run_margin,
    .pytorch = "multi_margin_loss({y}, {t}{weight}{,p}{,margin})",
};
const struct loss_type loss_soft_cross_entropy = {
    .variant = {"soft_cross_entropy", &soft_schema,
                "Softmax and cross entropy of probabilities of the classes, such as one-hot rows; mean over rows or "
                "positions (torch.nn.CrossEntropyLoss with probabilities)."},
    .own_activation = "softmax",
    .check = check_soft,
    .run = run_soft,
    .pytorch = "soft_cross_entropy({y}, {t}{,weight}{,label_smoothing})",
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
