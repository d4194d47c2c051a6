/* event_file: a TensorBoard event file with scalars over steps, in the format TFRecord: length, CRC-32C of the length,
 * protocol buffer `Event`, CRC-32C of that. tensorboard can read it while it grows. Rank 0. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct event_file;

/* A new file "events.out.tfevents.<seconds>.<host>.<pid>.<number>" in [folder]. [step]: updates so far; TensorBoard
 * discards later steps of earlier files, because they are repeated. */
status event_file_open(const char *folder, int64_t step, struct event_file **out);
/* Flushes. Takes NULL. */
status event_file_close(struct event_file *file);

/* Adds a value with the tag "[group]/[name]" to the next event. A value that is not finite is NaN. */
void event_file_add_scalar(struct event_file *file, const char *group, const char *name, double value);
/* Ends the event: its values are those of [step]. Without values there is no event. */
void event_file_end_event(struct event_file *file, int64_t step);
/* A hyperparameter of a run, for TensorBoard's HParams table. */
struct hparam {
    const char *name, *text; /* text: shown as it is; NULL: [value] is shown */
    double value;
};
/* The run has these hyperparameters, and has ended, well or not. Once in a file. */
void event_file_add_session(struct event_file *file, const struct hparam *hparams, size_t count, bool is_success);
/* The run rolls back to [step]: TensorBoard discards later events. */
void event_file_restart(struct event_file *file, int64_t step);

/* Writes what was added. On a failure it is kept for the next flush, up to APPEND_FILE_MAX_BUFFER bytes. */
status event_file_flush(struct event_file *file);
