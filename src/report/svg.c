/* What a page shows besides tables: its text, escaped, and its plots, with their axes. Coordinates have one decimal, a
 * tenth of a pixel, or three in plots whose axes the script of the page can change; a plot is drawn in a box of fixed
 * size, which the page scales. */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- text in a page ---- */

/* One character at a time: what is not known to be harmless is replaced. */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static bool is_harmless(uint32_t code) {
    bool is_no_character = (code & 0xfffe) == 0xfffe || (code >= 0xfdd0 && code <= 0xfdef);
    return (code == '\n' || code == '\t' || !utf8_is_control(code)) && !is_no_character;
}

static const char *escape_of(uint32_t code) {
    switch (code) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void add_characters(struct text *out, const char *string, size_t size) {
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code = 0xffff;
        length = utf8_decode(string + at, size - at, &code);
        const char *escape = length && is_harmless(code) ? escape_of(code) : REPLACEMENT;
        if (escape)
            text_add(out, escape);
        else
            text_add_bytes(out, string + at, length);
        if (length == 0) length = 1;
    }
}

void html_add(struct text *out, const char *string) { add_characters(out, string, strlen(string)); }

void html_add_short(struct text *out, const char *string, size_t max) {
    size_t size = strlen(string);
    if (size <= max) {
        add_characters(out, string, size);
        return;
    }
    while (max > 0 && (string[max] & 0xc0) == 0x80) max--; /* not within a character */
    add_characters(out, string, max);
    text_add(out, "...");
}

/* ---- axes: limits and ticks ---- */

/* Steps of linear ticks are 1, 2 or 5 times a power of ten; logarithmic ticks are powers of ten, with 2 and 5 between
 * them where there are few. */

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

/* ---- plots: coordinates ---- */

#define WIDTH 400.0
#define HEIGHT 250.0
#define TEXT_WIDTH 6.6 /* of a character of a label */
#define MAX_LABEL 30   /* bytes of a word at an axis */

static void add_decimals(struct text *out, double value, int decimals) {
    long scale = decimals == 1 ? 10 : 1000, parts = lround(value * (double)scale);
    long whole = labs(parts) / scale, rest = labs(parts) % scale;
    char text[48];
    int length = snprintf(text, sizeof text, "%s%ld", parts < 0 ? "-" : "", whole);
    if (rest) length += snprintf(text + length, sizeof text - (size_t)length, ".%0*ld", decimals, rest);
    while (rest && text[length - 1] == '0') text[--length] = 0;
    text_add(out, text);
}

static void add_coordinate(struct text *out, double value) { add_decimals(out, value, 1); }

static void add_pair(struct text *out, char command, double x, double y) {
    text_add_bytes(out, &command, 1);
    add_coordinate(out, x);
    text_add(out, " ");
    add_coordinate(out, y);
}

static double svg_x(const struct svg_plot *p, double value) {
    return p->left + axis_place(&p->x, value) * (p->right - p->left);
}

static double svg_y(const struct svg_plot *p, double value) {
    return p->bottom - axis_place(&p->y, value) * (p->bottom - p->top);
}

/* Adds the point of values [x], [y] of a plot to [out]. */
static void add_vertex_at(const struct svg_plot *p, struct text *out, char command, double x, double y) {
    int decimals = p->is_fine ? 3 : 1;
    text_add_bytes(out, &command, 1);
    add_decimals(out, svg_x(p, x), decimals);
    text_add(out, " ");
    add_decimals(out, svg_y(p, y), decimals);
}

/* ---- plots: axes ---- */

static void add_text(struct text *out, double x, double y, const char *class, const char *string) {
    text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    html_add_short(out, string, MAX_LABEL);
    text_add(out, "</text>");
}

static size_t word_step(size_t count, size_t max) { return (count + max - 1) / (max ? max : 1); }

