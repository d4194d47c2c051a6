/* text_config: `dataset.text` and `dataset.tokens`. */
#include "data/source/config.h"

static const struct schema_row text_rows[] = {
    {.key = "block_size",
     .type = SCHEMA_INT,
     .offset = FIELD(struct text_config, block_size),
     .fallback = "128",
     .min = 1,
     .max = 1e6,
     .doc = "Characters of a row; the targets are the same characters one position later."},
    {.key = "stride",
     .type = SCHEMA_INT,
     .offset = FIELD(struct text_config, stride),
     .fallback = "1",
     .min = 1,
     .max = 1e9,
     .flags = SCHEMA_INFERENCE,
     .doc = "Characters between the starts of two rows: 1 starts a row at every character (the minGPT tutorial), "
            "block_size uses each character once per epoch."},
    {.key = "truncate",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct text_config, truncate),
     .fallback = "1",
     .min = 0,
     .max = 1,
     .excludes_min = true,
     .flags = SCHEMA_INFERENCE,
     .doc = "Fraction of the file that is used, from its start."},
    {0},
};

const struct schema text_section = {.name = "dataset.text", .size = sizeof(struct text_config), .rows = text_rows};

bool text_config_is_given(const struct text_config *text) {
    return text->block_size != 128 || text->stride != 1 || text->truncate != 1; /* the fallbacks of text_rows */
}

static const char *const token_types[] = {"uint16", "uint32", NULL};

static const struct schema_row tokens_rows[] = {
    {.key = "dtype",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct tokens_config, type),
     .fallback = "uint16",
     .choices = token_types,
     .flags = SCHEMA_INFERENCE,
     .doc = "Type of a token in the file, little-endian."},
    {.key = "vocabulary",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, vocabulary),
     .fallback = "null",
     .min = 1,
     .max = INT32_MAX,
     .doc = "Number of tokens of the vocabulary (50257 for GPT-2); null: that of the tokenizer, or the largest token "
            "of the "
            "file + 1 (the file is read once to find it)."},
    {.key = "block_size",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, block_size),
     .fallback = "1024",
     .min = 1,
     .max = 1e6,
     .doc = "Tokens of a row; the targets are the same tokens one position later."},
    {.key = "stride",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, stride),
     .fallback = "null",
     .min = 1,
     .max = 1e9,
     .flags = SCHEMA_INFERENCE,
     .doc = "Tokens between the starts of two rows; null: block_size, so that an epoch sees each token once."},
    {.key = "tokenizer",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct tokens_config, tokenizer),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
     .doc = "tokenizer.json of Hugging Face's tokenizers, byte-level BPE: a text (.txt) is read as its tokens; for ids "
            "(.bin), the tokenizer they were made with. It is kept in checkpoints, for generate."},
    {0},
};

const struct schema tokens_section = {
    .name = "dataset.tokens", .size = sizeof(struct tokens_config), .rows = tokens_rows};
