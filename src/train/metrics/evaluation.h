/* evaluation: loss and metrics of a model on validation rows. Each rank adds the batches of its rows; at the end the
 * sums of all ranks are reduced, so that each row counts once and the result does not depend on the number of ranks. */
#pragma once

#include "data/dataset/loader.h"
#include "dist/comm/comm.h"
#include "model/objective.h"
#include "train/metrics/metric_table.h"

struct evaluation_metric {
    const char *name; /* "f1" */
    double value;     /* NAN: not defined on these rows */
};

struct evaluation_result {
    int64_t rows;
    double loss;
    /* The first of `losses` of which no target counts, or "" of the only loss: the loss is not defined. NULL: none. */
    const char *without_targets;
    bool has_accuracy; /* the loss is one of classes */
    double accuracy;
    /* With several losses "<name>_loss", "<name>_accuracy" and their metrics. */
    struct evaluation_metric metrics[METRIC_MAX_COUNT]; /* in the order of the config; without accuracy where
                                                           has_accuracy, and without the matrix */
    size_t metric_count;
    const double *confusion; /* (classes, classes): counts; rows: targets, columns: predictions; NULL: not requested.
                                Valid until the next evaluation */
    size_t classes;
};

struct evaluation;

/* [rows]: maximum rows of this rank in an evaluation; [all_rows]: of all ranks; [batch]: in a batch. */
struct evaluation_options {
    const struct metric_list *metrics;
    const struct loss_type *loss;
    const void *loss_config; /* with loss_objective: its struct objective, with workspaces */
    const struct dataset_info *info;
    struct dataset *dataset; /* with info->target_scale: of the rows, whose targets in the file are read for metrics */
    enum dataset_part part;  /* of these rows */
    struct device *device;
    struct comm *comm;
    const struct shape *output; /* of the model */
    const struct model *model;  /* evaluation_check_size: may be NULL */
    size_t rows, all_rows, batch;
};
/* STATUS_USAGE when a metric needs too much memory for the number of classes, or an expression does not fit the shapes.
 * Device and comm may be NULL. */
status evaluation_check_size(const struct evaluation_options *options);
status evaluation_create(const struct evaluation_options *options, struct evaluation **out);
void evaluation_destroy(struct evaluation *evaluation); /* takes NULL */

/* Resets the sums. */
void evaluation_start(struct evaluation *evaluation);
/* outputs (rows, out_size) and the batch on the device; the same batch on the host. Of a batch, targets, weights
 * and positions are used. */
status evaluation_add(struct evaluation *evaluation, const float *outputs, const struct batch *batch,
                      const struct batch *host);
/* The same in two parts: evaluation_add_loss enqueues the work of the device, which may be recorded;
 * evaluation_add_metrics does that of the host. */
void evaluation_add_loss(const struct evaluation *evaluation, const float *outputs, const struct batch *batch);
status evaluation_add_metrics(struct evaluation *evaluation, const float *outputs, const struct batch *host);
/* Instead of evaluation_add, on a rank without rows in a batch of which other ranks have some. */
status evaluation_add_no_rows(struct evaluation *evaluation);
/* The result over the rows of all ranks, the same on all ranks. All ranks. */
status evaluation_finish(struct evaluation *evaluation, struct evaluation_result *out);
