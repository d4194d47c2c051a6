/* The fields of a line are those that jansson finds, numbers are within one unit in the last place, and what is no
 * complete object is refused. */
#include "base/files/json_lines.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "check_main.h"

static struct json_line read_good(const char *text) {
    struct json_line line;
    ck_assert_msg(json_line_read(text, strlen(text), &line), "%s", text);
    return line;
}

TEST(fields_have_their_kinds) {
    struct json_line line = read_good(" { \"event\" : \"step\", \"n\":-1.5e3 ,\"z\":null,\"t\":true,\"f\":false,"
                                      "\"m\":[[1,\"]}\\\"\"],{}],\"\":\"\" } \r");
    ck_assert_uint_eq(line.count, 7);
    ck_assert(json_line_is(&line, "event", "step"));
    ck_assert(!json_line_is(&line, "event", "ste") && !json_line_is(&line, "even", "step"));
    ck_assert_double_eq(json_line_number(&line, "n"), -1500);
    ck_assert_int_eq(json_line_find(&line, "z")->kind, KIND_NULL);
    ck_assert_int_eq(json_line_find(&line, "t")->kind, KIND_BOOL);
    ck_assert_int_eq(json_line_find(&line, "f")->kind, KIND_BOOL);
    ck_assert(isnan(json_line_number(&line, "z")) && isnan(json_line_number(&line, "absent")));
    const struct json_field *nested = json_line_find(&line, "m");
    ck_assert_int_eq(nested->kind, KIND_NESTED);
    ck_assert_uint_eq(nested->length, strlen("[[1,\"]}\\\"\"],{}]"));
    ck_assert_uint_eq(json_line_find(&line, "")->length, 0);
    ck_assert_uint_eq(read_good("{}").count, 0);
}

/* As a sweep writes the path of a parameter, for example that of a column with the name 5" pipe. */
TEST(keys_are_found_without_their_escapes) {
    static const char *const keys[] = {"dataset.columns.5\" pipe.scale", "a\\nb", "a\nb", "\xc3\xa9\t", "plain"};
    SCOPED_TEXT json = {0};
    text_add(&json, "{");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) text_add_member_int(&json, keys[i], (int64_t)i);
    text_add(&json, ",\"\\ud800\":7,\"\\u0070lain2\":8}");
    struct json_line line = read_good(text_string(&json));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_msg(json_line_number(&line, keys[i]) == (double)i, "%s", keys[i]);
    ck_assert_double_eq(json_line_number(&line, "plain2"), 8);
    ck_assert_ptr_null(json_line_find(&line, "dataset.columns.5\\\" pipe.scale"));
    ck_assert_ptr_null(json_line_find(&line, "\\ud800"));
}

TEST(escapes_are_resolved) {
    struct json_line line = read_good("{\"a\":\"x\\u00e9\\n\\\"\\\\\",\"b\":\"\\ud800\",\"c\":1}");
    char *text = json_field_text(json_line_find(&line, "a"));
    ck_assert_str_eq(text, "x\xc3\xa9\n\"\\");
    free(text);
    ck_assert_ptr_null(json_field_text(json_line_find(&line, "b")));
    ck_assert_ptr_null(json_field_text(json_line_find(&line, "c")));
    ck_assert_ptr_null(json_field_text(NULL));
}

static const char *const numbers[] = {"0",
                                      "-0.0",
                                      "7",
                                      "1.1630778294056654",
                                      "9.1559995780698955e-06",
                                      "0.1",
                                      "123456789012345678901234567890",
                                      "1e300",
                                      "1e-300",
                                      "5e-324",
                                      "-2.5E+10",
                                      "0.00000000000000000000000000001234567890123456789",
                                      "1e-999",
                                      "4503599627370497.5",
                                      "18446744073709551615",
                                      "0.30000000000000004",
                                      "1.7976931348623157e308",
                                      "000.5"};

TEST_EACH(numbers_are_within_a_unit, numbers) {
    char text[128];
    snprintf(text, sizeof text, "{\"x\":%s}", numbers[_i]);
    struct json_line line = read_good(text);
    double expected = strtod(numbers[_i], NULL), got = json_line_number(&line, "x");
    ck_assert_msg(fabs(got - expected) <= fabs(expected) * 0x1p-52, "%s: %.17g", numbers[_i], got);
}

