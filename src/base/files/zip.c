/* zlib inflates; directories are parsed and written here. A member that is only stored can be read in place, without a
 * copy, which general libraries for zip do not offer for arrays larger than the memory. */
#include "base/files/zip.h"

#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/files/gzip.h"
#include "base/files/io.h"
#include "base/scoped.h"

/* ---- the format ---- */

#define END_SIZE 22      /* the end record without its comment */
#define END64_LOCATOR 20 /* before it, with zip64 */
#define END64_SIZE 56
#define ENTRY_SIZE 46 /* of a member in the directory, without name, extra fields, comment */
#define LOCAL_SIZE 30 /* before a member's bytes, without name and extra fields */
#define MAX_COMMENT 65535
#define MAX_DIRECTORY ((uint64_t)1 << 30)
#define MAX_CHUNK ((size_t)1 << 30) /* zlib counts in 32 bits */

enum { FLAG_ENCRYPTED = 1 };
enum { METHOD_STORED = 0, METHOD_DEFLATED = 8 };
enum { MADE_BY_UNIX = 3 };

static uint64_t number_at(const uint8_t *bytes, size_t size) {
    uint64_t number = 0;
    while (size-- > 0) number = number << 8 | bytes[size];
    return number;
}

static bool has_signature(const uint8_t *bytes, const char *signature) { return memcmp(bytes, signature, 4) == 0; }

static status damaged(const char *path, const char *what) {
    return status_data("%s: the zip archive is damaged or truncated (%s); copy the file again", path, what);
}

/* Reads [size] bytes that must be in the file. */
static status read_exactly(const struct zip *zip, uint64_t offset, void *out, size_t size, const char *what) {
    size_t got = 0;
    if (offset > zip->bytes || size > zip->bytes - offset) return damaged(zip->path, what);
    TRY(io_read_at(zip->fd, zip->path, out, size, offset, &got));
    return got == size ? OK : status_data("%s: the file was truncated after it was opened", zip->path);
}

/* ---- directory ---- */

struct directory {
    uint64_t offset, size, count;
};

/* Sizes of 4 GiB and more are in a second end record. */
static status read_end64(const struct zip *zip, uint64_t end, struct directory *directory) {
    uint8_t locator[END64_LOCATOR], record[END64_SIZE];
    if (end < END64_LOCATOR) return OK;
    TRY(read_exactly(zip, end - END64_LOCATOR, locator, sizeof locator, "its end"));
    if (!has_signature(locator, "PK\6\7")) return OK;
    TRY(read_exactly(zip, number_at(locator + 8, 8), record, sizeof record, "its end"));
    if (!has_signature(record, "PK\6\6")) return damaged(zip->path, "its end");
    *directory = (struct directory){
        .count = number_at(record + 32, 8), .size = number_at(record + 40, 8), .offset = number_at(record + 48, 8)};
    return OK;
}

/* Finds the end record, which a comment may follow. */
static status find_directory(const struct zip *zip, struct directory *directory) {
    uint64_t tail = zip->bytes < END_SIZE + MAX_COMMENT ? zip->bytes : END_SIZE + MAX_COMMENT;
    void *memory;
    TRY(buffer_new((size_t)tail + 1, zip->path, &memory));
    const uint8_t *bytes = memory;
    uint64_t at = tail;
    status s = read_exactly(zip, zip->bytes - tail, memory, (size_t)tail, "its end");
    bool is_found = false;
    while (!s && !is_found && at-- > 0)
        is_found = tail - at >= END_SIZE && has_signature(bytes + at, "PK\5\6") &&
                   number_at(bytes + at + 20, 2) == tail - at - END_SIZE;
    if (!s && !is_found) s = damaged(zip->path, "its directory is missing");
    if (!s)
        *directory = (struct directory){.count = number_at(bytes + at + 10, 2),
                                        .size = number_at(bytes + at + 12, 4),
                                        .offset = number_at(bytes + at + 16, 4)};
    buffer_free(memory);
    TRY(s);
    TRY(read_end64(zip, zip->bytes - tail + at, directory));
    bool is_inside = directory->offset <= zip->bytes && directory->size <= zip->bytes - directory->offset;
    if (!is_inside || directory->size > MAX_DIRECTORY || directory->count > directory->size / ENTRY_SIZE)
        return damaged(zip->path, "its directory");
    return OK;
}

