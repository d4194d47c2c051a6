/* files: checks of the paths that a user gives, and files that are read whole. */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"
#include "base/schema/schema.h"
#include "base/status.h"

/* STATUS_USAGE: the format reads one file, and [path] and [others] name [count]. */
status files_are_too_many(const char *path, const struct string_list *others, size_t count, const char *format);

/* Raises the process's limit of open files by [count], as far as the system allows it (ulimit -Hn). */
void files_raise_limit(size_t count);

/* Checks that [path] is a readable regular file and gets its size. */
status file_check(const char *path, uint64_t *bytes);
/* The same for a folder; OK for one of an archive, which is checked when it is opened. */
status folder_check(const char *path);

/* Reads the whole file and appends FILE_PADDING NULs: *text (buffer_free); *size without them. */
#define FILE_PADDING 8
status file_read(const char *path, char **text, size_t *size);

/* buffer_new for [count] items of [size] bytes, with a check for overflow. */
status rows_alloc(size_t count, size_t size, const char *what, void *out);

/* ---- patterns ---- */

/* The files that a dataset's path names: one file, all that match a pattern such as data/part-*.csv or
 * {june,july}.csv, or a list of both. */

/* *files: [path] if it exists or has no *, ?, [ and {; else the files that match it, sorted by strcmp; in [arena].
 * STATUS_DATA when none does. Of braces each alternative is a name, which need not exist, or a pattern, which some file
 * must match; STATUS_USAGE when two give the same file. */
status file_pattern_expand(const char *path, struct arena *arena, struct string_list *files);

/* The files of [path] and then those of each of [others], in the order of the list. STATUS_USAGE when two are the same
 * file, also by different names such as those of a symbolic link. */
status file_list_expand(const char *path, const struct string_list *others, struct arena *arena,
                        struct string_list *files);