static void add_x_axis(struct svg_plot *p) {
    struct axis_tick ticks[AXIS_MAX_TICKS];
    size_t count = p->x.words ? 0 : axis_ticks(&p->x, 6, ticks);
    for (size_t i = 0; i < count; i++) {
        double x = svg_x(p, ticks[i].value);
        text_printf(p->out, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", x, p->top, p->bottom);
        add_text(p->out, x, p->bottom + 15, "tick mid", ticks[i].text);
    }
    for (size_t i = 0; i < p->x.word_count; i += word_step(p->x.word_count, 8))
        add_text(p->out, svg_x(p, (double)i), p->bottom + 15, "tick mid", p->x.words[i]);
    if (p->x.label) add_text(p->out, (p->left + p->right) / 2, p->bottom + 31, "label mid", p->x.label);
}

static void add_y_axis(struct svg_plot *p, const struct axis_tick *ticks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double y = svg_y(p, ticks[i].value);
        text_printf(p->out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", p->left, y, p->right);
        add_text(p->out, p->left - 6, y + 4, "tick end", ticks[i].text);
    }
}

static void add_domain(struct text *out, char name, const struct axis *a) {
    text_printf(out, " data-%c=\"%.9g,%.9g,%d\"", name, a->low, a->high, a->is_log);
}

void svg_begin(struct svg_plot *p, const char *title) {
    struct axis_tick ticks[AXIS_MAX_TICKS];
    size_t count = axis_ticks(&p->y, 5, ticks), longest = 1;
    for (size_t i = 0; i < count; i++)
        if (strlen(ticks[i].text) > longest) longest = strlen(ticks[i].text);
    p->width = WIDTH;
    p->height = HEIGHT;
    p->left = 14 + TEXT_WIDTH * (double)longest;
    p->right = WIDTH - 14;
    p->top = 10;
    p->bottom = HEIGHT - (p->x.label ? 38 : 22);
    text_add(p->out, "<figure><figcaption>");
    html_add(p->out, title);
    text_printf(p->out, "</figcaption><svg class=\"plot\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"",
                p->width, p->height);
    html_add(p->out, title);
    text_printf(p->out, "\" data-box=\"%.1f,%.1f,%.1f,%.1f\"", p->left, p->top, p->right, p->bottom);
    if (p->x.label) {
        text_add(p->out, " data-unit=\"");
        html_add(p->out, p->x.label);
        text_add(p->out, "\"");
    }
    add_domain(p->out, 'x', &p->x);
    add_domain(p->out, 'y', &p->y);
    if (p->y.is_percent) text_add(p->out, " data-percent=\"1\"");
    text_add(p->out, "><g class=\"frame\">");
    add_y_axis(p, ticks, count);
    add_x_axis(p);
    text_printf(p->out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/></g>", p->left, p->top, p->bottom, p->right);
}

void svg_end(struct svg_plot *p) { text_add(p->out, "</svg>\n"); }

void svg_end_figure(struct text *out) { text_add(out, "</figure>\n"); }

/* ---- curves and points ---- */

struct drawing {
    struct svg_plot *plot;
    bool has_marks;
    struct text marks;
};

static void add_vertex(void *user, double x, double y, bool is_joined) {
    struct drawing *d = user;
    add_vertex_at(d->plot, d->plot->out, is_joined ? 'L' : 'M', x, y);
    if (!d->has_marks) return;
    add_vertex_at(d->plot, &d->marks, 'M', x, y);
    text_add(&d->marks, "h0");
}

#define MAX_MARKED 24 /* points of a curve that has marks */

#define MAX_LINE 300   /* buckets of a curve that is drawn as one line; longer ones: the mean within a band */
#define MAX_GROUPS 240 /* of a band */

/* The area between the smallest and the largest values of groups [from] to [to]. */
static void add_band(struct svg_plot *p, const struct curve_group *groups, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) add_vertex_at(p, p->out, i == from ? 'M' : 'L', groups[i].x, groups[i].high);
    for (size_t i = to; i-- > from;) add_vertex_at(p, p->out, 'L', groups[i].x, groups[i].low);
    text_add(p->out, "Z");
}

/* A path up to its points, with its name and the first and the last x, which a line of means does not reach. */
static void begin_line(struct svg_plot *p, const struct curve *curve, size_t index, const char *name) {
    text_printf(p->out, "<path class=\"curve c%zu d%zu\" data-ends=\"%.9g,%.9g\" data-name=\"", index % SVG_COLORS,
                index / SVG_COLORS % SVG_DASHES, curve->first.x, curve->last.x);
    html_add(p->out, name);
    text_add(p->out, "\" d=\"");
}

static void add_long_curve(struct svg_plot *p, const struct curve *curve, size_t index, const char *name) {
    struct curve_group groups[MAX_GROUPS];
    size_t count = curve_groups(curve, MAX_GROUPS, groups);
    text_printf(p->out, "<path class=\"band f%zu\" d=\"", index % SVG_COLORS);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && groups[end].is_joined; end++) {
        }
        add_band(p, groups, i, end);
    }
    text_add(p->out, "\"/>");
    begin_line(p, curve, index, name);
    for (size_t i = 0; i < count; i++)
        add_vertex_at(p, p->out, groups[i].is_joined ? 'L' : 'M', groups[i].x, groups[i].mean);
    text_add(p->out, "\"/>");
}

