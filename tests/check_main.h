/* The main of a Check suite: TESTS(suite name, test, test, ...), or where some run several times
 * LOOP_TESTS(suite name, ONCE(test), LOOP(test, first, end), EACH(test, array), ...). For tests only. */
#ifndef TESTS_CHECK_MAIN_H
#define TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of the processor, which other programs do not use up. */
static inline double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* A test that runs with _i from [first] to [end] - 1. */
struct check_loop {
    const TTest *test;
    int first, end;
};
#define LOOP(test, first, end)                                                                                         \
    { test, first, end }
#define ONCE(test) LOOP(test, 0, 1)
#define EACH(test, array) LOOP(test, 0, (int)(sizeof(array) / sizeof *(array))) /* _i: an index of the array */

/* The exit code; for a main with more to do. In the environment CK_VERBOSITY says how much is printed, and
 * DDPTRAIN_TESTS_NAMED that only tests with this in their names run. */
static inline int check_run(const char *suite_name, const struct check_loop *loops, size_t count) {
    Suite *suite = suite_create(suite_name);
    TCase *tests = tcase_create(suite_name);
    tcase_set_timeout(tests, 120);
    const char *part = getenv("DDPTRAIN_TESTS_NAMED");
    for (size_t i = 0; i < count; i++)
        if (!part || strstr(loops[i].test->name, part))
            tcase_add_loop_test(tests, loops[i].test, loops[i].first, loops[i].end);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || run == 0;
}

#define LOOP_TESTS(suite_name, ...)                                                                                    \
    int main(void) {                                                                                                   \
        const struct check_loop loops[] = {__VA_ARGS__};                                                               \
        return check_run(suite_name, loops, sizeof loops / sizeof *loops);                                             \
    }

#define TESTS(suite_name, ...)                                                                                         \
    int main(void) {                                                                                                   \
        const TTest *const all[] = {__VA_ARGS__};                                                                      \
        struct check_loop loops[sizeof all / sizeof *all];                                                             \
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) loops[i] = (struct check_loop)ONCE(all[i]);              \
        return check_run(suite_name, loops, sizeof all / sizeof *all);                                                 \
    }

#endif
