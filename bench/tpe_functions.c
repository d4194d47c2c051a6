/* Ten functions to minimise, for bench/tpe.py: all have the minimum 0, and none has it in the middle of its ranges,
 * where a sampler's prior would find it. And five of two metrics, whose fronts are convex, concave, in parts, and
 * curved.
 *
 *     tpe_functions list                          a JSON line for each: its name and parameters
 *     tpe_functions minimise NAME TRIALS SEEDS    with tpe_suggest; prints the best value of each seed (0, 1, ...), or
 *                                                 of two metrics a line with the values of all its trials
 *     tpe_functions evaluate NAME                 reads points, a line of numbers each, and prints their values
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sweep/tpe.h"

#define PI 3.14159265358979323846
#define MAX_TRIALS 1000000
#define SEED_TRIALS 10000 /* a seed has the generators of at least as many trials */

static double square(double x) { return x * x; }

static double sphere(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += square(x[i]);
    return sum;
}

static double rosenbrock(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i + 1 < n; i++) sum += 100 * square(x[i + 1] - square(x[i])) + square(1 - x[i]);
    return sum;
}

static double ackley(const double *x, size_t n) {
    double waves = 0;
    for (size_t i = 0; i < n; i++) waves += cos(2 * PI * x[i]);
    return 20 - 20 * exp(-0.2 * sqrt(sphere(x, n) / (double)n)) + exp(1) - exp(waves / (double)n);
}

static double rastrigin(const double *x, size_t n) {
    double sum = sphere(x, n);
    for (size_t i = 0; i < n; i++) sum += 10 - 10 * cos(2 * PI * x[i]);
    return sum;
}

static double griewank(const double *x, size_t n) {
    double product = 1;
    for (size_t i = 0; i < n; i++) product *= cos(x[i] / sqrt((double)(i + 1)));
    return 1 + sphere(x, n) / 4000 - product;
}

static double levy(const double *x, size_t n) {
    double last = 1 + (x[n - 1] - 1) / 4;
    double sum = square(sin(PI * (1 + (x[0] - 1) / 4))) + square(last - 1) * (1 + square(sin(2 * PI * last)));
    for (size_t i = 0; i + 1 < n; i++) {
        double w = 1 + (x[i] - 1) / 4;
        sum += square(w - 1) * (1 + 10 * square(sin(PI * w + 1)));
    }
    return sum;
}

static double styblinski_tang(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += square(square(x[i])) - 16 * square(x[i]) + 5 * x[i];
    return sum / 2 + 39.16616570377142 * (double)n;
}

static double branin(const double *x, size_t n) {
    (void)n;
    double valley = x[1] - 5.1 / (4 * PI * PI) * square(x[0]) + 5 / PI * x[0] - 6;
    return square(valley) + 10 * (1 - 1 / (8 * PI)) * cos(x[0]) + 10 - 0.39788735772973816;
}

