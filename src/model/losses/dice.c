/* dice: MONAI's DiceLoss with sigmoid (Milletari et al., "V-Net", 2016). An output (C, ...) is C masks, an output (N)
 * or (1, ...) one. */
#include "model/losses/losses.h"

struct dice_config {
    double smooth;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct dice_config, smooth, .fallback = "1e-05", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Added to the numerator and the denominator, so that an empty mask has a loss."),
    {0},
};
static const struct schema schema = SCHEMA("loss.dice", struct dice_config, .rows = keys, .shorthand = "smooth");

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    TRY(loss_check_values(config, output, target_size, classes));
    if (!output->lengths || shape_elements(output) > (size_t)output->size[0]) return OK;
    return status_new(STATUS_USAGE, "dice compares the values of each position of rows of different lengths, of which "
                                    "the model has only one; use bce_with_logits or focal");
}

static void run(const void *config, const struct loss_batch *b) {
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

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "DiceLoss", "dice"),
    {0},
};

const struct loss_type loss_dice = {
    .aliases = aliases,
    .variant = {"dice", &schema,
                "1 minus the Dice coefficient of sigmoid and binary target, (2 sum(p t) + smooth) / (sum(p) + sum(t) + "
                "smooth); mean over rows and channels (monai.losses.DiceLoss with sigmoid)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = check,
    .run = run,
    .pytorch = "dice_loss({y}, {t}, {smooth})",
};
