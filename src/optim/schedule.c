/* One row per type: keys and closed form. t counts epochs (as scheduler.step() once per epoch in PyTorch) or steps, by
 * `interval`. A warm-up of m intervals precedes any type, as with SequentialLR([LinearLR, type], [m]): the type then
 * gets t - m. */
#include "optim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

struct schedule_common {
    int interval;
    int64_t warmup;
    double warmup_start_factor;
};

static const char *const intervals[] = {"epoch", "step", NULL};

struct schedule_config {
    double gamma, start_factor, end_factor, power, eta_min, pct_start, div_factor, final_div_factor;
    double base_momentum, max_momentum, factor, threshold, min_lr, eps, base_lr, max_lr;
    int64_t step_size, total_iters, t_max, t_0, t_mult, patience, cooldown, step_size_up, step_size_down;
    struct int_list milestones;
    struct section_list points; /* of struct schedule_point */
    bool three_phase, cycle_momentum;
    const char *monitor;
    int anneal, mode, threshold_mode, interpolation;
};

struct schedule_point {
    const char *name; /* [at] as text */
    double factor;
    int64_t at;
};

enum cycle_mode { TRIANGULAR, TRIANGULAR2, EXP_RANGE };
enum interpolation { LINEAR, STEP };

static const char *const anneals[] = {"cos", "linear", NULL};
static const char *const modes[] = {"auto", "min", "max", NULL};
static const char *const threshold_modes[] = {"rel", "abs", NULL};
static const char *const cycle_modes[] = {"triangular", "triangular2", "exp_range", NULL};
static const char *const interpolations[] = {"linear", "step", NULL};

#define REAL(field_, fallback_, doc_)                                                                                  \
    SCHEMA_ROW(REAL, struct schedule_config, field_, .fallback = fallback_, .min = 0, .max = INFINITY, .doc = doc_)
#define COUNT(key_, field_, fallback_, flags_, doc_)                                                                   \
    {                                                                                                                  \
        .key = key_, .type = SCHEMA_INT, .offset = offsetof(struct schedule_config, field_), .fallback = fallback_,    \
        .flags = flags_, .min = 1, .max = INFINITY, .doc = doc_                                                        \
    }

