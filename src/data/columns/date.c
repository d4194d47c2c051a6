/* Days are counted with the algorithm of Howard Hinnant's days_from_civil: years begin in March, so that the leap day
 * is the last of a year. */
#include "data/columns/date.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DAY 86400.0

const char *const date_parts[] = {"year", "month",  "day",    "weekday", "dayofyear", "quarter",
                                  "hour", "minute", "second", "epoch",   NULL};

bool date_part_find(const char *name, enum date_part *out) {
    for (int i = 0; i < DATE_PARTS; i++)
        if (strcmp(date_parts[i], name) == 0) {
            *out = (enum date_part)i;
            return true;
        }
    return false;
}

struct fields {
    int year, month, day, hour, minute, second;
    double fraction;   /* of the second */
    bool is_afternoon; /* 12 hours are added */
};

static int64_t days_of(int year, int month, int day) {
    int y = month <= 2 ? year - 1 : year, era = (y >= 0 ? y : y - 399) / 400;
    int of_era = y - era * 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void civil_of(int64_t days, int *year, int *month, int *day) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097, of_era = days - era * 146097;
    int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * y + y / 4 - y / 100), m = (5 * of_year + 2) / 153;
    *day = (int)(of_year - (153 * m + 2) / 5 + 1);
    *month = (int)(m < 10 ? m + 3 : m - 9);
    *year = (int)(y + era * 400 + (*month <= 2));
}

static bool is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

static bool is_valid(const struct fields *f) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (f->year < 1 || f->year > 9999 || f->month < 1 || f->month > 12 || f->day < 1) return false;
    if (f->day > lengths[f->month - 1] + (f->month == 2 && is_leap(f->year))) return false;
    return f->hour >= 0 && f->hour < 24 && f->minute >= 0 && f->minute < 60 && f->second >= 0 && f->second < 60;
}

/* Reads [min] to [max] digits. */
static bool digits(const char **at, int min, int max, int *out) {
    int count = 0;
    *out = 0;
    for (; count < max && **at >= '0' && **at <= '9'; count++) *out = *out * 10 + (*(*at)++ - '0');
    return count >= min;
}

static bool skip(const char **at, char c) {
    if (**at != c) return false;
    ++*at;
    return true;
}

/* ":30", ":30:05", ":30:05.25" after the hour */
static bool read_time(const char **at, struct fields *f) {
    if (!digits(at, 2, 2, &f->hour) || !skip(at, ':') || !digits(at, 2, 2, &f->minute)) return false;
    if (!skip(at, ':')) return true;
    if (!digits(at, 2, 2, &f->second)) return false;
    if (!skip(at, '.')) return true;
    const char *first = *at;
    for (double unit = 0.1; **at >= '0' && **at <= '9'; unit /= 10) f->fraction += unit * (*(*at)++ - '0');
    return *at > first;
}

/* "Z", "+02:00", "+0200" or "+02": parsed, but not applied */
static bool skip_offset(const char **at) {
    int hours, minutes;
    if (skip(at, 'Z')) return true;
    if (!skip(at, '+') && !skip(at, '-')) return false;
    if (!digits(at, 2, 2, &hours) || hours > 23) return false;
    bool has_colon = skip(at, ':');
    if (!has_colon && (**at < '0' || **at > '9')) return true;
    return digits(at, 2, 2, &minutes) && minutes < 60;
}

static bool read_iso(const char *at, struct fields *f) {
    char separator;
    if (!digits(&at, 4, 4, &f->year)) return false;
    separator = *at;
    bool has_separator = separator == '-' || separator == '/';
    if (has_separator) at++;
    if (!digits(&at, 2, 2, &f->month) || (has_separator && !skip(&at, separator)) || !digits(&at, 2, 2, &f->day))
        return false;
    if (skip(&at, 'T') || skip(&at, ' ')) return read_time(&at, f) && (*at == 0 || (skip_offset(&at) && *at == 0));
    skip(&at, 'Z');
    return *at == 0;
}

