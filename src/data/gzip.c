/* zlib's inflate; input and output are split into chunks because its counters have 32 bits. */
#include "data/gzip.h"

#include <string.h>

#define CHUNK ((size_t)1 << 30)

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

double gzip_max_size(size_t size) { return 1032.0 * (double)size; } /* deflate's limit */

status gzip_start(struct gzip *gzip, const char *path, const void *bytes, size_t size) {
    *gzip = (struct gzip){.path = path, .next = bytes, .left = size};
    if (inflateInit2(&gzip->stream, 16 + MAX_WBITS) == Z_OK) return OK; /* 16: with a gzip header */
    return status_memory("a compressed file");
}

void gzip_end(struct gzip *gzip) { inflateEnd(&gzip->stream); }

static status damaged(const struct gzip *gzip) {
    return status_new(STATUS_DATA, "%s: the compressed data is damaged%s%s; get the file again", gzip->path,
                      gzip->stream.msg ? ": " : "", gzip->stream.msg ? gzip->stream.msg : "");
}

/* Decompresses up to [size] bytes; *got is less only at the end of the data. */
static status decompress(struct gzip *gzip, void *out, size_t size, size_t *got) {
    z_stream *z = &gzip->stream;
    for (*got = 0; *got < size && !gzip->is_at_end;) {
        size_t chunk = size - *got < CHUNK ? size - *got : CHUNK;
        if (z->avail_in == 0) {
            size_t feed = gzip->left < CHUNK ? gzip->left : CHUNK;
            z->next_in = (Bytef *)(uintptr_t)gzip->next; /* zlib only reads it */
            z->avail_in = (uInt)feed;
            gzip->next += feed;
            gzip->left -= feed;
        }
        z->next_out = (Bytef *)out + *got;
        z->avail_out = (uInt)chunk;
        int result = inflate(z, Z_NO_FLUSH);
        *got += chunk - z->avail_out;
        gzip->is_at_end = result == Z_STREAM_END;
        if (result == Z_BUF_ERROR && z->avail_in == 0 && gzip->left == 0) return OK;
        if (result != Z_OK && result != Z_STREAM_END) return damaged(gzip);
    }
    return OK;
}

status gzip_read(struct gzip *gzip, void *out, size_t size) {
    size_t got;
    TRY(decompress(gzip, out, size, &got));
    if (got == size) return OK;
    if (!gzip->is_at_end)
        return status_new(STATUS_DATA, "%s: the compressed data is truncated; copy the file again", gzip->path);
    return status_new(STATUS_DATA, "%s: the file is %zu bytes shorter than its header says", gzip->path, size - got);
}

status gzip_finish(struct gzip *gzip) {
    char more;
    size_t got;
    TRY(decompress(gzip, &more, 1, &got));
    if (got > 0) return status_new(STATUS_DATA, "%s: the file is longer than its header says", gzip->path);
    if (!gzip->is_at_end)
        return status_new(STATUS_DATA, "%s: the compressed data is truncated; copy the file again", gzip->path);
    if (gzip->stream.avail_in + gzip->left > 0)
        return status_new(STATUS_DATA, "%s: there are bytes after the compressed data", gzip->path);
    return OK;
}