static const struct schema_row step_rows[] = {
    COUNT("step_size", step_size, NULL, SCHEMA_REQUIRED,
          "Number of intervals after which the rate is multiplied by gamma."),
    REAL(gamma, "0.1", "The factor."),
    {0},
};
static const struct schema_row multistep_rows[] = {
    SCHEMA_ROW(INT_LIST, struct schedule_config, milestones, .flags = SCHEMA_REQUIRED, .min = 0, .max = INFINITY,
               .doc = "At each of these the rate is multiplied by gamma."),
    REAL(gamma, "0.1", "The factor."),
    {0},
};
static const struct schema_row exponential_rows[] = {
    SCHEMA_ROW(REAL, struct schedule_config, gamma, .flags = SCHEMA_REQUIRED, .min = 0, .max = INFINITY,
               .doc = "The factor of each interval."),
    {0},
};
static const struct schema_row linear_rows[] = {
    REAL(start_factor, "0.3333333333333333", "Factor at the start."),
    REAL(end_factor, "1", "Factor at the end."),
    COUNT("total_iters", total_iters, "5", 0, "Intervals from start to end."),
    {0},
};
static const struct schema_row polynomial_rows[] = {
    COUNT("total_iters", total_iters, "5", 0, "Intervals until the rate is 0."),
    REAL(power, "1", "The power."),
    {0},
};
static const struct schema_row cosine_rows[] = {
    COUNT("t_max", t_max, "null", 0, "Half a period; null: the whole run (after the warm-up)."),
    REAL(eta_min, "0", "The minimum rate."),
    {0},
};
static const struct schema_row restarts_rows[] = {
    COUNT("t_0", t_0, NULL, SCHEMA_REQUIRED, "Intervals of the first period."),
    COUNT("t_mult", t_mult, "1", 0, "Factor of the length of each period relative to the one before."),
    REAL(eta_min, "0", "The minimum rate."),
    {0},
};
static const struct schema_row one_cycle_rows[] = {
    COUNT("total_iters", total_iters, "null", 0, "Intervals of the cycle; null: the whole run (after the warm-up)."),
    SCHEMA_ROW(REAL, struct schedule_config, pct_start, .fallback = "0.3", .min = 0, .max = 1,
               .doc = "Fraction of the cycle in which the rate rises."),
    SCHEMA_ROW(REAL, struct schedule_config, div_factor, .fallback = "25", .min = 0, .max = INFINITY,
               .excludes_min = true, .doc = "The cycle starts at lr / div_factor."),
    SCHEMA_ROW(REAL, struct schedule_config, final_div_factor, .fallback = "10000", .min = 0, .max = INFINITY,
               .excludes_min = true, .doc = "The cycle ends at lr / div_factor / final_div_factor."),
    SCHEMA_ROW(CHOICE, struct schedule_config, anneal, .fallback = "cos", .choices = anneals,
               .doc = "Shape of the curve (PyTorch's anneal_strategy)."),
    SCHEMA_ROW(BOOL, struct schedule_config, three_phase, .fallback = "false",
               .doc = "Whether the rate falls to its initial value first, then to its final value."),
    SCHEMA_ROW(BOOL, struct schedule_config, cycle_momentum, .fallback = "true",
               .doc = "Whether the optimizer's momentum (or first beta) changes in the opposite direction."),
    REAL(base_momentum, "0.85", "Momentum where the rate is highest."),
    REAL(max_momentum, "0.95", "Momentum at the start and the end."),
    {0},
};
#define CHOICE(field_, fallback_, choices_, doc_)                                                                      \
    SCHEMA_ROW(CHOICE, struct schedule_config, field_, .fallback = fallback_, .choices = choices_, .doc = doc_)
#define EPOCHS(field_, fallback_, doc_)                                                                                \
    SCHEMA_ROW(INT, struct schedule_config, field_, .fallback = fallback_, .min = 0, .max = INFINITY, .doc = doc_)
static const struct schema_row plateau_rows[] = {
    SCHEMA_ROW(STRING, struct schedule_config, monitor, .fallback = "val_loss",
               .doc = "The metric that is monitored, after each evaluation (train_loss, train_accuracy: after each "
                      "epoch); one of those of train.early_stop."),
    CHOICE(mode, "min", modes,
           "Whether a smaller (`min`) or a larger (`max`) value is better; `auto`: as for train.early_stop."),
    SCHEMA_ROW(REAL, struct schedule_config, factor, .fallback = "0.1", .min = 0, .max = 1, .excludes_max = true,
               .doc = "The rate is multiplied by this."),
    EPOCHS(patience, "10", "Evaluations without progress before the rate is reduced."),
    REAL(threshold, "0.0001", "The minimum change that counts as progress."),
    CHOICE(threshold_mode, "rel", threshold_modes,
           "`rel`: a fraction of the best value so far (for `min`, of 1 or more: nothing counts as progress); `abs`: a "
           "difference."),
    EPOCHS(cooldown, "0", "Evaluations after a reduction that are ignored."),
    REAL(min_lr, "0", "The minimum rate."),
    REAL(eps, "1e-08", "The rate is not changed if the reduction would be at most this."),
    {0},
};

static const struct schema_row cyclic_rows[] = {
    REAL(base_lr, "null", "Rate at the start and the end of each cycle; null: lr."),
    SCHEMA_ROW(REAL, struct schedule_config, max_lr, .flags = SCHEMA_REQUIRED, .min = 0, .max = INFINITY,
               .doc = "Rate in the middle of the first cycle."),
    COUNT("step_size_up", step_size_up, "2000", 0, "Intervals in which the rate rises."),
    COUNT("step_size_down", step_size_down, "null", 0, "Intervals in which it falls; null: step_size_up."),
    CHOICE(mode, "triangular", cycle_modes,
           "Height of the cycles: the same, half of the one before (triangular2), or times gamma^t (exp_range)."),
    REAL(gamma, "1", "The factor of each interval, for exp_range."),
    SCHEMA_ROW(BOOL, struct schedule_config, cycle_momentum, .fallback = "true",
               .doc = "Whether the optimizer's momentum (or first beta) changes in the opposite direction."),
    REAL(base_momentum, "0.8", "Momentum where the rate is highest."),
    REAL(max_momentum, "0.9", "Momentum at the start and the end of each cycle."),
    {0},
};

