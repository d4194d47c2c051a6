/* The `dist:` section: defaults, ranges, and unknown backends. ctest-labels: unit */
#include "dist/dist_config.h"

#include <stdio.h>
#include <string.h>

#include "base/document/document.h"
#include "check_main.h"

/* Binds the section. message (size): the errors; "": none. */
static struct dist_config bind(const char *yaml, char *message, size_t size) {
    struct problems problems = {0};
    struct document *document = NULL;
    struct dist_config config;
    ck_assert(document_parse("test.yaml", yaml, strlen(yaml), &problems, &document) == OK);
    ck_assert_ptr_nonnull(document);
    schema_bind(&dist_schema, document_root(document), "dist", &dist_schema, &config, document_arena(document),
                &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    snprintf(message, size, "%s", status_message(s));
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
    return config;
}

TEST(defaults_are_pytorchs) {
    char message[500];
    struct dist_config config = bind("", message, sizeof message);
    ck_assert_str_eq(message, "");
    ck_assert_int_eq(config.backend, BACKEND_AUTO);
    ck_assert_double_eq(config.bucket_cap_mb, 25);
    ck_assert_double_eq(config.first_bucket_mb, 1);
    ck_assert_double_eq(config.timeout, 600);
    ck_assert(!config.find_unused_parameters);
    config = bind("backend: gloo\nbucket_cap_mb: 0.5\n", message, sizeof message);
    ck_assert_str_eq(message, "");
    ck_assert_int_eq(config.backend, BACKEND_GLOO);
    ck_assert_double_eq(config.bucket_cap_mb, 0.5);
    config = bind("backend: nccl\n", message, sizeof message);
    ck_assert_str_eq(message, "");
    ck_assert_int_eq(config.backend, BACKEND_NCCL);
}

static const struct {
    const char *yaml, *expected;
} wrong[] = {
    {"backend: tcp\n", "gloo"},
    {"bucket_cap_mb: 0\n", "bucket_cap_mb"},
    {"timeout: -1\n", "timeout"},
    {"bucket_cap: 3\n", "bucket_cap_mb"},
};

TEST_EACH(mistakes_are_reported, wrong) {
    char message[1000];
    bind(wrong[_i].yaml, message, sizeof message);
    ck_assert_msg(strstr(message, wrong[_i].expected), "%s: '%s'", wrong[_i].yaml, message);
}

CHECK_MAIN("dist_config")
