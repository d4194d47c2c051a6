/* metrics: metrics.jsonl, one JSON object a line, numbers with all their digits. Lines are buffered and reach the file
 * at least once a second and before every checkpoint; a checkpoint remembers the file's size, and a resume cuts the
 * file back to it, so that it continues without a gap or a duplicate step. Rank 0. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct metrics;

/* What a line is about: its field `event`. */
enum metrics_event {
    METRICS_START,
    METRICS_RESUME,
    METRICS_STEP,
    METRICS_EPOCH,
    METRICS_SKIPPED,
    METRICS_ROLLBACK,
    METRICS_CHECKPOINT,
    METRICS_CHECKPOINT_FAILED,
    METRICS_STOPPED,
    METRICS_END
};
const char *metrics_event_name(enum metrics_event event); /* "step" */

/* Opens [path] for appending after cutting it to [bytes] (0: a new run). A file shorter than that (lost with the
 * machine) is continued behind its last whole line. */
status metrics_open(const char *path, int64_t bytes, struct metrics **out);
/* From here on the numbers of `step` and `epoch` events also go to a TensorBoard event file beside the file.
 * [step]: updates so far. */
status metrics_open_events(struct metrics *metrics, int64_t step);
/* Flushes. Takes NULL. */
status metrics_close(struct metrics *metrics);

/* A line is begun, given its fields in order, and ended. Names are literals. NULL [metrics]: nothing happens. */
void metrics_begin(struct metrics *metrics, enum metrics_event event);
void metrics_int(struct metrics *metrics, const char *name, int64_t value);
/* `step` of a METRICS_STEP: TensorBoard shows this event, and epochs after it, at [step]. */
void metrics_step(struct metrics *metrics, int64_t step);
void metrics_real(struct metrics *metrics, const char *name, double value); /* 17 digits; not finite: null */
/* The shortest digits that read back as the same number, which is mostly that of the line before; not finite: null */
void metrics_rate(struct metrics *metrics, const char *name, double value);
/* Whole numbers, as a list of rows. values (rows, columns) */
void metrics_matrix(struct metrics *metrics, const char *name, const double *values, size_t rows, size_t columns);
void metrics_text(struct metrics *metrics, const char *name, const char *value);
/* Flushes when a second has passed since the last time. Lines that cannot be written are kept, up to 16 MiB, for the
 * next time. */
status metrics_end(struct metrics *metrics);

/* Cuts the file to [bytes], a size that metrics_sync gave at [step]: the lines after it are of a part of the run that
 * is done again. */
status metrics_rewind(struct metrics *metrics, int64_t bytes, int64_t step);

/* The file was deleted, or is no longer this run's: it goes on as [path], which does not exist, with what is in it, if
 * the system still gives that; else from here on. */
status metrics_move(struct metrics *metrics, const char *path);

/* Everything so far is in the file, on disk; *bytes its size. */
status metrics_sync(struct metrics *metrics, int64_t *bytes);

#endif
