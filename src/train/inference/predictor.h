/* predictor: a trained model in memory that predicts rows of the caller, for a program that embeds it. It is that of a
 * checkpoint alone: neither the run's config file nor its dataset is needed. Predictions have the bits of `predict` on
 * the CPU for the same rows.
 *
 * Any number of threads may predict at once. Each takes an own set of activations, made when it is first needed and
 * kept for later calls; all share the weights. */
#pragma once

#include "base/schema/schema.h"
#include "base/status.h"
#include "data/dataset/input_layout.h"
#include "data/source/config.h"

struct predictor_options {
    const char *checkpoint; /* of a run folder: "best", "newest"; NULL: the best one if there is one, else the newest */
    const char *weights;    /* "trained" or "average"; NULL: those that the run's evaluations use */
};

/* What a predictor takes and gives; owned by it. */
struct predictor_description {
    const char *name; /* of the config */
    int64_t epoch, step;
    size_t parameters;
    struct input_layout inputs;          /* with has_preparation the features, which predictor_run_table computes */
    bool has_preparation;                /* columns are not only numbers; then only predictor_run_table may be called */
    struct string_list columns;          /* of a table, the inputs; count 0: the rows have no names */
    size_t outputs;                      /* of the model */
    struct string_list predictions;      /* names */
    const bool *are_classes;             /* (predictions.count) whether it is a class; else a value */
    struct string_list probabilities;    /* names; count 0: the model gives none */
    struct string_list labels;           /* of the classes; count 0: they are numbers */
    const struct vocabulary *vocabulary; /* of the tokens; NULL: it is not known */
};

/* Where results are written, each (rows, ...); NULL: not wanted. */
struct predictor_results {
    float *outputs;
    double *predictions; /* the number of a class, or a value in the unit of the training file */
    float *probabilities;
};

struct predictor;

/* [path]: a checkpoint, a run folder, its folder of checkpoints, or a config (the run folder is then runs/<name>).
 * STATUS_DATA for a file that is damaged or no checkpoint. */
status predictor_open(const char *path, const struct predictor_options *options, struct predictor **out);
void predictor_close(struct predictor *predictor); /* takes NULL; when no call uses it */

const struct predictor_description *predictor_describe(const struct predictor *predictor);

/* Rows of values (rows, inputs.size) as the training file has them. One of [floats] and [doubles] is NULL. */
struct predictor_values {
    const float *floats;
    const double *doubles;
};
status predictor_run(struct predictor *predictor, struct predictor_values values, size_t rows,
                     const struct predictor_results *results);
/* The same for rows of tokens. */
status predictor_run_tokens(struct predictor *predictor, const int32_t *tokens, size_t rows,
                            const struct predictor_results *results);
/* Rows of columns, found by name; other columns are ignored. */
status predictor_run_table(struct predictor *predictor, const struct cells *cells,
                           const struct predictor_results *results);