bool svg_is_band(const struct curve *curve) { return curve->count > MAX_LINE; }

static void add_short_curve(struct svg_plot *p, const struct curve *curve, size_t index, const char *name) {
    struct drawing d = {.plot = p, .has_marks = curve->values <= MAX_MARKED};
    begin_line(p, curve, index, name);
    curve_visit(curve, add_vertex, &d);
    text_add(p->out, "\"/>");
    if (d.has_marks)
        text_printf(p->out, "<path class=\"marks c%zu\" d=\"%s\"/>", index % SVG_COLORS, text_string(&d.marks));
    text_free(&d.marks);
}

void svg_series_begin(struct svg_plot *p) { text_add(p->out, "<g class=\"series\">"); }

void svg_series_end(struct svg_plot *p) { text_add(p->out, "</g>"); }

void svg_curve(struct svg_plot *p, const struct curve *curve, size_t index, const char *name) {
    if (svg_is_band(curve))
        add_long_curve(p, curve, index, name);
    else if (curve->values)
        add_short_curve(p, curve, index, name);
}

void svg_point(struct svg_plot *p, double x, double y, double radius, const char *class, const char *text) {
    int decimals = p->is_fine ? 3 : 1;
    text_add(p->out, "<circle cx=\"");
    add_decimals(p->out, svg_x(p, x), decimals);
    text_add(p->out, "\" cy=\"");
    add_decimals(p->out, svg_y(p, y), decimals);
    text_printf(p->out, "\" r=\"%g\" class=\"%s\"", radius, class);
    if (!text) {
        text_add(p->out, "/>");
        return;
    }
    text_add(p->out, "><title>");
    html_add(p->out, text);
    text_add(p->out, "</title></circle>");
}

void svg_error(struct svg_plot *p, double x, double low, double high) {
    double at = svg_x(p, x);
    text_printf(p->out, "<path class=\"error\" d=\"M%.1f %.1fV%.1f\"/>", at, svg_y(p, low), svg_y(p, high));
}

void svg_legend_begin(struct text *out) { text_add(out, "<ul class=\"legend\">"); }

void svg_legend_add(struct text *out, const char *name, size_t index) {
    text_add(out, "<li data-name=\"");
    html_add(out, name);
    text_printf(
        out, "\"><svg viewBox=\"0 0 22 8\" aria-hidden=\"true\"><path class=\"curve c%zu d%zu\" d=\"M1 4H21\"/></svg>",
        index % SVG_COLORS, index / SVG_COLORS % SVG_DASHES);
    html_add_short(out, name, 80);
    text_add(out, "</li>");
}

void svg_legend_end(struct text *out) { text_add(out, "</ul>"); }

/* ---- bars ---- */

#define BAR_HEIGHT 24.0

