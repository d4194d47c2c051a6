/* lbfgs: torch.optim.LBFGS, of which nothing is an update of one number. Sums over vectors are in double, where
 * PyTorch's are float32. */
#include "optim/lbfgs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "optim/optimizers.h"

/* ---- vectors ---- */

static double dot(const float *a, const float *b, size_t count) {
    double lanes[16] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t l = 0; l < 16; l++) lanes[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < count; i++) sum += (double)a[i] * (double)b[i];
    for (size_t l = 0; l < 16; l++) sum += lanes[l];
    return sum;
}

/* to += factor * from */
static void add(float *restrict to, double factor, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = fmaf((float)factor, from[i], to[i]);
}

static void scale(float *restrict to, double factor, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = (float)factor * from[i];
}

static void copy(float *to, const float *from, size_t count) { memmove(to, from, count * sizeof *to); }

static double largest(const float *x, size_t count) {
    float most = 0;
    for (size_t i = 0; i < count; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return (double)most;
}

static double sum_of_sizes(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)fabsf(x[i]);
    return sum;
}

/* ---- memory ---- */

static size_t vectors_of(const struct lbfgs_config *c) {
    return 4 + 2 * (size_t)c->history_size + (c->line_search == LBFGS_STRONG_WOLFE ? 2 : 0);
}

size_t lbfgs_memory(const struct lbfgs_config *c, size_t size) { return vectors_of(c) * size * sizeof(float); }

static status allocate(struct lbfgs *o) {
    const struct lbfgs_config *c = o->config;
    float **vectors[] = {&o->direction, &o->gradient, &o->work, &o->start, &o->best[0], &o->best[1]};
    size_t history = (size_t)c->history_size, single = c->line_search == LBFGS_STRONG_WOLFE ? 6 : 4;
    for (size_t i = 0; i < single; i++)
        TRY(buffer_new(o->size * sizeof(float), "the optimizer's state", (void **)vectors[i]));
    TRY(buffer_new(history * o->size * sizeof(float), "the optimizer's state", (void **)&o->changes));
    TRY(buffer_new(history * o->size * sizeof(float), "the optimizer's state", (void **)&o->steps));
    TRY(buffer_new(history * sizeof *o->factors, "the optimizer's state", (void **)&o->factors));
    return buffer_new(o->number_count * sizeof *o->numbers, "the optimizer's state", (void **)&o->numbers);
}

status lbfgs_create(const struct lbfgs_config *config, size_t size, struct lbfgs **out) {
    struct lbfgs *o = calloc(1, sizeof *o);
    *out = o;
    if (!o) return status_memory("the optimizer");
    o->config = config;
    o->size = size;
    o->number_count = LBFGS_NUMBERS + (size_t)config->history_size;
    return allocate(o);
}

void lbfgs_destroy(struct lbfgs *o) {
    if (!o) return;
    void *buffers[] = {o->direction, o->gradient, o->work,  o->start,   o->best[0],
                       o->best[1],   o->changes,  o->steps, o->factors, o->numbers};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffer_free(buffers[i]);
    free(o);
}

struct lbfgs_vectors lbfgs_vectors(const struct lbfgs *o, size_t index) {
    size_t history = (size_t)o->config->history_size;
    const struct lbfgs_vectors vectors[LBFGS_VECTORS] = {{"direction", o->direction, 1},
                                                         {"gradient", o->gradient, 1},
                                                         {"changes", o->changes, history},
                                                         {"steps", o->steps, history}};
    return vectors[index];
}

/* ---- the direction ---- */

static float *pair(const struct lbfgs *o, float *vectors, size_t index) { return vectors + index * o->size; }

/* Removes the oldest pair of a full history. */
static void drop_oldest(struct lbfgs *o, size_t count) {
    double *inverse = o->numbers + LBFGS_NUMBERS;
    memmove(o->changes, o->changes + o->size, (count - 1) * o->size * sizeof *o->changes);
    memmove(o->steps, o->steps + o->size, (count - 1) * o->size * sizeof *o->steps);
    memmove(inverse, inverse + 1, (count - 1) * sizeof *inverse);
}