static const struct schema_row point_rows[] = {
    SCHEMA_ROW(REAL, struct schedule_point, factor, .flags = SCHEMA_REQUIRED, .min = 0, .max = INFINITY,
               .doc = "Factor of lr at this point."),
    {0},
};
static const struct schema point_schema =
    SCHEMA("schedule.piecewise.points", struct schedule_point, .rows = point_rows, .shorthand = "factor");
static const struct schema_row piecewise_rows[] = {
    SCHEMA_ROW(SECTION_MAP, struct schedule_config, points, .flags = SCHEMA_REQUIRED, .section = &point_schema,
               .doc = "Factors of lr after numbers of intervals, ascending: {0: 1.0, 10: 0.5}. Before the first point "
                      "and after the last one the factor is constant."),
    CHOICE(interpolation, "linear", interpolations,
           "Between two points: a straight line, or the factor of the point before (step)."),
    {0},
};

/* Decimal digits, fewer than an int64_t can overflow with. */
static bool parse_count(const char *text, int64_t *count) {
    size_t length = strspn(text, "0123456789");
    *count = strtoll(text, NULL, 10);
    return length > 0 && length < 19 && text[length] == '\0';
}

/* Numbers of intervals from the names of the points. */
static void check_points(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct schedule_config *c = config;
    struct schedule_point *points = c->points.items;
    const struct node *node = node_get(where, "points");
    struct place place = node ? node->place : where->place;
    if (c->points.count == 0) problems_add(problems, place, path, "points must not be empty");
    for (size_t i = 0; i < c->points.count; i++) {
        if (!parse_count(points[i].name, &points[i].at) || (i > 0 && points[i].at <= points[i - 1].at)) {
            problems_add(problems, place, path, "points must be at ascending whole numbers >= 0, got '%s'",
                         points[i].name);
            return;
        }
    }
}

#define OWN_SCHEMA(name_)                                                                                              \
    static const struct schema name_##_schema = SCHEMA("schedule." #name_, struct schedule_config, .rows = name_##_rows)
OWN_SCHEMA(step);
OWN_SCHEMA(multistep);
OWN_SCHEMA(exponential);
OWN_SCHEMA(linear);
OWN_SCHEMA(polynomial);
OWN_SCHEMA(cosine);
OWN_SCHEMA(one_cycle);
OWN_SCHEMA(cyclic);
static const struct schema piecewise_schema =
    SCHEMA("schedule.piecewise", struct schedule_config, .rows = piecewise_rows, .check = check_points);
static const struct schema plateau_schema =
    SCHEMA("schedule.reduce_on_plateau", struct schedule_config, .rows = plateau_rows);
static const struct schema restarts_schema =
    SCHEMA("schedule.cosine_restarts", struct schedule_config, .rows = restarts_rows);

/* base * gamma^(t div size) */
static double step(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    return base * pow(c->gamma, (double)(t / c->step_size));
}

/* base * gamma^(milestones <= t), multiplied one by one as PyTorch does */
static double multistep(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    for (size_t i = 0; i < c->milestones.count; i++)
        if (c->milestones.items[i] <= t) base *= c->gamma;
    return base;
}

static double exponential(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    return base * pow(c->gamma, (double)t);
}

static double minimum(int64_t t, int64_t max) { return (double)(t < max ? t : max); }

/* base * (s + (e - s) * min(t, T) / T) */
static double linear(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    return base *
           (c->start_factor + (c->end_factor - c->start_factor) * minimum(t, c->total_iters) / (double)c->total_iters);
}

