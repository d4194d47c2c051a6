/* Tests with Check, which are registered where they stand: TEST(name) {...} is one, TEST_LOOP(name, first, end) {...}
 * runs with _i from [first] to [end] - 1, TEST_EACH(name, array) {...} with each index of an array. FIXTURE(setup,
 * teardown): functions that are called before and after each. CHECK_MAIN("suite") is the main that runs those of the
 * file. For tests only. */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/scoped.h"

/* A pointer to memory of malloc that is freed where its block ends: SCOPED_MEMORY float *x. */
static inline void free_memory(void *variable) { free(*(void **)variable); }
#define SCOPED_MEMORY __attribute__((cleanup(free_memory), unused))

/* Of the processor, which other programs do not use up. */
static inline double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* ---- what is registered ---- */

static inline TCase *check_tests(void) {
    static TCase *tests;
    if (!tests) {
        tests = tcase_create("tests");
        tcase_set_timeout(tests, 120);
    }
    return tests;
}

/* In the environment, DDPTRAIN_TESTS_NAMED says that only tests with this in their names run. */
static inline void check_add(const TTest *test, int first, int end) {
    const char *part = getenv("DDPTRAIN_TESTS_NAMED");
    if (!part || strstr(test->name, part)) tcase_add_loop_test(check_tests(), test, first, end);
}

#define TEST_LOOP(name, first, end)                                                                                    \
    static void name(int _i);                                                                                          \
    static __attribute__((constructor)) void check_add_##name(void) {                                                  \
        static const TTest test = {#name, name, __FILE__, __LINE__};                                                   \
        check_add(&test, first, end);                                                                                  \
    }                                                                                                                  \
    static void name(int _i CK_ATTRIBUTE_UNUSED)
#define TEST(name) TEST_LOOP(name, 0, 1)
#define TEST_EACH(name, array) TEST_LOOP(name, 0, (int)(sizeof(array) / sizeof *(array)))
#define FIXTURE(setup, teardown)                                                                                       \
    static __attribute__((constructor)) void check_fixture(void) {                                                     \
        tcase_add_checked_fixture(check_tests(), setup, teardown);                                                     \
    }

/* ---- the main ---- */

/* The exit code; for a main with more to do. In the environment CK_VERBOSITY says how much is printed. */
static inline int check_suite(const char *suite_name) {
    Suite *suite = suite_create(suite_name);
    suite_add_tcase(suite, check_tests());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || run == 0;
}

#define CHECK_MAIN(suite_name)                                                                                         \
    int main(void) { return check_suite(suite_name); }
