/* suggest_numbers: texts in a column of numbers: those that usually mean a missing value, and numbers that are written
 * in a way that a run does not read. */
#ifndef DATA_SUGGEST_NUMBERS_H
#define DATA_SUGGEST_NUMBERS_H

#include <stdbool.h>

#include "base/text.h"

/* Whether the text usually means a missing value, such as "?" or "-", though pandas' read_csv does not take it for one.
 */
bool suggest_is_mark(const char *text);

/* How a number is written that csv_number does not read: bits; 0: it is none. */
enum number_style {
    NUMBER_PERCENT = 1 << 0,
    NUMBER_CURRENCY = 1 << 1,
    NUMBER_SEPARATORS = 1 << 2, /* of thousands: 1,234 */
    NUMBER_COMMA = 1 << 3,      /* a decimal comma among points */
    NUMBER_UNIT = 1 << 4,
    NUMBER_INFINITE = 1 << 5,
    NUMBER_PARENTHESES = 1 << 6, /* of negative ones: (1.5) */
    NUMBER_DOLLAR = 1 << 7       /* and the bits above, with NUMBER_CURRENCY: which currency */
};
unsigned suggest_number_style(const char *text);

/* The characters for dataset.csv.strip that numbers of [styles] have, adding to [out]; false: they have others, or
 * several currencies or units that would be mixed. */
bool suggest_strip(unsigned styles, struct text *out);

/* Adds "currency signs and thousands separators". */
void suggest_add_styles(unsigned styles, struct text *out);

#endif
