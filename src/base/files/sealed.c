/* The trailer is read first, because it has the size of the image. The image is hashed in the buffer that the caller
 * gets, so exactly the verified bytes are used. A thread that writes a chunk hashes it before, while others wait for
 * the disk; one that reads a chunk hashes it while it is in the cache. */
#include "base/files/sealed.h"

#include <string.h>

#include "base/buffer.h"
#include "base/system/machine.h"
#include "base/system/thread.h"

#define MAGIC "ddptrain sealed\n"
#define MAGIC_SIZE (sizeof MAGIC - 1)
#define VERSION_WHOLE 1
#define VERSION_CHUNKED 2
#define AT_VERSION 16
#define AT_SIZE 20
#define AT_IMAGE_SIZE 24
#define AT_IMAGE_HASH 32
#define AT_ORDER 64
#define AT_CHUNK 72
#define AT_OWN_HASH 96
#define PIECE ((size_t)256 << 10) /* bytes that are read and hashed at a time, so that they stay in the cache */

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* ---- chunks ---- */

/* One pass over the chunks of an image; the calling thread and others take one chunk at a time. An image that is not
 * hashed in chunks is one chunk. */
struct chunk_pass {
    int fd;
    const char *path;
    uint64_t size, chunk; /* of the image, and of all its chunks but the last */
    size_t count;
    const struct io_part *parts; /* (part_count) the image in memory, to be written */
    size_t part_count;
    unsigned char *image;           /* (size) to be filled from the file; NULL: it is only hashed */
    unsigned char *buffers;         /* (workers, PIECE) */
    uint8_t (*hashes)[DIGEST_SIZE]; /* (count) of the chunks */
};

static void pass_free(struct chunk_pass *pass) {
    buffer_free(pass->hashes);
    buffer_free(pass->buffers);
}

/* [is_chunked]: the version of the seal. */
static status pass_init(struct chunk_pass *pass, bool is_chunked) {
    pass->chunk = is_chunked ? SEALED_CHUNK : pass->size;
    pass->count = is_chunked ? (size_t)((pass->size + SEALED_CHUNK - 1) / SEALED_CHUNK) : 1;
    return buffer_new((pass->count + 1) * DIGEST_SIZE, "the hashes of a file", (void **)&pass->hashes);
}

static uint64_t chunk_size(const struct chunk_pass *pass, size_t index) {
    uint64_t left = pass->size - index * pass->chunk;
    return left < pass->chunk ? left : pass->chunk;
}

/* What the seal has: the hash of the only chunk, or that of all hashes. */
static void pass_hash(const struct chunk_pass *pass, bool is_chunked, uint8_t hash[DIGEST_SIZE]) {
    if (is_chunked)
        digest_of(pass->hashes, pass->count * DIGEST_SIZE, hash);
    else
        memcpy(hash, pass->hashes[0], DIGEST_SIZE);
}

/* Hashes the chunk from memory; with a file, writes each of its parts after it was hashed. */
static status write_chunk(void *context, size_t index, size_t worker) {
    const struct chunk_pass *pass = context;
    uint64_t start = index * pass->chunk, end = start + chunk_size(pass, index), at = 0;
    struct digest digest;
    (void)worker;
    digest_start(&digest);
    for (size_t p = 0; p < pass->part_count && at < end; at += pass->parts[p++].size) {
        uint64_t after = at + pass->parts[p].size, first = at > start ? at : start, last = after < end ? after : end;
        if (first >= last) continue;
        const unsigned char *bytes = (const unsigned char *)pass->parts[p].bytes + (first - at);
        digest_add(&digest, bytes, last - first);
        if (pass->fd >= 0) TRY(io_write_at(pass->fd, pass->path, bytes, last - first, first));
    }
    digest_finish(&digest, pass->hashes[index]);
    if (pass->fd >= 0 && pass->count > 1) io_start_sync(pass->fd, start, end - start); /* an only one is synced next */
    return OK;
}

static status truncated(const char *name) {
    return status_data("%s: no seal at its end: the file is truncated, damaged or not written by ddptrain", name);
}

