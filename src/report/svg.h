/* svg: the text of a page, and plots as inline SVG: lines, points, bars, parallel axes, heat maps. Colours are classes
 * of the page's style (page.css), so that one drawing serves light, dark and paper. Without a script they are complete;
 * with it, the nearest values appear under the pointer. */
#pragma once

#include "base/text.h"
#include "report/curve.h"

/* ---- text in a page ---- */

/* Adds [string] so that it is text, also within a quoted attribute: < > & " ' are escaped, invalid UTF-8, control
 * characters and those that change the writing direction become U+FFFD. */
void html_add(struct text *out, const char *string);
/* The same, cut to [max] bytes with "..." at its end. */
void html_add_short(struct text *out, const char *string, size_t max);

/* ---- axes ---- */

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

/* ---- plots ---- */

#define SVG_COLORS 8 /* classes c0 ... c7 */
#define SVG_DASHES 3 /* the next eight series are dashed, then dotted */

struct svg_plot {
    struct text *out;
    struct axis x, y;
    bool is_fine;                    /* coordinates of curves are fine enough to draw them again on other axes */
    double width, height;            /* of the drawing */
    double left, right, top, bottom; /* of the area of the values */
};

/* A figure with its title, axes, grid and labels; x and y are fitted. */
void svg_begin(struct svg_plot *plot, const char *title);
/* Ends the drawing; what follows until svg_end_figure stands below it. */
void svg_end(struct svg_plot *plot);
void svg_end_figure(struct text *out);

/* What is between both belongs to one series: the script hides it, and draws it again on other axes. */
void svg_series_begin(struct svg_plot *plot);
void svg_series_end(struct svg_plot *plot);
/* A curve in the colour and dashes of series [index]; [name] for the pointer. Short ones have a mark at each point,
 * long ones are a line of means within a band from the smallest to the largest values. */
void svg_curve(struct svg_plot *plot, const struct curve *curve, size_t index, const char *name);
/* Whether svg_curve draws it so. */
bool svg_is_band(const struct curve *curve);
/* A point of class [class] with a text for the pointer (NULL: none). */
void svg_point(struct svg_plot *plot, double x, double y, double radius, const char *class, const char *text);
/* A vertical bar from [low] to [high]: a standard error. */
void svg_error(struct svg_plot *plot, double x, double low, double high);

/* A legend (an element <ul>) of series with these names and indexes. */
void svg_legend_begin(struct text *out);
void svg_legend_add(struct text *out, const char *name, size_t index);
void svg_legend_end(struct text *out);

/* Horizontal bars: names (count), values from 0 to 1 with their texts. */
void svg_bars(struct text *out, const char *title, const char *const *names, const double *values,
              const char *const *texts, size_t count);

/* values (size, size): rows are targets, columns predictions; each row shaded by its own sum. labels (size): names of
 * the classes; NULL: numbers. */
void svg_matrix(struct text *out, const char *title, const double *values, size_t size, const char *const *labels);

struct svg_line {
    const double *values; /* (axes); NAN: none */
    int shade;            /* 0 (best) to SVG_SHADES - 1 */
    const char *text;     /* for the pointer; NULL: none */
};
#define SVG_SHADES 5 /* classes q0 ... q4 */

/* Parallel coordinates: axes (count), lines (line_count), the last one on top. */
void svg_parallel(struct text *out, const char *title, const struct axis *axes, size_t count,
                  const struct svg_line *lines, size_t line_count);
