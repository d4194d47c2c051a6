/* L-BFGS against PyTorch's, on the function of tests/vectors/make_lbfgs.py; its state. ctest-labels: unit */
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "optim/lbfgs.h"
#include "vectors.h"

#define SIZE 24

struct function {
    float *x, gradient[SIZE];
    size_t evaluations;
};

/* sum of (i + 1) / 8 (x_i - sin i)^2 + (x_i x_i+1)^2 / 4 */
static status evaluate(void *user, double *loss) {
    struct function *f = user;
    f->evaluations++;
    *loss = 0;
    for (int i = 0; i < SIZE; i++) {
        double x = (double)f->x[i], d = x - sin(i), slope = (i + 1) / 4.0 * d;
        double before = i > 0 ? (double)f->x[i - 1] : 0, after = i + 1 < SIZE ? (double)f->x[i + 1] : 0;
        *loss += (i + 1) / 8.0 * d * d + x * x * after * after / 4;
        f->gradient[i] = (float)(slope + x * (before * before + after * after) / 2);
    }
    return OK;
}

static void start(float *x) {
    for (int i = 0; i < SIZE; i++) x[i] = (float)cos(i);
}

static double real(const json_t *options, const char *key, double fallback) {
    const json_t *value = json_object_get(options, key);
    return value ? json_number_value(value) : fallback;
}

static struct lbfgs_config config_of(const json_t *options) {
    return (struct lbfgs_config){
        .lr = real(options, "lr", 1),
        .tolerance_grad = 1e-7,
        .tolerance_change = 1e-9,
        .max_iter = (int64_t)real(options, "max_iter", 20),
        .max_eval = json_object_get(options, "max_eval") ? (int64_t)real(options, "max_eval", 0) : SCHEMA_NO_INT,
        .history_size = (int64_t)real(options, "history_size", 100),
        .line_search = json_object_get(options, "line_search_fn") ? LBFGS_STRONG_WOLFE : LBFGS_NO_SEARCH};
}

/* Near the minimum float32 ends a step earlier or later than PyTorch's float64. */
TEST(losses_are_pytorchs) {
    json_t *cases = vectors_load("lbfgs"), *c;
    size_t i;
    json_array_foreach(cases, i, c) {
        struct lbfgs_config config = config_of(json_object_get(c, "options"));
        float x[SIZE];
        struct function f = {.x = x};
        struct lbfgs *lbfgs;
        double loss = 0, end = json_number_value(json_object_get(c, "end"));
        bool has_converged = false;
        ck_assert(!lbfgs_create(&config, SIZE, &lbfgs));
        start(x);
        for (size_t step = 0; step < 4; step++) {
            double expected = json_number_value(json_array_get(json_object_get(c, "losses"), step));
            ck_assert(!evaluate(&f, &loss));
            ck_assert_double_eq_tol(loss, expected, 2e-4 * expected);
            ck_assert(!lbfgs_step(lbfgs, config.lr, x, f.gradient, loss, evaluate, &f));
            has_converged = has_converged || fabs(loss - 0.8164498) < 0.01;
            json_int_t count = json_integer_value(json_array_get(json_object_get(c, "evaluations"), step));
            if (!has_converged && step > 0) ck_assert_int_eq((json_int_t)f.evaluations, count);
            ck_assert(has_converged || lbfgs->numbers[LBFGS_EVALUATIONS] == (double)count);
        }
        ck_assert(!evaluate(&f, &loss));
        ck_assert_double_eq_tol(loss, end, 2e-4 * end);
        for (size_t k = 0; k < SIZE; k++)
            ck_assert_double_eq_tol((double)x[k], json_number_value(json_array_get(json_object_get(c, "values"), k)),
                                    0.01);
        lbfgs_destroy(lbfgs);
    }
    ck_assert_uint_eq(i, 7);
    json_decref(cases);
}

/* A copy of the state goes on with the same bits. */
TEST(the_state_is_complete) {
    struct lbfgs_config config = {.lr = 1,
                                  .tolerance_grad = 1e-7,
                                  .tolerance_change = 1e-9,
                                  .max_iter = 3,
                                  .max_eval = SCHEMA_NO_INT,
                                  .history_size = 4,
                                  .line_search = LBFGS_STRONG_WOLFE};
    float x[SIZE], y[SIZE];
    struct function f = {.x = x}, g = {.x = y};
    struct lbfgs *one, *other;
    double loss;
    ck_assert(!lbfgs_create(&config, SIZE, &one) && !lbfgs_create(&config, SIZE, &other));
    start(x);
    for (int step = 0; step < 2; step++) {
        ck_assert(!evaluate(&f, &loss));
        ck_assert(!lbfgs_step(one, 1, x, f.gradient, loss, evaluate, &f));
    }
    for (size_t i = 0; i < LBFGS_VECTORS; i++)
        memcpy(lbfgs_vectors(other, i).values, lbfgs_vectors(one, i).values,
               lbfgs_vectors(one, i).count * SIZE * sizeof(float));
    memcpy(other->numbers, one->numbers, one->number_count * sizeof *one->numbers);
    memcpy(y, x, sizeof y);
    ck_assert(!evaluate(&f, &loss));
    ck_assert(!lbfgs_step(one, 1, x, f.gradient, loss, evaluate, &f));
    ck_assert(!evaluate(&g, &loss));
    ck_assert(!lbfgs_step(other, 1, y, g.gradient, loss, evaluate, &g));
    ck_assert_mem_eq(x, y, sizeof x);
    lbfgs_destroy(one);
    lbfgs_destroy(other);
}

static status fails(void *user, double *loss) {
    (void)user, (void)loss;
    return status_new(STATUS_DATA, "no loss");
}

TEST(a_failure_is_returned) {
    for (int search = 0; search < 2; search++) {
        struct lbfgs_config config = {.lr = 1, .max_iter = 3, .max_eval = 9, .history_size = 4, .line_search = search};
        float x[SIZE];
        struct function f = {.x = x};
        struct lbfgs *lbfgs;
        double loss;
        ck_assert(!lbfgs_create(&config, SIZE, &lbfgs));
        start(x);
        ck_assert(!evaluate(&f, &loss));
        status s = lbfgs_step(lbfgs, 1, x, f.gradient, loss, fails, NULL);
        ck_assert_str_eq(status_message(s), "no loss");
        status_free(s);
        lbfgs_destroy(lbfgs);
    }
}

CHECK_MAIN("lbfgs")
