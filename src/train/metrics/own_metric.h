/* own_metric: a metric of an extension (train/config/extension.h), named in train.metrics. Each rank adds the rows that
 * it evaluates; the program adds up the sums of all ranks and puts their records one after another, and the value is
 * computed of both on every rank. Records are then in the order of the validation rows, so a value of records alone has
 * the same bits on any number of ranks; sums are the same up to rounding. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "dist/comm/comm.h"

/* The rows of a batch: outputs of the model and targets as numbers, also classes; in the unit of the file where
 * dataset.target_scale is given. */
struct metric_rows {
    size_t rows, output_size, target_size;
    const float *outputs; /* (rows, output_size) */
    const float *targets; /* (rows, target_size) */
    const float *weights; /* (rows) of dataset.weights; NULL: all 1 */
};

/* Of one evaluation. */
struct metric_state {
    size_t output_size, target_size; /* of a row */
    double *sums;                    /* (type->sums) 0 at first; in value those of all ranks */
    const void *records;             /* in value: (record_count) of all ranks, in the order of the validation rows */
    size_t record_count;
    struct comm *ranks;  /* a group of all ranks, for collectives in value (dist/comm/comm.h) */
    size_t record_size;  /* type->record_size */
    bool is_mixed;       /* the program's: a record has another size */
    struct text written; /* the program's: records of this rank */
    void *gathered;      /* the program's */
};

struct metric_type {
    const char *name;   /* in train.metrics; metric_check_name of metric_table.h */
    bool is_error;      /* smaller values are better, for checkpoint.best and train.early_stop */
    size_t sums;        /* numbers that are added up over all rows */
    size_t record_size; /* bytes of a record; 0: it has none */
    /* Whether rows have sizes that it can measure; NULL: it can measure all. */
    status (*check)(size_t output_size, size_t target_size);
    /* Adds to state->sums, and calls metric_record. */
    void (*add)(const struct metric_rows *rows, struct metric_state *state);
    /* *out; NAN: not defined on these rows. All ranks, which must have the same value. */
    status (*value)(const struct metric_state *state, double *out);
};

/* Keeps a copy of [record] (type->record_size). */
void metric_record(struct metric_state *state, const void *record, size_t size);

/* ---- for the program ---- */

/* Adds the type of an extension. False: there is one of its name. */
bool metric_type_add(const struct metric_type *type);
const struct metric_type *metric_type_find(const char *name); /* NULL: there is none */

/* [ranks]: NULL for a check. */
status own_metric_create(const struct metric_type *type, size_t output_size, size_t target_size, struct comm *ranks,
                         struct metric_state *state);
void own_metric_free(struct metric_state *state); /* of one that is zero, too */
void own_metric_start(const struct metric_type *type, struct metric_state *state);
/* The value over the rows of all ranks: STATUS_DATA with both values and ranks where two ranks have different ones, and
 * where a record has another size or a sum after the last one was written. All ranks. */
status own_metric_value(const struct metric_type *type, struct metric_state *state, double *out);
