/* The 17 digits are the integer nearest to value * 10^p. With p <= 27 that product, of a mantissa of 53 bits and 5^p of
 * 63, is exact in 128 bits, so it is rounded as printf does. Values outside of this range are left to printf. */
#include "base/numbers/decimal.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DIGITS 17
#define MAX_POWER 27 /* the last power of five that 64 bits hold */
#define MIN_EXPONENT (DIGITS - 1 - MAX_POWER)
#define MAX_EXPONENT (DIGITS - 1)
#define MANTISSA_BITS 52
#define HALF_DIGITS 8 /* digits that are computed from one 32-bit integer */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte of a word");

__extension__ typedef unsigned __int128 uint128;

/* The 17 digits of a number without its sign, and the power of ten of the first one. */
struct decimal {
    uint64_t digits;
    int exponent;
};

static const uint64_t smallest = 10000000000000000;

/* floor(log10(2^power)), for the powers of MIN_EXPONENT to MAX_EXPONENT */
static int decimal_exponent(int power) { return (power * 30103 - (power < 0 ? 99999 : 0)) / 100000; }

/* The integer nearest to mantissa * 2^power * 10^ten, of two the even one; ten: 0 to MAX_POWER */
static uint64_t scale(uint64_t mantissa, int power, int ten) {
    static const uint64_t low[] = {1, 5, 25, 125, 625, 3125, 15625, 78125, 390625};
    static const uint64_t high[] = {1, 1953125, 3814697265625, 7450580596923828125}; /* powers of 5^9 */
    uint128 product = (uint128)mantissa * (low[ten % 9] * high[ten / 9]);
    int down = -(power + ten); /* below 64, since the result has 57 bits and the product 116 */
    if (down <= 0) return (uint64_t)(product << -down);
    uint64_t whole = (uint64_t)(product >> down), rest = (uint64_t)product & (((uint64_t)1 << down) - 1);
    uint64_t half = (uint64_t)1 << (down - 1);
    return whole + (rest > half || (rest == half && whole % 2 == 1));
}

/* false: zero, too small or too large */
static bool convert(double x, struct decimal *out) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t hidden = (uint64_t)1 << MANTISSA_BITS, mantissa = (bits & (hidden - 1)) | hidden;
    int power = (int)(bits >> MANTISSA_BITS & 0x7ff) - 1023; /* 2^power <= x */
    int exponent = decimal_exponent(power);                  /* of x, or one less */
    if (exponent < MIN_EXPONENT || exponent >= MAX_EXPONENT) return false;
    uint64_t digits = scale(mantissa, power - MANTISSA_BITS, MAX_EXPONENT - exponent);
    if (digits >= 10 * smallest) digits = scale(mantissa, power - MANTISSA_BITS, MAX_EXPONENT - ++exponent);
    *out = (struct decimal){digits, exponent};
    return true;
}

/* The digits of [number], HALF_DIGITS of them: halves of the number, of these, and of these, side by side in the lanes
 * of a word. A quotient of a number below 10^4 by 100, or below 100 by 10, is a product and a shift. */
static void write_digits(uint32_t number, char *out) {
    uint64_t fours = number / 10000 | (uint64_t)(number % 10000) << 32;
    uint64_t high = (fours * 10486 >> 20) & 0x7f0000007f, twos = high | (fours - high * 100) << 16;
    uint64_t tens = (twos * 103 >> 10) & 0x000f000f000f000f, digits = tens | (twos - tens * 10) << 8;
    digits += '0' * (uint64_t)0x0101010101010101;
    memcpy(out, &digits, HALF_DIGITS);
}

/* The first digit and the DIGITS - 1 others; returns how many there are without zeros at the end. */
static size_t write_all(uint64_t number, char *first, char *others) {
    uint64_t rest = number % smallest;
    *first = (char)('0' + number / smallest);
    write_digits((uint32_t)(rest / 100000000), others);
    write_digits((uint32_t)(rest % 100000000), others + HALF_DIGITS);
    size_t count = DIGITS;
    while (count > 1 && others[count - 2] == '0') count--;
    return count;
}

/* e-05 */
static char *write_exponent(int exponent, char *out) {
    int size = exponent < 0 ? -exponent : exponent;
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    *out++ = (char)('0' + size / 10);
    *out++ = (char)('0' + size % 10);
    return out;
}

/* d.ddd or d, and the exponent unless it is 0. The digits are written where they stay: reading back what two
 * instructions have written would wait for both. */
static char *write_pointed(struct decimal decimal, char *out) {
    size_t count = write_all(decimal.digits, out, out + 2);
    out[1] = '.';
    out += count > 1 ? count + 1 : 1;
    return decimal.exponent < 0 ? write_exponent(decimal.exponent, out) : out;
}

/* 0.000ddd */
static char *write_fraction(struct decimal decimal, char *out) {
    static const char zeros[] = {'0', '.', '0', '0', '0', '0'};
    memcpy(out, zeros, sizeof zeros);
    out += 1 - decimal.exponent;
    return out + write_all(decimal.digits, out, out + 1);
}

/* dd.ddd or ddd000 */
static char *write_large(struct decimal decimal, char *out) {
    char digits[DIGITS];
    size_t count = write_all(decimal.digits, digits, digits + 1), whole = (size_t)decimal.exponent + 1;
    size_t shown = count < whole ? count : whole;
    memcpy(out, digits, shown);
    for (out += shown; shown < whole; shown++) *out++ = '0';
    if (count <= whole) return out;
    *out++ = '.';
    memcpy(out, digits + whole, count - whole);
    return out + (count - whole);
}

size_t decimal_write(double value, char *out) {
    struct decimal decimal;
    char *end = out;
    if (!convert(fabs(value), &decimal)) return (size_t)snprintf(out, DECIMAL_MAX, "%.*g", DIGITS, value);
    if (signbit(value)) *end++ = '-';
    end = decimal.exponent > 0                             ? write_large(decimal, end)
          : decimal.exponent == 0 || decimal.exponent < -4 ? write_pointed(decimal, end)
                                                           : write_fraction(decimal, end);
    *end = 0;
    return (size_t)(end - out);
}
