/* Values stay within their limits, on their steps, have the distribution of their kind, and survive being written. */
#include <math.h>

#include "check_main.h"
#include "sweep/space.h"

static const char *words[] = {"sgd", "adam", "[1, 2]"};

static const struct parameter kinds[] = {
    {.path = "a", .kind = PARAMETER_VALUES, .texts = words, .count = 3},
    {.path = "b", .kind = PARAMETER_UNIFORM, .min = -1.5, .max = 2.25},
    {.path = "c", .kind = PARAMETER_UNIFORM, .min = 0, .max = 1, .step = 0.1},
    {.path = "d", .kind = PARAMETER_LOG_UNIFORM, .min = 1e-4, .max = 1e-1},
    {.path = "e", .kind = PARAMETER_INT_UNIFORM, .min = -3, .max = 4},
    {.path = "f", .kind = PARAMETER_INT_UNIFORM, .min = 8, .max = 30, .step = 8},
    {.path = "g", .kind = PARAMETER_INT_LOG_UNIFORM, .min = 1, .max = 256},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, DRAWS = 20000 };

TEST(draws_stay_within_the_limits_and_survive_writing) {
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < N_KINDS * DRAWS; i++) {
        const struct parameter *p = &kinds[i / DRAWS];
        double value = parameter_draw(p, &rng), again;
        SCOPED_TEXT text = {0};
        parameter_write(p, value, &text);
        ck_assert_msg(parameter_read(p, text_string(&text), &again), "%s", text_string(&text));
        ck_assert_double_eq(again, value);
        if (p->kind != PARAMETER_VALUES) {
            ck_assert_double_ge(value, p->min);
            ck_assert_double_le(value, p->max);
            ck_assert_double_eq(parameter_round(p, value), value);
        }
    }
}

/* The mean of the values, or of their logarithms, is that of the distribution, within 5 standard errors. */
TEST(draws_have_the_distribution_of_the_kind) {
    static const double mean[] = {1, 0.375, 0.5, -5.756462732485114, 0.5, 16};
    static const double deviation[] = {0.82, 1.09, 0.32, 2.0, 2.3, 6.6};
    struct rng rng;
    rng_seed(&rng, 3);
    for (int k = 0; k < N_KINDS - 1; k++) {
        double sum = 0;
        for (int i = 0; i < DRAWS; i++) {
            double value = parameter_draw(&kinds[k], &rng);
            sum += kinds[k].kind == PARAMETER_LOG_UNIFORM ? log(value) : value;
        }
        ck_assert_double_eq_tol(sum / DRAWS, mean[k], 5 * deviation[k] / sqrt(DRAWS));
    }
}

/* Half of the logarithms are below the middle one, and the smallest and the largest number occur. */
TEST(whole_numbers_on_a_logarithmic_scale) {
    const struct parameter *p = &kinds[6];
    struct rng rng;
    int below = 0, ones = 0, most = 0;
    rng_seed(&rng, 5);
    for (int i = 0; i < DRAWS; i++) {
        double value = parameter_draw(p, &rng);
        below += value <= 11; /* sqrt(0.5 * 256.5) = 11.3 */
        ones += value == 1;
        most += value == 256;
    }
    ck_assert_double_eq_tol(below / (double)DRAWS, 0.5, 0.02);
    ck_assert_double_eq_tol(ones / (double)DRAWS, log(3.0) / log(513.0), 0.02);
    ck_assert_int_gt(most, 0);
}

TEST(the_last_step_is_reached_and_not_passed) {
    struct rng rng;
    double largest = 0, largest_int = 0;
    rng_seed(&rng, 1);
    for (int i = 0; i < 1000; i++) {
        largest = fmax(largest, parameter_draw(&kinds[2], &rng));
        largest_int = fmax(largest_int, parameter_draw(&kinds[5], &rng));
    }
    ck_assert_double_eq(largest, 1);
    ck_assert_double_eq(largest_int, 24); /* 8, 16, 24; 32 is above 30 */
    ck_assert_double_eq(parameter_round(&kinds[5], 29), 24);
    ck_assert_double_eq(parameter_round(&kinds[5], -100), 8);
}

TEST(a_text_that_is_no_value_is_refused) {
    static const struct {
        int kind;
        const char *text;
    } wrong[] = {{0, "rmsprop"}, {0, ""},    {1, ""},    {1, "3"}, {1, "1x"},
                 {3, "0"},       {3, "nan"}, {4, "0.5"}, {4, "5"}, {6, "1e400"}};
    double value;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!parameter_read(&kinds[wrong[i].kind], wrong[i].text, &value), "%s", wrong[i].text);
}

TEST(the_same_seed_draws_the_same_points) {
    struct space space = {.items = (struct parameter *)kinds, .count = N_KINDS};
    struct rng one, two;
    struct point a, b, c;
    rng_seed(&one, 11);
    rng_seed(&two, 11);
    space_draw(&space, &one, &a);
    space_draw(&space, &two, &b);
    ck_assert_mem_eq(&a, &b, sizeof a);
    space_draw(&space, &one, &c);
    ck_assert_mem_ne(&a, &c, sizeof a);
}

TEST(a_grid_has_every_combination_once) {
    struct parameter items[] = {kinds[0], kinds[2], kinds[5]};
    struct space space = {.items = items, .count = 3};
    const struct parameter *endless;
    struct point before, point;
    ck_assert_uint_eq(space_grid_size(&space, &endless), 3 * 11 * 3);
    for (uint64_t i = 0; i < 99; i++) {
        space_grid_point(&space, i, &point);
        ck_assert_double_eq(point.values[0], (double)(i / 33));
        ck_assert_double_eq_tol(point.values[1], 0.1 * (double)(i / 3 % 11), 1e-15);
        ck_assert_double_eq(point.values[2], (double)(8 + 8 * (i % 3)));
        if (i > 0) ck_assert_mem_ne(&before, &point, sizeof point);
        before = point;
    }
}

TEST(what_has_no_grid) {
    struct parameter items[] = {kinds[0], kinds[3]};
    struct parameter wide[] = {{.path = "x", .kind = PARAMETER_INT_UNIFORM, .min = 0, .max = 1e9},
                               {.path = "y", .kind = PARAMETER_INT_UNIFORM, .min = 0, .max = 1e9}};
    const struct parameter *endless;
    ck_assert_uint_eq(space_grid_size(&(struct space){.items = items, .count = 2}, &endless), 0);
    ck_assert_ptr_eq(endless, &items[1]);
    ck_assert_uint_eq(space_grid_size(&(struct space){.items = wide, .count = 2}, &endless), 0);
    ck_assert_ptr_null(endless);
    ck_assert_uint_eq(space_grid_size(&(struct space){.items = wide, .count = 1}, &endless), 1000000001);
}

CHECK_MAIN("space")
