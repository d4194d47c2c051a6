/* A member is a local header, padded by an extra field up to the alignment, and its bytes; the directory at the end
 * repeats the headers with their offsets. */
#include "base/files/zip_write.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

#include "base/arena.h"
#include "base/files/io.h"
#include "base/text.h"

#define ALIGNMENT 64
#define LOCAL_SIZE 30
#define PADDING_FIELD 0x4246 /* "FB", PyTorch's */
#define ZIP64_FIELD 1
#define ZIP64_VERSION 45
#define MAX_32 UINT32_MAX
#define MAX_16 UINT16_MAX
#define MAX_CHUNK ((size_t)1 << 30) /* zlib counts in 32 bits */

static void add_number(struct text *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(number >> (8 * i) & 0xff);
        text_add_bytes(out, &byte, 1);
    }
}

static uint32_t checksum(const struct zip_new_member *member) {
    uLong sum = crc32(0, NULL, 0);
    for (size_t at = 0, chunk; at < member->size; at += chunk) {
        chunk = member->size - at < MAX_CHUNK ? member->size - at : MAX_CHUNK;
        sum = crc32(sum, (const Bytef *)member->bytes + at, (uInt)chunk);
    }
    return (uint32_t)sum;
}

static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What both headers have, from the version on. */
static void add_common(struct text *out, const struct zip_new_member *member, uint32_t sum, bool is_large,
                       size_t extra) {
    uint64_t size = is_large ? MAX_32 : member->size;
    add_number(out, is_large ? ZIP64_VERSION : 20, 2);
    add_number(out, 0, 2);      /* flags */
    add_number(out, 0, 2);      /* stored */
    add_number(out, 0, 2);      /* time */
    add_number(out, 0x0021, 2); /* 1 January 1980 */
    add_number(out, sum, 4);
    add_number(out, size, 4);
    add_number(out, size, 4);
    add_number(out, strlen(member->name), 2);
    add_number(out, extra, 2);
}

/* The header before the bytes of a member at [offset]. */
static void add_local(struct text *out, const struct zip_new_member *member, uint32_t sum, uint64_t offset) {
    bool is_large = member->size >= MAX_32;
    size_t fixed = LOCAL_SIZE + strlen(member->name) + (is_large ? 20 : 0) + 4;
    size_t padding = (ALIGNMENT - (offset + fixed) % ALIGNMENT) % ALIGNMENT;
    text_add_bytes(out, "PK\3\4", 4);
    add_common(out, member, sum, is_large, (is_large ? 20 : 0) + 4 + padding);
    text_add(out, member->name);
    if (is_large) {
        add_number(out, ZIP64_FIELD, 2);
        add_number(out, 16, 2);
        add_number(out, member->size, 8);
        add_number(out, member->size, 8);
    }
    add_number(out, PADDING_FIELD, 2);
    add_number(out, padding, 2);
    for (size_t i = 0; i < padding; i++) text_add(out, "Z");
}

static void add_directory(struct text *out, const struct zip_new_member *member, uint32_t sum, uint64_t offset) {
    bool is_large = member->size >= MAX_32, is_far = offset >= MAX_32;
    size_t numbers = (is_large ? 16 : 0) + (is_far ? 8 : 0), extra = numbers ? 4 + numbers : 0;
    text_add_bytes(out, "PK\1\2", 4);
    add_number(out, ZIP64_VERSION, 2); /* made by */
    add_common(out, member, sum, is_large, extra);
    add_number(out, 0, 2); /* comment */
    add_number(out, 0, 2); /* disk */
    add_number(out, 0, 6); /* attributes */
    add_number(out, min64(offset, MAX_32), 4);
    text_add(out, member->name);
    if (!extra) return;
    add_number(out, ZIP64_FIELD, 2);
    add_number(out, numbers, 2);
    if (is_large) add_number(out, member->size, 8);
    if (is_large) add_number(out, member->size, 8);
    if (is_far) add_number(out, offset, 8);
}

/* The end records of a directory of [size] bytes at [offset]; that of zip64 only if a number does not fit the other. */
static void add_end(struct text *out, size_t count, uint64_t size, uint64_t offset) {
    if (count >= MAX_16 || size >= MAX_32 || offset >= MAX_32) {
        text_add_bytes(out, "PK\6\6", 4);
        add_number(out, 44, 8);
        add_number(out, ZIP64_VERSION, 2);
        add_number(out, ZIP64_VERSION, 2);
        add_number(out, 0, 8); /* disks */
        add_number(out, count, 8);
        add_number(out, count, 8);
        add_number(out, size, 8);
        add_number(out, offset, 8);
        text_add_bytes(out, "PK\6\7", 4);
        add_number(out, 0, 4);
        add_number(out, offset + size, 8);
        add_number(out, 1, 4);
    }
    text_add_bytes(out, "PK\5\6", 4);
    add_number(out, 0, 4); /* disks */
    add_number(out, min64(count, MAX_16), 2);
    add_number(out, min64(count, MAX_16), 2);
    add_number(out, min64(size, MAX_32), 4);
    add_number(out, min64(offset, MAX_32), 4);
    add_number(out, 0, 2); /* comment */
}

status zip_write(const char *path, const struct zip_new_member *members, size_t count) {
    struct arena *arena = arena_create();
    struct io_part *parts = arena_alloc(arena, (2 * count + 1) * sizeof *parts);
    struct text *headers = arena_alloc(arena, (count + 1) * sizeof *headers), *end = &headers[count];
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = checksum(&members[i]);
        add_local(&headers[i], &members[i], sum, offset);
        add_directory(end, &members[i], sum, offset);
        parts[2 * i] = (struct io_part){headers[i].data, headers[i].length};
        parts[2 * i + 1] = (struct io_part){members[i].bytes, members[i].size};
        offset += headers[i].length + members[i].size;
    }
    add_end(end, count, end->length, offset);
    parts[2 * count] = (struct io_part){end->data, end->length};
    status s = io_replace(path, parts, 2 * count + 1);
    for (size_t i = 0; i <= count; i++) text_free(&headers[i]);
    arena_destroy(arena);
    return s;
}
