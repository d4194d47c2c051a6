/* Schedules against PyTorch's schedulers. ctest-labels: unit */
#include <math.h>
#include <stdio.h>

#include "check_main.h"
#include "optim/schedule.h"
#include "train/config/config.h"
#include "vectors.h"

/* A config with [rest] added. */
static struct config_file *config_with(const char *rest, const char **sentence) {
    static char text[1024], message[1024];
    struct config_file *file = NULL;
    snprintf(text, sizeof text,
             "dataset: {format: synthetic, split: {test: 0.5}}\nmodel: {layers: [{linear: {out: 1}}]}\nloss: mse\n"
             "sampler: {batch_size: 1}\ntrain: {epochs: 100}\noptimizer: {type: sgd, momentum: 0.9}\n%s\n",
             rest);
    status s = config_parse("test", text, &file);
    snprintf(message, sizeof message, "%s", s ? status_message(s) : "");
    if (sentence)
        *sentence = message;
    else
        ck_assert_msg(!s, "%s", message);
    status_free(s);
    return file;
}

static struct config_file *schedule_of(const char *schedule) {
    char rest[512];
    snprintf(rest, sizeof rest, "schedule: %s", schedule);
    return config_with(rest, NULL);
}

static const struct {
    const char *vector, *config;
} schedules[] = {
    {"StepLR(3,0.5)", "{type: step, step_size: 3, gamma: 0.5}"},
    {"MultiStepLR([2,5],0.1)", "{type: multistep, milestones: [2, 5], gamma: 0.1}"},
    {"ExponentialLR(.9)", "{type: exponential, gamma: 0.9}"},
    {"CosineAnnealingLR(10,1e-3)", "{type: cosine, t_max: 10, eta_min: 1.0e-3}"},
    {"LinearLR(.1,1,5)", "{type: linear, start_factor: 0.1, end_factor: 1, total_iters: 5}"},
    {"PolynomialLR(8,2.0)", "{type: polynomial, total_iters: 8, power: 2}"},
    {"Sequential(LinearLR(.01,1,5),Cosine(15))@5", "{type: cosine, t_max: 15, warmup: 5, warmup_start_factor: 0.01}"},
    {"OneCycleLR(max .1,total 20)", "{type: one_cycle, total_iters: 20}"},
    {"OneCycleLR(max .1,total 20,linear,3phase)",
     "{type: one_cycle, total_iters: 20, anneal: linear, three_phase: true}"},
    {"CosineAnnealingWarmRestarts(4,2)", "{type: cosine_restarts, t_0: 4, t_mult: 2}"},
};

TEST(schedules_are_pytorchs) {
    json_t *root = vectors_load("sched"), *vector;
    size_t i, found = 0;
    json_array_foreach(json_object_get(root, "cases"), i, vector) {
        for (size_t c = 0; c < sizeof schedules / sizeof *schedules; c++) {
            if (strcmp(schedules[c].vector, json_string_value(json_object_get(vector, "name"))) != 0) continue;
            struct config_file *file = schedule_of(schedules[c].config);
            double base = json_real_value(json_object_get(vector, "base_lr"));
            json_t *rates = json_object_get(vector, "lr");
            for (size_t t = 0; t < json_array_size(rates); t++) {
                double expected = json_real_value(json_array_get(rates, t));
                struct schedule_progress at = {.epoch = (int64_t)t, .total_epochs = 100, .total_steps = 1000};
                double got = schedule_lr(&config_of(file)->schedule, base, &at);
                ck_assert_msg(fabs(got - expected) <= 1e-13 * base, "%s at %zu: expected %.17g, got %.17g",
                              schedules[c].vector, t, expected, got);
                double moved = schedule_momentum(&config_of(file)->schedule, &at);
                const json_t *momentum = json_object_get(vector, "momentum");
                ck_assert(momentum ? fabs(moved - json_real_value(json_array_get(momentum, t))) < 1e-14 : isnan(moved));
            }
            config_free(file);
            found++;
        }
    }
    ck_assert_uint_eq(found, sizeof schedules / sizeof *schedules);
    json_decref(root);
}

/* Vectors that have their config: tests/vectors/make_schedules.py. */
TEST(cycles_and_tables_are_pytorchs) {
    json_t *root = vectors_load("schedules"), *run;
    size_t i;
    ck_assert_uint_ge(json_array_size(root), 9);
    json_array_foreach(root, i, run) {
        const char *config = json_string_value(json_object_get(run, "config"));
        struct config_file *file = schedule_of(config);
        const struct variant *s = &config_of(file)->schedule;
        json_t *rates = json_object_get(run, "lr"), *momenta = json_object_get(run, "momentum");
        for (size_t t = 0; t < json_array_size(rates); t++) {
            struct schedule_progress at = {.epoch = (int64_t)t, .total_epochs = 100, .total_steps = 1000};
            double expected = json_number_value(json_array_get(rates, t)), got = schedule_lr(s, 0.1, &at);
            ck_assert_msg(fabs(got - expected) < 1e-15 + 1e-14 * expected, "%s at %zu: expected %.17g, got %.17g",
                          config, t, expected, got);
            double momentum = schedule_momentum(s, &at);
            ck_assert(momenta ? fabs(momentum - json_number_value(json_array_get(momenta, t))) < 1e-15
                              : isnan(momentum));
        }
        config_free(file);
    }
    json_decref(root);
}

