/* Values of a table's columns. */

/* The index of text in items (count); -1: it is none of them. */
INLINE int find_text(const char *text, const char *const *items, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (strcmp(items[i], text) == 0) return i;
    return -1;
}

/* The index of value in items (count); -1: it is none of them. */
INLINE int find_number(double value, const double *items, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (!(items[i] < value) && !(items[i] > value)) return i;
    return -1;
}

/* Dates of ISO 8601: 2024-05-31, 2024/05/31 or 20240531, then optionally T or a blank and 14:30, 14:30:05 or
 * 14:30:05.25, then optionally Z, +02:00, +0200 or +02, which is not applied. */
static int read_digits(const char **at, int count, int *out) {
    *out = 0;
    for (; count > 0 && **at >= '0' && **at <= '9'; count--) *out = *out * 10 + (*(*at)++ - '0');
    return count == 0;
}

static int skip_character(const char **at, char c) {
    if (**at != c) return 0;
    ++*at;
    return 1;
}

static int64_t days_of(int year, int month, int day) {
    int y = month <= 2 ? year - 1 : year, era = (y >= 0 ? y : y - 399) / 400;
    int of_era = y - era * 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int read_time(const char **at, int *hour, int *minute, double *second) {
    int value;
    double unit = 0.1;
    if (!read_digits(at, 2, hour) || !skip_character(at, ':') || !read_digits(at, 2, minute)) return 0;
    if (!skip_character(at, ':')) return 1;
    if (!read_digits(at, 2, &value)) return 0;
    *second = value;
    if (!skip_character(at, '.')) return 1;
    if (**at < '0' || **at > '9') return 0;
    for (; **at >= '0' && **at <= '9'; unit /= 10) *second += unit * (*(*at)++ - '0');
    return 1;
}

static int skip_offset(const char **at) {
    int hours, minutes, has_colon;
    if (skip_character(at, 'Z')) return 1;
    if (!skip_character(at, '+') && !skip_character(at, '-')) return 0;
    if (!read_digits(at, 2, &hours) || hours > 23) return 0;
    has_colon = skip_character(at, ':');
    if (!has_colon && (**at < '0' || **at > '9')) return 1;
    return read_digits(at, 2, &minutes) && minutes < 60;
}

/* 1, and the seconds since 1970-01-01; 0: it is no date. */
static int read_date(const char *at, double *seconds) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, hour = 0, minute = 0, is_leap;
    double second = 0;
    char separator;
    if (!read_digits(&at, 4, &year)) return 0;
    separator = *at;
    if (separator != '-' && separator != '/') separator = 0;
    if (separator) at++;
    if (!read_digits(&at, 2, &month) || (separator && !skip_character(&at, separator)) || !read_digits(&at, 2, &day))
        return 0;
    if (skip_character(&at, 'T') || skip_character(&at, ' ')) {
        if (!read_time(&at, &hour, &minute, &second) || (*at && !skip_offset(&at))) return 0;
    } else {
        skip_character(&at, 'Z');
    }
    if (*at || year < 1 || month < 1 || month > 12 || day < 1) return 0;
    is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > lengths[month - 1] + (month == 2 && is_leap) || hour > 23 || minute > 59 || second >= 60) return 0;
    *seconds = (double)days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    return 1;
}

/* [part]: 0 year, 1 month, 2 day, 3 weekday, 4 day of the year, 5 quarter, 6 hour, 7 minute, 8 second, 9 days. */
static double date_part(double seconds, int part) {
    double days = floor(seconds / 86400), rest = seconds - days * 86400;
    int64_t count = (int64_t)days, shifted = count + 719468, era, of_era, y, of_year, m;
    int year, month, day;
    era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    of_era = shifted - era * 146097;
    y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    of_year = of_era - (365 * y + y / 4 - y / 100);
    m = (5 * of_year + 2) / 153;
    day = (int)(of_year - (153 * m + 2) / 5 + 1);
    month = (int)(m < 10 ? m + 3 : m - 9);
    year = (int)(y + era * 400 + (month <= 2));
    switch (part) {
    case 0:
        return year;
    case 1:
        return month;
    case 2:
        return day;
    case 3:
        return (double)(((count + 3) % 7 + 7) % 7);
    case 4:
        return (double)(count - days_of(year, 1, 1) + 1);
    case 5:
        return (month + 2) / 3;
    case 6:
        return floor(rest / 3600);
    case 7:
        return floor(fmod(rest, 3600) / 60);
    case 8:
        return floor(fmod(rest, 60));
    default:
        return seconds / 86400;
    }
}
