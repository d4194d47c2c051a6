/* gzip: a compressed file in memory, expanded piece by piece. */
#ifndef DATA_GZIP_H
#define DATA_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "base/status.h"

struct gzip {
    const char *path; /* for messages */
    const uint8_t *next;
    size_t left; /* of the compressed bytes that were not handed to zlib yet */
    z_stream stream;
    bool is_at_end;
};

/* Whether bytes (size) start as a gzip file does. */
bool gzip_is(const void *bytes, size_t size);

/* The most bytes that [size] compressed bytes can hold. */
double gzip_most(size_t size);

/* Starts at [bytes] (size), which must stay. gzip_end also after a failure of any other call. */
status gzip_start(struct gzip *gzip, const char *path, const void *bytes, size_t size);
void gzip_end(struct gzip *gzip);

/* The next [size] bytes; STATUS_DATA when there are fewer or they are damaged. */
status gzip_read(struct gzip *gzip, void *out, size_t size);

/* Everything was read, and the checksum is right. */
status gzip_finish(struct gzip *gzip);

#endif