static status read_chunk(void *context, size_t index, size_t worker) {
    const struct chunk_pass *pass = context;
    uint64_t start = index * pass->chunk, size = chunk_size(pass, index);
    struct digest digest;
    digest_start(&digest);
    if (size > PIECE) io_read_ahead(pass->fd, start, size);
    for (uint64_t done = 0; done < size;) {
        size_t piece = size - done < PIECE ? (size_t)(size - done) : PIECE, got;
        unsigned char *to = pass->image ? pass->image + start + done : pass->buffers + worker * PIECE;
        TRY(io_read_at(pass->fd, pass->path, to, piece, start + done, &got));
        if (got != piece) return truncated(pass->path);
        digest_add(&digest, to, piece);
        done += piece;
    }
    digest_finish(&digest, pass->hashes[index]);
    return OK;
}

static size_t count_threads(const struct chunk_pass *pass) {
    size_t most = SEALED_MAX_THREADS, processors = pass->count > 1 ? (size_t)processors_allowed() : 1;
    if (processors < most) most = processors;
    return pass->count < most ? pass->count : most;
}

/* Calls [task] for each chunk; where no threads can be started, by this one alone. */
static status pass_run(struct chunk_pass *pass, workers_task *task) {
    size_t threads = count_threads(pass);
    struct workers *workers = NULL;
    if (threads > 1) status_free(workers_create(threads, "seal", &workers));
    if (!workers) threads = 1;
    status s = OK;
    if (task == read_chunk && !pass->image && !pass->buffers)
        s = buffer_new(pass->size < PIECE ? (size_t)pass->size : threads * PIECE, "verifying a file",
                       (void **)&pass->buffers);
    if (!s && workers) s = workers_run(workers, pass->count, task, pass);
    for (size_t i = 0; !s && !workers && i < pass->count; i++) s = task(pass, i, 0);
    workers_destroy(workers);
    return s;
}

/* ---- writing ---- */

static void make_trailer(const struct chunk_pass *pass, bool is_chunked, uint64_t order,
                         uint8_t trailer[SEALED_TRAILER_SIZE]) {
    memset(trailer, 0, SEALED_TRAILER_SIZE);
    memcpy(trailer, MAGIC, MAGIC_SIZE);
    put(trailer + AT_VERSION, is_chunked ? VERSION_CHUNKED : VERSION_WHOLE, 4);
    put(trailer + AT_SIZE, SEALED_TRAILER_SIZE, 4);
    put(trailer + AT_IMAGE_SIZE, pass->size, 8);
    pass_hash(pass, is_chunked, trailer + AT_IMAGE_HASH);
    put(trailer + AT_ORDER, order, 8);
    put(trailer + AT_CHUNK, is_chunked ? SEALED_CHUNK : 0, 8);
    digest_of(trailer, AT_OWN_HASH, trailer + AT_OWN_HASH);
}

void sealed_trailer(const void *image, size_t size, uint64_t order, uint8_t trailer[SEALED_TRAILER_SIZE]) {
    struct io_part part = {image, size};
    struct chunk_pass pass = {.fd = -1, .size = size, .parts = &part, .part_count = 1};
    bool is_chunked = size > SEALED_CHUNK;
    if (pass_init(&pass, is_chunked) != OK) status_exit_without_memory();
    for (size_t i = 0; i < pass.count; i++) status_free(write_chunk(&pass, i, 0)); /* cannot fail without a file */
    make_trailer(&pass, is_chunked, order, trailer);
    pass_free(&pass);
}

status sealed_write(const char *path, const void *image, size_t size, uint64_t order) {
    struct io_part part = {image, size};
    return sealed_write_parts(path, &part, 1, order);
}

/* An image to be written. */
struct sealing {
    const struct io_part *parts; /* (count) */
    size_t count;
    uint64_t size, order;
};

