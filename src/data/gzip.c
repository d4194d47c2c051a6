/* zlib's inflate, fed from memory in pieces that its 32-bit counters hold. */
#include "data/gzip.h"

#include <string.h>

#define PIECE ((size_t)1 << 30)

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

double gzip_most(size_t size) { return 1032.0 * (double)size; } /* deflate's limit */

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

/* Expands until [size] bytes are there or the data ends; *got of them. */
static status expand(struct gzip *gzip, void *out, size_t size, size_t *got) {
    z_stream *z = &gzip->stream;
    for (*got = 0; *got < size && !gzip->is_at_end;) {
        size_t piece = size - *got < PIECE ? size - *got : PIECE;
        if (z->avail_in == 0) {
            size_t feed = gzip->left < PIECE ? gzip->left : PIECE;
            z->next_in = (Bytef *)(uintptr_t)gzip->next; /* zlib only reads it */
            z->avail_in = (uInt)feed;
            gzip->next += feed;
            gzip->left -= feed;
        }
        z->next_out = (Bytef *)out + *got;
        z->avail_out = (uInt)piece;
        int result = inflate(z, Z_NO_FLUSH);
        *got += piece - z->avail_out;
        gzip->is_at_end = result == Z_STREAM_END;
        if (result == Z_BUF_ERROR && z->avail_in == 0 && gzip->left == 0) return OK;
        if (result != Z_OK && result != Z_STREAM_END) return damaged(gzip);
    }
    return OK;
}

status gzip_read(struct gzip *gzip, void *out, size_t size) {
    size_t got;
    TRY(expand(gzip, out, size, &got));
    if (got == size) return OK;
    if (!gzip->is_at_end)
        return status_new(STATUS_DATA, "%s: the compressed data ends too early; the file was not copied to its end",
                          gzip->path);
    return status_new(STATUS_DATA, "%s: the file ends %zu bytes too early for what its header says", gzip->path,
                      size - got);
}

status gzip_finish(struct gzip *gzip) {
    char more;
    size_t got;
    TRY(expand(gzip, &more, 1, &got));
    if (got > 0) return status_new(STATUS_DATA, "%s: the file is longer than its header says", gzip->path);
    if (!gzip->is_at_end)
        return status_new(STATUS_DATA, "%s: the compressed data ends too early; the file was not copied to its end",
                          gzip->path);
    if (gzip->stream.avail_in + gzip->left > 0)
        return status_new(STATUS_DATA, "%s: there are bytes behind the compressed data", gzip->path);
    return OK;
}
