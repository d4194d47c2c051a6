/* contrastive: InfoNCE, as in CLIP: the row of b that belongs to a row of a is found among the rows of
 * all ranks. An output row holds both embeddings, one after the other. */
#include "model/losses/losses.h"

struct contrastive_config {
    double temperature;
    bool symmetric;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct contrastive_config, temperature, .fallback = "0.07", .min = 1e-3, .max = 1e3,
               .doc = "Divides the cosines; a smaller one weights the most similar of the other rows more."),
    SCHEMA_ROW(
        BOOL, struct contrastive_config, symmetric, .fallback = "true",
        .doc = "The mean of both directions, as in CLIP. False: only the second embedding of each first one is found."),
    {0},
};
static const struct schema schema =
    SCHEMA("loss.contrastive", struct contrastive_config, .rows = keys, .shorthand = "temperature");

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes, (void)target_size;
    return loss_check_parts("contrastive", 2, "an embedding, then the one that belongs to it", output, 0);
}

static status prepare(const void *config, struct device *device, const struct shape *output, size_t target_size,
                      size_t rows, size_t world_size) {
    const struct loss_ops *ops = device_ops(device)->losses;
    (void)config, (void)target_size;
    return ops->contrastive_prepare(device, rows, world_size, shape_elements(output) / 2);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct contrastive_config *c = config;
    struct contrastive_options options = {.temperature = (float)c->temperature,
                                          .is_symmetric = c->symmetric,
                                          .size = shape_elements(b->shape) / 2,
                                          .all = b->weights->all};
    device_ops(b->device)->losses->contrastive(b->device, &options, floats(b->output), b->rows,
                                               b->rows ? b->scale / (float)b->rows : 0, floats(b->gradient), b->sums);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "ClipLoss clip_loss clip InfoNCE info_nce InfoNCELoss nce", "contrastive"),
    VALUE_ALIAS_NOTE("loss", "NTXentLoss nt_xent ntxent simclr", "contrastive",
                     "It compares the two sides only, not the embeddings of one side with each other"),
    {0},
};

const struct loss_type loss_contrastive = {
    .aliases = aliases,
    .variant = {"contrastive", &schema,
                "InfoNCE, of two embeddings in an output: each of a row is classified by its cosines to those of all "
                "rows of a batch, on all ranks; without a target, in `losses` (open_clip's ClipLoss)."},
    .has_no_target = true,
    .compares_rows = true,
    .without_lengths = "compares each row with all others, which the positions of rows of different lengths are not; "
                       "insert '- mean: 1' or '- max: 1' after each embedding, before concat joins them",
    .parts = 2,
    .check = check,
    .prepare = prepare,
    .run = run,
    .pytorch = "contrastive_loss(*{y}.flatten(1).chunk(2, 1), {temperature}, {symmetric})",
};
