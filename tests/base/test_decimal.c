/* The same text as printf's, for random values of every size and for those next to powers of ten. ctest-labels: unit */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/decimal.h"
#include "check_main.h"

static void check(double value) {
    char expected[DECIMAL_MAX], text[DECIMAL_MAX];
    snprintf(expected, sizeof expected, "%.17g", value);
    memset(text, 'x', sizeof text);
    size_t length = decimal_write(value, text);
    if (length != strlen(expected) || strcmp(text, expected) != 0)
        ck_abort_msg("%a: %s, not %s", value, text, expected);
}

TEST(special_values) {
    static const double values[] = {0,    -0.0,    1,       -1,       0.5,     0.1,     100,    1e15,      1e16,
                                    1e17, 1e18,    1e22,    1e23,     1e-4,    1e-5,    1e-10,  1e-11,     1e-12,
                                    0.3,  DBL_MAX, DBL_MIN, 4.9e-324, 1.0 / 3, 2.0 / 3, 9.5e-5, 123456.75, 0x1p53};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) check(values[i]), check(-values[i]);
}

/* Where the number of digits before the point changes. */
TEST(powers_of_ten) {
    for (int power = -30; power <= 30; power++) {
        double below = strtod((char[]){'1', 'e', power < 0 ? '-' : '+', (char)('0' + abs(power) / 10),
                                       (char)('0' + abs(power) % 10), 0},
                              NULL),
               above = below;
        for (int i = 0; i < 50; i++) {
            check(below), check(above);
            below = nextafter(below, 0), above = nextafter(above, INFINITY);
        }
    }
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Fractions with few bits are exact ties of decimals. */
TEST(random_values) {
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = next(&state);
        double any, unit = (double)(bits >> 11) * 0x1p-53;
        memcpy(&any, &bits, sizeof any);
        if (isfinite(any)) check(any);
        check(unit);
        check(ldexp(unit, (int)(bits % 120) - 60));
        check((double)(bits >> 40) * ldexp(1, -(int)(bits % 60)));
        check((double)(float)unit);
    }
}

CHECK_MAIN("decimal")
