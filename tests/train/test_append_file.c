/* append_file: a failed write leaves no part of a record behind. ctest-labels: unit */
#include "train/metrics/append_file.h"

#include "base/files/io.h"
#include "check_main.h"
#include "files.h"

static void open_new(const char *path, struct append_file *file) {
    *file = (struct append_file){.path = strdup(path)};
    ck_ok(io_open_append(path, &file->fd));
}

static void check_content(const char *path, const char *expected) {
    size_t size;
    SCOPED_MEMORY char *text = slurp(path, &size);
    ck_assert_uint_eq(size, strlen(expected));
    ck_assert_int_eq(memcmp(text, expected, size), 0);
}

/* The first write stops in the middle of a record; the next one writes all of it, once. */
TEST(a_torn_record_is_written_again) {
    char *folder = make_folder(), *path = path_in(folder, "records");
    struct append_file file;
    open_new(path, &file);
    text_add(&file.buffer, "first\n");
    ck_ok(append_file_flush(&file));
    text_add(&file.buffer, "second\n");
    limit_file_size(9);
    ck_failure(append_file_flush(&file), STATUS_IO, "records");
    check_content(path, "first\nsec");
    limit_file_size(RLIM_INFINITY);
    ck_assert_uint_eq(file.size, 6);
    text_add(&file.buffer, "third\n");
    ck_ok(append_file_flush(&file));
    ck_ok(append_file_close(&file));
    check_content(path, "first\nsecond\nthird\n");
    free(path);
    remove_folder(folder);
}

TEST(truncation_discards_the_buffer) {
    char *folder = make_folder(), *path = path_in(folder, "records");
    struct append_file file;
    open_new(path, &file);
    text_add(&file.buffer, "first\nsecond\n");
    ck_ok(append_file_flush(&file));
    text_add(&file.buffer, "third\n");
    ck_ok(append_file_truncate(&file, 6));
    ck_ok(append_file_truncate(&file, 100)); /* it is shorter already */
    ck_ok(append_file_close(&file));
    check_content(path, "first\n");
    free(path);
    remove_folder(folder);
}

CHECK_MAIN("append_file")
