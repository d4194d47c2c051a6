/* file_pattern: the files that a dataset's path names: one file, all that match a pattern such as data/part-*.csv or
 * {june,july}.csv, or a list of both. */
#ifndef DATA_FILE_PATTERN_H
#define DATA_FILE_PATTERN_H

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"

/* *files: [path] if it exists or has no *, ?, [ and {; else the files that match it, sorted by strcmp; in [arena].
 * STATUS_DATA when none does. Of braces each alternative is a name, which need not exist, or a pattern, which some file
 * must match; STATUS_USAGE when two give the same file. */
status file_pattern_expand(const char *path, struct arena *arena, struct string_list *files);

/* The files of [path] and then those of each of [others], in the order of the list. STATUS_USAGE when two are the same
 * file, also by different names such as those of a symbolic link. */
status file_list_expand(const char *path, const struct string_list *others, struct arena *arena,
                        struct string_list *files);

#endif