/* Replaces the numbers that are 2^32 - 1 by those of the zip64 field. */
static status read_extra64(const struct zip *zip, const uint8_t *extra, size_t size, struct zip_member *member) {
    uint64_t *numbers[] = {&member->size, &member->packed, &member->start};
    while (size >= 4) {
        size_t kind = (size_t)number_at(extra, 2), length = (size_t)number_at(extra + 2, 2);
        if (length > size - 4) return damaged(zip->path, "its directory");
        const uint8_t *at = extra + 4;
        for (size_t i = 0, left = length; kind == 1 && i < 3; i++) {
            if (*numbers[i] != UINT32_MAX) continue;
            if (left < 8) return damaged(zip->path, "its directory");
            *numbers[i] = number_at(at, 8);
            at += 8;
            left -= 8;
        }
        extra += 4 + length;
        size -= 4 + length;
    }
    return OK;
}

/* The bytes of a member follow its local header, whose name and extra fields may differ from the directory's. */
status zip_locate(const struct zip *zip, struct zip_member *member) {
    uint8_t local[LOCAL_SIZE];
    TRY(read_exactly(zip, member->start, local, sizeof local, member->name));
    if (!has_signature(local, "PK\3\4")) return damaged(zip->path, member->name);
    member->start += LOCAL_SIZE + number_at(local + 26, 2) + number_at(local + 28, 2);
    if (member->start > zip->bytes || member->packed > zip->bytes - member->start)
        return damaged(zip->path, member->name);
    return OK;
}

static status check_member(const struct zip *zip, const struct zip_member *member, unsigned flags, unsigned method) {
    if (flags & FLAG_ENCRYPTED)
        return status_data("%s: '%s' is encrypted, which is not supported", zip->path, member->name);
    if (method != METHOD_STORED && method != METHOD_DEFLATED)
        return status_data("%s: '%s' is compressed with method %u; only stored and deflated members are read",
                           zip->path, member->name, method);
    if (method == METHOD_STORED ? member->size != member->packed
                                : (double)member->size > gzip_max_size((size_t)member->packed) + 1024)
        return damaged(zip->path, member->name);
    return OK;
}

/* The member at [at] of the directory, which ends after [left] bytes; *used: its bytes. [is_list]: for zip_list. */
static status read_entry(const struct zip *zip, const uint8_t *at, size_t left, bool is_list, struct arena *arena,
                         struct zip_member *member, size_t *used) {
    if (left < ENTRY_SIZE || !has_signature(at, "PK\1\2")) return damaged(zip->path, "its directory");
    size_t name = (size_t)number_at(at + 28, 2), extra = (size_t)number_at(at + 30, 2);
    *used = ENTRY_SIZE + name + extra + (size_t)number_at(at + 32, 2);
    if (*used > left) return damaged(zip->path, "its directory");
    SCOPED_TEXT raw = {0}, shown = {0};
    text_add_bytes(&raw, (const char *)at + ENTRY_SIZE, name);
    text_add_value(&shown, text_string(&raw), TEXT_MAX_NAME * 4);
    *member = (struct zip_member){.name = arena_copy(arena, text_string(is_list ? &raw : &shown)),
                                  .is_deflated = number_at(at + 10, 2) == METHOD_DEFLATED,
                                  .checksum = (uint32_t)number_at(at + 16, 4),
                                  .packed = number_at(at + 20, 4),
                                  .size = number_at(at + 24, 4),
                                  .start = number_at(at + 42, 4),
                                  .mode = at[5] == MADE_BY_UNIX ? (unsigned)number_at(at + 40, 2) : 0};
    TRY(read_extra64(zip, at + ENTRY_SIZE + name, extra, member));
    TRY(check_member(zip, member, (unsigned)number_at(at + 8, 2), (unsigned)number_at(at + 10, 2)));
    return is_list ? OK : zip_locate(zip, member);
}

static status read_directory(int fd, const char *path, uint64_t bytes, bool is_list, struct arena *arena,
                             struct zip *out) {
    *out = (struct zip){.path = path, .fd = fd, .bytes = bytes};
    struct directory directory = {0};
    TRY(find_directory(out, &directory));
    void *memory;
    TRY(buffer_new((size_t)directory.size + 1, path, &memory));
    status s = read_exactly(out, directory.offset, memory, (size_t)directory.size, "its directory");
    out->members = arena_alloc(arena, ((size_t)directory.count + 1) * sizeof *out->members);
    const uint8_t *at = memory;
    size_t left = (size_t)directory.size, used = 0;
    for (; !s && out->count < directory.count; at += used, left -= used) {
        s = read_entry(out, at, left, is_list, arena, &out->members[out->count], &used);
        if (s)
            used = 0;
        else
            out->count++;
    }
    buffer_free(memory);
    return s;
}

