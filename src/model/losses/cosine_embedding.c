/* cosine_embedding: torch.nn.CosineEmbeddingLoss. An output row holds two embeddings, one after the other. */
#include "model/losses/losses.h"

struct cosine_config {
    double margin;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct cosine_config, margin, .fallback = "0", .min = -1, .max = 1,
               .doc = "The cosine of a different pair may be as large as this without a loss."),
    {0},
};
static const struct schema schema =
    SCHEMA("loss.cosine_embedding", struct cosine_config, .rows = keys, .shorthand = "margin");

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes;
    TRY(loss_check_parts("cosine_embedding", 2, "an embedding, then the one to compare", output, 0));
    size_t positions = loss_row_positions(output);
    if (target_size == positions) return OK;
    if (output->lengths)
        return status_new(
            STATUS_USAGE,
            "a target row has %zu value%s: cosine_embedding needs one for each of the %zu positions, 1 or -1",
            target_size, text_plural(target_size, "s"), positions);
    return status_new(STATUS_USAGE, "a target row has %zu values: cosine_embedding needs one, 1 or -1", target_size);
}

static void run(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_COSINE_EMBEDDING,
                                      .margin = (float)((const struct cosine_config *)config)->margin,
                                      .parts = 2,
                                      .targets = 1};
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "CosineEmbeddingLoss cosine cosine_similarity", "cosine_embedding"),
    {0},
};

const struct loss_type loss_cosine_embedding = {
    .aliases = aliases,
    .variant = {"cosine_embedding", &schema,
                "Of two embeddings in an output: 1 - cos for pairs with the target 1, max(0, cos - margin) for pairs "
                "with the target -1; mean over rows (torch.nn.CosineEmbeddingLoss)."},
    .targets = "signs",
    .is_sign = true,
    .parts = 2,
    .check = check,
    .run = run,
    .pytorch = "F.cosine_embedding_loss(*{y}.flatten(1).chunk(2, 1), {t}.flatten(){,margin})",
};
