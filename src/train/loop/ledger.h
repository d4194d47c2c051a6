/* ledger: ledger.jsonl, a record of a run by which another machine can verify it (`ddptrain audit`): what started, the
 * parameters after every trainer.ledger_every steps, the state of every checkpoint and of the end. The lines are those
 * of metrics.jsonl with other fields, and each continues a chain of hashes (metrics_line_chain), so that none can be
 * changed, removed or moved without all that follow. A resume or a roll-back truncates it as metrics.jsonl.
 *
 * - start, resume: epoch, step, version, program, processor, device, world_size, portable, elastic, config_sha256,
 *   dataset_fingerprint, every, config (its text: config.yaml is that of the newest start), state
 * - step: epoch, step, rows (loader_hash_rows), loss, grad_norm (null: not measured), parameters
 * - checkpoint: epoch, step, batch, pending (1: an evaluation is still due; else absent), name (of its file), state
 * - stopped, end: epoch, step, state_sha256
 *
 * `parameters` is state_hash_floats of the parameters with their padding, `state` is state_hash. Rank 0, except
 * where all ranks are named; all but ledger_interval do nothing without a ledger. */
#pragma once

#include "train/loop/trainer.h"

#define LEDGER_VERSION 1

/* Steps between `step` lines: train.ledger's, or for `auto` a power of two for which a line costs less than 1 % of the
 * time of these steps, by the size of the model and the batch alone, so that the lines are the same in every run; 0:
 * none. The same on all ranks. */
int64_t ledger_interval(const struct trainer *trainer);

/* Opens the file, [bytes] long at the checkpoint that is continued. A damaged one is begun anew with a warning. */
status ledger_open(struct trainer *trainer, const char *path, int64_t bytes);
/* The first line of this process. [program]: name and version; [config_text]: the resolved config. */
status ledger_start(struct trainer *trainer, const char *program, const char *config_text, bool is_elastic);

/* Whether the newest step has a line: its parameters must not change before ledger_step. All ranks. */
bool ledger_is_due(const struct trainer *trainer);
/* After the update of an applied step. */
status ledger_step(struct trainer *trainer, const struct update *update);

/* Before checkpoint [name] of [state], mapped and whole, is saved; *bytes: the size of the file on disk. */
status ledger_checkpoint(struct trainer *trainer, const struct state *state, const char *name, int64_t *bytes);
/* The last line of this process, METRICS_END or METRICS_STOPPED. */
status ledger_end(struct trainer *trainer, enum metrics_event event, const char *state_sha256);