/* Every prefix of a good line, and these. */
static const char *const bad[] = {"",           "null",        "[]",          "{",         "{\"a\"}",
                                  "{\"a\":}",   "{\"a\":1,}",  "{\"a\":1 2}", "{a:1}",     "{\"a\":1}}",
                                  "{\"a\":.5}", "{\"a\":+1}",  "{\"a\":1e}",  "{\"a\":-}", "{\"a\":nul}",
                                  "{,}",        "{\"a\":tru}", "{\"a\":[}",   "x{\"a\":1}"};

TEST(what_is_no_object_is_refused) {
    static const char good[] = "{\"event\":\"e\\\"x\",\"m\":[[1,2],[\"]\"]],\"n\":1.5e3,\"z\":null}";
    struct json_line line;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!json_line_read(bad[i], strlen(bad[i]), &line), "%s", bad[i]);
    for (size_t size = 0; size + 1 < sizeof good; size++) {
        SCOPED_MEMORY char *exact = malloc(size ? size : 1); /* so that a sanitizer sees a byte too many */
        memcpy(exact, good, size);
        ck_assert_msg(!json_line_read(exact, size, &line), "%.*s", (int)size, good);
    }
    ck_assert(json_line_read(good, sizeof good - 1, &line));
}

TEST(further_fields_are_left_out) {
    char text[16 * 200], *at = text;
    *at++ = '{';
    for (int i = 0; i < 200; i++) at += sprintf(at, "%s\"k%d\":%d", i ? "," : "", i, i);
    strcpy(at, "}");
    struct json_line line = read_good(text);
    ck_assert_uint_eq(line.count, JSON_LINE_MAX_FIELDS);
    ck_assert_double_eq(json_line_number(&line, "k127"), 127);
}

TEST_EACH(exact_numbers_are_those_of_strtod, numbers) {
    char text[128];
    snprintf(text, sizeof text, "{\"x\":%s,\"t\":\"1\"}", numbers[_i]);
    struct json_line line = read_good(text);
    double expected = strtod(numbers[_i], NULL), got = json_field_exact(json_line_find(&line, "x"));
    ck_assert_mem_eq(&expected, &got, sizeof got);
    ck_assert(isnan(json_field_exact(json_line_find(&line, "t"))) && isnan(json_field_exact(NULL)));
}

TEST(whole_numbers_have_limits) {
    struct json_line line = read_good("{\"a\":7,\"b\":-8,\"c\":7.0,\"d\":1e3,\"e\":9223372036854775808,\"f\":\"7\"}");
    static const struct {
        const char *key;
        int64_t min, max;
        bool is_good;
    } cases[] = {{"a", 0, 7, true},  {"a", 0, 6, false},      {"a", 8, 9, false},    {"b", -8, 0, true},
                 {"b", 0, 9, false}, {"c", 0, 9, false},      {"d", 0, 9999, false}, {"e", 0, INT64_MAX, false},
                 {"f", 0, 9, false}, {"absent", -9, 9, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value;
        bool is_good = json_field_int(json_line_find(&line, cases[i].key), cases[i].min, cases[i].max, &value);
        ck_assert_msg(is_good == cases[i].is_good, "%s", cases[i].key);
    }
}

/* What jansson does not accept in a text: control characters, zero bytes, bytes that are no UTF-8. */
TEST(unusual_bytes_are_checked) {
    static const char *const clean[] = {"{\"a\":\"b\"}", "{\"a\":\"\xc3\xa9\"}", "no object, but printable", ""};
    static const char *const unclean[] = {"{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xc3\xa9\"", "\x7f"};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_msg(json_line_is_clean(clean[i], strlen(clean[i])), "%s", clean[i]);
        ck_assert_msg(!json_line_is_clean(unclean[i], strlen(unclean[i])), "%s", unclean[i]);
    }
    ck_assert(!json_line_is_clean("{\"a\":\"\0\"}", 9));
}

CHECK_MAIN("json_line")
