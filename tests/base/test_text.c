/* Texts of every length around the growth of the memory, and numbers. ctest-labels: unit */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check_main.h"
#include "marks.h"

TEST(printf_fits_any_length) {
    char expected[600];
    for (size_t before = 0; before < 300; before += 7)
        for (size_t length = 0; length < 300; length += 3) {
            SCOPED_TEXT text = {0};
            memset(expected, 'x', before + length);
            expected[before + length] = 0;
            memset(expected + before, 'y', length);
            for (size_t i = 0; i < before; i++) text_add(&text, "x");
            text_printf(&text, "%s", expected + before);
            ck_assert_uint_eq(text.length, before + length);
            ck_assert_str_eq(text_string(&text), expected);
        }
}

TEST(words_of_a_command) {
    static const char *const words[][2] = {{"runs/a-1.h5", "runs/a-1.h5"},
                                           {"my data.csv", "'my data.csv'"},
                                           {"$(id)", "'$(id)'"},
                                           {"it's", "'it'\\''s'"},
                                           {"", "''"},
                                           {"~/\xc3\xa9", "'~/\xc3\xa9'"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        SCOPED_TEXT text = {0};
        text_add_shell(&text, words[i][0]);
        ck_assert_str_eq(text_string(&text), words[i][1]);
    }
}

TEST(integers) {
    static const int64_t values[] = {0, 1, -1, 9, 10, -10, 123456789, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char expected[32];
        SCOPED_TEXT text = {0};
        snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
        text_add_int(&text, values[i]);
        ck_assert_str_eq(text_string(&text), expected);
    }
}

TEST(doubles_are_the_shortest) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {-0.0, "-0"},
                 {1, "1"},
                 {-17, "-17"},
                 {999999, "999999"},
                 {-999999, "-999999"},
                 {1e6, "1e+06"},
                 {0.1, "0.1"},
                 {1e-8, "1e-08"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {1234567, "1234567"},
                 {2.5, "2.5"},
                 {NAN, "null"},
                 {INFINITY, "null"},
                 {DBL_MAX, "1.7976931348623157e+308"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_TEXT text = {0};
        text_add_double(&text, cases[i].value);
        ck_assert_str_eq(text_string(&text), cases[i].text);
    }
}

/* The shortest of %.15g, %.16g and %.17g that is the same double: of decimals with few digits and others. */
TEST(doubles_as_printf_writes_them) {
    uint64_t random = 1;
    for (int i = 0; i < 300000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        double value = (double)(random >> 40) / pow(10, (double)(random % 17));
        if (i % 3 == 0) value = (double)(random >> 52) / pow(10, (double)(random % 14));
        if (i % 5 == 0) value = nextafter(value, i % 2 ? 0 : 1);
        if (i % 7 == 0) value = -value;
        SCOPED_TEXT text = {0};
        char expected[40];
        for (int precision = 15; precision <= 17; precision++) {
            snprintf(expected, sizeof expected, "%.*g", precision, value);
            if (strtod(expected, NULL) == value) break;
        }
        text_add_double(&text, value);
        if (fabs(value) < 1e6) ck_assert_str_eq(text_string(&text), expected);
    }
}

TEST(members_of_an_object) {
    SCOPED_TEXT text = {0};
    text_add(&text, "{");
    text_add_member(&text, "a \"name\"", "line\n");
    text_add_member_int(&text, "int", -3);
    text_add_name(&text, "inner");
    text_add(&text, "{");
    text_add_member_double(&text, "x", 0.5);
    text_add_member_double(&text, "y", NAN);
    text_add(&text, "}}");
    ck_assert_str_eq(text_string(&text),
                     "{\"a \\\"name\\\"\":\"line\\u000a\",\"int\":-3,\"inner\":{\"x\":0.5,\"y\":null}}");
}

CHECK_MAIN("text")
