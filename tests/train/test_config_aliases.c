/* Every alias names something that a config can hold, so that no suggestion is itself a mistake.
 * ctest-labels: unit */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "../check_main.h"
#include "train/config.h"
#include "train/config_aliases.h"

static void assert_known(const char *path, const struct schema_alias *alias) {
    struct text out = {0};
    status s = schema_help(&config_schema, path, &out);
    ck_assert_msg(!s, "alias '%s': %s", alias->words, s ? status_message(s) : "");
    text_free(&out);
}

/* Where the types of the choice [what] are listed. */
static const char *path_of(const char *what) {
    return strcmp(what, "layer") == 0 ? "model.layers" : strcmp(what, "init") == 0 ? "model.init" : what;
}

START_TEST(keys_exist) {
    size_t count = 0;
    char path[200];
    for (const struct schema_alias *a = config_aliases; a->words; a++) {
        if (a->kind != ALIAS_KEY || !a->meant) continue;
        bool is_layer = a->place && strncmp(a->place, "layer.", 6) == 0;
        if (*a->meant != '.')
            snprintf(path, sizeof path, "%s", a->meant);
        else if (is_layer && strcmp(a->place, "layer.*") != 0)
            snprintf(path, sizeof path, "model.layers.%s%s", a->place + 6, a->meant);
        else
            snprintf(path, sizeof path, "%s", a->meant + 1);
        if (strcmp(path, "type") != 0) assert_known(path, a);
        ck_assert(*a->meant != '.' || a->place);
        count++;
    }
    ck_assert_uint_gt(count, 100);
}
END_TEST

START_TEST(types_exist) {
    size_t count = 0;
    char path[200];
    for (const struct schema_alias *a = config_aliases; a->words; a++) {
        if (a->kind == ALIAS_KEY || !a->meant || strchr(a->place, '.')) continue;
        snprintf(path, sizeof path, "%s.%s", path_of(a->place), a->kind == ALIAS_CALL ? a->words : a->meant);
        assert_known(path, a);
        for (const char *key = a->meant; a->kind == ALIAS_CALL && *key;) {
            size_t length = strcspn(key, " ");
            snprintf(path, sizeof path, "%s.%s.%.*s", path_of(a->place), a->words, (int)length, key);
            if (*key != '-') assert_known(path, a);
            key += length + (key[length] == ' ');
        }
        count++;
    }
    ck_assert_uint_gt(count, 60);
}
END_TEST

TESTS("config aliases", keys_exist, types_exist)
