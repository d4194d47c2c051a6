/* zlib's inflate; input and output are split into chunks because its counters have 32 bits. */
#include "base/files/gzip.h"

#include <string.h>

#include "base/buffer.h"

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

double gzip_max_size(size_t size) { return 1032.0 * (double)size; } /* deflate's limit */

/* [window]: of inflateInit2 */
static status start(struct gzip *gzip, const char *path, const void *bytes, size_t size, int window) {
    *gzip = (struct gzip){.path = path, .next = bytes, .left = size, .chunk = GZIP_CHUNK};
    return inflateInit2(&gzip->stream, window) == Z_OK ? OK : status_memory("a compressed file");
}

status gzip_start(struct gzip *gzip, const char *path, const void *bytes, size_t size) {
    return start(gzip, path, bytes, size, 16 + MAX_WBITS); /* 16: with a gzip header */
}

status gzip_start_raw(struct gzip *gzip, const char *path, const void *bytes, size_t size) {
    return start(gzip, path, bytes, size, -MAX_WBITS);
}

void gzip_end(struct gzip *gzip) { inflateEnd(&gzip->stream); }

static status damaged(const struct gzip *gzip) {
    return status_data("%s: the compressed data is damaged%s%s; get the file again", gzip->path,
                       gzip->stream.msg ? ": " : "", gzip->stream.msg ? gzip->stream.msg : "");
}

/* Decompresses up to [size] bytes; *got is less only at the end of the data. */
static status decompress(struct gzip *gzip, void *out, size_t size, size_t *got) {
    z_stream *z = &gzip->stream;
    for (*got = 0; *got < size && !gzip->is_at_end;) {
        size_t chunk = size - *got < gzip->chunk ? size - *got : gzip->chunk;
        if (z->avail_in == 0) {
            size_t feed = gzip->left < gzip->chunk ? gzip->left : gzip->chunk;
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
    if (!gzip->is_at_end) return status_data("%s: the compressed data is truncated; copy the file again", gzip->path);
    return status_data("%s: the file is %zu bytes shorter than its header says", gzip->path, size - got);
}

/* Zeros behind the data are padding, as for gzip and Python. */
static bool are_zeros(const void *bytes, size_t size) {
    for (const char *c = bytes; size > 0; c++, size--)
        if (*c) return false;
    return true;
}

status gzip_finish(struct gzip *gzip) {
    char more;
    size_t got;
    TRY(decompress(gzip, &more, 1, &got));
    if (got > 0) return status_data("%s: the file is longer than its header says", gzip->path);
    if (!gzip->is_at_end) return status_data("%s: the compressed data is truncated; copy the file again", gzip->path);
    bool is_padding = are_zeros(gzip->stream.next_in, gzip->stream.avail_in) && are_zeros(gzip->next, gzip->left);
    return is_padding ? OK : status_data("%s: there are bytes after the compressed data", gzip->path);
}

/* Starts the next member; false: there is none. Its header may begin in the current chunk and end in the next one: both
 * are in one block of memory. */
static bool start_member(struct gzip *gzip) {
    z_stream *z = &gzip->stream;
    if (!gzip->is_at_end || !gzip_is(z->next_in, z->avail_in + gzip->left)) return false;
    gzip->is_at_end = inflateReset(z) != Z_OK;
    return !gzip->is_at_end;
}

static status grow(const char *path, char **out, size_t length, size_t *capacity) {
    void *larger;
    size_t next = *capacity * 2;
    TRY(buffer_new(next, path, &larger));
    memcpy(larger, *out, length);
    buffer_free(*out);
    *out = larger;
    *capacity = next;
    return OK;
}

static status read_members(struct gzip *gzip, char **out, size_t *length, size_t *capacity) {
    size_t got;
    do {
        if (*capacity - *length <= GZIP_PADDING) TRY(grow(gzip->path, out, *length, capacity));
        TRY(decompress(gzip, *out + *length, *capacity - *length - GZIP_PADDING, &got));
        *length += got;
    } while (got > 0 || start_member(gzip));
    return gzip_finish(gzip);
}

status gzip_read_all_in_chunks(const char *path, const void *bytes, size_t size, size_t chunk, char **out,
                               size_t *out_size) {
    struct gzip gzip;
    size_t capacity = 4 * size + 4096;
    void *memory;
    *out = NULL;
    *out_size = 0;
    TRY(buffer_new(capacity, path, &memory));
    *out = memory;
    status s = gzip_start(&gzip, path, bytes, size);
    gzip.chunk = chunk;
    if (!s) s = read_members(&gzip, out, out_size, &capacity);
    gzip_end(&gzip);
    return s;
}

status gzip_read_all(const char *path, const void *bytes, size_t size, char **out, size_t *out_size) {
    return gzip_read_all_in_chunks(path, bytes, size, GZIP_CHUNK, out, out_size);
}