void svg_bars(struct text *out, const char *title, const char *const *names, const double *values,
              const char *const *texts, size_t count) {
    double left = 160, right = WIDTH - 62, height = BAR_HEIGHT * (double)count + 8;
    text_add(out, "<figure><figcaption>");
    html_add(out, title);
    text_printf(out, "</figcaption><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, height);
    html_add(out, title);
    text_add(out, "\">");
    for (size_t i = 0; i < count; i++) {
        double y = 4 + BAR_HEIGHT * (double)i, share = values[i] < 0 || isnan(values[i]) ? 0 : fmin(values[i], 1);
        add_text(out, left - 8, y + 16, "tick end", names[i]);
        text_printf(out, "<rect class=\"track\" x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"14\" rx=\"2\"/>", left,
                    y + 4, right - left);
        text_printf(out, "<rect class=\"bar\" x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"14\" rx=\"2\"/>", left,
                    y + 4, share * (right - left));
        add_text(out, right + 8, y + 16, "tick", texts[i]);
    }
    text_add(out, "</svg>\n");
}

/* ---- confusion matrix ---- */

#define MATRIX_TEXT 12 /* classes up to which counts stand in the cells */

#define MATRIX_LABEL 16 /* bytes of a class label; a longer one is cut */
#define LETTER 6.3      /* width of a letter of a tick */

struct matrix {
    struct text *out;
    const double *values; /* (size, size) */
    size_t size;
    const char *const *labels; /* (size) NULL: numbers */
    double left, top, cell;    /* place of the first cell, size of a cell */
    bool is_upright;           /* the labels of the columns are rotated */
};

/* Adds the name of class [index], cut to [max] bytes. */
static void add_class(const struct matrix *m, size_t index, size_t max) {
    if (!m->labels)
        text_printf(m->out, "%zu", index);
    else
        html_add_short(m->out, m->labels[index], max);
}

static void add_cell(const struct matrix *m, size_t row, size_t column, double sum) {
    bool has_text = m->size <= MATRIX_TEXT;
    double value = m->values[row * m->size + column], share = sum > 0 ? value / sum : 0;
    double x = m->left + m->cell * (double)column, y = m->top + m->cell * (double)row;
    char number[24];
    if (value == 0 && !has_text) return; /* the background is the colour of zero */
    text_printf(m->out,
                "<rect class=\"cell%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\" style=\"--v:%.3g\">",
                row == column ? " hit" : "", x, y, m->cell, m->cell, share);
    text_add(m->out, "<title>target ");
    add_class(m, row, MAX_LABEL);
    text_add(m->out, ", predicted ");
    add_class(m, column, MAX_LABEL);
    text_printf(m->out, ": %.0f (%.1f %%)</title></rect>", value, share * 100);
    if (!has_text || value == 0) return;
    axis_number(value, number);
    text_printf(m->out, "<text class=\"mid count%s\" x=\"%.1f\" y=\"%.1f\">%s</text>", share > 0.5 ? " on" : "",
                x + m->cell / 2, y + m->cell / 2 + 4, number);
}

static void add_row(const struct matrix *m, size_t row) {
    double sum = 0;
    for (size_t column = 0; column < m->size; column++) sum += m->values[row * m->size + column];
    for (size_t column = 0; column < m->size; column++) add_cell(m, row, column, sum);
}

/* The names of class [index] at its row and its column. */
static void add_names(const struct matrix *m, size_t index) {
    double middle = m->cell * ((double)index + 0.5);
    text_printf(m->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick end\">", m->left - 6, m->top + middle + 4);
    add_class(m, index, MATRIX_LABEL);
    if (m->is_upright)
        text_printf(m->out, "</text><text class=\"tick\" transform=\"translate(%.1f %.1f) rotate(-90)\">",
                    m->left + middle + 4, m->top - 5);
    else
        text_printf(m->out, "</text><text x=\"%.1f\" y=\"%.1f\" class=\"tick mid\">", m->left + middle, m->top - 5);
    add_class(m, index, MATRIX_LABEL);
    text_add(m->out, "</text>");
}

/* Width of the longest label. */
static double label_width(const char *const *labels, size_t size) {
    size_t longest = 0;
    for (size_t i = 0; labels && i < size; i++)
        if (strlen(labels[i]) > longest) longest = strlen(labels[i]);
    return (double)(longest < MATRIX_LABEL ? longest : MATRIX_LABEL) * LETTER;
}

void svg_matrix(struct text *out, const char *title, const double *values, size_t size, const char *const *labels) {
    double side = 250, width = label_width(labels, size);
    size_t step = word_step(size, 16);
    struct matrix m = {.out = out, .values = values, .size = size, .labels = labels, .cell = side / (double)size};
    m.is_upright = width > m.cell * (double)step - 4;
    m.left = fmax(56, width + 30);
    m.top = m.is_upright ? fmax(30, width + 22) : 30;
    text_add(out, "<figure><figcaption>");
    html_add(out, title);
    text_printf(out, "</figcaption><svg class=\"matrix\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"",
                m.left + side + 20, m.top + side + 12);
    html_add(out, title);
    text_printf(out, "\"><rect class=\"track\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\"/>", m.left, m.top,
                side, side);
    for (size_t row = 0; row < size; row++) {
        add_row(&m, row);
        if (row % step == 0) add_names(&m, row);
    }
    add_text(out, m.left + side / 2, 11, "label mid", "predicted class");
    text_printf(out,
                "<text class=\"label mid\" transform=\"translate(14 %.0f) rotate(-90)\">target class</text></svg>\n",
                m.top + side / 2);
}

/* ---- parallel coordinates ---- */

#define MIN_AXIS_GAP 150.0
#define AXIS_HEIGHT 280.0
#define PARALLEL_WIDTH 1160.0
#define MANY_LINES 120 /* thinner from here on */

static double y_on(const struct axis *axis, double value, double top) {
    return top + (1 - axis_place(axis, value)) * AXIS_HEIGHT;
}

static void add_parallel_axis(struct text *out, const struct axis *a, double x, double top, bool is_lower) {
    struct axis_tick ticks[AXIS_MAX_TICKS];
    size_t count = a->words ? 0 : axis_ticks(a, 5, ticks);
    text_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fv%.1f\"/>", x, top, AXIS_HEIGHT);
    for (size_t i = 0; i < count; i++)
        add_text(out, x + 5, y_on(a, ticks[i].value, top) + 4, "tick halo", ticks[i].text);
    for (size_t i = 0; i < a->word_count; i += word_step(a->word_count, 14))
        add_text(out, x + 5, y_on(a, (double)i, top) + 4, "tick halo", a->words[i]);
    add_text(out, x, is_lower ? top - 26 : top - 10, "label mid", a->label);
}

