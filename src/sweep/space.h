/* space: the parameters of a sweep, each a key of the trials' config, and the values that it may have. A point is one
 * value for each parameter. Names of distributions are those of Weights & Biases; a random point is a function of the
 * generator's state. */
#pragma once

#include "base/document/document.h"
#include "base/expression/expression.h"
#include "base/numbers/rng.h"
#include "base/text.h"

#define SPACE_MAX_PARAMETERS 64

enum parameter_kind {
    PARAMETER_VALUES,         /* one of a list, each as likely */
    PARAMETER_UNIFORM,        /* a real number in [min, max] */
    PARAMETER_LOG_UNIFORM,    /* exp of a uniform real number in [log min, log max] */
    PARAMETER_INT_UNIFORM,    /* a whole number in [min, max] */
    PARAMETER_INT_LOG_UNIFORM /* exp of a uniform number in [log(min - 0.5), log(max + 0.5)], rounded */
};
/* Names of the kinds in a sweep's file, in their order; NULL-terminated. */
extern const char *const parameter_kinds[];

/* Another parameter has one of these values. */
struct condition {
    size_t parameter;   /* its index, below that of the parameter with the condition */
    const char **texts; /* (count) as YAML in one line */
    size_t count;
};

struct parameter {
    const char *path;             /* of the key: "optimizer.lr"; with [keys] any name */
    const char **keys;            /* the keys that get its value, NULL-terminated; NULL: the path */
    struct condition *conditions; /* (condition_count) all of them hold, or it is inactive: its keys are not set */
    size_t condition_count;
    int kind;           /* enum parameter_kind */
    double min, max;    /* inclusive; min <= max; above 0 for the logarithmic kinds; whole for the int kinds */
    double step;        /* uniform and int_uniform: values are min + k * step, at most max; 0: any (int: 1) */
    const char **texts; /* PARAMETER_VALUES: (count) the values as YAML in one line */
    size_t count;
    struct place place; /* in the sweep's file */
};

struct space {
    struct parameter *items; /* (count) */
    size_t count;            /* at most SPACE_MAX_PARAMETERS */
    /* What every point satisfies (constraint_count): formulas of the parameters' values. One that uses an inactive
     * parameter says nothing. */
    const struct expression **constraints;
    size_t constraint_count;
    /* With conditions or constraints: the numbers (grid_count) of the grid's points among all combinations; NULL: every
     * combination is one (space_list_grid). */
    uint64_t *grid, grid_count;
};

/* PARAMETER_VALUES: an index into texts; int kinds: a whole number. An inactive parameter has its first value, so that
 * points which differ in nothing else are equal. */
struct point {
    double values[SPACE_MAX_PARAMETERS];
};

static inline bool parameter_is_int(const struct parameter *p) {
    return p->kind == PARAMETER_INT_UNIFORM || p->kind == PARAMETER_INT_LOG_UNIFORM;
}
static inline bool parameter_is_log(const struct parameter *p) {
    return p->kind == PARAMETER_LOG_UNIFORM || p->kind == PARAMETER_INT_LOG_UNIFORM;
}
/* The distance of its values, which are min + k * step; 0: they are not on such steps. */
double parameter_step(const struct parameter *parameter);

/* The value of the parameter that is nearest to [value]: within its limits, on its steps. Not for PARAMETER_VALUES. */
double parameter_round(const struct parameter *parameter, double value);
double parameter_draw(const struct parameter *parameter, struct rng *rng);

/* Adds the value as YAML in one line, exactly (text_add_double). */
void parameter_write(const struct parameter *parameter, double value, struct text *out);
/* Whether two texts are the same value: 1e-3 and 0.001 are. */
bool parameter_is_same_text(const char *a, size_t a_length, const char *b, size_t b_length);
/* The value that parameter_write wrote; false: [text] is none of this parameter. */
bool parameter_read(const struct parameter *parameter, const char *text, double *out);

/* Whether the conditions of parameter [index] hold. */
bool space_is_active(const struct space *space, size_t index, const struct point *point);
/* Adds the value of parameter [index] as parameter_write; nothing where it is inactive. */
void space_write(const struct space *space, size_t index, const struct point *point, struct text *out);
/* The value that space_write wrote. */
bool space_read(const struct space *space, size_t index, const char *text, double *out);
/* Gives inactive parameters their first value. */
void space_normalize(const struct space *space, struct point *point);
/* Gives other parameters values with which parameter [index] is active. */
void space_activate(const struct space *space, size_t index, struct point *point);
/* Whether constraint [index] holds. */
bool space_satisfies(const struct space *space, size_t index, const struct point *point);
bool space_is_allowed(const struct space *space, const struct point *point);

/* Every parameter drawn independently, again until the constraints hold; after SPACE_MAX_DRAWS whatever was drawn. */
#define SPACE_MAX_DRAWS 1000000
void space_draw(const struct space *space, struct rng *rng, struct point *out);

/* How many points a grid has: the product of the numbers of values (PARAMETER_VALUES, int_uniform, and uniform with a
 * step); 0: a parameter has no finite number of values, *endless, or there are more than 2^53, *endless NULL. */
uint64_t space_grid_size(const struct space *space, const struct parameter **endless);
/* Sets space->grid where it is needed, with memory of [arena]; [size]: space_grid_size. */
void space_list_grid(struct space *space, uint64_t size, struct arena *arena);
/* Point [index] of the grid; the last parameter changes first. */
void space_grid_point(const struct space *space, uint64_t index, struct point *out);
