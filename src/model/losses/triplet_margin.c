/* triplet_margin: torch.nn.TripletMarginLoss with p = 2. An output row holds three embeddings, one after the other. */
#include "model/losses/losses.h"

struct triplet_config {
    double margin, eps;
    bool swap;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct triplet_config, margin, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "By how much the negative must be farther from the anchor than the positive."),
    SCHEMA_ROW(REAL, struct triplet_config, eps, .fallback = "1e-06", .min = 0, .max = INFINITY,
               .doc = "Added to each difference of a distance."),
    SCHEMA_ROW(BOOL, struct triplet_config, swap, .fallback = "false",
               .doc =
                   "Use the distance of positive and negative where it is smaller than that of anchor and negative."),
    {0},
};
static const struct schema schema =
    SCHEMA("loss.triplet_margin", struct triplet_config, .rows = keys, .shorthand = "margin");

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes, (void)target_size;
    return loss_check_parts("triplet_margin", 3, "an anchor, a positive and a negative", output, 0);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct triplet_config *c = config;
    struct rowwise_options options = {.loss = ROWWISE_TRIPLET_MARGIN,
                                      .margin = (float)c->margin,
                                      .eps = (float)c->eps,
                                      .is_swapped = c->swap,
                                      .parts = 3};
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "TripletMarginLoss triplet", "triplet_margin"),
    {0},
};

const struct loss_type loss_triplet_margin = {
    .aliases = aliases,
    .variant = {"triplet_margin", &schema,
                "Of three embeddings in an output, anchor, positive and negative: max(0, margin + |a - p| - |a - n|); "
                "mean over rows; without a target, in `losses` (torch.nn.TripletMarginLoss)."},
    .has_no_target = true,
    .parts = 3,
    .check = check,
    .run = run,
    .pytorch = "F.triplet_margin_loss(*{y}.flatten(1).chunk(3, 1){,margin}{,eps}{,swap})",
};
