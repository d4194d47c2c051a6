/* event_file: the records of a TensorBoard event file follow each other without a gap, also after a failed write.
 * ctest-labels: unit */
#include "train/metrics/event_file.h"

#include "base/io.h"
#include "check_main.h"
#include "files.h"

#define RECORD_OVERHEAD 16 /* length, its CRC, the CRC of the data */

/* The number of records of the only file in [folder], which they must fill. */
static size_t count_records(const char *folder) {
    struct io_names names = {0};
    size_t size, count = 0, at = 0;
    ck_ok(io_list(folder, &names));
    ck_assert_uint_eq(names.count, 1);
    char *path = path_in(folder, names.items[0]), *bytes = slurp(path, &size);
    for (; at < size; count++) {
        uint64_t length;
        ck_assert_uint_ge(size - at, sizeof length);
        memcpy(&length, bytes + at, sizeof length);
        ck_assert_uint_gt(length, 0);
        ck_assert_uint_le(length, size - at);
        at += length + RECORD_OVERHEAD;
    }
    ck_assert_uint_eq(at, size);
    free(bytes);
    free(path);
    io_names_free(&names);
    return count;
}

START_TEST(a_torn_record_is_written_again) {
    const struct scalar scalars[] = {{"loss", 0.5}};
    char *folder = make_folder();
    struct event_file *file;
    ck_ok(event_file_open(folder, 0, &file));
    ck_ok(event_file_flush(file)); /* the version and the start of the session */
    ck_assert_uint_eq(count_records(folder), 2);
    event_file_add(file, "step", 1, scalars, 1);
    limit_file_size(100);
    ck_failure(event_file_flush(file), STATUS_IO, "events.out.tfevents");
    limit_file_size(RLIM_INFINITY);
    event_file_add(file, "step", 2, scalars, 1);
    ck_ok(event_file_close(file));
    ck_assert_uint_eq(count_records(folder), 4);
    remove_folder(folder);
}
END_TEST

TESTS("event_file", a_torn_record_is_written_again)
