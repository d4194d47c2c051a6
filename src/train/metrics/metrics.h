/* metrics: metrics.jsonl, one JSON object per line, numbers with all digits. Lines are buffered and written at
 * least once a second and before every checkpoint. A checkpoint contains the size of the file, and a resume truncates
 * the file to it, so that it continues without a gap or a duplicate step. Rank 0. */
#pragma once

#include <string.h>

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

/* Whether the first [bytes] bytes of [path], of the last save, are lines: if not, [damage] gets what is wrong and
 * where. */
status metrics_check(const char *path, int64_t bytes, struct text *damage);
/* Opens [path] for appending and truncates it to [bytes] (0: a new run). A file that is shorter (lost in a crash of the
 * machine), or has no end of a line there, is continued after its last complete line. */
status metrics_open(const char *path, int64_t bytes, struct metrics **out);
/* From here on the numbers of METRICS_STEP and METRICS_EPOCH are also written to a TensorBoard event file in the same
 * folder. [step]: updates so far. */
status metrics_open_events(struct metrics *metrics, int64_t step);
/* From here on each line ends with the field `chain` (metrics_line_chain), which continues that of the last line.
 * STATUS_DATA if that has none. */
status metrics_chain(struct metrics *metrics);
/* Flushes. Takes NULL. */
status metrics_close(struct metrics *metrics);

/* A line is begun, gets its fields in order, and is ended. Names need no escapes in JSON. All of these do nothing when
 * [metrics] is NULL. [length]: of [name]. */
void metrics_begin(struct metrics *metrics, enum metrics_event event);
void metrics_add_int(struct metrics *metrics, const char *name, size_t length, int64_t value);
static inline void metrics_int(struct metrics *metrics, const char *name, int64_t value) {
    metrics_add_int(metrics, name, strlen(name), value);
}
/* `step`: TensorBoard shows the event at [step]. */
void metrics_step(struct metrics *metrics, int64_t step);
void metrics_add_real(struct metrics *metrics, const char *name, size_t length, double value);
static inline void metrics_real(struct metrics *metrics, const char *name, double value) {
    metrics_add_real(metrics, name, strlen(name), value); /* 17 digits; not finite: null */
}
/* The shortest digits that parse to the same number; not finite: null. Cached: fast for a value that rarely changes. */
void metrics_rate(struct metrics *metrics, const char *name, double value);
/* A list of rows, numbers with 10 digits. values (rows, columns) */
void metrics_matrix(struct metrics *metrics, const char *name, const double *values, size_t rows, size_t columns);
void metrics_text(struct metrics *metrics, const char *name, const char *value);
void metrics_hash(struct metrics *metrics, const char *name, uint64_t value); /* a text of 16 hexadecimal digits */
/* Ends the line; flushes once a second. Lines that cannot be written are kept for the next flush, up to
 * APPEND_FILE_MAX_BUFFER bytes. */
status metrics_end(struct metrics *metrics);

/* Truncates the file to [bytes], a size that metrics_flush or metrics_size returned at [step], before the steps after
 * it are repeated.
 */
status metrics_rewind(struct metrics *metrics, int64_t bytes, int64_t step);

/* Continues as [path], which does not exist, after the file was deleted or replaced. Copies the lines so far if they
 * can still be read. */
status metrics_move(struct metrics *metrics, const char *path);

/* The size of the file after the next flush, in bytes. */
int64_t metrics_size(const struct metrics *metrics);

/* Writes all lines; *bytes is the size of the file. */
status metrics_flush(struct metrics *metrics, int64_t *bytes);
/* Begins to write them to the disk. */
void metrics_start_sync(const struct metrics *metrics);
/* Waits until the disk has all lines that metrics_flush wrote (fsync). May run beside the other functions, but not
 * beside metrics_move, metrics_rewind and metrics_close. */
status metrics_sync(struct metrics *metrics);

/* ---- reading, also while a run writes the file ---- */

/* The newest complete line of each kind with its newline, malloc'ed; NULL: none. What follows the last newline is
 * ignored. A line may be damaged. */
struct metrics_lines {
    char *step;
    char *epoch;
    char *other;        /* the newest that is not a step; may be an epoch */
    bool is_other_last; /* no step and no incomplete line follows it */
};

/* All NULL when there is no such file. STATUS_DATA for anything but a regular file. */
status metrics_read(const char *path, struct metrics_lines *out);
void metrics_lines_free(struct metrics_lines *lines);
#define SCOPED_LINES __attribute__((cleanup(metrics_lines_free))) struct metrics_lines /* as those of base/scoped.h */

/* Whether [line] (NULL: no line) is an [event]. */
bool metrics_line_is(const char *line, enum metrics_event event);

/* The first 32 hexadecimal digits of the SHA-256 of a chain and the line that continues it, up to its field `chain`. */
#define METRICS_CHAIN_SIZE 33 /* characters, NUL included */
/* [chain]: "", or that of the line before; becomes that of [line] (size, without its line end). False: the line has no
 * chain, or another one, which [chain] becomes. */
bool metrics_line_chain(const char *line, size_t size, char chain[METRICS_CHAIN_SIZE]);

/* Whether the last line of [path] is complete and an [event]; false when there is no such file. */
status metrics_ends_with(const char *path, enum metrics_event event, bool *out);
