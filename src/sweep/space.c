/* The parameters of a sweep: drawing, rounding, reading and writing their values, and the points of a grid. Values on
 * steps are computed from their number, so that the same number has the same bits everywhere. */
#include "sweep/space.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/portable_math.h"
#include "base/scoped.h"

#define MAX_EXACT 9007199254740992.0 /* 2^53 */

const char *const parameter_kinds[] = {"values", "uniform", "log_uniform", "int_uniform", "int_log_uniform", NULL};

double parameter_step(const struct parameter *p) {
    return p->step > 0 ? p->step : p->kind == PARAMETER_INT_UNIFORM ? 1 : 0;
}

/* The largest k for which min + k * step is at most max, also where the division's rounding hides it (0 to 1 by 0.1).
 */
static double last_step(const struct parameter *p) {
    return floor((p->max - p->min) / parameter_step(p) * (1 + 1e-12) + 1e-12);
}

static double at_step(const struct parameter *p, double k) { return fmin(p->min + k * parameter_step(p), p->max); }

double parameter_round(const struct parameter *p, double value) {
    value = fmin(fmax(value, p->min), p->max);
    if (parameter_step(p) > 0) return at_step(p, fmin(round((value - p->min) / parameter_step(p)), last_step(p)));
    return parameter_is_int(p) ? round(value) : value;
}

double parameter_draw(const struct parameter *p, struct rng *rng) {
    double u = rng_uniform53(rng); /* in [0, 1) */
    if (p->kind == PARAMETER_VALUES) return floor(u * (double)p->count);
    if (parameter_step(p) > 0) return at_step(p, floor(u * (last_step(p) + 1)));
    if (p->kind == PARAMETER_UNIFORM) return parameter_round(p, p->min + u * (p->max - p->min));
    double margin = parameter_is_int(p) ? 0.5 : 0, low = portable_log(p->min - margin);
    double high = portable_log(p->max + margin);
    return parameter_round(p, portable_exp(low + u * (high - low)));
}

void parameter_write(const struct parameter *p, double value, struct text *out) {
    if (p->kind == PARAMETER_VALUES)
        text_add(out, p->texts[(size_t)value]);
    else if (parameter_is_int(p))
        text_printf(out, "%.0f", value);
    else
        text_add_double(out, value);
}

/* The number of [length] bytes at [text]; NAN: they are none. */
static double number_at(const char *text, size_t length) {
    char token[64], *end;
    if (length == 0 || length >= sizeof token) return NAN;
    memcpy(token, text, length);
    token[length] = 0;
    double number = strtod(token, &end);
    return *end ? NAN : number;
}

bool parameter_is_same_text(const char *a, size_t a_length, const char *b, size_t b_length) {
    if (a_length == b_length && memcmp(a, b, a_length) == 0) return true;
    return number_at(a, a_length) == number_at(b, b_length);
}

/* The first value with the spelling of [text], else the first of the same number. */
static bool find_value(const struct parameter *p, const char *text, double *out) {
    size_t length = strlen(text), i = 0;
    while (i < p->count && strcmp(p->texts[i], text) != 0) i++;
    for (size_t k = 0; i == p->count && k < p->count; k++)
        if (parameter_is_same_text(p->texts[k], strlen(p->texts[k]), text, length)) i = k;
    *out = (double)i;
    return i < p->count;
}

bool parameter_read(const struct parameter *p, const char *text, double *out) {
    char *end;
    if (p->kind == PARAMETER_VALUES) return find_value(p, text, out);
    errno = 0;
    *out = strtod(text, &end);
    bool is_number = end != text && !*end && !errno && *out >= p->min && *out <= p->max;
    return is_number && (!parameter_is_int(p) || *out == round(*out));
}

/* ---- conditions and constraints ---- */

static double first_value(const struct parameter *p) { return p->kind == PARAMETER_VALUES ? 0 : p->min; }

static bool holds(const struct space *space, const struct condition *c, const struct point *point) {
    SCOPED_TEXT value = {0};
    bool is_one = false;
    if (!space_is_active(space, c->parameter, point)) return false;
    parameter_write(&space->items[c->parameter], point->values[c->parameter], &value);
    for (size_t i = 0; !is_one && i < c->count; i++)
        is_one = parameter_is_same_text(c->texts[i], strlen(c->texts[i]), text_string(&value), value.length);
    return is_one;
}

