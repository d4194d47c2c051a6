/* An activity record that another process reads, with valid and with arbitrary contents. */
#include "dist/process/activity.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "check_main.h"
#include "dist/store/store_members.h"

TEST(reader_sees_what_was_written) {
    int file = activity_file();
    struct activity *writer = activity_map(file), *reader = activity_map(file);
    struct activity_snapshot r;
    ck_assert_ptr_nonnull(writer);
    ck_assert_ptr_nonnull(reader);
    activity_phase(writer, ACTIVITY_FORWARD);
    activity_step(writer, 7, 0.5);
    activity_saved(writer, 6);
    activity_enter(writer, 1, "all_reduce");
    activity_read(reader, &r);
    ck_assert_int_eq(r.phase, ACTIVITY_FORWARD);
    ck_assert_int_eq(r.step, 7);
    ck_assert_int_eq(r.saved, 6);
    ck_assert_double_eq(r.median_step, 0.5);
    ck_assert(r.is_in_collective);
    ck_assert_str_eq(r.call, "all_reduce");
    activity_leave(writer, 1);
    activity_enter(writer, 0, "barrier");
    activity_leave(writer, 0);
    activity_read(reader, &r);
    ck_assert(!r.is_in_collective);
    ck_assert_str_eq(r.call, "barrier");
    ck_assert_uint_eq(r.number, 1);
    activity_destroy(writer);
    activity_destroy(reader);
    ck_assert_ptr_null(activity_map(-1));
    ck_assert_int_eq(ftruncate(file, 1), 0);
    ck_assert_ptr_null(activity_map(file));
    close(file);
}

static void fill(uint8_t *bytes, size_t size, int trial) {
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(trial < 256 ? trial : rand());
}

TEST(arbitrary_bytes_can_be_read) {
    int file = activity_file();
    struct stat info;
    ck_assert_int_eq(fstat(file, &info), 0);
    size_t size = (size_t)info.st_size;
    uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ck_assert_ptr_ne(bytes, MAP_FAILED);
    srand(1);
    for (int trial = 0; trial < 2000; trial++) {
        struct activity *reader = activity_map(file);
        struct activity_snapshot r;
        struct text text = {0};
        fill(bytes, size, trial);
        activity_read(reader, &r);
        members_last_seen(&r, &text);
        ck_assert(r.step >= 0 && r.saved >= 0);
        ck_assert_uint_lt(strlen(r.call), ACTIVITY_CALL_NAME);
        for (const char *c = text.data; *c; c++) ck_assert_msg(*c >= ' ' && *c <= '~', "%s", text.data);
        text_free(&text);
        activity_destroy(reader);
    }
    munmap(bytes, size);
    close(file);
}

CHECK_MAIN("activity")
