/* metrics_read: the newest lines of a metrics.jsonl; it works while a run writes the file. */
#ifndef TRAIN_METRICS_READ_H
#define TRAIN_METRICS_READ_H

#include <stdbool.h>

#include "base/status.h"
#include "train/metrics/metrics.h"

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

/* Whether [line] (NULL: no line) is an [event]. */
bool metrics_line_is(const char *line, enum metrics_event event);

/* Whether the last line of [path] is complete and an [event]; false when there is no such file. */
status metrics_ends_with(const char *path, enum metrics_event event, bool *out);

#endif
