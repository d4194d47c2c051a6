/* append_file: a file that only grows. Bytes are collected in a buffer and written together. A write that fails may
 * leave a part of the buffer in the file; the next one truncates the file first, so that it never contains a record
 * twice or in part. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* After this many bytes that could not be written the owner gives up. */
#define APPEND_FILE_MAX_BUFFER (16 << 20)

struct append_file {
    char *path;            /* malloc'ed */
    int fd;                /* of io_open_append; -1: not open */
    _Atomic uint64_t size; /* of the file, in bytes, without what a failed write left; other threads may read it */
    bool is_torn;          /* the last write failed: the file may be longer than [size] */
    struct text buffer;    /* not yet written */
};

/* Writes the buffer and clears it. On a failure the buffer is kept. */
status append_file_flush(struct append_file *file);

/* Discards the buffer and truncates the file to [size] bytes, if it is longer. */
status append_file_truncate(struct append_file *file, uint64_t size);

/* Flushes, closes the descriptor and frees the path and the buffer. */
status append_file_close(struct append_file *file);
