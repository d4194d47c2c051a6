/* predictions: what a model predicts for rows, in the terms of its training file (labels, names of targets), as CSV
 * text or as an HDF5 file.
 *
 * With several losses the columns of each have its name: `kind`, `kind_setosa` (probabilities), `box_0`, `box_1`; in
 * HDF5 each has a group in `predictions` with `prediction` and `probabilities`.
 *
 * CSV, one line per row: the original columns (optional), `row` (of a sample of dataset.draw the row of each input,
 * such as `first_row` and `second_row`), the predictions, the probabilities (optional), and `output_0`, ... (optional),
 * the model's outputs. A name that an earlier column has gets a prefix: `predicted_`, `probability_`. HDF5: datasets
 * `row` (rows), of samples (rows, inputs); `prediction` (rows) or (rows, predictions), int64 classes or float32 values
 * (float64 with dataset.target_scale); `labels` (classes), the texts of the classes; `targets` (predictions), their
 * names; `probabilities` (rows, classes or targets); `inputs` (rows, columns), the original texts, and `columns`, their
 * names; `outputs` (rows, outputs). */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"
#include "data/rows/target_scale.h"
#include "data/source/csv_texts.h"
#include "model/objective.h"

struct predictions {
    size_t rows;
    const int64_t *row_of; /* (rows): their row numbers in the dataset, from 0 */
    const int64_t
        *members; /* (rows, names_of_members.count): of dataset.draw, the rows of each sample; NULL: one, row_of */
    struct string_list names_of_members;
    const float *outputs; /* (rows, size): of the model */
    size_t size;
    bool wants_outputs;   /* CSV: the outputs are written, too */
    const bool *is_blank; /* (rows) of predictions_spread: the row has no predictions; NULL: all have */

    /* set by predictions_make */
    size_t count;          /* predictions of a row */
    const char **names;    /* (count): of the predictions */
    bool has_target_names; /* the names are those of the targets */
    int64_t *classes;      /* (rows, count); NULL: the predictions are values */
    double *values;        /* (rows, count): with a scale, in the unit of the file; NULL: the values are the outputs */
    struct string_list labels; /* of the classes; count 0: numbers */
    float *probabilities;      /* (rows, n_probabilities); NULL: not requested */
    size_t n_probabilities;
    const char **probability_names; /* (n_probabilities) */

    const struct csv_texts *inputs; /* the rows of the file; NULL: not requested */

    /* With several losses: the predictions of each, and of the above only rows, outputs and inputs. */
    const char *name; /* of the loss, in a part; NULL: one loss */
    struct predictions *parts;
    size_t part_count;
    float *own_outputs; /* the outputs, in a part or after predictions_spread */
};

/* What determines the meaning of the outputs. */
struct prediction_meaning {
    const struct loss_type *loss;
    const void *loss_config;                 /* of [loss] */
    const struct objective *objective;       /* several losses; NULL: [loss] */
    const struct shape *output;              /* of the model */
    struct string_list labels;               /* of the classes of the training; count 0: numbers */
    struct string_list targets;              /* names of the targets; another number than outputs: not known */
    const struct target_scale *target_scale; /* of the outputs; NULL: none */
    bool wants_probabilities;
};

/* Before predictions_make: makes [rows] rows of the outputs of those that are not [is_blank] (rows); the others have
 * none: empty fields of CSV; NaN and class -1 of HDF5. */
status predictions_spread(struct predictions *p, const bool *is_blank, size_t rows);

/* STATUS_USAGE when the loss gives no probabilities, STATUS_DATA when the scale is for another number of outputs. */
status predictions_check(const struct prediction_meaning *meaning);

/* Computes the predictions from p->outputs. Losses of classes: the class with the largest output, and the softmax of
 * the outputs; bce_with_logits: 1 for an output above 0, and the sigmoid (one output: of both classes, as
 * scikit-learn's predict_proba); other losses: the outputs, or exp(outputs) where they are logarithms, in the unit of
 * the targets of the file. Names are allocated in [arena]. */
status predictions_make(struct predictions *p, const struct prediction_meaning *meaning, struct arena *arena);
void predictions_free(struct predictions *p);

/* [path] must end in .csv, .h5 or .hdf5; else STATUS_USAGE. NULL and "-" are the standard output. */
status predictions_check_name(const char *path);
bool predictions_is_stdout(const char *path);

/* Numbers have all digits of a float32. */
void predictions_add_csv(const struct predictions *p, struct arena *arena, struct text *out);

/* Replaces the file atomically. */
status predictions_write(const char *path, const struct predictions *p, struct arena *arena);
