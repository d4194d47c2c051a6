/* model: the model of a checkpoint with its weights and what is done to its inputs, for formats that contain more than
 * weights. */
#pragma once

#include "data/columns/preparation.h"
#include "data/rows/target_scale.h"
#include "export/formats.h"
#include "model/model.h"
#include "train/config/config.h"

struct export_model {
    const struct config *config;
    struct model *model;                   /* planned; it has no memory */
    const float **params;                  /* (model->params.count) the values, owned by the checkpoint */
    const float **buffers;                 /* (model->buffers.count) */
    struct string_list labels;             /* of the classes; count 0: none */
    struct string_list outputs;            /* names of several outputs; count 0: one output without a name */
    const struct preparation *preparation; /* of a table's columns; NULL: none */
    bool *reads_lengths;               /* (model->lengths_count) an operation leaves out what is behind these lengths */
    struct target_scale *target_scale; /* of the output; NULL: none */
    struct string_list columns;        /* names of the inputs, or with dataset.window of the features of each step, the
                                          columns of a table's rows; count 0: none */
    const double *mean, *scale;
    double divide;    /* x' = (x / divide - mean) / scale */
    size_t features;  /* of mean and scale: of each in_size / features adjacent inputs; 0: no scaling */
    const char *name; /* of the run, only letters, digits, '.', '_' and '-' */
};

/* Everything is in source->arena or belongs to [out]; call export_model_close also after a failure. STATUS_USAGE when
 * the inputs need a preparation that no format has, STATUS_DATA when their shape is not known: it is that of the
 * dataset, or of the checkpoint's columns or vocabulary. */
status export_model_open(const struct export_source *source, struct export_model *out);
void export_model_close(struct export_model *model);
