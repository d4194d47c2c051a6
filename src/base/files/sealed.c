/* The trailer is read first, because it has the size of the image. The image is hashed in the buffer that the caller
 * gets, so exactly the verified bytes are used. */
#include "base/files/sealed.h"

#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"

#define MAGIC "ddptrain sealed\n"
#define MAGIC_SIZE (sizeof MAGIC - 1)
#define VERSION 1
#define AT_VERSION 16
#define AT_SIZE 20
#define AT_IMAGE_SIZE 24
#define AT_IMAGE_HASH 32
#define AT_ORDER 64
#define AT_OWN_HASH 96
#define VERIFY_CHUNK ((size_t)1 << 20)

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void make_trailer(const struct io_part *parts, size_t count, uint64_t order,
                         uint8_t trailer[SEALED_TRAILER_SIZE]) {
    struct digest digest;
    uint64_t size = 0;
    digest_start(&digest);
    for (size_t p = 0; p < count; p++) {
        digest_add(&digest, parts[p].bytes, parts[p].size);
        size += parts[p].size;
    }
    memset(trailer, 0, SEALED_TRAILER_SIZE);
    memcpy(trailer, MAGIC, MAGIC_SIZE);
    put(trailer + AT_VERSION, VERSION, 4);
    put(trailer + AT_SIZE, SEALED_TRAILER_SIZE, 4);
    put(trailer + AT_IMAGE_SIZE, size, 8);
    digest_finish(&digest, trailer + AT_IMAGE_HASH);
    put(trailer + AT_ORDER, order, 8);
    digest_of(trailer, AT_OWN_HASH, trailer + AT_OWN_HASH);
}

void sealed_trailer(const void *image, size_t size, uint64_t order, uint8_t trailer[SEALED_TRAILER_SIZE]) {
    make_trailer(&(struct io_part){image, size}, 1, order, trailer);
}

status sealed_write(const char *path, const void *image, size_t size, uint64_t order) {
    struct io_part parts[2] = {{image, size}};
    return sealed_write_parts(path, parts, 1, order);
}

status sealed_write_parts(const char *path, struct io_part *parts, size_t count, uint64_t order) {
    uint8_t trailer[SEALED_TRAILER_SIZE];
    make_trailer(parts, count, order, trailer);
    parts[count] = (struct io_part){trailer, sizeof trailer};
    status s = io_replace(path, parts, count + 1);
    parts[count] = (struct io_part){0};
    return s;
}

static bool has_magic(const uint8_t *trailer) { return memcmp(trailer, MAGIC, MAGIC_SIZE) == 0; }

static status truncated(const char *name) {
    return status_new(STATUS_DATA, "%s: no seal at its end: the file is truncated, damaged or not written by ddptrain",
                      name);
}

/* Verifies the trailer of a file of [file_size] bytes without its image. */
static status parse_trailer(const char *name, const uint8_t trailer[SEALED_TRAILER_SIZE], uint64_t file_size,
                            struct seal *seal) {
    if (!has_magic(trailer)) return truncated(name);
    uint8_t own[DIGEST_SIZE];
    digest_of(trailer, AT_OWN_HASH, own);
    if (memcmp(own, trailer + AT_OWN_HASH, DIGEST_SIZE) != 0)
        return status_new(STATUS_DATA, "%s: damaged: its seal does not match itself", name);
    uint64_t version = get(trailer + AT_VERSION, 4);
    if (version != VERSION)
        return status_new(STATUS_DATA, "%s: sealed by a newer ddptrain (seal %llu; this one reads %d)", name,
                          (unsigned long long)version, VERSION);
    uint64_t image_size = get(trailer + AT_IMAGE_SIZE, 8);
    if (get(trailer + AT_SIZE, 4) != SEALED_TRAILER_SIZE || image_size != file_size - SEALED_TRAILER_SIZE)
        return status_new(STATUS_DATA, "%s: damaged: it has %llu bytes before its seal, expected %llu", name,
                          (unsigned long long)file_size - SEALED_TRAILER_SIZE, (unsigned long long)image_size);
    seal->image_size = image_size;
    seal->order = get(trailer + AT_ORDER, 8);
    memcpy(seal->sha256, trailer + AT_IMAGE_HASH, DIGEST_SIZE);
    return OK;
}

static status compare_hash(const char *name, const uint8_t hash[DIGEST_SIZE], const struct seal *seal) {
    if (memcmp(hash, seal->sha256, DIGEST_SIZE) == 0) return OK;
    char found[DIGEST_HEX_SIZE], expected[DIGEST_HEX_SIZE];
    digest_hex(hash, found);
    digest_hex(seal->sha256, expected);
    return status_new(STATUS_DATA, "%s: damaged: its SHA-256 is %.16s..., its seal has %.16s...", name, found,
                      expected);
}

status sealed_check(const char *name, const void *bytes, size_t size, struct seal *seal) {
    if (size < SEALED_TRAILER_SIZE) return truncated(name);
    TRY(parse_trailer(name, (const uint8_t *)bytes + size - SEALED_TRAILER_SIZE, size, seal));
    uint8_t hash[DIGEST_SIZE];
    digest_of(bytes, seal->image_size, hash);
    return compare_hash(name, hash, seal);
}

/* Reads the trailer; *size: the size of the file. A file that is too short gives zeros. */
static status read_trailer(int fd, const char *path, uint8_t trailer[SEALED_TRAILER_SIZE], uint64_t *size) {
    struct io_info info;
    memset(trailer, 0, SEALED_TRAILER_SIZE);
    TRY(io_stat_fd(fd, path, &info));
    if (!info.is_file) return status_new(STATUS_DATA, "%s: not a regular file", path);
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

/* Reads and verifies the image. */
static status read_image(int fd, const char *path, const struct seal *seal, void *image) {
    size_t got;
    TRY(io_read_at(fd, path, image, seal->image_size, 0, &got));
    if (got != seal->image_size) return truncated(path);
    uint8_t hash[DIGEST_SIZE];
    digest_of(image, seal->image_size, hash);
    return compare_hash(path, hash, seal);
}

/* Verifies the image in chunks; [buffer] (VERIFY_CHUNK) is a workspace. */
static status verify_image(int fd, const char *path, const struct seal *seal, void *buffer) {
    struct digest digest;
    digest_start(&digest);
    for (uint64_t done = 0; done < seal->image_size;) {
        uint64_t left = seal->image_size - done;
        size_t size = left < VERIFY_CHUNK ? (size_t)left : VERIFY_CHUNK, got;
        TRY(io_read_at(fd, path, buffer, size, done, &got));
        if (got != size) return truncated(path);
        digest_add(&digest, buffer, size);
        done += size;
    }
    uint8_t hash[DIGEST_SIZE];
    digest_finish(&digest, hash);
    return compare_hash(path, hash, seal);
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
    void *buffer = NULL;
    TRY(io_open(path, &fd));
    status s = read_seal(fd, path, seal);
    if (s == OK) s = buffer_new(VERIFY_CHUNK, "verifying a file", &buffer);
    if (s == OK) s = verify_image(fd, path, seal, buffer);
    buffer_free(buffer);
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