/* What was written is read from the disk and hashed again: that detects also what changed in memory in between. */
static status read_back(int fd, const char *path, const struct chunk_pass *written, bool is_chunked,
                        const uint8_t trailer[SEALED_TRAILER_SIZE]) {
    struct chunk_pass pass = {.fd = fd, .path = path, .size = written->size};
    uint8_t found[SEALED_TRAILER_SIZE];
    io_drop_cache(fd);
    status s = pass_init(&pass, is_chunked);
    if (!s) s = pass_run(&pass, read_chunk);
    bool is_short = s && status_code(s) == STATUS_DATA; /* to a save a failure of the disk, not of the data */
    if (is_short) status_free(s);
    if (is_short) s = io_read_back_failure(path);
    if (!s) s = io_read_at(fd, path, found, sizeof found, written->size, NULL);
    if (!s && (memcmp(pass.hashes, written->hashes, pass.count * DIGEST_SIZE) != 0 ||
               memcmp(found, trailer, sizeof found) != 0))
        s = io_read_back_failure(path);
    pass_free(&pass);
    return s;
}

static status write_sealed(void *context, int fd, const char *path) {
    const struct sealing *sealing = context;
    struct chunk_pass pass = {
        .fd = fd, .path = path, .size = sealing->size, .parts = sealing->parts, .part_count = sealing->count};
    bool is_chunked = sealing->size > SEALED_CHUNK;
    uint8_t trailer[SEALED_TRAILER_SIZE];
    status s = pass_init(&pass, is_chunked);
    if (!s) s = io_reserve(fd, path, sealing->size + SEALED_TRAILER_SIZE);
    if (!s) s = pass_run(&pass, write_chunk);
    if (!s) {
        make_trailer(&pass, is_chunked, sealing->order, trailer);
        s = io_write_at(fd, path, trailer, sizeof trailer, sealing->size);
    }
    if (!s) s = io_sync(fd, path);
    if (!s) s = read_back(fd, path, &pass, is_chunked, trailer);
    pass_free(&pass);
    return s;
}

status sealed_write_parts(const char *path, const struct io_part *parts, size_t count, uint64_t order) {
    struct sealing sealing = {.parts = parts, .count = count, .order = order};
    for (size_t p = 0; p < count; p++) sealing.size += parts[p].size;
    return io_replace_with(path, write_sealed, &sealing);
}

/* ---- reading ---- */

static bool has_magic(const uint8_t *trailer) { return memcmp(trailer, MAGIC, MAGIC_SIZE) == 0; }

/* Verifies the trailer of a file of [file_size] bytes without its image. */
static status parse_trailer(const char *name, const uint8_t trailer[SEALED_TRAILER_SIZE], uint64_t file_size,
                            struct seal *seal) {
    if (!has_magic(trailer)) return truncated(name);
    uint8_t own[DIGEST_SIZE];
    digest_of(trailer, AT_OWN_HASH, own);
    if (memcmp(own, trailer + AT_OWN_HASH, DIGEST_SIZE) != 0)
        return status_data("%s: damaged: its seal does not match itself", name);
    uint64_t version = get(trailer + AT_VERSION, 4);
    if (version != VERSION_WHOLE && version != VERSION_CHUNKED)
        return status_data("%s: sealed by a newer ddptrain (seal %llu; this one reads %d and %d)", name,
                           (unsigned long long)version, VERSION_WHOLE, VERSION_CHUNKED);
    uint64_t chunk = get(trailer + AT_CHUNK, 8), known = version == VERSION_CHUNKED ? SEALED_CHUNK : 0;
    if (chunk != known)
        return status_data("%s: sealed by a newer ddptrain (seal %llu with the chunk size %llu; this one reads %llu)",
                           name, (unsigned long long)version, (unsigned long long)chunk, (unsigned long long)known);
    uint64_t image_size = get(trailer + AT_IMAGE_SIZE, 8);
    if (get(trailer + AT_SIZE, 4) != SEALED_TRAILER_SIZE || image_size != file_size - SEALED_TRAILER_SIZE)
        return status_data("%s: damaged: it has %llu bytes before its seal, expected %llu", name,
                           (unsigned long long)file_size - SEALED_TRAILER_SIZE, (unsigned long long)image_size);
    seal->image_size = image_size;
    seal->order = get(trailer + AT_ORDER, 8);
    seal->is_chunked = version == VERSION_CHUNKED;
    memcpy(seal->sha256, trailer + AT_IMAGE_HASH, DIGEST_SIZE);
    return OK;
}