bool space_is_active(const struct space *space, size_t index, const struct point *point) {
    const struct parameter *p = &space->items[index];
    for (size_t i = 0; i < p->condition_count; i++)
        if (!holds(space, &p->conditions[i], point)) return false;
    return true;
}

void space_write(const struct space *space, size_t index, const struct point *point, struct text *out) {
    if (space_is_active(space, index, point)) parameter_write(&space->items[index], point->values[index], out);
}

bool space_read(const struct space *space, size_t index, const char *text, double *out) {
    const struct parameter *p = &space->items[index];
    *out = first_value(p);
    return (p->condition_count && !*text) || parameter_read(p, text, out);
}

void space_normalize(const struct space *space, struct point *point) {
    for (size_t i = 0; i < space->count; i++)
        if (!space_is_active(space, i, point)) point->values[i] = first_value(&space->items[i]);
}

void space_activate(const struct space *space, size_t index, struct point *point) {
    const struct parameter *p = &space->items[index];
    for (size_t i = 0; i < p->condition_count; i++) {
        const struct condition *c = &p->conditions[i];
        double value;
        space_activate(space, c->parameter, point);
        for (size_t k = 0; k < c->count; k++)
            if (parameter_read(&space->items[c->parameter], c->texts[k], &value)) {
                point->values[c->parameter] = value;
                break;
            }
    }
}

bool space_satisfies(const struct space *space, size_t index, const struct point *point) {
    const struct expression *e = space->constraints[index];
    double values[SPACE_MAX_PARAMETERS];
    for (size_t i = 0; i < space->count; i++) {
        const struct parameter *p = &space->items[i];
        if (!expression_uses(e, i)) continue;
        if (!space_is_active(space, i, point)) return true;
        values[i] = point->values[i];
        if (p->kind == PARAMETER_VALUES) {
            const char *text = p->texts[(size_t)values[i]];
            values[i] = number_at(text, strlen(text));
        }
    }
    return expression_evaluate(e, values) != 0;
}

bool space_is_allowed(const struct space *space, const struct point *point) {
    for (size_t i = 0; i < space->constraint_count; i++)
        if (!space_satisfies(space, i, point)) return false;
    return true;
}

void space_draw(const struct space *space, struct rng *rng, struct point *out) {
    for (int n = 0; n < SPACE_MAX_DRAWS; n++) {
        *out = (struct point){0};
        for (size_t i = 0; i < space->count; i++) out->values[i] = parameter_draw(&space->items[i], rng);
        space_normalize(space, out);
        if (space_is_allowed(space, out)) return;
    }
}

/* ---- grids ---- */

/* 0: it has no finite number of values. */
static double count_values(const struct parameter *p) {
    if (p->kind == PARAMETER_VALUES) return (double)p->count;
    return parameter_step(p) > 0 ? last_step(p) + 1 : 0;
}

uint64_t space_grid_size(const struct space *space, const struct parameter **endless) {
    double size = 1;
    *endless = NULL;
    for (size_t i = 0; i < space->count; i++) {
        double count = count_values(&space->items[i]);
        if (count == 0) {
            *endless = &space->items[i];
            return 0;
        }
        size *= count;
    }
    return size <= MAX_EXACT ? (uint64_t)size : 0;
}

static void combination(const struct space *space, uint64_t index, struct point *out) {
    *out = (struct point){0};
    for (size_t i = space->count; i-- > 0;) {
        const struct parameter *p = &space->items[i];
        uint64_t count = (uint64_t)count_values(p);
        double k = (double)(index % count);
        out->values[i] = p->kind == PARAMETER_VALUES ? k : at_step(p, k);
        index /= count;
    }
}

void space_list_grid(struct space *space, uint64_t size, struct arena *arena) {
    bool is_needed = space->constraint_count > 0;
    for (size_t i = 0; i < space->count; i++) is_needed = is_needed || space->items[i].condition_count;
    if (!is_needed) return;
    space->grid = arena_alloc(arena, (size + 1) * sizeof *space->grid);
    for (uint64_t index = 0; index < size; index++) {
        struct point point, normal;
        combination(space, index, &point);
        normal = point;
        space_normalize(space, &normal);
        bool is_normal = true;
        for (size_t i = 0; is_normal && i < space->count; i++) is_normal = normal.values[i] == point.values[i];
        if (is_normal && space_is_allowed(space, &point)) space->grid[space->grid_count++] = index;
    }
}

void space_grid_point(const struct space *space, uint64_t index, struct point *out) {
    combination(space, space->grid ? space->grid[index] : index, out);
}
