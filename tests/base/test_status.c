/* status: the sentence and the exit code of STATUS_MEMORY; which failures a caller may retry or ignore.
 * ctest-labels: unit */
#include "base/status.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "files.h"
#include "no_memory.h"

TEST(a_lack_of_memory_has_one_sentence) {
    ck_failure(status_memory("the sums of %d shards", 4), STATUS_MEMORY, "no memory for the sums of 4 shards");
}

/* STATUS_MEMORY is a separate code, but the exit code is that of STATUS_IO. */
TEST(a_lack_of_memory_ends_as_other_failures_of_the_system) {
    ck_assert_int_ne(STATUS_MEMORY, STATUS_IO);
    ck_assert_int_eq(status_exit_code(STATUS_MEMORY), 74);
#define X(name, code, text) ck_assert_int_eq(status_exit_code(name), code);
    STATUS_CODES(X)
#undef X
}

TEST(only_failures_of_the_system_may_be_passed_over) {
    static const enum status_code codes[] = {STATUS_IO, STATUS_MEMORY, STATUS_USAGE, STATUS_DATA, STATUS_BUG};
    ck_assert(!status_is_system(OK));
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        status s = status_new(codes[i], "a sentence");
        ck_assert_int_eq(status_is_system(s), i < 2);
        status_free(s);
    }
}

TEST(a_small_block_ends_the_process) {
    int wait_status;
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        status_exit_without_memory();
    }
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    ck_assert(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 74);
}

static status fail_twice(void *context) {
    int *calls = context;
    if (++*calls > 1) status_exit_without_memory();
    ck_failure(status_catch_memory(fail_twice, context), STATUS_MEMORY, "no memory");
    status_exit_without_memory();
}

static status succeed(void *context) {
    (void)context;
    return status_new(STATUS_DATA, "a sentence");
}

/* In a library: also in a call within a call, and the failures of the work pass through. */
TEST(a_small_block_is_a_status_for_a_library) {
    int calls = 0;
    ck_failure(status_catch_memory(fail_twice, &calls), STATUS_MEMORY, "no memory");
    ck_assert_int_eq(calls, 2);
    ck_failure(status_catch_memory(succeed, NULL), STATUS_DATA, "a sentence");
}

/* Every allocation of a failure may fail, for short sentences, for those that become longer by escapes and for lines
 * that are cut. */
TEST(a_failure_without_memory_is_a_failure) {
    enum { LONG = 20000 };
    SCOPED_MEMORY char *controls = malloc(LONG), *lines = malloc(LONG);
    for (size_t i = 0; i < LONG; i++) controls[i] = '\x01', lines[i] = "\n\xff"[i % 2];
    for (size_t i = 0; i < LONG; i += 1025) controls[i] = '\n'; /* lines of 1024 bytes, which become 4096 */
    controls[LONG - 1] = lines[LONG - 1] = 0;
    const char *const sentences[] = {"a sentence", controls, controls + 1, controls + 2, lines};
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences && CAN_FAIL_ALLOCATIONS; i++)
        for (long n = 1, is_complete = 0; !is_complete; n++) {
            allocations_left = n;
            status s = status_new(STATUS_DATA, "%s", sentences[i]);
            is_complete = allocations_left > 0;
            allocations_left = 0;
            ck_assert_int_eq(status_code(s), is_complete ? STATUS_DATA : STATUS_MEMORY);
            if (!is_complete) ck_assert_str_eq(status_message(s), "no memory for a message");
            status_free(s);
        }
}

CHECK_MAIN("status")
