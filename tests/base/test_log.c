/* log: without memory there is none, and its functions do nothing. ctest-labels: unit */
#include "base/log.h"

#include <unistd.h>

#include "check_main.h"
#include "files.h"
#include "no_memory.h"

START_TEST(no_memory_for_a_log) {
    char *folder = make_folder(), *path = path_in(folder, "log.txt");
    struct log *log = NULL;
    if (CAN_FAIL_ALLOCATIONS) {
        allocations_left = 1;
        log = log_create(false, true);
        allocations_left = 0;
    }
    ck_assert_ptr_null(log);
    ck_ok(log_open_file(log, path));
    ck_assert_int_ne(access(path, F_OK), 0);
    log_line(log, "a line");
    log_warning(log, "a line");
    log_progress(log, "a line");
    ck_assert(!log_has_progress(log));
    log_destroy(log);
    free(path);
    remove_folder(folder);
}
END_TEST

TESTS("log", no_memory_for_a_log)
