/* Losses of binary targets, whose outputs are logits: bce_with_logits (torch.nn.BCEWithLogitsLoss), for one or several
 * independent targets; focal (torchvision.ops.sigmoid_focal_loss; Lin et al., "Focal Loss for Dense Object Detection",
 * 2017); dice (MONAI's DiceLoss with sigmoid; Milletari et al., "V-Net", 2016). */
#include "model/losses/losses.h"

/* ---- bce_with_logits ---- */

struct bce_config {
    struct real_list pos_weight;
    int reduction;
};

static const struct schema_row bce_rows[] = {
    SCHEMA_ROW(REAL_LIST, struct bce_config, pos_weight, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "Weight of the positive targets: one for all outputs or one for each; of an output (positions, "
                      "classes) or (classes, height, width) one for each class. null: 1."),
    LOSS_REDUCTION_ROW(bce_config,
                       "`batchmean`: the sum over a row, mean over rows, as in a VAE; `mean`: over all elements."),
    {0},
};
static const struct schema bce_schema = SCHEMA("loss.bce_with_logits", struct bce_config, .rows = bce_rows);

/* Classes of an output of several positions or of images; 0: none. */
static size_t classes_of(const struct shape *output) {
    return output->dims < 2 ? 0 : (size_t)output->size[output->dims == 2 ? 1 : 0];
}

static status bce_check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    const struct bce_config *c = config;
    size_t count = c->pos_weight.count;
    TRY(loss_check_values(config, output, target_size, classes));
    if (count <= 1 || count == target_size || count == classes_of(output)) return OK;
    if (classes_of(output))
        return status_usage("pos_weight has %zu numbers, but the model has %zu classes and %zu outputs", count,
                            classes_of(output), target_size);
    return status_usage("pos_weight has %zu numbers, but the model has %zu outputs", count, target_size);
}

/* Consecutive elements with one weight: of images, whose classes are the first dimension, all pixels. */
static size_t run_of(const struct bce_config *c, const struct shape *output) {
    size_t elements = shape_elements(output), count = c->pos_weight.count;
    bool is_by_class = output->dims > 2 && count > 1 && count != elements;
    return is_by_class ? elements / count : 1;
}

static void bce_run(const void *config, const struct loss_batch *b) {
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
    VALUE_ALIAS("loss", "FocalLoss sigmoid_focal_loss", "focal"),
    VALUE_ALIAS("loss", "DiceLoss", "dice"),
    {0},
};

const struct loss_type loss_bce_with_logits = {
    .aliases = aliases,
    .variant = {"bce_with_logits", &bce_schema,
                "Sigmoid and binary cross entropy of targets between 0 and 1, mean over all elements "
                "(torch.nn.BCEWithLogitsLoss)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = bce_check,
    .run = bce_run,
    .pytorch = "binary_cross_entropy({y}, {t}{,pos_weight}{,reduction})",
};

/* ---- focal ---- */

struct focal_config {
    double alpha, gamma;
};

static const struct schema_row focal_rows[] = {
    SCHEMA_ROW(REAL, struct focal_config, alpha, .fallback = "0.25", .flags = SCHEMA_NULLABLE, .min = 0, .max = 1,
               .doc = "Weight of the targets 1; targets 0 have 1 - alpha. null: no weights."),
    SCHEMA_ROW(REAL, struct focal_config, gamma, .fallback = "2", .min = 0, .max = INFINITY,
               .doc = "How much less elements count that are classified well; 0: as in bce_with_logits."),
    {0},
};
static const struct schema focal_schema = SCHEMA("loss.focal", struct focal_config, .rows = focal_rows);

static void focal_run(const void *config, const struct loss_batch *b) {
    const struct focal_config *c = config;
    struct elementwise_options options = {
        .loss = LOSS_FOCAL, .alpha = isnan(c->alpha) ? -1 : (float)c->alpha, .gamma = (float)c->gamma};
    loss_mean_of_elements(&options, b);
}

const struct loss_type loss_focal = {
    .variant = {"focal", &focal_schema,
                "bce_with_logits in which elements that are classified well count less, mean over all elements "
                "(torchvision.ops.sigmoid_focal_loss)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .run = focal_run,
    .pytorch = "focal_loss({y}, {t}, {alpha}, {gamma})",
};

/* ---- dice ---- */

/* An output (C, ...) is C masks, an output (N) or (1, ...) one. */

struct dice_config {
    double smooth;
};

static const struct schema_row dice_rows[] = {
    SCHEMA_ROW(REAL, struct dice_config, smooth, .fallback = "1e-05", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Added to the numerator and the denominator, so that an empty mask has a loss."),
    {0},
};
static const struct schema dice_schema =
    SCHEMA("loss.dice", struct dice_config, .rows = dice_rows, .shorthand = "smooth");

static status dice_check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    TRY(loss_check_values(config, output, target_size, classes));
    if (!output->lengths || shape_elements(output) > (size_t)output->size[0]) return OK;
    return status_usage("dice compares the values of each position of rows of different lengths, of which "
                        "the model has only one; use bce_with_logits or focal");
}

static void dice_run(const void *config, const struct loss_batch *b) {
    size_t masks = b->shape->dims > 1 ? b->rows * (size_t)b->shape->size[0] : b->rows;
    size_t size = b->rows * shape_elements(b->shape) / masks;
    struct rowwise_options options = {.loss = ROWWISE_DICE,
                                      .smooth = (float)((const struct dice_config *)config)->smooth,
                                      .parts = 1,
                                      .targets = size,
                                      .rows = *b->weights,
                                      .row_masks = masks / b->rows};
    device_ops(b->device)->losses->rowwise(b->device, &options, floats(b->output), b->targets, masks, size,
                                           b->scale / (float)masks, floats(b->gradient), b->sums);
}

const struct loss_type loss_dice = {
    .variant = {"dice", &dice_schema,
                "1 minus the Dice coefficient of sigmoid and binary target, (2 sum(p t) + smooth) / (sum(p) + sum(t) + "
                "smooth); mean over rows and channels (monai.losses.DiceLoss with sigmoid)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = dice_check,
    .run = dice_run,
    .pytorch = "dice_loss({y}, {t}, {smooth})",
};