/* Adds y = g - g', s = t d, if y s > 0 is large enough. */
static void add_pair(struct lbfgs *o, const float *gradient) {
    size_t n = o->size, count = (size_t)o->numbers[LBFGS_PAIRS];
    float *change = o->work, *step = o->start;
    for (size_t i = 0; i < n; i++) change[i] = gradient[i] - o->gradient[i];
    scale(step, o->numbers[LBFGS_STEP], o->direction, n);
    double product = dot(change, step, n);
    if (!(product > 1e-10)) return;
    if (count == (size_t)o->config->history_size) drop_oldest(o, count--);
    copy(pair(o, o->changes, count), change, n);
    copy(pair(o, o->steps, count), step, n);
    o->numbers[LBFGS_NUMBERS + count] = 1 / product;
    o->numbers[LBFGS_PAIRS] = (double)(count + 1);
    o->numbers[LBFGS_SCALE] = product / dot(change, change, n);
}

/* d = -H g, by the two loops over the history */
static void find_direction(struct lbfgs *o, const float *gradient) {
    size_t n = o->size, count = (size_t)o->numbers[LBFGS_PAIRS];
    const double *inverse = o->numbers + LBFGS_NUMBERS;
    float *d = o->direction;
    scale(d, -1, gradient, n);
    for (size_t i = count; i-- > 0;) {
        o->factors[i] = dot(pair(o, o->steps, i), d, n) * inverse[i];
        add(d, -o->factors[i], pair(o, o->changes, i), n);
    }
    scale(o->work, o->numbers[LBFGS_SCALE], d, n);
    copy(d, o->work, n);
    for (size_t i = 0; i < count; i++) {
        double factor = dot(pair(o, o->changes, i), d, n) * inverse[i];
        add(d, o->factors[i] - factor, pair(o, o->steps, i), n);
    }
}

/* ---- the line search ---- */

/* A step along the direction: its length, the loss there, and the slope of the loss in the direction. */
struct search_point {
    double t, loss, slope;
    int gradient; /* its index in best; -1: that of the start */
};

struct search {
    struct lbfgs *o;
    float *values;         /* the parameters; those before the step are in o->start */
    const float *gradient; /* as set by evaluate */
    lbfgs_evaluate *evaluate;
    void *user;
    struct search_point start;
    size_t evaluations;
};

/* The loss at start + t d, whose gradient is then in s->gradient. */
static status evaluate_at(struct search *s, double t, struct search_point *out) {
    struct lbfgs *o = s->o;
    copy(s->values, o->start, o->size);
    add(s->values, t, o->direction, o->size);
    s->evaluations++;
    out->t = t;
    TRY(s->evaluate(s->user, &out->loss));
    out->slope = dot(s->gradient, o->direction, o->size);
    return OK;
}

/* The minimum of the cubic through two points with their slopes, within bounds. */
static double interpolate(const struct search_point *a, const struct search_point *b, double low, double high) {
    double d1 = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t), squared = d1 * d1 - a->slope * b->slope;
    if (!(squared >= 0)) return (low + high) / 2;
    double d2 = sqrt(squared), at;
    if (a->t <= b->t)
        at = b->t - (b->t - a->t) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
    else
        at = a->t - (a->t - b->t) * ((a->slope + d2 - d1) / (a->slope - b->slope + 2 * d2));
    at = at > low ? at : low;
    return at < high ? at : high;
}

#define C1 1e-4
#define C2 0.9
#define MAX_SEARCH 25

static bool is_too_high(const struct search *s, const struct search_point *p) {
    return p->loss > s->start.loss + C1 * p->t * s->start.slope;
}
static bool is_flat(const struct search *s, const struct search_point *p) {
    return fabs(p->slope) <= -C2 * s->start.slope;
}

/* Keeps the gradient of [p], in place of that of [replaced]. */
static void keep(struct search *s, struct search_point *p, int index) {
    copy(s->o->best[index], s->gradient, s->o->size);
    p->gradient = index;
}

