/* trace: everything of one step in an HDF5 file, for `ddptrain replay`: the rows that it read, the output of every
 * layer, the averaged gradient of every parameter, and the update. The step is computed as one that train.check_compute
 * repeats (compute_check.h): with the bits of the run, but averaged after backward, not recorded, and decided by all
 * ranks together. The first dimension of what depends on rows is all rows of the step, in order of rank and then of
 * micro-batch. Arrays have the shapes of PyTorch, also where the model keeps channels last; 16 bits become float32.
 *
 *   config                      the resolved config
 *   step, epoch                 from 1
 *   loss, gradient_norm         of the step, as in metrics.jsonl; the norm is NAN where it was not measured
 *   rows/number                 row of the data, from 0, as dataset_row counts
 *   rows/rank, rows/micro_batch where it was computed, from 0
 *   rows/inputs, rows/targets   as the model and the loss got them: scaled, augmented
 *   activations/NAME            output of the layer NAME. A layer with which the next one, a relu, is computed at once
 *                               has none, and neither has a relu that is a part of the layer after it. NAME.sum: the
 *                               sum that a residual ends with, after the layer NAME
 *   gradients/NAME              of the parameter NAME: the mean over all ranks and micro-batches, before clip_grad_norm
 *   parameters/before/NAME, parameters/after/NAME, update/NAME    update: the difference, rounded to float32 */
#pragma once

#include "train/loop/averaging.h"
#include "train/loop/trainer.h"

struct trace;

/* Before anything is read. STATUS_USAGE: no step, or a run that does not keep gradients, or not all parameters
 * (dist.zero_stage: 3). [path] and [step]: as in trace_create. */
status trace_check(const struct config *config, const struct dist_env *env, const char *path, int64_t step);
/* [path]: the file, NULL: no trace and *out NULL. [step]: the update that it is of, from 1. [config_text] must outlive
 * it. All ranks. */
status trace_create(const struct trainer *trainer, const char *path, int64_t step, const char *config_text,
                    struct trace **out);
void trace_destroy(struct trace *trace); /* takes NULL */

/* Whether the next step is that of the trace; false for NULL. */
bool trace_is_due(const struct trace *trace, int64_t step);

/* Before the micro-batches of the step; begins anew if the step is repeated. */
status trace_begin(struct trainer *trainer);
/* model_forward that keeps the outputs of layers; the next pass of the same piece replaces them. */
const struct tensor *trace_forward(struct trainer *trainer, const struct pass *pass, const float *inputs);
/* After the last pass of a piece: keeps its rows. */
status trace_piece(struct trainer *trainer, const struct update *update, const struct batch_piece *piece);
/* After the averaging. All ranks. */
status trace_gradients(struct trainer *trainer);
/* After the update: writes the file. All ranks. */
status trace_write(struct trainer *trainer, const struct update *update);
