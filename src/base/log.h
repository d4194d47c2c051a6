/* log: what the program says to its user. Rank 0 speaks; others only when they fail. Lines go to the terminal
 * (standard error) and, once log_open_file was called, to log.txt. A progress line on a terminal is erased before a
 * line is printed, so the two never mix. Thread-safe. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct log;

/* [is_quiet]: nothing on the terminal (the file still gets all). [has_progress]: allow progress lines. */
struct log *log_create(bool is_quiet, bool has_progress);
status log_open_file(struct log *log, const char *path); /* appends */
void log_destroy(struct log *log);                       /* takes NULL */

/* One line (no newline at its end). NULL [log]: nothing happens, so that silent ranks pass NULL. */
void log_line(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line that starts with "warning: ". */
void log_warning(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether progress lines are shown: a terminal, not quiet, not --no-progress. */
bool log_has_progress(const struct log *log);

/* Columns of the terminal, as wide as it is now; 80 where that is not known. */
size_t log_width(void);

/* Replaces the progress line, which should be shorter than log_width() (on terminals only; not in the file); NULL
 * removes it. */
void log_progress(struct log *log, const char *line);

#endif