/* base * (1 - min(t, T) / T)^p */
static double polynomial(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    return base * pow(1 - minimum(t, c->total_iters) / (double)c->total_iters, c->power);
}

/* eta + (base - eta) * (1 + cos(pi t / T)) / 2 */
static double cosine(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    double period = (double)(c->t_max == SCHEMA_NO_INT ? total : c->t_max);
    return c->eta_min + (base - c->eta_min) * (1 + cos(PI * (double)t / period)) / 2;
}

static double cosine_restarts(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    (void)total;
    int64_t period = c->t_0;
    if (c->t_mult == 1) t %= period;
    while (t >= period) {
        t -= period;
        period = period > INT64_MAX / c->t_mult ? INT64_MAX : period * c->t_mult;
    }
    return c->eta_min + (base - c->eta_min) * (1 + cos(PI * (double)t / (double)period)) / 2;
}

static double anneal(const struct schedule_config *c, double from, double to, double fraction) {
    return c->anneal ? from + (to - from) * fraction : to + (from - to) / 2 * (cos(PI * fraction) + 1);
}

/* From [low] up to [high], and down to [end]; in three phases: up, back to [low], to [end]. */
static double cycle(const struct schedule_config *c, double low, double high, double end, int64_t at, int64_t total) {
    double n = (double)(c->total_iters == SCHEMA_NO_INT ? total : c->total_iters), t = (double)at;
    double rise = c->pct_start * n - 1, fall = c->three_phase ? 2 * c->pct_start * n - 2 : rise;
    if (t > n - 1) t = n - 1;
    if (t <= rise) return anneal(c, low, high, rise > 0 ? t / rise : 1);
    if (c->three_phase && t <= fall) return anneal(c, high, low, (t - rise) / (fall - rise));
    double from = c->three_phase ? low : high;
    return n - 1 > fall ? anneal(c, from, end, (t - fall) / (n - 1 - fall)) : end;
}

static double one_cycle(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    double low = base / c->div_factor;
    return cycle(c, low, base, low / c->final_div_factor, t, total);
}

/* Fraction of the height of the cycle after [t] intervals (CyclicLR's scale_factor and scale_fn). */
static double cyclic_fraction(const struct schedule_config *c, int64_t t) {
    double up = (double)c->step_size_up, down = c->step_size_down == SCHEMA_NO_INT ? up : (double)c->step_size_down;
    double size = up + down, ratio = up / size, cycle_number = floor(1 + (double)t / size);
    double x = 1 + (double)t / size - cycle_number;
    double fraction = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    if (c->mode == TRIANGULAR2) return fraction * (1 / pow(2, cycle_number - 1));
    return c->mode == EXP_RANGE ? fraction * pow(c->gamma, (double)t) : fraction;
}

static double cyclic(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    double low = isnan(c->base_lr) ? base : c->base_lr;
    (void)total;
    return low + (c->max_lr - low) * cyclic_fraction(c, t);
}

/* LambdaLR with the function that the points describe. */
static double piecewise(const struct schedule_config *c, double base, int64_t t, int64_t total) {
    const struct schedule_point *point = c->points.items, *last = point + c->points.count - 1;
    (void)total;
    if (t <= point->at) return base * point->factor;
    while (point < last && point[1].at <= t) point++;
    if (point == last || c->interpolation == STEP) return base * point->factor;
    double fraction = (double)(t - point->at) / (double)(point[1].at - point->at);
    return base * (point->factor + (point[1].factor - point->factor) * fraction);
}

struct schedule_type {
    struct schema_variant variant;
    /* after [t] of [total] intervals; NULL: constant */
    double (*at)(const struct schedule_config *config, double base, int64_t t, int64_t total);
    /* The same in PyTorch's script, templates of schema_fill with base, t and total; and the momentum. NULL: none. */
    const char *pytorch, *momentum;
};