static double hartmann6(const double *x, size_t n) {
    static const double heights[4] = {1, 1.2, 3, 3.2};
    static const double widths[4][6] = {
        {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
    static const double centers[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                                         {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                                         {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                                         {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
    double sum = 3.322368011415515;
    for (int k = 0; k < 4; k++) {
        double exponent = 0;
        for (size_t i = 0; i < n; i++) exponent += widths[k][i] * square(x[i] - centers[k][i]);
        sum -= heights[k] * exp(-exponent);
    }
    return sum;
}

/* Like a validation loss over an optimizer, its learning rate, layers, their width and dropout: the best learning rate
 * depends on the optimizer. */
static double mixed(const double *x, size_t n) {
    static const double losses[3] = {0.35, 0, 0.1}, rates[3] = {-1, -3, -2.5};
    (void)n;
    int optimizer = (int)x[0];
    double rate = log10(x[1]) - rates[optimizer], layers = x[2] - 3, width = log2(x[3]) - 7, dropout = x[4] - 0.2;
    return losses[optimizer] + 0.3 * square(rate) + 0.04 * square(layers) + 0.05 * square(width) +
           0.05 * fabs(layers) * square(rate) + 2 * square(dropout);
}

/* ---- two metrics ---- */

/* ZDT1 to ZDT3 (Zitzler, Deb and Thiele 2000): out[1] = g h(x[0], g). */
static double zdt_distance(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 1; i < n; i++) sum += x[i];
    return 1 + 9 * sum / (double)(n - 1);
}

static void zdt1(const double *x, size_t n, double *out) {
    double g = zdt_distance(x, n);
    out[0] = x[0];
    out[1] = g * (1 - sqrt(x[0] / g));
}

static void zdt2(const double *x, size_t n, double *out) {
    double g = zdt_distance(x, n);
    out[0] = x[0];
    out[1] = g * (1 - square(x[0] / g));
}

static void zdt3(const double *x, size_t n, double *out) {
    double g = zdt_distance(x, n);
    out[0] = x[0];
    out[1] = g * (1 - sqrt(x[0] / g) - x[0] / g * sin(10 * PI * x[0])) + 1;
}

/* Fonseca and Fleming 1995 */
static void fonseca(const double *x, size_t n, double *out) {
    double a = 0, b = 0, shift = 1 / sqrt((double)n);
    for (size_t i = 0; i < n; i++) {
        a += square(x[i] - shift);
        b += square(x[i] + shift);
    }
    out[0] = 1 - exp(-a);
    out[1] = 1 - exp(-b);
}

/* The loss of [mixed] against a number of weights. */
static void size(const double *x, size_t n, double *out) {
    out[0] = mixed(x, n);
    out[1] = log10(x[3] * x[3] * x[2]) / 8;
}

struct function {
    const char *name;
    double (*value)(const double *x, size_t n);
    size_t n;
    double min, max; /* of n uniform parameters; else: */
    const struct parameter *items;
    void (*values)(const double *x, size_t n, double *out); /* of two metrics */
    double reference[2];                                    /* of the hypervolume */
};

static const char *optimizers[] = {"sgd", "adam", "adamw"};
static const struct parameter branin_items[] = {{.path = "x", .kind = PARAMETER_UNIFORM, .min = -5, .max = 10},
                                                {.path = "y", .kind = PARAMETER_UNIFORM, .min = 0, .max = 15}};
static const struct parameter mixed_items[] = {
    {.path = "optimizer", .kind = PARAMETER_VALUES, .texts = optimizers, .count = 3},
    {.path = "lr", .kind = PARAMETER_LOG_UNIFORM, .min = 1e-5, .max = 1},
    {.path = "layers", .kind = PARAMETER_INT_UNIFORM, .min = 1, .max = 12},
    {.path = "width", .kind = PARAMETER_INT_LOG_UNIFORM, .min = 8, .max = 1024},
    {.path = "dropout", .kind = PARAMETER_UNIFORM, .min = 0, .max = 0.9, .step = 0.05},
};
static const struct function functions[] = {
    {"sphere", sphere, 5, -5, 10, NULL, NULL, {0}},
    {"rosenbrock", rosenbrock, 4, -5, 10, NULL, NULL, {0}},
    {"ackley", ackley, 5, -15, 30, NULL, NULL, {0}},
    {"rastrigin", rastrigin, 5, -4, 7, NULL, NULL, {0}},
    {"griewank", griewank, 5, -400, 600, NULL, NULL, {0}},
    {"levy", levy, 5, -10, 10, NULL, NULL, {0}},
    {"styblinski_tang", styblinski_tang, 5, -5, 5, NULL, NULL, {0}},
    {"branin", branin, 2, 0, 0, branin_items, NULL, {0}},
    {"hartmann6", hartmann6, 6, 0, 1, NULL, NULL, {0}},
    {"mixed", mixed, 5, 0, 0, mixed_items, NULL, {0}},
    {"zdt1", NULL, 5, 0, 1, NULL, zdt1, {1.1, 2.1}},
    {"zdt2", NULL, 5, 0, 1, NULL, zdt2, {1.1, 2.1}},
    {"zdt3", NULL, 5, 0, 1, NULL, zdt3, {1.1, 2.1}},
    {"fonseca", NULL, 3, -4, 4, NULL, fonseca, {1.1, 1.1}},
    {"loss_and_size", NULL, 5, 0, 0, mixed_items, size, {1.1, 1.1}},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* items (f->n) are for a function whose parameters are alike. */
static struct space space_of(const struct function *f, struct parameter *items) {
    for (size_t i = 0; i < f->n; i++)
        items[i] = f->items ? f->items[i]
                            : (struct parameter){.path = "x", .kind = PARAMETER_UNIFORM, .min = f->min, .max = f->max};
    return (struct space){.items = items, .count = f->n};
}

static void list(void) {
    for (int k = 0; k < N_FUNCTIONS; k++) {
        struct parameter items[SPACE_MAX_PARAMETERS];
        struct space space = space_of(&functions[k], items);
        printf("{\"name\":\"%s\",\"parameters\":[", functions[k].name);
        for (size_t i = 0; i < space.count; i++)
            printf("%s{\"kind\":\"%s\",\"min\":%.17g,\"max\":%.17g,\"step\":%.17g,\"values\":%zu}", i > 0 ? "," : "",
                   parameter_kinds[items[i].kind], items[i].min, items[i].max, items[i].step, items[i].count);
        printf("]");
        if (functions[k].values) printf(",\"reference\":[%g,%g]", functions[k].reference[0], functions[k].reference[1]);
        printf("}\n");
    }
}

static void set_values(const struct function *f, const double *x, double *out) {
    if (f->values)
        f->values(x, f->n, out);
    else
        out[0] = f->value(x, f->n);
}

static void print_values(const struct function *f, const double *values, const char *end) {
    printf("%.17g", values[0]);
    if (f->values) printf(" %.17g", values[1]);
    printf("%s", end);
}

static void minimise(const struct function *f, size_t trials, uint64_t seed) {
    struct parameter items[SPACE_MAX_PARAMETERS];
    struct space space = space_of(f, items);
    struct tpe *tpe = tpe_create(&space, f->values ? 2 : 1);
    double best = INFINITY;
    for (size_t i = 0; i < trials; i++) {
        struct observation observation = {.is_complete = true};
        struct rng rng;
        rng_seed(&rng, seed * (trials > SEED_TRIALS ? trials : SEED_TRIALS) + i);
        tpe_suggest(tpe, &rng, &observation.point);
        set_values(f, observation.point.values, observation.values);
        tpe_observe(tpe, i, &observation);
        best = fmin(best, observation.values[0]);
        if (f->values) print_values(f, observation.values, " ");
    }
    tpe_destroy(tpe);
    if (!f->values) printf("%.17g", best);
    printf("\n");
}

static void evaluate(const struct function *f) {
    double x[SPACE_MAX_PARAMETERS];
    for (size_t read = 0; scanf("%lf", &x[read]) == 1;) {
        if (++read < f->n) continue;
        double values[2];
        set_values(f, x, values);
        print_values(f, values, "\n");
        fflush(stdout);
        read = 0;
    }
}

int main(int count, char **arguments) {
    const struct function *f = NULL;
    for (int k = 0; k < N_FUNCTIONS; k++)
        if (count > 2 && strcmp(functions[k].name, arguments[2]) == 0) f = &functions[k];
    if (count == 2 && strcmp(arguments[1], "list") == 0)
        list();
    else if (f && count == 5 && strcmp(arguments[1], "minimise") == 0 && strtoul(arguments[3], NULL, 10) <= MAX_TRIALS)
        for (uint64_t seed = 0; seed < strtoull(arguments[4], NULL, 10); seed++)
            minimise(f, strtoul(arguments[3], NULL, 10), seed);
    else if (f && count == 3 && strcmp(arguments[1], "evaluate") == 0)
        evaluate(f);
    else {
        fprintf(stderr, "usage: tpe_functions list | minimise NAME TRIALS SEEDS | evaluate NAME\n");
        return 64;
    }
    return 0;
}
