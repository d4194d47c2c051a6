/* files: checks of the paths that a user gives, and files that are read whole. */
#ifndef DATA_FILES_H
#define DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/schema/schema.h"
#include "base/status.h"

/* STATUS_USAGE: the format reads one file, and [path] and [others] name [count]. */
status files_are_too_many(const char *path, const struct string_list *others, size_t count, const char *format);

/* Raises the process's limit of open files by [count], as far as the system allows it (ulimit -Hn). */
void files_raise_limit(size_t count);

/* Checks that [path] is a readable regular file and gets its size. */
status file_check(const char *path, uint64_t *bytes);
/* The same for a folder. */
status folder_check(const char *path);

/* Reads the whole file and appends FILE_PADDING NULs: *text (buffer_free); *size without them. */
#define FILE_PADDING 8
status file_read(const char *path, char **text, size_t *size);

/* buffer_new for [count] items of [size] bytes, with a check for overflow. */
status rows_alloc(size_t count, size_t size, const char *what, void **out);

#endif
