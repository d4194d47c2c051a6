/* portable_math: exp, log, sine, cosine and the normal distribution with the same bits on every machine, for numbers
 * that decide what a program does next. The C library's own may differ in the last bit between versions and processors
 * (with and without fused multiply-add). Only additions, multiplications, divisions and exact scalings by powers of two
 * are used, each rounded on its own (-ffp-contract=off). */
#pragma once

/* e^x within 2 ulp; 0 below -700, INFINITY above 709; a NaN stays one */
double portable_exp(double x);

/* The natural logarithm of a finite x > 0, within 2 ulp */
double portable_log(double x);

/* Sine and cosine of a finite angle in degrees, within 3e-16; those of multiples of 90 are exact */
double portable_sin_degrees(double degrees);
double portable_cos_degrees(double degrees);

/* The probability that a standard normal number is at most z: the rational approximation of Hart, Computer
 * Approximations (1968), number 5666, to 1e-12 absolute; z may be infinite */
double portable_normal(double z);
