/* schema_example: a schema with every kind of row, for the tests and the fuzzer. */
#pragma once

#include "base/schema/schema.h"

struct example_sampler {
    int64_t batch_size;
    bool shuffle, is_shuffle_given;
    double fraction;
    int scale;
};
struct example_sgd {
    double lr, momentum;
};
struct example_adam {
    double lr;
    struct real_list betas;
};
struct example_every {
    double weight_decay;
};
struct example_linear {
    int64_t out;
    bool bias;
    struct variant init;
};
struct example_dropout {
    double p;
};
struct example_nested {
    struct variant_list layers;
    int64_t times;
};
struct example_layer {
    const char *name;
};
struct example_normal {
    double std;
};
struct example_save {
    int64_t epochs, steps;
};
struct example_validation {
    const char *path;
};
struct example {
    const char *name;
    int64_t seed;
    struct example_sampler sampler;
    struct variant_list layers;
    struct variant optimizer, schedule;
    struct {
        struct example_save save_every;
        int64_t keep;
        const char *resume;
    } checkpoint;
    struct {
        int64_t epochs;
        struct int_list sizes;
        struct string_list tags;
        double clip;
        int device;
    } train;
    struct example_validation validation;
    bool has_validation;
};

static const char *const example_scales[] = {"none", "standard", "minmax", NULL};
static const char *const example_devices[] = {"auto", "cpu", "cuda", NULL};

static const struct schema_row example_sampler_rows[] = {
    {.key = "batch_size",
     .type = SCHEMA_INT,
     .offset = FIELD(struct example_sampler, batch_size),
     .fallback = "32",
     .min = 1,
     .max = INFINITY,
     .doc = "Rows per rank."},
    {.key = "shuffle",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct example_sampler, shuffle),
     .fallback = "true",
     .present_offset = FIELD(struct example_sampler, is_shuffle_given),
     .doc = "A new order each epoch."},
    {.key = "fraction",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_sampler, fraction),
     .fallback = "0.5",
     .max = 1,
     .excludes_min = true,
     .excludes_max = true,
     .doc = "Part of the rows | of each epoch."},
    {.key = "scale",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct example_sampler, scale),
     .fallback = "none",
     .choices = example_scales,
     .doc = "How inputs are scaled."},
    {0},
};
static const struct schema example_sampler_schema = {
    .name = "sampler", .size = sizeof(struct example_sampler), .rows = example_sampler_rows};

/* ---- optimizers: {type: ...}, with a common key ---- */

static const struct schema_row example_sgd_rows[] = {
    {.key = "lr",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_sgd, lr),
     .flags = SCHEMA_REQUIRED,
     .max = INFINITY,
     .doc = "The step size."},
    {.key = "momentum",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_sgd, momentum),
     .fallback = "0",
     .doc = "."},
    {0},
};
static const struct schema example_sgd_schema = {
    .name = "optimizer.sgd", .size = sizeof(struct example_sgd), .rows = example_sgd_rows};

static const struct schema_row example_adam_rows[] = {
    {.key = "lr",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_adam, lr),
     .fallback = "1e-3",
     .max = INFINITY,
     .doc = "The step size."},
    {.key = "betas",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct example_adam, betas),
     .fallback = "[0.9, 0.999]",
     .max = 1,
     .excludes_max = true,
     .doc = "Decay of the averages."},
    {0},
};

static inline void example_check_adam(void *config, const struct node *where, const char *path,
                                      struct problems *problems) {
    const struct example_adam *adam = config;
    if (adam->betas.count != 2)
        problems_add(problems, where->place, path, "betas must be two numbers, got %zu", adam->betas.count);
}
static const struct schema example_adam_schema = {.name = "optimizer.adam",
                                                  .size = sizeof(struct example_adam),
                                                  .rows = example_adam_rows,
                                                  .check = example_check_adam};

static const struct schema_row example_every_rows[] = {
    {.key = "weight_decay",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_every, weight_decay),
     .fallback = "0",
     .max = INFINITY,
     .doc = "Pull towards zero."},
    {0},
};
static const struct schema example_every_schema = {
    .name = "optimizer", .size = sizeof(struct example_every), .rows = example_every_rows};