void svg_parallel(struct text *out, const char *title, const struct axis *axes, size_t count,
                  const struct svg_line *lines, size_t line_count) {
    double left = 70, top = 44, gap = fmax(MIN_AXIS_GAP, (PARALLEL_WIDTH - 2 * left) / (double)(count - 1));
    double width = left * 2 + gap * (double)(count - 1);
    text_add(out, "<figure class=\"wide\"><figcaption>");
    html_add(out, title);
    text_printf(out,
                "</figcaption><div class=\"scroll\"><svg class=\"parallel\" viewBox=\"0 0 %.0f %.0f\" "
                "style=\"min-width:%.0fpx\" role=\"img\" aria-label=\"",
                width, top + AXIS_HEIGHT + 14, 0.75 * width);
    html_add(out, title);
    text_add(out, "\">");
    for (size_t i = 0; i < line_count; i++) {
        bool is_begun = false;
        text_printf(out, "<path class=\"trial q%d%s\" d=\"", lines[i].shade, line_count > MANY_LINES ? " many" : "");
        for (size_t k = 0; k < count; k++) {
            if (isnan(lines[i].values[k])) {
                is_begun = false;
                continue;
            }
            add_pair(out, is_begun ? 'L' : 'M', left + gap * (double)k, y_on(&axes[k], lines[i].values[k], top));
            is_begun = true;
        }
        text_add(out, "\">");
        if (lines[i].text) {
            text_add(out, "<title>");
            html_add(out, lines[i].text);
            text_add(out, "</title>");
        }
        text_add(out, "</path>");
    }
    for (size_t i = 0; i < count; i++) add_parallel_axis(out, &axes[i], left + gap * (double)i, top, i % 2 == 1);
    text_add(out, "</svg></div>\n");
}
