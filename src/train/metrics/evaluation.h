/* evaluation: how good a model is on rows that it does not learn from. Batches of one rank's rows are counted in; at
 * the end the sums of all ranks are put together, so that each row counts once and the number of ranks does not matter.
 */
#ifndef TRAIN_EVALUATION_H
#define TRAIN_EVALUATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema.h"
#include "data/dataset.h"
#include "dist/comm/comm.h"
#include "model/model.h"

/* `train.metrics`: names that are not known, or that do not fit the loss, are STATUS_USAGE. [schema]:
 * of the whole config, whose other names of metrics are suggested. */
status evaluation_check(const struct string_list *metrics, const struct loss_type *loss, const struct schema *schema);

/* Whether smaller values of the metric [name] are better. */
bool evaluation_is_error(const char *name);

#define EVALUATION_MAX_METRICS 16

struct evaluation_metric {
    const char *name; /* "f1" */
    double value;     /* NAN: not defined on these rows */
};

struct evaluation_result {
    int64_t rows;
    double loss;
    bool has_accuracy; /* the loss is one of classes */
    double accuracy;
    struct evaluation_metric metrics[EVALUATION_MAX_METRICS]; /* in the order of the config; without accuracy where
                                                                 has_accuracy, and without the matrix */
    size_t metric_count;
    const double *confusion; /* (classes, classes): counts; rows: targets, columns: predictions; NULL: not asked for.
                                Borrowed until the next evaluation */
    size_t classes;
};

struct evaluation;

/* [rows]: the most that this rank will count in one evaluation; [batch]: at a time. */
struct evaluation_options {
    const struct string_list *metrics;
    const struct loss_type *loss;
    const void *loss_config;
    const struct dataset_info *info;
    struct device *device;
    struct comm *comm;
    const struct shape *output; /* of the model */
    size_t rows, batch;
};
/* STATUS_USAGE where a metric would need too much memory for so many classes. Without device and comm, too. */
status evaluation_check_size(const struct evaluation_options *options);
status evaluation_create(const struct evaluation_options *options, struct evaluation **out);
void evaluation_destroy(struct evaluation *evaluation); /* takes NULL */

/* Begins a new count. */
void evaluation_start(struct evaluation *evaluation);
/* outputs (rows, out_size) and targets as in struct batch, on the device; the same targets on the host. */
status evaluation_add(struct evaluation *evaluation, const float *outputs, const void *targets,
                      const void *host_targets, size_t rows);
/* The same in two parts: what the device has to do, which may be recorded; what the host has to. */
void evaluation_run(const struct evaluation *evaluation, const float *outputs, const void *targets, size_t rows);
status evaluation_look(struct evaluation *evaluation, const float *outputs, const void *host_targets, size_t rows);
/* The numbers over the rows of all ranks, equal on every rank. All ranks. */
status evaluation_finish(struct evaluation *evaluation, struct evaluation_result *out);

#endif
