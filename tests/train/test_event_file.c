/* event_file: the records of a TensorBoard event file follow each other without a gap, also after a failed write.
 * ctest-labels: unit */
#include "train/metrics/event_file.h"

#include "base/fault.h"
#include "base/files/io.h"
#include "check_main.h"
#include "files.h"
#include "train/metrics/append_file.h"

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

static void add_event(struct event_file *file, int64_t step) {
    event_file_add_scalar(file, "step", "loss", 0.5);
    event_file_end_event(file, step);
}

TEST(a_torn_record_is_written_again) {
    SCOPED_FOLDER folder = make_folder();
    struct event_file *file;
    ck_ok(event_file_open(folder, 0, &file));
    ck_ok(event_file_flush(file)); /* the version and the start of the session */
    ck_assert_uint_eq(count_records(folder), 2);
    add_event(file, 1);
    limit_file_size(100);
    ck_failure(event_file_flush(file), STATUS_IO, "events.out.tfevents");
    limit_file_size(RLIM_INFINITY);
    add_event(file, 2);
    ck_ok(event_file_close(file));
    ck_assert_uint_eq(count_records(folder), 4);
}

/* Adds events of [count] values as long as the disk takes nothing. */
static void add_on_a_full_disk(struct event_file *file, int count, int events) {
    static const char name[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    fault_set(&(struct fault){.kind = FAULT_ENOSPC, .at = 1, .is_permanent = true});
    for (int i = 0; i < events; i++) {
        for (int j = 0; j < count; j++) event_file_add_scalar(file, "step", name, 0.5);
        event_file_end_event(file, i);
        ck_failure(event_file_flush(file), STATUS_IO, "events.out.tfevents.");
    }
    fault_set(NULL);
}

TEST(a_full_disk_costs_no_more_than_16_mib_of_memory) {
    enum { COUNT = 40000, EVENT = COUNT * 60 }; /* bytes of an event, at least */
    SCOPED_FOLDER folder = make_folder();
    struct event_file *file;
    ck_ok(event_file_open(folder, 0, &file));
    ck_ok(event_file_flush(file));
    add_on_a_full_disk(file, COUNT, 3);
    ck_ok(event_file_flush(file));
    ck_assert_uint_eq(count_records(folder), 2 + 3);
    add_on_a_full_disk(file, COUNT, APPEND_FILE_MAX_BUFFER / EVENT + 1);
    add_event(file, 1);
    ck_ok(event_file_close(file));
    ck_assert_uint_eq(count_records(folder), 2 + 3 + 1);
}

TEST(two_files_of_one_second_have_two_names) {
    SCOPED_FOLDER folder = make_folder();
    struct event_file *first, *second;
    struct io_names names;
    ck_ok(event_file_open(folder, 0, &first));
    ck_ok(event_file_open(folder, 0, &second));
    ck_ok(event_file_close(first));
    ck_ok(event_file_close(second));
    ck_ok(io_list(folder, &names));
    ck_assert_uint_eq(names.count, 2);
    io_names_free(&names);
}

TEST(an_event_without_values_is_none) {
    SCOPED_FOLDER folder = make_folder();
    struct event_file *file;
    ck_ok(event_file_open(folder, 0, &file));
    event_file_end_event(file, 1);
    ck_ok(event_file_close(file));
    ck_assert_uint_eq(count_records(folder), 2);
}

CHECK_MAIN("event_file")