static inline const struct schema_variant *example_optimizer_at(size_t index) {
    static const struct schema_variant table[] = {
        {"adam", &example_adam_schema, "Adam, as torch.optim.Adam."},
        {"sgd", &example_sgd_schema, "Plain gradient descent."},
        {"none", NULL, "Leaves the weights as they are."},
    };
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
static const struct schema_variants example_optimizers = {
    .what = "optimizer", .at = example_optimizer_at, .common = &example_every_schema};

static inline const struct schema_variant *example_schedule_at(size_t index) {
    static const struct schema_variant table[] = {{"constant", NULL, "Stays."}, {"cosine", NULL, "Falls."}};
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
static const struct schema_variants example_schedules = {.what = "schedule", .at = example_schedule_at};

/* ---- layers: keyed, nested, with a common key ---- */

static const struct schema_row example_normal_rows[] = {
    {.key = "std", .type = SCHEMA_REAL, .offset = FIELD(struct example_normal, std), .fallback = "0.02", .doc = "."},
    {0},
};
static const struct schema example_normal_schema = {
    .name = "init.normal", .size = sizeof(struct example_normal), .rows = example_normal_rows, .shorthand = "std"};

static inline const struct schema_variant *example_init_at(size_t index) {
    static const struct schema_variant table[] = {{"normal", &example_normal_schema, "Gauss."},
                                                  {"zeros", NULL, "All 0."}};
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
static const struct schema_variants example_inits = {.what = "initialisation", .at = example_init_at, .is_keyed = true};

static const struct schema_row example_linear_rows[] = {
    {.key = "out",
     .type = SCHEMA_INT,
     .offset = FIELD(struct example_linear, out),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = INFINITY,
     .doc = "Output features."},
    {.key = "bias", .type = SCHEMA_BOOL, .offset = FIELD(struct example_linear, bias), .fallback = "true", .doc = "."},
    {.key = "init",
     .type = SCHEMA_VARIANT,
     .offset = FIELD(struct example_linear, init),
     .fallback = "null",
     .variants = &example_inits,
     .doc = "Initial weights."},
    {0},
};
static const struct schema example_linear_schema = {
    .name = "linear", .size = sizeof(struct example_linear), .rows = example_linear_rows};

static const struct schema_row example_dropout_rows[] = {
    {.key = "p",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct example_dropout, p),
     .fallback = "0.5",
     .max = 1,
     .doc = "Part of the values that is dropped."},
    {0},
};
static const struct schema example_dropout_schema = {
    .name = "dropout", .size = sizeof(struct example_dropout), .rows = example_dropout_rows, .shorthand = "p"};

extern const struct schema_variants example_layers;
static const struct schema_row example_nested_rows[] = {
    {.key = "layers",
     .type = SCHEMA_VARIANT_LIST,
     .offset = FIELD(struct example_nested, layers),
     .flags = SCHEMA_REQUIRED,
     .variants = &example_layers,
     .doc = "In their order."},
    {.key = "times", .type = SCHEMA_INT, .offset = FIELD(struct example_nested, times), .fallback = "1", .doc = "."},
    {0},
};
static const struct schema example_nested_schema = {
    .name = "sequential", .size = sizeof(struct example_nested), .rows = example_nested_rows, .shorthand = "layers"};

static const struct schema_row example_layer_rows[] = {
    {.key = "name", .type = SCHEMA_STRING, .offset = FIELD(struct example_layer, name), .fallback = "null", .doc = "."},
    {0},
};
static const struct schema example_layer_schema = {
    .name = "layer", .size = sizeof(struct example_layer), .rows = example_layer_rows};

static inline const struct schema_variant *example_layer_at(size_t index) {
    static const struct schema_variant table[] = {
        {"linear", &example_linear_schema, "x W^T + b."},
        {"relu", NULL, "max(x, 0)."},
        {"dropout", &example_dropout_schema, "Zeroes a part."},
        {"sequential", &example_nested_schema, "Layers one after another."},
    };
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
const struct schema_variants example_layers = {
    .what = "layer", .at = example_layer_at, .common = &example_layer_schema, .is_keyed = true};

/* ---- the rest ---- */

static const struct schema_row example_model_rows[] = {
    {.key = "layers",
     .type = SCHEMA_VARIANT_LIST,
     .offset = 0,
     .fallback = "[]",
     .variants = &example_layers,
     .doc = "In their order."},
    {0},
};
static const struct schema example_model_schema = {
    .name = "model", .size = sizeof(struct variant_list), .rows = example_model_rows};

static const struct schema_row example_save_rows[] = {
    {.key = "epochs",
     .type = SCHEMA_INT,
     .offset = FIELD(struct example_save, epochs),
     .fallback = "null",
     .min = 1,
     .max = INFINITY,
     .doc = "."},
    {.key = "steps",
     .type = SCHEMA_INT,
     .offset = FIELD(struct example_save, steps),
     .fallback = "null",
     .min = 1,
     .max = INFINITY,
     .doc = "."},
    {0},
};
static inline void example_check_save(void *config, const struct node *where, const char *path,
                                      struct problems *problems) {
    const struct example_save *save = config;
    if (save->epochs != SCHEMA_NO_INT && save->steps != SCHEMA_NO_INT)
        problems_add(problems, where->place, path, "give epochs or steps, not both");
}
static const struct schema example_save_schema = {.name = "checkpoint.save_every",
                                                  .size = sizeof(struct example_save),
                                                  .rows = example_save_rows,
                                                  .shorthand = "epochs",
                                                  .check = example_check_save};

#define EXAMPLE_CHECKPOINT(member) (offsetof(struct example, checkpoint.member) - offsetof(struct example, checkpoint))
static const struct schema_row example_checkpoint_rows[] = {
    {.key = "save_every",
     .type = SCHEMA_SECTION,
     .offset = EXAMPLE_CHECKPOINT(save_every),
     .section = &example_save_schema,
     .doc = "When a checkpoint is saved."},
    {.key = "keep",
     .type = SCHEMA_INT,
     .offset = EXAMPLE_CHECKPOINT(keep),
     .fallback = "3",
     .flags = SCHEMA_EXTENDS,
     .max = INFINITY,
     .doc = "How many are kept."},
    {.key = "resume",
     .type = SCHEMA_STRING,
     .offset = EXAMPLE_CHECKPOINT(resume),
     .fallback = "auto",
     .doc = "auto, never or a file."},
    {0},
};
static const struct schema example_checkpoint_schema = {
    .name = "checkpoint", .size = sizeof(((struct example *)0)->checkpoint), .rows = example_checkpoint_rows};

#define EXAMPLE_TRAIN(member) (offsetof(struct example, train.member) - offsetof(struct example, train))
static const struct schema_row example_train_rows[] = {
    {.key = "epochs",
     .type = SCHEMA_INT,
     .offset = EXAMPLE_TRAIN(epochs),
     .fallback = "100",
     .flags = SCHEMA_EXTENDS,
     .min = -1e6,
     .max = 1e6,
     .doc = "Passes over the data."},
    {.key = "sizes",
     .type = SCHEMA_INT_LIST,
     .offset = EXAMPLE_TRAIN(sizes),
     .fallback = "[1, 2]",
     .min = 1,
     .max = INFINITY,
     .doc = "."},
    {.key = "tags", .type = SCHEMA_STRING_LIST, .offset = EXAMPLE_TRAIN(tags), .fallback = "null", .doc = "."},
    {.key = "clip", .type = SCHEMA_REAL, .offset = EXAMPLE_TRAIN(clip), .fallback = "null", .doc = "."},
    {.key = "device",
     .type = SCHEMA_CHOICE,
     .offset = EXAMPLE_TRAIN(device),
     .fallback = "auto",
     .flags = SCHEMA_NULLABLE,
     .choices = example_devices,
     .doc = "Where the model runs."},
    {0},
};
static const struct schema example_train_schema = {
    .name = "train", .size = sizeof(((struct example *)0)->train), .rows = example_train_rows};

static const struct schema_row example_validation_rows[] = {
    {.key = "path",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct example_validation, path),
     .fallback = "''",
     .doc = "The file."},
    {0},
};
static const struct schema example_validation_schema = {
    .name = "validation", .size = sizeof(struct example_validation), .rows = example_validation_rows};

static const struct schema_row example_rows[] = {
    {.key = "name",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct example, name),
     .fallback = "null",
     .doc = "The run."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct example, seed),
     .flags = SCHEMA_REQUIRED,
     .max = INFINITY,
     .doc = "Of every random draw."},
    {.key = "sampler",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct example, sampler),
     .section = &example_sampler_schema,
     .doc = "Which rows each rank sees."},
    {.key = "model",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct example, layers),
     .section = &example_model_schema,
     .doc = "What is trained."},
    {.key = "optimizer",
     .type = SCHEMA_VARIANT,
     .offset = FIELD(struct example, optimizer),
     .fallback = "adam",
     .variants = &example_optimizers,
     .doc = "How weights change."},
    {.key = "schedule",
     .type = SCHEMA_VARIANT,
     .offset = FIELD(struct example, schedule),
     .fallback = "null",
     .variants = &example_schedules,
     .doc = "How the step size changes."},
    {.key = "checkpoint",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct example, checkpoint),
     .section = &example_checkpoint_schema,
     .doc = "What is saved and when."},
    {.key = "train",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct example, train),
     .section = &example_train_schema,
     .doc = "How long and on what."},
    {.key = "validation",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct example, validation),
     .flags = SCHEMA_NULLABLE,
     .section = &example_validation_schema,
     .present_offset = FIELD(struct example, has_validation),
     .doc = "Rows that are only looked at."},
    {0},
};
static const struct schema example_schema = {.name = "config", .size = sizeof(struct example), .rows = example_rows};