static const struct schedule_type types[] = {
    {{"constant", NULL, "The learning rate of the optimizer."}, .at = NULL},
    {{"step", &step_schema, "lr * gamma^(t div step_size) (StepLR)."},
     .at = step,
     .pytorch = "base * {gamma} ** (t // {step_size})"},
    {{"multistep", &multistep_schema, "lr * gamma at each milestone (MultiStepLR)."},
     .at = multistep,
     .pytorch = "base * {gamma} ** sum(m <= t for m in {*milestones})"},
    {{"exponential", &exponential_schema, "lr * gamma^t (ExponentialLR)."},
     .at = exponential,
     .pytorch = "base * {gamma} ** t"},
    {{"linear", &linear_schema, "From start_factor to end_factor (LinearLR)."},
     .at = linear,
     .pytorch = "base * ({start_factor} + ({end_factor} - {start_factor}) * min(t, {total_iters}) / {total_iters})"},
    {{"polynomial", &polynomial_schema, "lr * (1 - t / total_iters)^power (PolynomialLR)."},
     .at = polynomial,
     .pytorch = "base * (1 - min(t, {total_iters}) / {total_iters}) ** {power}"},
    {{"cosine", &cosine_schema, "Half a cosine from lr to eta_min (CosineAnnealingLR)."},
     .at = cosine,
     .pytorch = "{eta_min} + (base - {eta_min}) * (1 + math.cos(math.pi * t / {t_max|total})) / 2"},
    {{"cosine_restarts", &restarts_schema, "Cosine with restarts (CosineAnnealingWarmRestarts)."},
     .at = cosine_restarts,
     .pytorch = "cosine_restarts(base, t, {t_0}, {t_mult}, {eta_min})"},
    {{"one_cycle", &one_cycle_schema,
      "The rate rises to lr, then falls to a fraction of its initial value (OneCycleLR)."},
     .at = one_cycle,
     .pytorch = "one_cycle(t, {total_iters|total}, base / {div_factor}, base, base / {div_factor} / "
                "{final_div_factor}, {pct_start}, {anneal}, {three_phase})",
     .momentum = "one_cycle(t, {total_iters|total}, {max_momentum}, {base_momentum}, {max_momentum}, {pct_start}, "
                 "{anneal}, {three_phase})"},
    {{"cyclic", &cyclic_schema, "The rate rises to max_lr and falls again, in cycles (CyclicLR)."},
     .at = cyclic,
     .pytorch = "{base_lr|base} + ({max_lr} - {base_lr|base}) * cyclic(t, {step_size_up}, {step_size_down|None}, "
                "{mode}, {gamma})",
     .momentum = "{max_momentum} - ({max_momentum} - {base_momentum}) * cyclic(t, {step_size_up}, "
                 "{step_size_down|None}, {mode}, {gamma})"},
    {{"piecewise", &piecewise_schema, "lr times a factor from a table of points (LambdaLR)."},
     .at = piecewise,
     .pytorch = "base * piecewise(t, {table}, {interpolation})"},
    {{"reduce_on_plateau", &plateau_schema, "lr * factor when a metric stops improving (ReduceLROnPlateau)."},
     .at = NULL,
     .pytorch = "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "
                "{direction}{,factor}{,patience}{,threshold}{,threshold_mode}{,cooldown}{,min_lr}{,eps})\n"},
};

static const struct schema_variant *variant_at(size_t index) {
    return index < sizeof types / sizeof *types ? &types[index].variant : NULL;
}

static const struct schema_row common_rows[] = {
    SCHEMA_ROW(CHOICE, struct schedule_common, interval, .fallback = "epoch", .choices = intervals,
               .doc = "Unit of time of the schedule: epochs, or optimizer updates."),
    SCHEMA_ROW(INT, struct schedule_common, warmup, .fallback = "0", .min = 0, .max = INFINITY,
               .doc = "Intervals in which the rate rises linearly before the schedule begins (SequentialLR with "
                      "LinearLR), to lr; of one_cycle, as PyTorch, to lr / div_factor."),
    SCHEMA_ROW(REAL, struct schedule_common, warmup_start_factor, .fallback = "0.01", .min = 0, .max = 1,
               .doc = "Fraction of lr at the start of the warm-up."),
    {0},
};
static const struct schema common = SCHEMA("schedule", struct schedule_common, .rows = common_rows);

