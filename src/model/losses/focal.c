/* focal: torchvision.ops.sigmoid_focal_loss (Lin et al., "Focal Loss for Dense Object Detection", 2017). */
#include "model/losses/losses.h"

struct focal_config {
    double alpha, gamma;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct focal_config, alpha, .fallback = "0.25", .flags = SCHEMA_NULLABLE, .min = 0, .max = 1,
               .doc = "Weight of the targets 1; targets 0 have 1 - alpha. null: no weights."),
    SCHEMA_ROW(REAL, struct focal_config, gamma, .fallback = "2", .min = 0, .max = INFINITY,
               .doc = "How much less elements count that are classified well; 0: as in bce_with_logits."),
    {0},
};
static const struct schema schema = SCHEMA("loss.focal", struct focal_config, .rows = keys);

static void run(const void *config, const struct loss_batch *b) {
    const struct focal_config *c = config;
    struct elementwise_options options = {
        .loss = LOSS_FOCAL, .alpha = isnan(c->alpha) ? -1 : (float)c->alpha, .gamma = (float)c->gamma};
    loss_mean_of_elements(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "FocalLoss sigmoid_focal_loss", "focal"),
    {0},
};

const struct loss_type loss_focal = {
    .aliases = aliases,
    .variant = {"focal", &schema,
                "bce_with_logits in which elements that are classified well count less, mean over all elements "
                "(torchvision.ops.sigmoid_focal_loss)."},
    .is_binary = true,
    .own_activation = "sigmoid",
    .check = loss_check_values,
    .run = run,
    .pytorch = "focal_loss({y}, {t}, {alpha}, {gamma})",
};
