/* zip: what zip_write writes, zip_open reads; contents are aligned; more members than 16 bits count use zip64. The
 * archives of NumPy and PyTorch are in data/test_npy.c and program/test_export.py. ctest-labels: unit */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/files/zip.h"
#include "check_main.h"
#include "files.h"

static void open_zip(const char *path, struct arena *arena, struct zip *zip) {
    struct io_info info;
    int fd;
    ck_ok(io_open(path, &fd));
    ck_ok(io_stat_fd(fd, path, &info));
    ck_ok(zip_open(fd, path, info.size, arena, zip));
}

TEST(written_members_are_read) {
    char *folder = make_folder(), path[512];
    SCOPED_ARENA arena = arena_create();
    struct zip zip;
    const struct zip_new_member members[] = {{"a/first", "hello", 5}, {"empty", "", 0}, {"a/second", "0123456789", 10}};
    snprintf(path, sizeof path, "%s/x.zip", folder);
    ck_ok(zip_write(path, members, 3));
    open_zip(path, arena, &zip);
    ck_assert_uint_eq(zip.count, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct zip_member *member = zip_find(&zip, members[i].name);
        uint8_t *content;
        ck_assert_ptr_nonnull(member);
        ck_assert_uint_eq(member->start % 64, 0);
        ck_assert(!member->is_deflated);
        ck_assert_uint_eq(member->size, members[i].size);
        ck_ok(zip_read_all(&zip, member, &content));
        ck_assert(memcmp(content, members[i].bytes, members[i].size) == 0);
        ck_ok(zip_check(&zip, member, content));
        if (members[i].size) {
            content[0] ^= 1;
            ck_failure(zip_check(&zip, member, content), STATUS_DATA, "damaged");
        }
        buffer_free(content);
    }
    close(zip.fd);
    remove_folder(folder);
}

#define MANY 65537

TEST(many_members_need_zip64) {
    char *folder = make_folder(), path[512];
    SCOPED_ARENA arena = arena_create();
    struct zip zip;
    SCOPED_MEMORY struct zip_new_member *members = calloc(MANY, sizeof *members);
    for (size_t i = 0; i < MANY; i++) {
        char *name = arena_printf(arena, "%zu", i);
        members[i] = (struct zip_new_member){name, name, strlen(name)};
    }
    snprintf(path, sizeof path, "%s/x.zip", folder);
    ck_ok(zip_write(path, members, MANY));
    open_zip(path, arena, &zip);
    ck_assert_uint_eq(zip.count, MANY);
    for (size_t i = 0; i < MANY; i += MANY - 1) {
        uint8_t *content;
        ck_assert_str_eq(zip.members[i].name, members[i].name);
        ck_ok(zip_read_all(&zip, &zip.members[i], &content));
        ck_assert(memcmp(content, members[i].bytes, members[i].size) == 0);
        buffer_free(content);
    }
    close(zip.fd);
    remove_folder(folder);
}

static void put(char *bytes, size_t at, uint32_t number) {
    for (size_t i = 0; i < 4; i++) bytes[at + i] = (char)(number >> (8 * i) & 0xff);
}

/* An archive of one member of 5 bytes, whose sizes in the directory are all bits, with [extra] as its extra fields. */
static void write_with_extra(const char *path, const char *extra, size_t length) {
    const struct zip_new_member member = {"x", "hello", 5};
    ck_ok(zip_write(path, &member, 1));
    size_t size;
    SCOPED_MEMORY char *old = slurp(path, &size), *bytes = malloc(size + length);
    size_t directory = size - 22 - 46 - 1, after_name = directory + 46 + 1;
    ck_assert(memcmp(old + directory, "PK\1\2", 4) == 0);
    put(old, directory + 20, UINT32_MAX);
    put(old, directory + 24, UINT32_MAX);
    old[directory + 30] = (char)length;
    put(old, size - 22 + 12, (uint32_t)(46 + 1 + length));
    memcpy(bytes, old, after_name);
    memcpy(bytes + after_name, extra, length);
    memcpy(bytes + after_name + length, old + after_name, size - after_name);
    spill(path, bytes, size + length);
}

/* After torch.serialization.set_crc32_options(False) PyTorch writes 0 for the checksum of every member, and does not
 * compare it. */
TEST(a_stored_member_without_a_checksum_is_read) {
    char *folder = make_folder(), path[512];
    const struct zip_new_member member = {"x", "hello", 5};
    SCOPED_ARENA arena = arena_create();
    struct zip zip;
    uint8_t *content;
    size_t size;
    snprintf(path, sizeof path, "%s/x.zip", folder);
    ck_ok(zip_write(path, &member, 1));
    char *bytes = slurp(path, &size);
    put(bytes, 14, 0);
    put(bytes, size - 22 - 46 - 1 + 16, 0);
    spill(path, bytes, size);
    open_zip(path, arena, &zip);
    ck_assert_uint_eq(zip.members[0].checksum, 0);
    ck_ok(zip_read_all(&zip, &zip.members[0], &content));
    ck_assert(memcmp(content, "hello", 5) == 0);
    zip.members[0].is_deflated = true;
    ck_failure(zip_check(&zip, &zip.members[0], content), STATUS_DATA, "damaged");
    buffer_free(content);
    free(bytes);
    close(zip.fd);
    remove_folder(folder);
}

/* A field of another kind comes before that of zip64. */
#define TIME "\x55\x54\5\0\3\1\2\3\4"
#define SIZES(length)                                                                                                  \
    TIME "\1\0" length "\0"                                                                                            \
         "\5\0\0\0\0\0\0\0"                                                                                            \
         "\5\0\0\0\0\0\0\0"

TEST(sizes_may_be_in_a_zip64_field) {
    char *folder = make_folder(), path[512];
    SCOPED_ARENA arena = arena_create();
    struct zip zip;
    struct io_info info;
    uint8_t *content;
    snprintf(path, sizeof path, "%s/x.zip", folder);
    write_with_extra(path, SIZES("\20"), sizeof SIZES("\20") - 1);
    open_zip(path, arena, &zip);
    ck_assert_uint_eq(zip.members[0].size, 5);
    ck_assert_uint_eq(zip.members[0].packed, 5);
    ck_ok(zip_read_all(&zip, &zip.members[0], &content));
    ck_assert(memcmp(content, "hello", 5) == 0);
    buffer_free(content);
    close(zip.fd);
    const char *lengths[] = {SIZES("\10"), SIZES("\21")}; /* too short for both sizes; longer than what is there */
    for (size_t i = 0; i < 2; i++) {
        int fd;
        write_with_extra(path, lengths[i], sizeof SIZES("\20") - 1);
        ck_ok(io_open(path, &fd));
        ck_ok(io_stat_fd(fd, path, &info));
        ck_failure(zip_open(fd, path, info.size, arena, &zip), STATUS_DATA, "its directory");
        close(fd);
    }
    remove_folder(folder);
}

CHECK_MAIN("zip")