const struct schema_variants schedule_variants = {.what = "schedule", .at = variant_at, .common = &common};

static bool is_plateau(const struct variant *schedule) {
    return types[schedule->index].variant.schema == &plateau_schema;
}

/* "{0: 1, 10: 0.5}" */
static bool table_place(void *config, const char *name, struct text *out) {
    const struct schedule_config *c = config;
    const struct schedule_point *points = c->points.items;
    if (strcmp(name, "table") != 0) return false;
    for (size_t i = 0; i < c->points.count; i++) {
        text_printf(out, "%s%lld: ", i ? ", " : "{", (long long)points[i].at);
        text_add_double(out, points[i].factor);
    }
    text_add(out, "}");
    return true;
}

static bool direction_place(void *is_max, const char *name, struct text *out) {
    if (strcmp(name, "direction") != 0) return false;
    text_add(out, *(bool *)is_max ? "\"max\"" : "\"min\"");
    return true;
}

status schedule_write_plateau(const struct variant *schedule, bool is_max, struct text *out) {
    const struct schedule_type *type = &types[schedule->index];
    if (((const struct schedule_common *)schedule->common)->warmup > 0)
        return status_usage("schedule.warmup of %s cannot be expressed in a PyTorch script", schedule->name);
    return schema_fill(type->variant.schema, schedule->config, type->pytorch, direction_place, &is_max, out);
}

status schedule_write_pytorch(const struct variant *schedule, const char *name, bool of_momentum, struct text *out) {
    const struct schedule_type *type = &types[schedule->index];
    const struct schedule_common *c = schedule->common;
    const char *template = of_momentum ? type->momentum : type->pytorch;
    bool is_cycle = type->at == one_cycle;
    text_printf(out, "def %s(base, t, total):\n", name);
    if (c->warmup > 0)
        text_printf(out, "    t, total = t - %lld, max(total - %lld, 1)\n", (long long)c->warmup, (long long)c->warmup);
    if (c->warmup > 0 && of_momentum) text_add(out, "    t = max(t, 0)\n");
    if (c->warmup > 0 && !of_momentum) {
        text_add(out, "    if t < 0:  # warm-up\n        return ");
        if (is_cycle) TRY(schema_fill(type->variant.schema, schedule->config, "base / {div_factor}", NULL, NULL, out));
        text_add(out, is_cycle ? " * (" : "base * (");
        text_add_double(out, c->warmup_start_factor);
        text_add(out, " + (1 - ");
        text_add_double(out, c->warmup_start_factor);
        text_printf(out, ") * (t + %lld) / %lld)\n", (long long)c->warmup, (long long)c->warmup);
    }
    text_add(out, "    return ");
    TRY(schema_fill(type->variant.schema, schedule->config, template ? template : "base", table_place, schedule->config,
                    out));
    text_add(out, "\n");
    return OK;
}

bool schedule_counts_steps(const struct variant *schedule) {
    return ((const struct schedule_common *)schedule->common)->interval != 0;
}

/* *t: finished intervals; *total: those of the run after the warm-up. */
static void count(const struct schedule_common *c, const struct schedule_progress *p, int64_t *t, int64_t *total) {
    *t = c->interval ? p->steps : p->epoch;
    *total = c->interval ? p->total_steps : p->total_epochs;
    *total = *total > c->warmup ? *total - c->warmup : 1;
}

/* lr = max(lr * factor, min_lr) for each reduction; a change of at most eps is not made */
static double reduced(const struct schedule_config *c, double lr, int64_t reductions) {
    for (int64_t i = 0; i < reductions; i++) {
        double next = fmax(lr * c->factor, c->min_lr);
        if (lr - next <= c->eps) break;
        lr = next;
    }
    return lr;
}

