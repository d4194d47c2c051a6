/* log: messages for the user. Only rank 0 logs; other ranks report failures only. Lines go to standard error and,
 * after log_open_file, to log.txt. On a terminal the progress line is erased before a line is printed. Thread-safe. */
#pragma once

#include <stddef.h>

#include "base/status.h"

struct log;

/* [is_quiet]: no lines on standard error (the file still gets all). [has_progress]: allow progress lines. NULL: there
 * is no memory. All functions take NULL and do nothing then, so ranks that do not log pass NULL, too. */
struct log *log_create(bool is_quiet, bool has_progress);
status log_open_file(struct log *log, const char *path); /* appends */
void log_destroy(struct log *log);

/* Logs one line; [format] has no newline at its end. */
void log_line(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs "warning: " and the line. */
void log_warning(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs [line]; standard error shows [fitted] instead, a part of it that is at most log_line_width() long. */
void log_line_fitted(struct log *log, const char *line, const char *fitted);

/* Adds one line to log.txt only: what another part of the program prints. Without a file it does nothing. */
void log_file_line(struct log *log, const char *line);

/* Whether progress lines are shown: a terminal, not quiet, not --no-progress. */
bool log_has_progress(const struct log *log);

/* The current width of the terminal in columns; 80 if unknown. */
size_t log_width(void);

/* The columns that a line on standard error may have: those of the terminal; SIZE_MAX if it is none. */
size_t log_line_width(void);

/* Replaces the progress line of the terminal; NULL removes it. [line] should be shorter than log_width(). */
void log_progress(struct log *log, const char *line);