status zip_open(int fd, const char *path, uint64_t bytes, struct arena *arena, struct zip *out) {
    return read_directory(fd, path, bytes, false, arena, out);
}

status zip_list(int fd, const char *path, uint64_t bytes, struct arena *arena, struct zip *out) {
    return read_directory(fd, path, bytes, true, arena, out);
}

const struct zip_member *zip_find(const struct zip *zip, const char *name) {
    for (size_t i = 0; i < zip->count; i++)
        if (strcmp(zip->members[i].name, name) == 0) return &zip->members[i];
    return NULL;
}

/* ---- contents ---- */

static status inflate_to(const struct zip *zip, const struct zip_member *member, const void *packed, size_t packed_size,
                         void *out, size_t size, bool is_whole) {
    struct gzip gzip;
    SCOPED_TEXT name = {0};
    text_printf(&name, "%s: '%s'", zip->path, member->name);
    status s = gzip_start_raw(&gzip, text_string(&name), packed, packed_size);
    if (!s) s = gzip_read(&gzip, out, size);
    if (!s && is_whole) s = gzip_finish(&gzip);
    gzip_end(&gzip);
    return s;
}

/* The start of a deflated member needs at most as many packed bytes as it has itself, and a few more. */
status zip_read_start(const struct zip *zip, const struct zip_member *member, void *out, size_t size, size_t *got) {
    if (size > member->size) size = (size_t)member->size;
    *got = size;
    if (!member->is_deflated) return read_exactly(zip, member->start, out, size, member->name);
    size_t packed = 2 * size + 4096;
    if (packed > member->packed) packed = (size_t)member->packed;
    void *memory;
    TRY(buffer_new(packed + 1, zip->path, &memory));
    status s = read_exactly(zip, member->start, memory, packed, member->name);
    if (!s) s = inflate_to(zip, member, memory, packed, out, size, false);
    buffer_free(memory);
    return s;
}

status zip_check(const struct zip *zip, const struct zip_member *member, const uint8_t *bytes) {
    uLong sum = crc32(0, NULL, 0);
    if (!member->is_deflated && member->checksum == 0) return OK; /* PyTorch's set_crc32_options(False) */
    for (uint64_t at = 0, chunk; at < member->size; at += chunk) {
        chunk = member->size - at < MAX_CHUNK ? member->size - at : MAX_CHUNK;
        sum = crc32(sum, bytes + at, (uInt)chunk);
    }
    return sum == member->checksum ? OK : damaged(zip->path, member->name);
}

status zip_read_to(const struct zip *zip, const struct zip_member *member, uint8_t *out) {
    void *packed = NULL;
    size_t size = (size_t)member->packed;
    TRY(member->is_deflated ? buffer_new(size + 1, member->name, &packed) : OK);
    status s = read_exactly(zip, member->start, packed ? packed : out, size, member->name);
    if (!s && packed) s = inflate_to(zip, member, packed, size, out, (size_t)member->size, true);
    buffer_free(packed);
    return s ? s : zip_check(zip, member, out);
}

status zip_read_all(const struct zip *zip, const struct zip_member *member, uint8_t **out) {
    void *memory;
    *out = NULL;
    TRY(buffer_new((size_t)member->size + 1, member->name, &memory));
    status s = zip_read_to(zip, member, memory);
    if (s) buffer_free(memory);
    if (!s) *out = memory;
    return s;
}

/* ---- writing ---- */

/* A member is a local header, padded by an extra field up to the alignment, and its bytes; the directory at the end
 * repeats the headers with their offsets. */

#define ALIGNMENT 64
#define PADDING_FIELD 0x4246 /* "FB", PyTorch's */
#define ZIP64_FIELD 1
#define ZIP64_VERSION 45
#define MAX_32 UINT32_MAX
#define MAX_16 UINT16_MAX

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
    SCOPED_ARENA arena = arena_create();
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
    return s;
}
