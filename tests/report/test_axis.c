/* Axes hold their values, have ticks at round numbers, and numbers are short. */
#include "report/svg.h"

#include <math.h>
#include <string.h>

#include "check_main.h"

static const struct {
    double low, high;
    bool is_log;
} ranges[] = {
    {0, 1, false},          {0.37, 7.1, false},    {-3, 1e-9, false},      {5, 5, false},         {0, 0, false},
    {-2, -2, false},        {1e9, 1e9 + 1, false}, {-1e308, 1e308, false}, {1e-12, 2e-12, false}, {1e-4, 1e-1, true},
    {3, 3, true},           {8, 256, true},        {1e-300, 1e300, true},  {0.5, 0.6, true},      {2.00045, 12, false},
    {1e-320, 1e-310, true}, {-1e-5, 3e7, false},
};

/* 1, 2 or 5 times a power of ten. */
static bool is_round_step(double step) {
    double digit = step / pow(10, floor(log10(step) + 1e-9));
    return fabs(digit - 1) < 1e-6 || fabs(digit - 2) < 1e-6 || fabs(digit - 5) < 1e-6;
}

TEST_EACH(axes_hold_their_values, ranges) {
    struct axis axis = {.is_log = ranges[_i].is_log};
    struct axis_tick ticks[AXIS_MAX_TICKS];
    axis_fit(&axis, ranges[_i].low, ranges[_i].high, true);
    ck_assert(axis.low < axis.high && isfinite(axis.low) && isfinite(axis.high));
    double edge = axis.is_log ? 0 : 1e-9 * (axis.high / 2 - axis.low / 2); /* that rounding may cut off */
    ck_assert_double_le(axis.low, fmax(ranges[_i].low, axis.is_log ? 1e-300 : -1e300) + edge);
    ck_assert_double_ge(axis.high, fmin(ranges[_i].high, 1e300) - edge);
    double low = axis_place(&axis, ranges[_i].low), high = axis_place(&axis, ranges[_i].high);
    ck_assert(low >= 0 && low <= high && high <= 1);
    size_t count = axis_ticks(&axis, 5, ticks);
    ck_assert_uint_ge(count, 2);
    ck_assert_uint_le(count, AXIS_MAX_TICKS);
    for (size_t i = 0; i < count; i++) {
        ck_assert(i == 0 || ticks[i].value > ticks[i - 1].value);
        ck_assert(i == 0 || strcmp(ticks[i].text, ticks[i - 1].text) != 0);
        ck_assert_uint_le(strlen(ticks[i].text), 12);
        double place = axis_place(&axis, ticks[i].value);
        ck_assert(place >= 0 && place <= 1);
    }
    if (!axis.is_log && axis.high < 1e100) ck_assert(is_round_step(ticks[1].value - ticks[0].value));
    if (axis.is_log && log10(axis.high) - log10(axis.low) > 1)
        for (size_t i = 0; i < count; i++) ck_assert_msg(is_round_step(ticks[i].value), "%g", ticks[i].value);
}

TEST(places_are_linear_or_logarithmic) {
    struct axis linear = {.low = -1, .high = 3}, logarithmic = {.low = 1e-4, .high = 1, .is_log = true};
    ck_assert_double_eq(axis_place(&linear, 0), 0.25);
    ck_assert_double_eq(axis_place(&linear, -7), 0);
    ck_assert_double_eq(axis_place(&linear, 1e300), 1);
    ck_assert_double_eq(axis_place(&linear, NAN), 0);
    ck_assert_double_eq_tol(axis_place(&logarithmic, 1e-3), 0.25, 1e-12);
    ck_assert_double_eq(axis_place(&logarithmic, 0), 0);
    ck_assert_double_eq(axis_place(&logarithmic, -5), 0);
    struct axis words = {0};
    axis_fit_words(&words, (const char *const[]){"a", "b", "c", "d"}, 4);
    ck_assert_double_eq(axis_place(&words, 0), 0.125);
    ck_assert_double_eq(axis_place(&words, 3), 0.875);
}

TEST(logarithmic_axes_are_for_wide_ranges) {
    ck_assert(axis_wants_log(1e-3, 1e-3, 1));
    ck_assert(axis_wants_log(1e-3, 0, 1));
    ck_assert(!axis_wants_log(1e-2, 1e-2, 1));
    ck_assert(!axis_wants_log(1e-3, -1e-9, 1));
    ck_assert(!axis_wants_log(INFINITY, 0, 0));
}

TEST(a_rounded_axis_has_ticks_at_its_ends) {
    struct axis axis = {0};
    struct axis_tick ticks[AXIS_MAX_TICKS];
    axis_fit(&axis, 2.00045, 12, true);
    size_t count = axis_ticks(&axis, 5, ticks);
    ck_assert_str_eq(ticks[0].text, "2");
    ck_assert_str_eq(ticks[1].text, "4");
    ck_assert_str_eq(ticks[count - 1].text, "12");
    ck_assert_double_eq(axis.high, 12);
}

static const struct {
    double value;
    const char *text;
} texts[] = {
    {0, "0"},       {-0.0, "0"},      {0.1, "0.1"},      {1e-5, "1e-5"},       {2.5e-10, "2.5e-10"}, {1234, "1234"},
    {9999, "9999"}, {10000, "10k"},   {12345, "12.35k"}, {-1.5e6, "-1.5M"},    {2e9, "2G"},          {3e12, "3T"},
    {1e15, "1e15"}, {1e300, "1e300"}, {NAN, "-"},        {0.123456, "0.1235"}, {999999, "1M"}};

TEST_EACH(numbers_are_short, texts) {
    char text[24];
    axis_number(texts[_i].value, text);
    ck_assert_str_eq(text, texts[_i].text);
}

CHECK_MAIN("axis")
