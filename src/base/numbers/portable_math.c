/* Series that end below the precision of a double, on an interval small enough for them. */
#include "base/numbers/portable_math.h"

#include <math.h>
#include <stddef.h>

#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: products with exponents are exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define SQRT_HALF 0x1.6a09e667f3bcdp-1
#define RADIANS 0.017453292519943295 /* of a degree */
#define MAX_NORMAL 7.0               /* above, the distribution is 1 to 1e-12 */

/* e^x = 2^n e^r with |r| <= ln(2) / 2; e^r by Taylor's series */
double portable_exp(double x) {
    if (isnan(x)) return x;
    if (x < -700) return 0;
    if (x > 709) return INFINITY;
    double n = floor(x * 1.4426950408889634 + 0.5), r = (x - n * LN2_HIGH) - n * LN2_LOW, sum = 1;
    for (int k = 13; k > 0; k--) sum = 1 + r * sum / k;
    return ldexp(sum, (int)n);
}

/* x = 2^n m with sqrt(1/2) <= m < sqrt(2); log m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.1716 */
double portable_log(double x) {
    int n;
    double m = frexp(x, &n);
    if (m < SQRT_HALF) m *= 2, n--;
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 23; k > 1; k -= 2) sum = square * (sum + 1.0 / k);
    return n * LN2_HIGH + (2 * s * sum + (2 * s + n * LN2_LOW));
}

/* The sine of degrees + 90 [quarters]: the nearest multiple of 90 is subtracted, which is exact, then Taylor's series
 * of the sine or the cosine of at most 45 degrees */
static double sine_after(double degrees, int quarters) {
    double rest = fmod(degrees, 360), nearest = floor(rest / 90 + 0.5);
    double x = (rest - nearest * 90) * RADIANS, square = x * x, sum = 1;
    unsigned quarter = (unsigned)((int)nearest + quarters) % 4; /* also of negative numbers: 4 divides 2^32 */
    for (int k = quarter % 2 ? 18 : 19; k > 1; k -= 2) sum = 1 - sum * square / (k * (k - 1));
    if (quarter % 2 == 0) sum *= x;
    return quarter < 2 ? sum : -sum;
}

double portable_sin_degrees(double degrees) { return sine_after(degrees, 0); }
double portable_cos_degrees(double degrees) { return sine_after(degrees, 1); }

double portable_normal(double z) {
    static const double over[] = {220.206867912376, 221.213596169931, 112.079291497871,    33.912866078383,
                                  6.37396220353165, .700383064443688, 3.52624965998911e-2, 0};
    static const double under[] = {440.413735824752, 793.826512518948, 637.333633378831, 296.564248779674,
                                   86.7807322029461, 16.064177579207,  1.75566716318264, 8.83883476483184e-2};
    double size = fabs(z), numerator = 0, denominator = 0;
    if (size > MAX_NORMAL) return z > 0 ? 1 : 0;
    for (size_t i = sizeof over / sizeof *over; i-- > 0;) {
        numerator = numerator * size + over[i];
        denominator = denominator * size + under[i];
    }
    double tail = portable_exp(-size * size / 2) * numerator / denominator;
    return z > 0 ? 1 - tail : tail;
}
