/* Steps of linear ticks are 1, 2 or 5 times a power of ten; logarithmic ticks are powers of ten, with 2 and 5 between
 * them where there are few. */
#include "report/axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double step_of(double range, size_t wanted) {
    double raw = range / (double)(wanted ? wanted : 1), power = pow(10, floor(log10(raw))), digit = raw / power;
    return power * (digit <= 1.0001 ? 1 : digit <= 2.0001 ? 2 : digit <= 5.0001 ? 5 : 10);
}

#define LARGEST 1e300 /* so that a range is finite */

void axis_fit(struct axis *a, double low, double high, bool is_rounded) {
    low = fmax(fmin(low, LARGEST), -LARGEST);
    high = fmax(fmin(high, LARGEST), -LARGEST);
    if (a->is_log) {
        low = fmax(low, 1e-300);
        high = fmax(high, low);
        if (high < low * 1.0001) low /= 2, high *= 2;
    } else if (high - low <= fabs(high) * 1e-9) {
        double around = fabs(low) * 0.1;
        low -= around;
        high += low == high ? 1 : around;
    }
    if (is_rounded && !a->is_log) {
        double step = step_of(high - low, 5);
        low = floor(low / step + 1e-9) * step;
        high = ceil(high / step - 1e-9) * step;
        a->step = step;
    } else if (is_rounded) {
        double margin = exp((log(high) - log(low)) * 0.04);
        low = fmax(low / margin, 1e-305);
        high = fmin(high * margin, 1e305);
    }
    a->low = low;
    a->high = high;
}

void axis_fit_words(struct axis *a, const char *const *words, size_t count) {
    a->words = words;
    a->word_count = count;
    a->low = -0.5;
    a->high = (double)(count ? count : 1) - 0.5;
}

bool axis_wants_log(double smallest_positive, double lowest, double highest) {
    return lowest >= 0 && smallest_positive > 0 && highest / smallest_positive > 100;
}

double axis_place(const struct axis *a, double value) {
    double place = a->is_log ? (value > 0 ? (log(value) - log(a->low)) / (log(a->high) - log(a->low)) : 0)
                             : (value / 2 - a->low / 2) / (a->high / 2 - a->low / 2);
    return place < 0 || isnan(place) ? 0 : place > 1 ? 1 : place;
}

/* Takes the zeros from "1e-05" and "1.50". */
static void tidy(char *text) {
    char *e = strchr(text, 'e');
    if (!e) return;
    char *digit = e + 1 + (e[1] == '-' || e[1] == '+');
    char *first = digit;
    while (*first == '0' && first[1]) first++;
    memmove(digit, first, strlen(first) + 1);
    if (e[1] == '+') memmove(e + 1, e + 2, strlen(e + 2) + 1);
}

static void write_number(double value, int digits, char out[24]) {
    static const char *const suffixes[] = {"", "k", "M", "G", "T"};
    double size = fabs(value);
    int power = 0;
    if (size >= 1e4 && size < 1e15)
        while (size >= 999.95 && power < 4) size /= 1000, value /= 1000, power++;
    snprintf(out, 24, "%.*g", digits, value == 0 ? 0 : value);
    tidy(out);
    if (power) snprintf(out + strlen(out), 24 - strlen(out), "%s", suffixes[power]);
}

void axis_number(double value, char out[24]) {
    if (isnan(value))
        snprintf(out, 24, "-");
    else
        write_number(value, 4, out);
}

static size_t add(const struct axis *a, struct axis_tick *out, size_t count, double value, int digits) {
    if (count == AXIS_MAX_TICKS) return count;
    char number[24];
    out[count].value = value;
    write_number(a->is_percent ? 100 * value : value, digits, number);
    snprintf(out[count].text, sizeof out[count].text, "%s%s", number, a->is_percent ? " %" : "");
    return count + 1;
}

static size_t linear_ticks(const struct axis *a, size_t wanted, struct axis_tick *out) {
    double step = a->step > 0 ? a->step : step_of(a->high - a->low, wanted), first = ceil(a->low / step - 1e-6);
    size_t count = 0;
    double largest = fmax(fabs(a->low), fabs(a->high));
    int digits = (int)fmin(15, fmax(4, ceil(log10(largest / step)) + 1));
    for (double i = first; i * step <= a->high + step * 1e-6 && count < AXIS_MAX_TICKS; i++)
        count = add(a, out, count, fabs(i) < 0.5 ? 0 : i * step, digits);
    return count;
}

static size_t log_ticks(const struct axis *a, size_t wanted, struct axis_tick *out) {
    double decades = log10(a->high) - log10(a->low);
    int every = (int)ceil(decades / (double)(wanted ? wanted : 1));
    size_t count = 0;
    if (decades < 0.7) { /* too short for round powers: round numbers */
        const struct axis linear = {.low = a->low, .high = a->high, .is_percent = a->is_percent};
        return linear_ticks(&linear, wanted, out);
    }
    if (every < 1) every = 1;
    for (int power = (int)floor(log10(a->low)); power <= (int)ceil(log10(a->high)); power++)
        for (int digit = 1; digit < 10; digit++) {
            double value = digit * pow(10, power);
            bool has_text = digit == 1 ? power % every == 0 : decades < 2.5 && (digit == 2 || digit == 5);
            if (value < a->low * 0.9999 || value > a->high * 1.0001 || !has_text) continue;
            count = add(a, out, count, value, 4);
        }
    return count;
}

size_t axis_ticks(const struct axis *a, size_t wanted, struct axis_tick out[AXIS_MAX_TICKS]) {
    return a->is_log ? log_ticks(a, wanted, out) : linear_ticks(a, wanted, out);
}