/* "Mar" or "March", in any case. */
static bool read_month(const char **at, int *month) {
    static const char *const names[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
    for (*month = 1; *month <= 12; ++*month) {
        const char *name = names[*month - 1];
        size_t length = strlen(name);
        if (strncasecmp(*at, name, length) != 0) length = 3;
        if (strncasecmp(*at, name, length) != 0) continue;
        *at += length;
        return true;
    }
    return false;
}

/* "AM" or "PM" */
static bool read_half(const char **at, bool *is_afternoon) {
    *is_afternoon = strncasecmp(*at, "PM", 2) == 0;
    if (!*is_afternoon && strncasecmp(*at, "AM", 2) != 0) return false;
    *at += 2;
    return true;
}

static bool read_directive(char directive, const char **at, struct fields *f) {
    int value;
    switch (directive) {
    case 'Y':
        return digits(at, 4, 4, &f->year);
    case 'y':
        if (!digits(at, 2, 2, &value)) return false;
        f->year = value < 69 ? 2000 + value : 1900 + value; /* as POSIX */
        return true;
    case 'm':
        return digits(at, 1, 2, &f->month);
    case 'b':
    case 'B':
        return read_month(at, &f->month);
    case 'q':
        if (!digits(at, 1, 1, &value)) return false;
        f->month = value > 0 && value <= 4 ? 3 * value - 2 : 0;
        return true;
    case 'd':
        return digits(at, 1, 2, &f->day);
    case 'I':
        if (!digits(at, 1, 2, &value) || value < 1 || value > 12) return false;
        f->hour = value % 12;
        return true;
    case 'p':
        return read_half(at, &f->is_afternoon);
    case 'H':
        return digits(at, 1, 2, &f->hour);
    case 'M':
        return digits(at, 1, 2, &f->minute);
    case 'S':
        return digits(at, 1, 2, &f->second);
    case 'z':
        return skip_offset(at);
    default:
        return skip(at, directive);
    }
}

static bool read_format(const char *at, const char *format, struct fields *f) {
    *f = (struct fields){.year = 1970, .month = 1, .day = 1};
    for (; *format; format++) {
        bool is_directive = *format == '%';
        if (is_directive ? !read_directive(*++format, &at, f) : !skip(&at, *format)) return false;
    }
    f->hour += f->is_afternoon ? 12 : 0;
    return *at == 0;
}

#define DIRECTIVES "YymbBqdHIpMSz%"

/* Whether the format has one of [directives]. */
static bool has(const char *format, const char *directives) {
    for (; *format; format++)
        if (*format == '%' && *++format && strchr(directives, *format)) return true;
    return false;
}

const char *date_check_format(const char *format) {
    for (const char *at = format; *at; at++)
        if (*at == '%' && (!*++at || !strchr(DIRECTIVES, *at)))
            return "it may contain %Y %y %m %b %B %q %d %H %I %p %M %S %z only";
    bool has_year = has(format, "Yy"), has_month = has(format, "mbBq"), has_day = has(format, "d");
    if (has(format, "I") != has(format, "p")) return "%I and %p, hours from 1 to 12 with AM or PM, need each other";
    if (!has_year && !has_month && !has_day && has(format, "HI")) return NULL;
    if (has_year && (has_month || !has_day)) return NULL;
    return "it needs the year (%Y or %y), and with the day %d the month (%m or %b), or only a time of day (%H:%M)";
}

size_t date_default_parts(const char *format, bool has_time, enum date_part parts[DATE_PARTS]) {
    size_t count = 0;
    bool has_date = !format || has(format, "Yy"), has_day = !format || has(format, "d");
    if (has_date) parts[count++] = DATE_YEAR;
    if (format && has(format, "q"))
        parts[count++] = DATE_QUARTER;
    else if (!format || has(format, "mbB"))
        parts[count++] = DATE_MONTH;
    if (has_day) parts[count++] = DATE_DAY;
    if (has_day) parts[count++] = DATE_WEEKDAY;
    if (has_time || !has_date) parts[count++] = DATE_HOUR;
    if (!has_date) parts[count++] = DATE_MINUTE;
    return count;
}

/* ---- formats that people use ---- */

size_t date_find_formats(const char *text, struct arena *arena, const char *out[DATE_MAX_FORMATS]) {
    static const char *const days[] = {
        "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y",  "%m-%d-%Y", "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y",
        "%m/%d/%y", "%d/%m/%y", "%y/%m/%d", "%d-%m-%y",  "%m-%d-%y", "%y-%m-%d", "%d-%b-%Y", "%d %b %Y", "%d/%b/%Y",
        "%d%b%Y",   "%d-%b-%y", "%d %b %y", "%b %d, %Y", "%b %d %Y", "%Y-%b-%d", "%Y %b %d", NULL};
    static const char *const times[] = {"%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", NULL};
    static const char *const others[] = {"%Y-%m", "%Y/%m", "%m/%Y",  "%m-%Y", "%Y %b",  "%b %Y",  "%Y-%b",  "%b-%Y",
                                         "%b-%y", "%YM%m", "%Y Q%q", "%YQ%q", "%Y-Q%q", "Q%q %Y", "Q%q-%Y", NULL};
    double seconds;
    size_t count = 0;
    for (size_t i = 0; days[i]; i++) {
        if (date_parse(text, days[i], &seconds)) out[count++] = days[i];
        for (size_t k = 0; times[k]; k++) {
            char format[32];
            snprintf(format, sizeof format, "%s %s", days[i], times[k]);
            if (date_parse(text, format, &seconds)) out[count++] = arena_copy(arena, format);
        }
    }
    for (size_t i = 0; times[i]; i++)
        if (date_parse(text, times[i], &seconds)) out[count++] = times[i];
    for (size_t i = 0; others[i]; i++)
        if (date_parse(text, others[i], &seconds)) out[count++] = others[i];
    return count;
}

/* ---- values ---- */

/* A fraction that is nearly 1, such as that of 23:59:59.999999999, must not become the next second, which may be of
 * another day. */
static double add_fraction(double whole, double fraction) {
    return whole + fraction < whole + 1 ? whole + fraction : nextafter(whole + 1, whole);
}

bool date_parse(const char *text, const char *format, double *seconds) {
    struct fields f = {0};
    if (!(format ? read_format(text, format, &f) : read_iso(text, &f)) || !is_valid(&f)) return false;
    double midnight = (double)days_of(f.year, f.month, f.day) * DAY;
    *seconds = add_fraction(midnight + f.hour * 3600 + f.minute * 60 + f.second, f.fraction);
    return true;
}

double date_part_of(double seconds, enum date_part part) {
    int year, month, day;
    double days = floor(seconds / DAY), rest = seconds - days * DAY;
    int64_t count = (int64_t)days;
    civil_of(count, &year, &month, &day);
    switch (part) {
    case DATE_YEAR:
        return year;
    case DATE_MONTH:
        return month;
    case DATE_DAY:
        return day;
    case DATE_WEEKDAY:
        return (double)(((count + 3) % 7 + 7) % 7); /* 1970-01-01 was a Thursday */
    case DATE_DAYOFYEAR:
        return (double)(count - days_of(year, 1, 1) + 1);
    case DATE_QUARTER:
        return (month + 2) / 3; /* NOLINT(bugprone-integer-division): whole quarters */
    case DATE_HOUR:
        return floor(rest / 3600);
    case DATE_MINUTE:
        return floor(fmod(rest, 3600) / 60);
    case DATE_SECOND:
        return floor(fmod(rest, 60));
    default:
        return seconds / DAY;
    }
}
