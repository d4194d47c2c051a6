/* gzip: decompresses a file in memory, or deflated data without a header, chunk by chunk. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "base/status.h"

/* The maximum number of bytes in a call of zlib, whose counters have 32 bits. */
#define GZIP_CHUNK ((size_t)1 << 30)

struct gzip {
    const char *path; /* for messages */
    const uint8_t *next;
    size_t left;  /* compressed bytes that were not passed to zlib yet */
    size_t chunk; /* GZIP_CHUNK; tests set less */
    z_stream stream;
    bool is_at_end;
};

/* Whether bytes (size) start with the magic number of gzip. */
bool gzip_is(const void *bytes, size_t size);

/* The maximum size of the decompressed data of [size] compressed bytes. */
double gzip_max_size(size_t size);

/* Starts at [bytes] (size), which must stay valid. Call gzip_end also after a failure of any other function. */
status gzip_start(struct gzip *gzip, const char *path, const void *bytes, size_t size);
/* The same for deflated data without header and checksum, as in a zip archive. */
status gzip_start_raw(struct gzip *gzip, const char *path, const void *bytes, size_t size);
void gzip_end(struct gzip *gzip);

/* The next [size] bytes; STATUS_DATA when there are fewer or they are damaged. */
status gzip_read(struct gzip *gzip, void *out, size_t size);

/* Checks that all data was read and that the checksum is correct. */
status gzip_finish(struct gzip *gzip);

/* Decompresses a whole file, of one or several members as `cat a.gz b.gz` writes, in memory: *out (out_size) and at
 * least GZIP_PADDING bytes more. The caller releases *out with buffer_free, also after a failure; NULL: no memory. */
#define GZIP_PADDING 8
status gzip_read_all(const char *path, const void *bytes, size_t size, char **out, size_t *out_size);
/* The same in chunks of [chunk] bytes, at most GZIP_CHUNK; for tests. */
status gzip_read_all_in_chunks(const char *path, const void *bytes, size_t size, size_t chunk, char **out,
                               size_t *out_size);
