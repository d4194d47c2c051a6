/* date: dates and times of day in the Gregorian calendar, as seconds since 1970-01-01 00:00 on the clock that
 * shows them: an offset from UTC is parsed, but not applied. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"

/* pandas' names and values (Series.dt); epoch: days since 1970-01-01 with a fraction. */
enum date_part {
    DATE_YEAR,
    DATE_MONTH, /* 1 to 12 */
    DATE_DAY,
    DATE_WEEKDAY,   /* Monday is 0 */
    DATE_DAYOFYEAR, /* from 1 */
    DATE_QUARTER,   /* 1 to 4 */
    DATE_HOUR,
    DATE_MINUTE,
    DATE_SECOND, /* whole */
    DATE_EPOCH,
    DATE_PARTS
};
extern const char *const date_parts[]; /* names, NULL-terminated */
#define DATE_PARTS_TEXT "year, month, day, weekday, dayofyear, quarter, hour, minute, second, epoch"

bool date_part_find(const char *name, enum date_part *out);

/* Parses a complete text. [format]: NULL for ISO 8601 (2024-05-31, 2024/05/31 or 20240531, then optionally T or a blank
 * and 14:30, 14:30:05 or 14:30:05.25, then optionally Z, +02:00, +0200 or +02), or of %Y %y %m %b %B %d %H %I %p %M %S
 * %z %% as strptime's in English, where %b and %B take both Mar and March, and %q, the quarter. What the format does
 * not have is that of 1970-01-01 00:00. Years 1 to 9999. */
bool date_parse(const char *text, const char *format, double *seconds);

/* NULL, or what is wrong with a format: a clause. */
const char *date_check_format(const char *format);

/* The parts that say what texts of the format have; [has_time]: a time of day. The number of them. */
size_t date_default_parts(const char *format, bool has_time, enum date_part parts[DATE_PARTS]);

/* The formats, of those that people use besides ISO 8601, of which [text] is a date: their number. In [arena]. */
#define DATE_MAX_FORMATS 200
size_t date_find_formats(const char *text, struct arena *arena, const char *out[DATE_MAX_FORMATS]);

/* The value of [part]. */
double date_part_of(double seconds, enum date_part part);
