/* axis: a scale of a plot: linear, logarithmic or of words, with ticks at round numbers. */
#ifndef REPORT_AXIS_H
#define REPORT_AXIS_H

#include <stdbool.h>
#include <stddef.h>

struct axis {
    double low, high;         /* low < high */
    double step;              /* between ticks of a linear axis that was rounded; else 0 */
    bool is_log, is_percent;  /* is_percent: 0.5 is "50 %" */
    const char *label;        /* NULL: none */
    const char *const *words; /* (word_count): of the places 0, 1, ...; NULL: numbers */
    size_t word_count;
};

#define AXIS_MAX_TICKS 16

struct axis_tick {
    double value;
    char text[32];
};

/* Limits that hold all of low to high. A linear axis ends at round numbers if [is_rounded]. */
void axis_fit(struct axis *axis, double low, double high, bool is_rounded);
/* The same for places of words. */
void axis_fit_words(struct axis *axis, const char *const *words, size_t count);
/* Whether values of this range can be distinguished on a logarithmic axis only. */
bool axis_wants_log(double smallest_positive, double lowest, double highest);

/* 0 at low to 1 at high; what is outside is at the edge. */
double axis_place(const struct axis *axis, double value);
/* About [wanted] ticks; returns how many there are. Not for words. */
size_t axis_ticks(const struct axis *axis, size_t wanted, struct axis_tick out[AXIS_MAX_TICKS]);

/* A number for people: four digits, "12k", "1.5M", "2e-5"; "-" for NAN. */
void axis_number(double value, char out[24]);

#endif
