/* save: decides when the loop saves its state, and passes it to the saver (checkpoint/checkpoint.h), a thread
 * that writes it. */
#pragma once

#include "base/status.h"
#include "train/loop/trainer.h"

/* Before all other functions. [is_resumed]: the state is that of a checkpoint. */
void save_open(struct trainer *trainer, bool is_resumed);

/* The saver's thread calls it before it writes (saver_before_write): the lines of metrics.jsonl and the ledger are on
 * disk before a checkpoint refers to them. */
status save_prepare(void *trainer);

/* The saver's thread calls it before it copies (saver_before_copy): writes the line of the ledger for the checkpoint,
 * with a hash of the state, which is steady. */
status save_hash(void *trainer);

/* Before parameters, optimizer state or their average change: waits until a save no longer reads them. Cheap. */
void save_release(struct trainer *trainer);

/* Before the first step: saves if roll-backs may need a checkpoint. As save_if_valid. All ranks. */
status save_first(struct trainer *trainer, const char **nonfinite);

/* Without checkpoint.save_every a state is saved at the end of an epoch if the expected cost is at most
 * SAVE_MAX_FRACTION of the time since the last save, and when SAVE_SECONDS have passed. */
#define SAVE_MAX_FRACTION 0.01
#define SAVE_SECONDS 600.0
bool save_is_automatic(const struct config *config);
/* Adds a description of when checkpoints are written. */
void save_describe(const struct config *config, struct text *out);
/* Whether SAVE_SECONDS have passed by the clock of rank 0; the control all-reduce distributes it. */
bool save_is_overdue(const struct trainer *trainer);
/* At the end of an epoch: rank 0 decides for all ranks whether an automatic save is due. All ranks. */
status save_decide(struct trainer *trainer);

/* Before a longer evaluation, a save that is due after it is also made before it, so that the epoch is not lost when
 * the process ends during the evaluation. */
#define LONG_EVALUATION_SECONDS 10.0 /* seconds */
/* Before an evaluation after which a save is due. [nonfinite] as in save_if_valid. All ranks. */
status save_before_evaluation(struct trainer *trainer, const char **nonfinite);

/* A save is due after these updates, too: numbers with commas between them, at most MAX_SAVE_STEPS; NULL: none. The
 * same on all ranks. */
status save_set_steps(struct trainer *trainer, const char *list);

/* Whether a save is due by checkpoint.save_every, save_set_steps or save_request. [is_applied]: the last step changed
 * the parameters. */
bool save_is_due(const struct trainer *trainer, bool is_epoch_end, bool is_applied);

/* Saves the state, unless it is already saved or not finite; *nonfinite: a parameter or running statistic that is not
 * finite; NULL: none. A failed save is a warning. All ranks. */
status save_if_valid(struct trainer *trainer, const char **nonfinite);

/* Copies the state, which will be checkpoints/best.h5; the copy replaces an earlier one that is not on disk yet. It is
 * written before the next save of any kind, by save_best_if_due, or by save_close. All ranks. */
status save_best(struct trainer *trainer, const char **nonfinite);
/* At the end of an epoch: starts writing that copy, if the expected cost is at most SAVE_MAX_FRACTION of the time since
 * best.h5 was written, or SAVE_SECONDS have passed. All ranks. */
status save_best_if_due(struct trainer *trainer);
/* After the loop, also if it failed: writes that copy. */
void save_close(struct trainer *trainer);

/* As save_if_valid, but the state is on disk when it returns OK without *nonfinite. The state must not change
 * meanwhile. All ranks. */
status save_last(struct trainer *trainer, const char **nonfinite);

/* Waits for a pending save (a failure is a warning) and updates the path of a moved run folder, so that the newest
 * checkpoint can be read; *written: its position in the data. All ranks. */
status save_complete(struct trainer *trainer, struct data_position *written);

/* Declare that the current state is, or is not, that of a checkpoint. The same on all ranks. */
void save_mark_saved(struct trainer *trainer);
void save_mark_unsaved(struct trainer *trainer);

/* Requests a save after the current step. The same on all ranks. */
void save_request(struct trainer *trainer);
