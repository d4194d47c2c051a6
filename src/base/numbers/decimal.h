/* decimal: the text of a double as printf's %.17g writes it, many times as fast. */
#pragma once

#include <stddef.h>

#define DECIMAL_MAX 32 /* bytes that are written at most */

/* Writes [value], finite, to [out] (DECIMAL_MAX) as "%.17g" in the C locale; returns its length. */
size_t decimal_write(double value, char *out);