TEST(schedules_count_steps_and_default_to_the_run) {
    struct config_file *file = schedule_of("{type: cosine, interval: step}");
    const struct variant *s = &config_of(file)->schedule;
    struct schedule_progress at = {.epoch = 99, .total_epochs = 10, .total_steps = 200};
    ck_assert(schedule_lr(s, 1, &at) == 1);
    at.steps = 100;
    ck_assert(fabs(schedule_lr(s, 1, &at) - 0.5) < 1e-15);
    at.steps = 200;
    ck_assert(fabs(schedule_lr(s, 1, &at)) < 1e-15);
    config_free(file);
}

/* PyTorch raises an error after the cycle; here a run may be longer and keeps the last rate. */
TEST(a_cycle_has_an_end) {
    static const char *const cycles[] = {"{type: one_cycle, total_iters: 20}",
                                         "{type: one_cycle, total_iters: 20, anneal: linear, three_phase: true}"};
    for (int i = 0; i < 2; i++) {
        struct config_file *file = schedule_of(cycles[i]);
        const struct variant *s = &config_of(file)->schedule;
        struct schedule_progress last = {.epoch = 19, .total_epochs = 100, .total_steps = 1000};
        double rate = schedule_lr(s, 0.1, &last), momentum = schedule_momentum(s, &last);
        for (int64_t epoch = 20; epoch < 60; epoch++) {
            struct schedule_progress later = {.epoch = epoch, .total_epochs = 100, .total_steps = 1000};
            ck_assert(schedule_lr(s, 0.1, &later) == rate && schedule_momentum(s, &later) == momentum);
        }
        ck_assert(rate < 1e-6 && momentum > 0.94);
        config_free(file);
    }
}

/* Periods whose lengths exceed all integers, and very many restarts. */
TEST(restarts_have_no_limits) {
    static const char *const long_periods[] = {"{type: cosine_restarts, t_0: 4, t_mult: 4611686018427387904}",
                                               "{type: cosine_restarts, t_0: 2, t_mult: 4611686018427387904}",
                                               "{type: cosine_restarts, t_0: 4, t_mult: 3037000500}"};
    static const int64_t first[] = {4, 4, 12148002004}; /* of the period whose length would overflow, or before */
    for (size_t i = 0; i < sizeof long_periods / sizeof *long_periods; i++) {
        struct config_file *file = schedule_of(long_periods[i]);
        for (int64_t epoch = first[i]; epoch < first[i] + 36; epoch++) {
            struct schedule_progress at = {.epoch = epoch, .total_epochs = 100, .total_steps = 1000};
            ck_assert(fabs(schedule_lr(&config_of(file)->schedule, 0.1, &at) - 0.1) < 1e-12);
        }
        config_free(file);
    }
    struct config_file *file = schedule_of("{type: cosine_restarts, t_0: 2, interval: step}");
    struct schedule_progress at = {.steps = ((int64_t)1 << 50) + 1, .total_epochs = 100, .total_steps = 1000};
    ck_assert(fabs(schedule_lr(&config_of(file)->schedule, 0.1, &at) - 0.05) < 1e-15);
    config_free(file);
}

/* torch.optim.lr_scheduler.ReduceLROnPlateau of tests/vectors/make_plateau.py: a value per epoch (null:
 * not defined), the rate after each. */
TEST(plateau_is_pytorchs) {
    json_t *root = vectors_load("plateau"), *run;
    size_t i;
    ck_assert_uint_ge(json_array_size(root), 4);
    json_array_foreach(root, i, run) {
        struct config_file *file = schedule_of(json_string_value(json_object_get(run, "config")));
        const struct variant *s = &config_of(file)->schedule;
        struct schedule_progress at = {.total_epochs = 100};
        struct plateau plateau = {.best = NAN};
        int mode;
        ck_assert_str_eq(schedule_monitor(s, &mode), "val_loss");
        json_t *values = json_object_get(run, "values"), *rates = json_object_get(run, "lr");
        for (size_t t = 0; t < json_array_size(values); t++) {
            const json_t *value = json_array_get(values, t);
            schedule_update_plateau(s, &plateau, json_is_null(value) ? NAN : json_number_value(value), mode == 2);
            at.epoch++;
            at.reductions = plateau.reductions;
            double expected = json_real_value(json_array_get(rates, t)), got = schedule_lr(s, 0.1, &at);
            ck_assert_msg(got == expected, "run %zu at %zu: expected %.17g, got %.17g", i, t, expected, got);
        }
        config_free(file);
    }
    json_decref(root);
}

TEST(sections_that_contradict_each_other) {
    static const struct {
        const char *rest, *sentence;
    } cases[] = {
        {"schedule: {type: one_cycle}\noptimizer: sgd", "duplicate"},
        {"schedule: {type: reduce_on_plateau, monitor: val_accuracy}", "epochs have no metric 'val_accuracy'"},
        {"schedule: {type: reduce_on_plateau, factor: -1}", "must be >= 0"},
        {"schedule: {type: reduce_on_plateau, factor: 1}", "< 1"},
        {"schedule: {type: piecewise, points: {}}", "points must not be empty"},
        {"schedule: {type: piecewise, points: {5: 1, 5000: 1, 30: 1}}",
         "must be at ascending whole numbers >= 0, got '30'"},
        {"schedule: {type: piecewise, points: {0: 1, 1.5: 1}}", "must be at ascending whole numbers >= 0, got '1.5'"},
        {"schedule: {type: piecewise, points: {-1: 1}}", "must be at ascending whole numbers >= 0, got '-1'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *sentence;
        config_free(config_with(cases[i].rest, &sentence));
        ck_assert_msg(strstr(sentence, cases[i].sentence), "%s: %s", cases[i].rest, sentence);
    }
}

CHECK_MAIN("schedule")
