/* embedding: the keys that embedding and embedding_bag have in common. */
#ifndef MODEL_LAYERS_EMBEDDING_H
#define MODEL_LAYERS_EMBEDDING_H

#include "model/layer.h"

/* The keys of both. */
struct embedding_config {
    int64_t embedding_dim, num_embeddings, padding_idx;
    int mode; /* enum bag_mode; embedding_bag only */
};

/* [vectors_doc]: what the vectors are, [padding_min] and [padding_doc]: what padding_idx may be and means. */
#define EMBEDDING_ROWS(vectors_doc, padding_min, padding_doc)                                                          \
    {.key = "embedding_dim",                                                                                           \
     .type = SCHEMA_INT,                                                                                               \
     .offset = offsetof(struct embedding_config, embedding_dim),                                                       \
     .flags = SCHEMA_REQUIRED,                                                                                         \
     .min = 1,                                                                                                         \
     .max = 1 << 24,                                                                                                   \
     .doc = "Elements of a vector."},                                                                                  \
        {.key = "num_embeddings",                                                                                      \
         .type = SCHEMA_INT,                                                                                           \
         .offset = offsetof(struct embedding_config, num_embeddings),                                                  \
         .fallback = "null",                                                                                           \
         .min = 1,                                                                                                     \
         .max = 1 << 30,                                                                                               \
         .doc = "Number of vectors" vectors_doc "; null: the dataset's vocabulary, or what `check` prints of columns " \
                "with encoding: embedding and of sentences, which "                                                    \
                "is the same in all folds unless sentences have no tokenizer."},                                       \
    {                                                                                                                  \
        .key = "padding_idx", .type = SCHEMA_INT, .offset = offsetof(struct embedding_config, padding_idx),            \
        .fallback = "null", .min = padding_min, .max = 1 << 30, .doc = padding_doc                                     \
    }

/* The number of vectors. */
int64_t embedding_count(const struct layer *layer);
/* They must be enough for the vocabulary of the input. */
status embedding_check_count(const struct layer *layer);
/* The input must be tokens of the dataset, or its values with num_embeddings. */
status embedding_check_input(const struct layer *layer);
/* An input of values must be tokens. [row]: the row of the dataset. */
status embedding_check_values(const struct layer *layer, const struct params *params, const float *row);
/* The tokens (rows, positions) of a pass: x, or x converted into [converted] if it has values. */
const int32_t *embedding_tokens(const struct layer *layer, const struct pass *pass, const float *x, int32_t *converted);
/* Draws all from normal(0, 1), and sets that of the token [padding] to 0; -1: none. */
void embedding_draw(const struct layer *layer, const struct params *params, struct rng *rng, int64_t padding);

#endif
