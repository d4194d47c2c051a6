/* Losses of embeddings, which an output row holds one after the other: cosine_embedding and triplet_margin
 * (torch.nn.CosineEmbeddingLoss, TripletMarginLoss with p = 2), and contrastive, InfoNCE as in CLIP: the row of b that
 * belongs to a row of a is found among the rows of all ranks. */
#include "model/losses/losses.h"

/* ---- cosine_embedding ---- */

struct cosine_config {
    double margin;
};

static const struct schema_row cosine_rows[] = {
    SCHEMA_ROW(REAL, struct cosine_config, margin, .fallback = "0", .min = -1, .max = 1,
               .doc = "The cosine of a different pair may be as large as this without a loss."),
    {0},
};
static const struct schema cosine_schema =
    SCHEMA("loss.cosine_embedding", struct cosine_config, .rows = cosine_rows, .shorthand = "margin");

static status cosine_check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    TRY(loss_check_parts("cosine_embedding", 2, "an embedding, then the one to compare", output, 0));
    size_t positions = loss_row_positions(output);
    if (target_size == positions) return OK;
    if (output->lengths)
        return status_new(
            STATUS_USAGE,
            "a target row has %zu value%s: cosine_embedding needs one for each of the %zu positions, 1 or -1",
            target_size, text_plural(target_size, "s"), positions);
    return status_usage("a target row has %zu values: cosine_embedding needs one, 1 or -1", target_size);
}

static void cosine_run(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_COSINE_EMBEDDING,
                                      .margin = (float)((const struct cosine_config *)config)->margin,
                                      .parts = 2,
                                      .targets = 1};
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "CosineEmbeddingLoss cosine cosine_similarity", "cosine_embedding"),
    VALUE_ALIAS("loss", "TripletMarginLoss triplet", "triplet_margin"),
    VALUE_ALIAS("loss", "ClipLoss clip_loss clip InfoNCE info_nce InfoNCELoss nce", "contrastive"),
    VALUE_ALIAS_NOTE("loss", "NTXentLoss nt_xent ntxent simclr", "contrastive",
                     "It compares the two sides only, not the embeddings of one side with each other"),
    {0},
};

const struct loss_type loss_cosine_embedding = {
    .aliases = aliases,
    .variant = {"cosine_embedding", &cosine_schema,
                "Of two embeddings in an output: 1 - cos for pairs with the target 1, max(0, cos - margin) for pairs "
                "with the target -1; mean over rows (torch.nn.CosineEmbeddingLoss)."},
    .targets = "signs",
    .is_sign = true,
    .parts = 2,
    .check = cosine_check,
    .run = cosine_run,
    .pytorch = "F.cosine_embedding_loss(*{y}.flatten(1).chunk(2, 1), {t}.flatten(){,margin})",
};

/* ---- triplet_margin ---- */

struct triplet_config {
    double margin, eps;
    bool swap;
};

static const struct schema_row triplet_rows[] = {
    SCHEMA_ROW(REAL, struct triplet_config, margin, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "By how much the negative must be farther from the anchor than the positive."),
    SCHEMA_ROW(REAL, struct triplet_config, eps, .fallback = "1e-06", .min = 0, .max = INFINITY,
               .doc = "Added to each difference of a distance."),
    SCHEMA_ROW(BOOL, struct triplet_config, swap, .fallback = "false",
               .doc =
                   "Use the distance of positive and negative where it is smaller than that of anchor and negative."),
    {0},
};
static const struct schema triplet_schema =
    SCHEMA("loss.triplet_margin", struct triplet_config, .rows = triplet_rows, .shorthand = "margin");

static void triplet_run(const void *config, const struct loss_batch *b) {
    const struct triplet_config *c = config;
    struct rowwise_options options = {.loss = ROWWISE_TRIPLET_MARGIN,
                                      .margin = (float)c->margin,
                                      .eps = (float)c->eps,
                                      .is_swapped = c->swap,
                                      .parts = 3};
    loss_mean_of_rows(&options, b);
}

const struct loss_type loss_triplet_margin = {
    .variant = {"triplet_margin", &triplet_schema,
                "Of three embeddings in an output, anchor, positive and negative: max(0, margin + |a - p| - |a - n|); "
                "mean over rows; without a target, in `losses` (torch.nn.TripletMarginLoss)."},
    .has_no_target = true,
    .parts = 3,
    .parts_meaning = "an anchor, a positive and a negative",
    .run = triplet_run,
    .pytorch = "F.triplet_margin_loss(*{y}.flatten(1).chunk(3, 1){,margin}{,eps}{,swap})",
};

/* ---- contrastive ---- */

struct contrastive_config {
    double temperature;
    bool symmetric;
};

static const struct schema_row contrastive_rows[] = {
    SCHEMA_ROW(REAL, struct contrastive_config, temperature, .fallback = "0.07", .min = 1e-3, .max = 1e3,
               .doc = "Divides the cosines; a smaller one weights the most similar of the other rows more."),
    SCHEMA_ROW(
        BOOL, struct contrastive_config, symmetric, .fallback = "true",
        .doc = "The mean of both directions, as in CLIP. False: only the second embedding of each first one is found."),
    {0},
};
static const struct schema contrastive_schema =
    SCHEMA("loss.contrastive", struct contrastive_config, .rows = contrastive_rows, .shorthand = "temperature");

static status contrastive_prepare(const void *config, struct device *device, const struct shape *output,
                                  size_t target_size, size_t rows, size_t world_size) {
    const struct loss_ops *ops = device_ops(device)->losses;
    return ops->contrastive_prepare(device, rows, world_size, shape_elements(output) / 2);
}

static void contrastive_run(const void *config, const struct loss_batch *b) {
    const struct contrastive_config *c = config;
    struct contrastive_options options = {.temperature = (float)c->temperature,
                                          .is_symmetric = c->symmetric,
                                          .size = shape_elements(b->shape) / 2,
                                          .all = b->weights->all};
    device_ops(b->device)->losses->contrastive(b->device, &options, floats(b->output), b->rows,
                                               b->rows ? b->scale / (float)b->rows : 0, floats(b->gradient), b->sums);
}

const struct loss_type loss_contrastive = {
    .variant = {"contrastive", &contrastive_schema,
                "InfoNCE, of two embeddings in an output: each of a row is classified by its cosines to those of all "
                "rows of a batch, on all ranks; without a target, in `losses` (open_clip's ClipLoss)."},
    .has_no_target = true,
    .compares_rows = true,
    .without_lengths = "compares each row with all others, which the positions of rows of different lengths are not; "
                       "insert '- mean: 1' or '- max: 1' after each embedding, before concat joins them",
    .parts = 2,
    .parts_meaning = "an embedding, then the one that belongs to it",
    .prepare = contrastive_prepare,
    .run = contrastive_run,
    .pytorch = "contrastive_loss(*{y}.flatten(1).chunk(2, 1), {temperature}, {symmetric})",
};
