/* line_file: the lines of a file to which another process may be appending. What was read stays read: the next call
 * goes on behind it. A last line without its end is left for the next call. */
#ifndef REPORT_LINE_FILE_H
#define REPORT_LINE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Zero-initialise. */
struct line_file {
    uint64_t offset;        /* of what is not read yet */
    uint64_t device, inode; /* of the file; 0: not opened yet */
    uint64_t lines, malformed;
    bool is_torn; /* a part of a line follows */
};

#define LINE_FILE_MAX_LINE ((size_t)16 << 20)
#define LINE_FILE_MAX_BYTES ((uint64_t)64 << 30)

/* Calls visit(user, line, size) for each further line of [path], without its line end; false from it, or a line above
 * LINE_FILE_MAX_LINE, counts as malformed. An absent file has no lines. *has_restarted: the file is another one or was
 * cut; nothing was read: begin anew with a zeroed struct. STATUS_DATA for anything but a regular file and for one above
 * LINE_FILE_MAX_BYTES. */
status line_file_read(struct line_file *file, const char *path,
                      bool (*visit)(void *user, const char *line, size_t size), void *user, bool *has_restarted);

#endif
