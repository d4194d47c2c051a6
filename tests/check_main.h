/* The main of a Check suite: TESTS(suite name, test, test, ...). For tests only. */
#ifndef TESTS_CHECK_MAIN_H
#define TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

#define TESTS(suite_name, ...)                                                                                         \
    int main(void) {                                                                                                   \
        const TTest *const all[] = {__VA_ARGS__};                                                                      \
        Suite *suite = suite_create(suite_name);                                                                       \
        TCase *tests = tcase_create(suite_name);                                                                       \
        tcase_set_timeout(tests, 120);                                                                                 \
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) tcase_add_test(tests, all[i]);                           \
        suite_add_tcase(suite, tests);                                                                                 \
        SRunner *runner = srunner_create(suite);                                                                       \
        srunner_run_all(runner, CK_NORMAL);                                                                            \
        int failed = srunner_ntests_failed(runner);                                                                    \
        srunner_free(runner);                                                                                          \
        return failed != 0;                                                                                            \
    }

#endif
