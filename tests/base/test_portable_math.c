/* Values against the C library's, and their bits. ctest-labels: unit */
#include "base/numbers/portable_math.h"

#include <float.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdint.h>
#include <stdio.h>

#include "check_main.h"
#include "marks.h"

enum { COUNT = 200000 };

/* Values of both signs and of all sizes from 2^-40 to [max]. */
static double argument(int i, double max) {
    double size = max * ldexp(1 + (i * 2654435761u >> 8) * 0x1p-24, -1 - i % 41);
    return i & 64 ? size : -size;
}

static void near(double actual, double expected, double ulps, double at) {
    ck_assert_msg(fabs(actual - expected) <= ulps * DBL_EPSILON * fabs(expected), "at %a: %.17g, expected %.17g", at,
                  actual, expected);
}

TEST(exp_is_exact_to_two_ulp) {
    for (int i = 0; i < COUNT; i++) {
        double x = argument(i, 700);
        near(portable_exp(x), exp(x), 2, x);
    }
    ck_assert_double_eq(portable_exp(0), 1);
    ck_assert_double_eq(portable_exp(-701), 0);
    ck_assert_double_eq(portable_exp(-INFINITY), 0);
    ck_assert(isinf(portable_exp(710)) && isinf(portable_exp(INFINITY)));
    ck_assert(isnan(portable_exp(NAN)));
}

TEST(log_is_exact_to_two_ulp) {
    for (int i = 0; i < COUNT; i++) {
        double far = exp(argument(i, 700)), close = 1 + argument(i, 0.9);
        near(portable_log(far), log(far), 2, far);
        near(portable_log(close), log(close), 2, close);
    }
    ck_assert_double_eq(portable_log(1), 0);
    near(portable_log(DBL_TRUE_MIN), log(DBL_TRUE_MIN), 2, DBL_TRUE_MIN);
    near(portable_log(DBL_MAX), log(DBL_MAX), 2, DBL_MAX);
}

TEST(sine_and_cosine_of_degrees) {
    for (int i = 0; i < COUNT; i++) {
        double degrees = argument(i, 1000), radians = fmod(degrees, 360) * (acos(-1) / 180);
        ck_assert_double_eq_tol(portable_sin_degrees(degrees), sin(radians), 1.5e-15);
        ck_assert_double_eq_tol(portable_cos_degrees(degrees), cos(radians), 1.5e-15);
    }
    for (int quarter = -8; quarter <= 8; quarter++) {
        static const double sines[] = {0, 1, 0, -1};
        ck_assert_double_eq(portable_sin_degrees(90.0 * quarter), sines[(quarter + 8) % 4]);
        ck_assert_double_eq(portable_cos_degrees(90.0 * quarter), sines[(quarter + 9) % 4]);
    }
    ck_assert_double_eq_tol(portable_sin_degrees(30), 0.5, 3e-16);
    ck_assert_double_eq_tol(portable_cos_degrees(-120), -0.5, 3e-16);
}

TEST(normal_distribution) {
    for (double z = -12; z <= 12; z += 0.001) {
        ck_assert_double_eq_tol(portable_normal(z), erfc(-z / sqrt(2)) / 2, 1.5e-12);
        ck_assert_double_ge(portable_normal(z), 0);
        ck_assert_double_le(portable_normal(z), 1);
    }
    ck_assert_double_eq(portable_normal(-INFINITY), 0);
    ck_assert_double_eq(portable_normal(INFINITY), 1);
}

/* Any compiler, level of optimisation and processor. */
TEST(bits_are_the_same_everywhere) {
    struct sha256_ctx hash;
    uint8_t digest[32];
    char hex[17];
    sha256_init(&hash);
    for (int i = 0; i < COUNT; i++) {
        double x = argument(i, 30);
        double results[] = {portable_exp(x), portable_log(fabs(x)), portable_normal(x), portable_sin_degrees(x),
                            portable_cos_degrees(x)};
        sha256_update(&hash, sizeof results, (const uint8_t *)results);
    }
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < 8; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    ck_assert_str_eq(hex, "5563bfdc850546c7");
}

CHECK_MAIN("portable_math")
