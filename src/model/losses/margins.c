/* hinge_embedding, soft_margin, margin_ranking: torch.nn.HingeEmbeddingLoss, SoftMarginLoss and MarginRankingLoss.
 * Their targets are 1 or -1. */
#include "model/losses/losses.h"

struct margin_config {
    double margin;
};

#define MARGIN_ROW(fallback_, doc_)                                                                                    \
    SCHEMA_ROW(REAL, struct margin_config, margin, .fallback = fallback_, .min = -INFINITY, .max = INFINITY,           \
               .doc = doc_)

static const struct schema_row hinge_rows[] = {
    MARGIN_ROW("1", "Outputs with the target -1 that are larger than this have no loss."), {0}};
static const struct schema hinge_schema =
    SCHEMA("loss.hinge_embedding", struct margin_config, .rows = hinge_rows, .shorthand = "margin");

static const struct schema_row ranking_rows[] = {
    MARGIN_ROW("0", "By how much the one that should be larger must be larger."), {0}};
static const struct schema ranking_schema =
    SCHEMA("loss.margin_ranking", struct margin_config, .rows = ranking_rows, .shorthand = "margin");

static float margin_of(const void *config) { return (float)((const struct margin_config *)config)->margin; }

static void run_hinge(const void *config, const struct loss_batch *b) {
    struct elementwise_options options = {.loss = LOSS_HINGE_EMBEDDING, .beta = margin_of(config)};
    loss_mean_of_elements(&options, b);
}

static void run_soft(const void *config, const struct loss_batch *b) {
    struct elementwise_options options = {.loss = LOSS_SOFT_MARGIN};
    loss_mean_of_elements(&options, b);
}

static void run_ranking(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_MARGIN_RANKING, .margin = margin_of(config), .parts = 2};
    options.targets = shape_elements(b->shape) / loss_row_positions(b->shape) / 2;
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "HingeEmbeddingLoss hinge_embedding_loss", "hinge_embedding"),
    VALUE_ALIAS("loss", "SoftMarginLoss soft_margin_loss logistic", "soft_margin"),
    VALUE_ALIAS("loss", "MarginRankingLoss margin_ranking_loss ranking", "margin_ranking"),
    {0},
};

const struct loss_type loss_hinge_embedding = {
    .aliases = aliases,
    .variant = {"hinge_embedding", &hinge_schema,
                "The output, a distance, where the target is 1, and max(0, margin - output) where it is -1; mean over "
                "all elements (torch.nn.HingeEmbeddingLoss)."},
    .targets = "signs",
    .is_sign = true,
    .run = run_hinge,
    .pytorch = "F.hinge_embedding_loss({y}, {t}{,margin})",
};
const struct loss_type loss_soft_margin = {
    .variant = {"soft_margin", NULL,
                "log(1 + exp(-target output)) of targets 1 and -1, mean over all elements (torch.nn.SoftMarginLoss)."},
    .targets = "signs",
    .is_sign = true,
    .run = run_soft,
    .pytorch = "F.soft_margin_loss({y}, {t})",
};
const struct loss_type loss_margin_ranking = {
    .variant =
        {"margin_ranking", &ranking_schema,
         "Of two scores in an output, of which the first should be larger where the target is 1, the second where it "
         "is -1: max(0, margin - target (first - second)); mean over all pairs (torch.nn.MarginRankingLoss)."},
    .targets = "signs",
    .is_sign = true,
    .parts = 2,
    .parts_meaning = "scores, then as many that are compared with them",
    .run = run_ranking,
    .pytorch = "F.margin_ranking_loss(*{y}.flatten(1).chunk(2, 1), {t}{,margin})",
};
