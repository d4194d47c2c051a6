/* inference: a trained model on rows: evaluation and prediction, exact on any number of ranks. The weights, the running
 * statistics and the scaler are those of a checkpoint; the rows are those of the config, so new data is a matter of
 * dataset.path=FILE. Nothing is written into the run folder. When a rank is asked to stop, all end with STATUS_STOPPED
 * within a batch, and nothing is written. */
#ifndef TRAIN_INFERENCE_H
#define TRAIN_INFERENCE_H

#include <signal.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "dist/store/store.h"
#include "train/config.h"
#include "train/weights.h"

struct inference_options {
    struct weights_options weights;
    const char *part; /* "validation", "train", or "all": every row of dataset.path, whatever the config says about
                         validation; NULL: validation, or train when there is no validation part */
    const char *out;  /* predict: .csv or .h5 */
    volatile sig_atomic_t
        *is_ending;                  /* set when all is computed: a request to stop comes too late; NULL: nobody asks */
    volatile sig_atomic_t *stop_fd;  /* store_options': until then; NULL: nobody asks */
    store_overdue_function *overdue; /* store_options'; NULL: none */
};

/* The loss, accuracy and metrics over all rows of the part, each once, as a line of JSON: {"event":"eval","part":..,
 * "rows":..,"loss":..}. The same on every rank. All ranks. */
status inference_evaluate(const struct config *config, const struct dist_env *env,
                          const struct inference_options *options, struct log *log, struct text *out);

/* Writes the model's outputs for all rows of the part, in the order of the part, to options->out. CSV: `row`, the row's
 * number in the file from 0, for classes `prediction`, then a column per output; HDF5: datasets `row` (rows), `outputs`
 * (rows, outputs) and for classes `prediction` (rows). Targets are not read (but for dataset.split.stratify). Rank 0
 * writes. All ranks. */
status inference_predict(const struct config *config, const struct dist_env *env,
                         const struct inference_options *options, struct log *log);

#endif