static status compare_pass(const char *name, const struct chunk_pass *pass, const struct seal *seal) {
    uint8_t hash[DIGEST_SIZE];
    pass_hash(pass, seal->is_chunked, hash);
    if (memcmp(hash, seal->sha256, DIGEST_SIZE) == 0) return OK;
    char found[DIGEST_HEX_SIZE], expected[DIGEST_HEX_SIZE];
    digest_hex(hash, found);
    digest_hex(seal->sha256, expected);
    return status_data("%s: damaged: its SHA-256 is %.16s..., its seal has %.16s...", name, found, expected);
}

status sealed_check(const char *name, const void *bytes, size_t size, struct seal *seal) {
    if (size < SEALED_TRAILER_SIZE) return truncated(name);
    TRY(parse_trailer(name, (const uint8_t *)bytes + size - SEALED_TRAILER_SIZE, size, seal));
    struct io_part part = {bytes, seal->image_size};
    struct chunk_pass pass = {.fd = -1, .size = seal->image_size, .parts = &part, .part_count = 1};
    TRY(pass_init(&pass, seal->is_chunked));
    status s = pass_run(&pass, write_chunk);
    if (!s) s = compare_pass(name, &pass, seal);
    pass_free(&pass);
    return s;
}

/* Reads the trailer; *size: the size of the file. A file that is too short gives zeros. */
static status read_trailer(int fd, const char *path, uint8_t trailer[SEALED_TRAILER_SIZE], uint64_t *size) {
    struct io_info info;
    memset(trailer, 0, SEALED_TRAILER_SIZE);
    TRY(io_stat_fd(fd, path, &info));
    if (!info.is_file) return status_data("%s: not a regular file", path);
    *size = info.size;
    if (info.size < SEALED_TRAILER_SIZE) return OK;
    size_t got;
    return io_read_at(fd, path, trailer, SEALED_TRAILER_SIZE, info.size - SEALED_TRAILER_SIZE, &got);
}

static status read_seal(int fd, const char *path, struct seal *seal) {
    uint8_t trailer[SEALED_TRAILER_SIZE];
    uint64_t size = 0;
    TRY(read_trailer(fd, path, trailer, &size));
    return parse_trailer(path, trailer, size, seal);
}

/* Verifies the image, and fills [image] unless it is NULL. */
static status read_image(int fd, const char *path, const struct seal *seal, void *image) {
    struct chunk_pass pass = {.fd = fd, .path = path, .size = seal->image_size, .image = image};
    status s = pass_init(&pass, seal->is_chunked);
    if (!s) s = pass_run(&pass, read_chunk);
    if (!s) s = compare_pass(path, &pass, seal);
    pass_free(&pass);
    return s;
}

status sealed_read(const char *path, void **image, struct seal *seal) {
    *image = NULL;
    int fd;
    TRY(io_open(path, &fd));
    status s = read_seal(fd, path, seal);
    if (s == OK) s = buffer_new(seal->image_size, path, image);
    if (s == OK) s = read_image(fd, path, seal, *image);
    s = status_first(s, io_close(fd, path));
    if (s != OK) {
        buffer_free(*image);
        *image = NULL;
    }
    return s;
}

status sealed_verify(const char *path, struct seal *seal) {
    int fd;
    TRY(io_open(path, &fd));
    status s = read_seal(fd, path, seal);
    if (s == OK) s = read_image(fd, path, seal, NULL);
    return status_first(s, io_close(fd, path));
}

status sealed_read_seal(const char *path, struct seal *seal) {
    int fd;
    TRY(io_open(path, &fd));
    status s = read_seal(fd, path, seal);
    return status_first(s, io_close(fd, path));
}

status sealed_has_trailer(const char *path, bool *has_trailer) {
    *has_trailer = false;
    int fd;
    TRY(io_open(path, &fd));
    uint8_t trailer[SEALED_TRAILER_SIZE];
    uint64_t size = 0;
    status s = read_trailer(fd, path, trailer, &size);
    if (s == OK) *has_trailer = has_magic(trailer);
    return status_first(s, io_close(fd, path));
}