double schedule_lr(const struct variant *schedule, double base_lr, const struct schedule_progress *progress) {
    const struct schedule_common *c = schedule->common;
    int64_t t, total;
    count(c, progress, &t, &total);
    const struct schedule_type *type = &types[schedule->index];
    if (t < c->warmup) { /* OneCycleLR makes this rate the initial one of the optimizer, where the warm-up ends */
        const struct schedule_config *own = schedule->config;
        double end = type->at == one_cycle ? base_lr / own->div_factor : base_lr;
        return end * (c->warmup_start_factor + (1 - c->warmup_start_factor) * (double)t / (double)c->warmup);
    }
    if (is_plateau(schedule)) return reduced(schedule->config, base_lr, progress->reductions);
    return type->at ? type->at(schedule->config, base_lr, t - c->warmup, total) : base_lr;
}

bool schedule_is_constant(const struct variant *schedule) {
    const struct schedule_common *c = schedule->common;
    return !types[schedule->index].at && !is_plateau(schedule) && c->warmup == 0;
}

const char *schedule_length_key(const struct variant *schedule) {
    const struct schedule_config *c = schedule->config;
    const struct schedule_type *type = &types[schedule->index];
    if (type->at == cosine && c->t_max == SCHEMA_NO_INT) return "schedule.t_max";
    return type->at == one_cycle && c->total_iters == SCHEMA_NO_INT ? "schedule.total_iters" : NULL;
}

bool schedule_has_no_rise(const struct variant *schedule, const struct schedule_progress *progress) {
    const struct schedule_config *c = schedule->config;
    int64_t t, total;
    count(schedule->common, progress, &t, &total);
    return types[schedule->index].at == one_cycle && (c->total_iters == SCHEMA_NO_INT ? total : c->total_iters) == 1;
}

bool schedule_changes_momentum(const struct variant *schedule) {
    const struct schedule_config *c = schedule->config;
    return (types[schedule->index].at == one_cycle || types[schedule->index].at == cyclic) && c->cycle_momentum;
}

double schedule_momentum(const struct variant *schedule, const struct schedule_progress *progress) {
    const struct schedule_common *shared = schedule->common;
    const struct schedule_config *c = schedule->config;
    if (!schedule_changes_momentum(schedule)) return NAN;
    int64_t t, total;
    count(shared, progress, &t, &total);
    t = t > shared->warmup ? t - shared->warmup : 0;
    if (types[schedule->index].at == cyclic)
        return c->max_momentum - (c->max_momentum - c->base_momentum) * cyclic_fraction(c, t);
    return cycle(c, c->max_momentum, c->base_momentum, c->max_momentum, t, total);
}

const char *schedule_monitor(const struct variant *schedule, int *mode) {
    const struct schedule_config *c = schedule->config;
    if (!is_plateau(schedule)) return NULL;
    *mode = c->mode;
    return c->monitor;
}

static bool is_better(const struct schedule_config *c, bool is_max, double value, double best) {
    bool is_relative = c->threshold_mode == 0;
    if (isnan(best)) best = is_max ? -INFINITY : INFINITY; /* as PyTorch: also with a threshold of 1 or more */
    if (is_max) return value > (is_relative ? best * (c->threshold + 1) : best + c->threshold);
    return value < (is_relative ? best * (1 - c->threshold) : best - c->threshold);
}

void schedule_update_plateau(const struct variant *schedule, struct plateau *plateau, double value, bool is_max) {
    const struct schedule_config *c = schedule->config;
    if (is_better(c, is_max, value, plateau->best)) {
        plateau->best = value;
        plateau->bad_epochs = 0;
    } else {
        plateau->bad_epochs++;
    }
    if (plateau->cooldown > 0) {
        plateau->cooldown--;
        plateau->bad_epochs = 0;
    }
    if (plateau->bad_epochs <= c->patience) return;
    plateau->reductions++;
    plateau->cooldown = c->cooldown;
    plateau->bad_epochs = 0;
}