/* The step to try between both ends, which moves away from them if the last one was near one of them, too. */
static double choose(const struct search_point ends[2], bool *is_insufficient) {
    double low = fmin(ends[0].t, ends[1].t), high = fmax(ends[0].t, ends[1].t);
    double t = interpolate(&ends[0], &ends[1], low, high), eps = 0.1 * (high - low);
    if (!(fmin(high - t, t - low) < eps)) {
        *is_insufficient = false;
        return t;
    }
    if (!*is_insufficient && t < high && t > low) {
        *is_insufficient = true;
        return t;
    }
    *is_insufficient = false;
    return fabs(t - high) < fabs(t - low) ? high - eps : low + eps;
}

/* Halves the bracket [ends], whose lower end is *low, until a point satisfies both conditions. */
static status zoom(struct search *s, struct search_point ends[2], int *low, size_t tried) {
    double longest = largest(s->o->direction, s->o->size);
    bool is_insufficient = false, is_done = false;
    for (; !is_done && tried < MAX_SEARCH; tried++) {
        if (fabs(ends[1].t - ends[0].t) * longest < s->o->config->tolerance_change) break;
        struct search_point p;
        TRY(evaluate_at(s, choose(ends, &is_insufficient), &p));
        int high = 1 - *low;
        if (is_too_high(s, &p) || p.loss >= ends[*low].loss) {
            keep(s, &p, high);
            ends[high] = p;
            *low = ends[0].loss <= ends[1].loss ? 0 : 1;
            continue;
        }
        is_done = is_flat(s, &p);
        if (!is_done && p.slope * (ends[high].t - ends[*low].t) >= 0) {
            if (ends[*low].gradient >= 0) copy(s->o->best[high], s->o->best[*low], s->o->size);
            if (ends[*low].gradient < 0) copy(s->o->best[high], s->o->gradient, s->o->size);
            ends[high] = ends[*low];
            ends[high].gradient = high;
        }
        keep(s, &p, *low);
        ends[*low] = p;
    }
    return OK;
}

/* Finds a step that satisfies the strong Wolfe conditions; *found is it, and [gradient] becomes its gradient. */
static status search(struct search *s, double t, struct search_point *found, const float **gradient) {
    struct search_point before = s->start, p, ends[2];
    size_t tried = 0;
    bool is_done = false, has_bracket = false;
    TRY(evaluate_at(s, t, &p));
    for (;; tried++) {
        has_bracket = tried == MAX_SEARCH || is_too_high(s, &p) || (tried > 1 && p.loss >= before.loss);
        is_done = !has_bracket && is_flat(s, &p);
        if (has_bracket || is_done || p.slope >= 0) break;
        double next = interpolate(&before, &p, p.t + 0.01 * (p.t - before.t), p.t * 10);
        keep(s, &p, tried % 2);
        before = p;
        TRY(evaluate_at(s, next, &p));
    }
    int free = before.gradient >= 0 ? 1 - before.gradient : 0;
    keep(s, &p, free);
    if (is_done) {
        *found = p;
        *gradient = s->o->best[free];
        return OK;
    }
    if (tried == MAX_SEARCH) before = s->start;
    /* the gradient of an end is in best[its index] */
    ends[free] = p;
    ends[1 - free] = before;
    int low = ends[0].loss <= ends[1].loss ? 0 : 1;
    if (ends[0].loss == ends[1].loss) low = 1 - free;
    TRY(zoom(s, ends, &low, tried));
    *found = ends[low];
    *gradient = ends[low].gradient < 0 ? s->o->gradient : s->o->best[low];
    return OK;
}

/* ---- a step ---- */

/* Moves by t d and evaluates the loss there; with a search, t is that which it finds. */
static status move(struct search *s, double *t, double *loss, const float **at, bool is_last) {
    struct lbfgs *o = s->o;
    copy(o->start, s->values, o->size);
    if (o->config->line_search == LBFGS_STRONG_WOLFE) {
        struct search_point found;
        TRY(search(s, *t, &found, at));
        *t = found.t;
        *loss = found.loss;
        copy(s->values, o->start, o->size);
        add(s->values, *t, o->direction, o->size);
        return OK;
    }
    add(s->values, *t, o->direction, o->size);
    if (is_last) return OK;
    s->evaluations++;
    *at = s->gradient;
    return s->evaluate(s->user, loss);
}

