/* The `dist:` section: defaults, ranges, and backends this build does not have. ctest-labels: unit */
#include "dist/dist_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/document.h"
#include "check_main.h"

/* Binds the section's text; the sentence of what is wrong, "" for nothing. */
static struct dist_config bind(const char *yaml, char *sentence, size_t size) {
    struct problems problems = {0};
    struct document *document = NULL;
    struct dist_config config;
    ck_assert(document_parse("test.yaml", yaml, strlen(yaml), &problems, &document) == OK);
    ck_assert_ptr_nonnull(document);
    schema_bind(&dist_schema, document_root(document), "dist", &dist_schema, &config, document_arena(document),
                &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    snprintf(sentence, size, "%s", status_message(s));
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
    return config;
}

START_TEST(defaults_are_pytorchs) {
    char sentence[500];
    struct dist_config config = bind("", sentence, sizeof sentence);
    ck_assert_str_eq(sentence, "");
    ck_assert_int_eq(config.backend, BACKEND_AUTO);
    ck_assert_double_eq(config.bucket_cap_mb, 25);
    ck_assert_double_eq(config.first_bucket_mb, 1);
    ck_assert_double_eq(config.timeout, 600);
    ck_assert(!config.find_unused_parameters);
    config = bind("backend: gloo\nbucket_cap_mb: 0.5\n", sentence, sizeof sentence);
    ck_assert_str_eq(sentence, "");
    ck_assert_int_eq(config.backend, BACKEND_GLOO);
    ck_assert_double_eq(config.bucket_cap_mb, 0.5);
    config = bind("backend: nccl\n", sentence, sizeof sentence);
    ck_assert_str_eq(sentence, "");
    ck_assert_int_eq(config.backend, BACKEND_NCCL);
}
END_TEST

static const struct {
    const char *yaml, *expected;
} wrong[] = {
    {"backend: mpi\n", "gloo"},
    {"bucket_cap_mb: 0\n", "bucket_cap_mb"},
    {"timeout: -1\n", "timeout"},
    {"bucket_cap: 3\n", "bucket_cap_mb"},
};

START_TEST(mistakes_are_told) {
    char sentence[1000];
    bind(wrong[_i].yaml, sentence, sizeof sentence);
    ck_assert_msg(strstr(sentence, wrong[_i].expected), "%s: '%s'", wrong[_i].yaml, sentence);
}
END_TEST

LOOP_TESTS("dist_config", ONCE(defaults_are_pytorchs), EACH(mistakes_are_told, wrong))
