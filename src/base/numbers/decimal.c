/* The 17 digits are the integer nearest to value * 10^p. Extended precision computes that product with an error of at
 * most 2^-8, because 10^p is exact for p <= 27 and the product is below 2^57. Where the distance to a tie is not
 * larger than the error, and for values outside this range, printf decides. */
#include "base/numbers/decimal.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DIGITS 17
#define MAX_POWER 27 /* 10^27 is exact with the 64 bits of an extended mantissa */
#define MIN_EXPONENT (DIGITS - 1 - MAX_POWER)
#define MAX_EXPONENT (DIGITS - 1)
#define MAX_ERROR 0x1p-7L
#define HALF_DIGITS 8 /* digits that are computed from one 32-bit integer */

/* The 17 digits of a number without its sign, and the power of ten of the first one. */
struct decimal {
    uint64_t digits;
    int exponent;
};

static const uint64_t smallest = 10000000000000000;

/* floor(log10(x)), or one less */
static int estimate_exponent(double x) {
    int power;
    frexp(x, &power); /* 2^(power - 1) <= x */
    return (int)floor((power - 1) * 0.30102999566398119);
}

/* false: zero, too small, too large, or too close to a tie */
static bool convert(double x, struct decimal *out) {
    static const long double powers[MAX_POWER + 1] = {
        1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
        1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    int exponent = estimate_exponent(x);
    if (x == 0 || exponent < MIN_EXPONENT || exponent >= MAX_EXPONENT) return false;
    long double scaled = (long double)x * powers[MAX_EXPONENT - exponent];
    if (scaled >= (long double)(10 * smallest)) scaled = (long double)x * powers[MAX_EXPONENT - ++exponent];
    uint64_t whole = (uint64_t)scaled;
    long double rest = scaled - (long double)whole;
    if (rest > 0.5L - MAX_ERROR && rest < 0.5L + MAX_ERROR) return false;
    whole += rest > 0.5L;
    if (whole == 10 * smallest) whole = smallest, exponent++;
    *out = (struct decimal){whole, exponent};
    return true;
}

static void write_digits(uint32_t number, char *out) {
    for (int i = HALF_DIGITS - 1; i >= 0; i--, number /= 10) out[i] = (char)('0' + number % 10);
}

/* The digits without zeros at the end; returns their number. */
static size_t significant_digits(uint64_t number, char *out) {
    uint64_t first = number / smallest, rest = number % smallest;
    out[0] = (char)('0' + first);
    write_digits((uint32_t)(rest / 100000000), out + 1);
    write_digits((uint32_t)(rest % 100000000), out + 1 + HALF_DIGITS);
    size_t count = DIGITS;
    while (count > 1 && out[count - 1] == '0') count--;
    return count;
}

/* d.ddde-05 */
static char *write_scientific(const char *digits, size_t count, int exponent, char *out) {
    int size = exponent < 0 ? -exponent : exponent;
    *out++ = digits[0];
    if (count > 1) *out++ = '.';
    memcpy(out, digits + 1, count - 1);
    out += count - 1;
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    *out++ = (char)('0' + size / 10);
    *out++ = (char)('0' + size % 10);
    return out;
}

/* 0.000ddd, dd.ddd or ddd000 */
static char *write_fixed(const char *digits, size_t count, int exponent, char *out) {
    if (exponent < 0) {
        static const char zeros[] = {'0', '.', '0', '0', '0', '0'};
        memcpy(out, zeros, sizeof zeros);
        out += 1 - exponent;
        memcpy(out, digits, count);
        return out + count;
    }
    size_t whole = (size_t)exponent + 1, shown = count < whole ? count : whole;
    memcpy(out, digits, shown);
    for (out += shown; shown < whole; shown++) *out++ = '0';
    if (count <= whole) return out;
    *out++ = '.';
    memcpy(out, digits + whole, count - whole);
    return out + (count - whole);
}

size_t decimal_write(double value, char *out) {
    struct decimal decimal;
    char digits[DIGITS], *end = out;
    if (LDBL_MANT_DIG < 64 || !convert(fabs(value), &decimal))
        return (size_t)snprintf(out, DECIMAL_MAX, "%.*g", DIGITS, value);
    if (signbit(value)) *end++ = '-';
    size_t count = significant_digits(decimal.digits, digits);
    end = decimal.exponent < -4 ? write_scientific(digits, count, decimal.exponent, end)
                                : write_fixed(digits, count, decimal.exponent, end);
    *end = 0;
    return (size_t)(end - out);
}