status lbfgs_step(struct lbfgs *o, double lr, float *values, const float *gradient, double loss,
                  lbfgs_evaluate *evaluate, void *user) {
    const struct lbfgs_config *c = o->config;
    struct search s = {
        .o = o, .values = values, .gradient = gradient, .evaluate = evaluate, .user = user, .evaluations = 1};
    size_t n = o->size, max = (size_t)(c->max_eval == SCHEMA_NO_INT ? c->max_iter * 5 / 4 : c->max_eval);
    const float *at = gradient;
    double *numbers = o->numbers;
    status failure = OK;
    bool is_flat_here = largest(at, n) <= c->tolerance_grad;
    for (int64_t i = 1; !is_flat_here && !failure && i <= c->max_iter; i++) {
        bool is_first = numbers[LBFGS_ITERATIONS]++ == 0;
        if (is_first) numbers[LBFGS_SCALE] = 1;
        if (!is_first) add_pair(o, at);
        find_direction(o, at);
        copy(o->gradient, at, n);
        double t = is_first ? fmin(1, 1 / sum_of_sizes(at, n)) * lr : lr, before = loss;
        s.start = (struct search_point){.loss = loss, .slope = dot(o->gradient, o->direction, n), .gradient = -1};
        numbers[LBFGS_STEP] = t;
        if (s.start.slope > -c->tolerance_change) break;
        failure = move(&s, &t, &loss, &at, i == c->max_iter);
        numbers[LBFGS_STEP] = t;
        if (failure || i == c->max_iter || s.evaluations >= max || largest(at, n) <= c->tolerance_grad) break;
        if (fabs(t) * largest(o->direction, n) <= c->tolerance_change) break;
        if (fabs(loss - before) < c->tolerance_change) break;
    }
    numbers[LBFGS_EVALUATIONS] += (double)s.evaluations;
    return failure;
}

/* ---- its keys ---- */

static const char *const searches[] = {"none", "strong_wolfe", NULL};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(lbfgs_config, lr, "1", "Length of a step; with a line search the length that is tried first."),
    SCHEMA_ROW(INT, struct lbfgs_config, max_iter, .fallback = "20", .min = 1, .max = 1e6,
               .doc = "Iterations of a step."),
    SCHEMA_ROW(INT, struct lbfgs_config, max_eval, .fallback = "null", .min = 1, .max = 1e6,
               .doc = "Evaluations of the loss in a step, after which no iteration begins; null: max_iter * 5 / 4."),
    OPTIMIZER_REAL(lbfgs_config, tolerance_grad, "1e-07",
                   "A step ends when no element of the gradient is larger than this."),
    OPTIMIZER_REAL(lbfgs_config, tolerance_change, "1e-09",
                   "A step ends when the loss, or every parameter, changes by less than this."),
    SCHEMA_ROW(INT, struct lbfgs_config, history_size, .fallback = "100", .min = 1, .max = 1e4,
               .doc =
                   "Earlier iterations of which the change of parameters and of gradient is kept: two vectors each."),
    SCHEMA_ROW(CHOICE, struct lbfgs_config, line_search, .fallback = "none", .choices = searches,
               .doc = "`strong_wolfe`: search along the direction for a step that satisfies the strong Wolfe "
                      "conditions (PyTorch's line_search_fn); `none`: a step has the length lr."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.lbfgs", struct lbfgs_config, .rows = rows);

static union optimizer_constants plan(const void *config, const struct optimizer_settings *own, int64_t t) {
    (void)config, (void)t;
    return (union optimizer_constants){.sgd = {.minus_lr = (float)-own->lr}};
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "L-BFGS bfgs", "lbfgs"),
    KEY_ALIAS("optimizer.lbfgs", "line_search_fn", ".line_search"),
    {0},
};

const struct optimizer_type optimizer_lbfgs = {
    .aliases = aliases,
    .variant = {"lbfgs", &schema,
                "L-BFGS: a step evaluates the loss several times over the same rows, for whole datasets as one batch "
                "(torch.optim.LBFGS)."},
    .plan = plan,
    .rule = RULE_SGD,
    .evaluates = true,
};
