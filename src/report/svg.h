/* svg: plots as inline SVG: lines, points, bars, parallel axes, heat maps. Colours are classes of the page's style
 * (page.css), so that one drawing serves light, dark and paper. Without a script they are complete; with it, the
 * nearest values appear under the pointer. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

#include "base/text.h"
#include "report/axis.h"
#include "report/curve.h"

#define SVG_COLORS 8 /* classes c0 ... c7 */
#define SVG_DASHES 3 /* the next eight series are dashed, then dotted */

struct svg_plot {
    struct text *out;
    struct axis x, y;
    bool is_fine;                    /* coordinates of curves are fine enough to draw them again on other axes */
    double width, height;            /* of the drawing */
    double left, right, top, bottom; /* of the area of the values */
};

/* A figure with its title, axes, grid and labels; x and y are fitted. [name]: for people who cannot see it. */
void svg_begin(struct svg_plot *plot, const char *title, const char *name);
/* Ends the drawing; what follows until svg_end_figure stands below it. */
void svg_end(struct svg_plot *plot);
void svg_end_figure(struct text *out);

double svg_x(const struct svg_plot *plot, double value);
double svg_y(const struct svg_plot *plot, double value);

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

#endif
