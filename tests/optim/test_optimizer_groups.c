/* Groups, frozen parameters and rules that PyTorch does not have: against plain loops and against separate runs of each
 * part. ctest-labels: unit */
#include <math.h>
#include <stdio.h>

#include "base/numbers/rng.h"
#include "check_main.h"
#include "optim/optimizer.h"
#include "train/config/config.h"
#include "train/parallel/zero.h"

static char text[2048];

static struct config_file *parse(const char *layers, const char *optimizer, const char *freeze) {
    struct config_file *file = NULL;
    snprintf(text, sizeof text,
             "dataset: {format: synthetic}\nmodel: {layers: %s, freeze: %s}\nloss: mse\nsampler: {batch_size: 1}\n"
             "train: {epochs: 1}\noptimizer: %s\n",
             layers, freeze, optimizer);
    status s = config_parse("test", text, &file);
    ck_assert_msg(!s, "%s", status_message(s));
    return file;
}

#define TWO_LAYERS "[{linear: {out: 7, name: a}}, relu, {linear: {out: 3, name: b}}]"

struct fixture {
    struct config_file *file;
    struct model *model;
    struct device *device;
    struct optimizer *optimizer;
};

static status plan(struct fixture *f, const char *layers, const char *optimizer, const char *freeze) {
    struct shape input = {.dims = 1, .size = {5}};
    *f = (struct fixture){.file = parse(layers, optimizer, freeze)};
    TRY(model_plan(&config_of(f->file)->model, &input, &f->model));
    TRY(device_create("cpu", &f->device));
    TRY(model_alloc(f->model, f->device, 4));
    return optimizer_create(&config_of(f->file)->optimizer, &f->model->params, f->device, &f->optimizer);
}

static void close_fixture(struct fixture *f) {
    optimizer_destroy(f->optimizer);
    model_destroy(f->model);
    device_destroy(f->device);
    config_free(f->file);
}

static void fill(float *to, size_t count, uint64_t seed) {
    struct rng rng;
    rng_seed(&rng, seed);
    rng_normal(&rng, to, count, 0, 1);
}

/* Values after [steps] updates with made-up gradients, the same in every fixture. */
static struct fixture run(const char *optimizer, const char *freeze, int steps) {
    struct fixture f;
    status s = plan(&f, TWO_LAYERS, optimizer, freeze);
    ck_assert_msg(!s, "%s", status_message(s));
    struct params *params = &f.model->params;
    for (size_t p = 0; p < params->count; p++) fill(params_value(params, p), params->items[p].count, p + 1);
    for (int t = 1; t <= steps; t++) {
        for (size_t p = 0; p < params->count; p++)
            fill(params_gradient(params, p), params->items[p].count, 100 * (uint64_t)t + p);
        optimizer_step(f.optimizer, params, t, NULL, NULL, &(float){0.5f});
    }
    return f;
}

/* Parameter [index] is the same in both. */
static void same(const struct fixture *a, const struct fixture *b, size_t index) {
    const struct param *p = &a->model->params.items[index];
    ck_assert_msg(memcmp(params_value(&a->model->params, index), params_value(&b->model->params, index),
                         p->count * sizeof(float)) == 0,
                  "%s", p->name);
}

TEST(each_group_is_a_separate_optimizer) {
    static const char *const types[] = {"sgd, momentum: 0.9",
                                        "adam",
                                        "adamw, amsgrad: true",
                                        "adagrad",
                                        "rmsprop, centered: true, momentum: 0.5",
                                        "lion"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char grouped[512], plain[4][256];
        snprintf(
            grouped, sizeof grouped,
            "{type: %s, lr: 0.01, weight_decay: 0.1, groups: [{match: 'a.bias', weight_decay: 0}, {match: 'a.*', lr: "
            "0.02}, {max_dims: 1, lr_factor: 3, weight_decay: 0.3}]}",
            types[i]);
        static const char *const own[] = {"lr: 0.02, weight_decay: 0.1", "lr: 0.01, weight_decay: 0",
                                          "lr: 0.01, weight_decay: 0.1", "lr: 0.03, weight_decay: 0.3"};
        struct fixture f = run(grouped, "null", 5);
        ck_assert_uint_eq(f.optimizer->plan->setting_count, 4);
        for (size_t p = 0; p < 4; p++) {
            snprintf(plain[p], sizeof plain[p], "{type: %s, %s}", types[i], own[p]);
            struct fixture alone = run(plain[p], "null", 5);
            same(&f, &alone, p);
            close_fixture(&alone);
        }
        close_fixture(&f);
    }
}

/* With other betas, momentum and eps a group is as the optimizer with them, also where only one of them needs a buffer.
 */
TEST(groups_replace_keys_of_the_optimizer) {
    static const struct {
        const char *type, *own, *group;
    } cases[] = {
        {"adam", "betas: [0.8, 0.95]", "betas: [0.5, 0.9], eps: 0.01"},
        {"nadam", "eps: 0.001", "betas: [0.6, 0.9], eps: 1.0e-08"},
        {"sgd", "momentum: 0.9, dampening: 0.5", "momentum: 0"},
        {"sgd", "momentum: 0", "momentum: 0.9"},
        {"rmsprop", "momentum: 0", "momentum: 0.5, eps: 0.1"},
        {"rmsprop", "momentum: 0.9", "momentum: 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char grouped[512], own[256], group[512];
        snprintf(grouped, sizeof grouped, "{type: %s, lr: 0.01, weight_decay: 0.1, %s, groups: [{match: 'a.*', %s}]}",
                 cases[i].type, cases[i].own, cases[i].group);
        snprintf(own, sizeof own, "{type: %s, lr: 0.01, weight_decay: 0.1, %s}", cases[i].type, cases[i].own);
        snprintf(group, sizeof group, "{type: %s, lr: 0.01, weight_decay: 0.1, %s}", cases[i].type, cases[i].group);
        struct fixture f = run(grouped, "null", 5), with_own = run(own, "null", 5), with_group = run(group, "null", 5);
        same(&f, &with_group, 0), same(&f, &with_group, 1), same(&f, &with_own, 2), same(&f, &with_own, 3);
        close_fixture(&f), close_fixture(&with_own), close_fixture(&with_group);
    }
}

TEST(decay_of_matrices) {
    struct fixture f = run("{type: adamw, weight_decay: 0.1, decay: matrices}", "null", 3);
    struct fixture with = run("{type: adamw, weight_decay: 0.1}", "null", 3);
    struct fixture without = run("{type: adamw, weight_decay: 0}", "null", 3);
    same(&f, &with, 0), same(&f, &without, 1), same(&f, &with, 2), same(&f, &without, 3);
    ck_assert_uint_eq(f.optimizer->plan->run_count, 4);
    ck_assert_uint_eq(with.optimizer->plan->run_count, 1);
    close_fixture(&f), close_fixture(&with), close_fixture(&without);
}

TEST(neighbours_are_merged) {
    struct fixture f = run("{type: adam, groups: [{match: ['b.*'], lr_factor: 1}, {match: 'a.weight'}]}", "null", 1);
    ck_assert_uint_eq(f.optimizer->plan->setting_count, 1);
    ck_assert_uint_eq(f.optimizer->plan->run_count, 1);
    ck_assert_uint_eq(f.optimizer->plan->runs[0].end, f.model->params.total);
    close_fixture(&f);
}

TEST(each_group_is_scheduled) {
    struct fixture f = run("{type: sgd, lr: 0.5, groups: [{match: 'b.*', lr: 2}]}\n"
                           "schedule: {type: exponential, gamma: 0.5}",
                           "null", 0);
    struct params *params = &f.model->params;
    struct schedule_progress progress = {.epoch = 1};
    for (size_t i = 0; i < params->total; i++) params->values[i] = 0, params->gradients[i] = 1;
    optimizer_step(f.optimizer, params, 1, &config_of(f.file)->schedule, &progress, &(float){1});
    ck_assert(params_value(params, 0)[0] == -0.25f && params_value(params, 3)[0] == -1.0f);
    close_fixture(&f);
}

TEST(momentum_is_scheduled) {
    struct fixture f = run("{type: sgd, lr: 1, momentum: 0.5}\n"
                           "schedule: {type: cyclic, base_lr: 1, max_lr: 1, step_size_up: 2, base_momentum: 0.25, "
                           "max_momentum: 0.75}",
                           "null", 0);
    struct params *params = &f.model->params;
    static const float momentum[] = {0.75f, 0.5f, 0.25f};
    float buffer = 0, value = params->values[0] = 0;
    for (int64_t t = 0; t < 3; t++) {
        struct schedule_progress progress = {.epoch = t};
        for (size_t i = 0; i < params->total; i++) params->gradients[i] = 1;
        optimizer_step(f.optimizer, params, t + 1, &config_of(f.file)->schedule, &progress, &(float){1});
        buffer = momentum[t] * buffer + 1; /* 0 before the first step */
        value -= buffer;
        ck_assert(params->values[0] == value);
    }
    close_fixture(&f);
}

TEST(frozen_parameters_do_not_change) {
    struct fixture before = run("{type: adamw, weight_decay: 0.1}", "null", 0);
    struct fixture f = run("{type: adamw, weight_decay: 0.1}", "['a.*', b.bias]", 3);
    struct fixture free_one = run("{type: adamw, weight_decay: 0.1}", "null", 3);
    same(&f, &before, 0), same(&f, &before, 1), same(&f, &free_one, 2), same(&f, &before, 3);
    close_fixture(&before), close_fixture(&f), close_fixture(&free_one);
}

/* Only trained parameters are in a bucket and have optimizer state, also with frozen parameters between them. */
TEST(frozen_parameters_have_no_state) {
    static const char layers[] =
        "[{linear: {out: 7, name: a}}, {linear: {out: 900, name: b}}, {linear: {out: 3, name: c}}]";
    struct fixture f;
    struct ranges ranges;
    struct reducer_shard shards[6];
    size_t count, sent = 0, trained = 0, frozen = 0, padding = 0;
    ck_assert(!plan(&f, layers, "adam", "['b.*', a.bias]"));
    const struct params *params = &f.model->params;
    ck_assert(!ranges_create(params, &ranges));
    ck_assert_uint_eq(ranges.count, 3);
    ck_assert(!reducer_shards(ranges.ranges, ranges.count,
                              &(struct reducer_config){.first_bucket_mb = 1, .bucket_cap_mb = 25}, 2, shards, &count));
    for (size_t i = 0; i < count; i++) sent += shards[i].end - shards[i].begin;
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        *(p->is_frozen ? &frozen : &trained) += p->count;
        if (!p->is_frozen) padding += 15;
        ck_assert(p->is_frozen ? p->offset >= params->trained : p->offset + p->count <= params->trained);
    }
    ck_assert_uint_eq(frozen, 7 + 900 * 7 + 900);
    ck_assert(sent >= trained && sent <= trained + padding);
    ck_assert(params->total >= params->trained + frozen);
    ck_assert_uint_eq(optimizer_memory(&config_of(f.file)->optimizer, f.optimizer->plan, params),
                      2 * params->trained * sizeof(float));
    ck_assert(params->trained <= trained + padding);
    ranges_free(&ranges);
    close_fixture(&f);
}

/* Backward stops at the first trained parameter, and only that is reported as ready. */
static void note_ready(void *user, size_t index) {
    size_t *seen = user;
    seen[++seen[0]] = index;
}

TEST(backward_stops_at_frozen_layers) {
    struct fixture f;
    float inputs[20], sum = 0;
    size_t seen[8] = {0};
    ck_assert(!plan(&f, TWO_LAYERS, "sgd", "'a.*'"));
    struct params *params = &f.model->params;
    struct pass pass = {.device = f.device, .rows = 4, .is_training = true};
    fill(inputs, 20, 1);
    fill(params->values, params->total, 2);
    model_forward(f.model, &pass, inputs);
    fill(model_output_gradient(f.model).data, 12, 3);
    model_backward(f.model, &pass, inputs, note_ready, seen);
    ck_assert_uint_eq(seen[0], 2);
    ck_assert(seen[1] == 3 && seen[2] == 2);
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < params->items[p].count; i++) ck_assert(params_gradient(params, p)[i] == 0);
    for (size_t i = 0; i < params->items[2].count; i++) sum += fabsf(params_gradient(params, 2)[i]);
    ck_assert(sum > 0);
    close_fixture(&f);
}

/* c = b1 m + (1 - b1) g;  p = p - lr (sign(c) + wd p);  m = b2 m + (1 - b2) g, in double */
TEST(lion_is_the_papers) {
    struct fixture f = run("{type: lion, lr: 0.01, betas: [0.9, 0.98], weight_decay: 0.2}", "null", 4);
    const struct params *params = &f.model->params;
    for (size_t p = 0; p < params->count; p++) {
        size_t n = params->items[p].count;
        SCOPED_MEMORY float *start = malloc(n * sizeof *start), *g = malloc(n * sizeof *g);
        SCOPED_MEMORY double *w = malloc(n * sizeof *w), *m = calloc(n, sizeof *m);
        fill(start, n, p + 1);
        for (size_t i = 0; i < n; i++) w[i] = (double)start[i];
        for (int t = 1; t <= 4; t++) {
            fill(g, n, 100 * (uint64_t)t + p);
            for (size_t i = 0; i < n; i++) {
                double gradient = 0.5 * (double)g[i], c = 0.9 * m[i] + 0.1 * gradient;
                w[i] -= 0.01 * ((c > 0) - (c < 0) + 0.2 * w[i]);
                m[i] = 0.98 * m[i] + 0.02 * gradient;
            }
        }
        for (size_t i = 0; i < n; i++) ck_assert(fabs(w[i] - (double)params_value(params, p)[i]) < 1e-6);
    }
    close_fixture(&f);
}

static void rejected(const char *optimizer, const char *freeze, const char *sentence) {
    struct fixture f;
    status s = plan(&f, TWO_LAYERS, optimizer, freeze);
    ck_assert_msg(s && status_code(s) == STATUS_USAGE, "%s %s was accepted", optimizer, freeze);
    ck_assert_msg(strstr(status_message(s), sentence), "%s", status_message(s));
    status_free(s);
    close_fixture(&f);
}

/* What muon leaves to adamw has the bits of adamw alone; a skipped update changes nothing. */
TEST(muon_updates_other_parameters_as_adamw) {
    struct fixture muon =
        run("{type: muon, adamw_match: 'b.*', adamw: {lr: 0.01, betas: [0.8, 0.99], weight_decay: 0.1}}", "null", 3);
    struct fixture adamw = run("{type: adamw, lr: 0.01, betas: [0.8, 0.99], weight_decay: 0.1}", "null", 3);
    const struct params *params = &muon.model->params;
    float *values = muon.model->params.values;
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        int differs = memcmp(values + p->offset, adamw.model->params.values + p->offset, p->count * sizeof *values);
        ck_assert_msg((differs != 0) == (strcmp(p->name, "a.weight") == 0), "%s", p->name);
        params->gradients[p->offset] = 1;
    }
    /* momentum of a.weight (7, 5); two means of a.bias (7), b.weight (3, 7) and b.bias (3), each padded to 16 */
    ck_assert_uint_eq(muon.optimizer->buffer_floats[0], 48);
    ck_assert_uint_eq(muon.optimizer->buffer_floats[1], 16 + 32 + 16);
    float before[256];
    ck_assert_uint_le(params->total, 256);
    memcpy(before, values, params->total * sizeof *before);
    optimizer_step(muon.optimizer, &muon.model->params, 4, NULL, NULL, &(float){NAN});
    ck_assert_mem_eq(before, values, params->total * sizeof *before);
    for (size_t i = 0; i < params->total; i++) ck_assert(params->gradients[i] == 0);
    close_fixture(&muon);
    close_fixture(&adamw);
}

TEST(a_pattern_without_match_is_an_error) {
    rejected("{type: adam, groups: [{match: [a.bias, '*.bais']}]}", "null",
             "test:6:34: optimizer.groups.0: no parameter matches '*.bais'; the parameters are a.weight, a.bias, "
             "b.weight, b.bias");
    rejected("{type: adam, groups: [{match: '*.bias', min_dims: 2}]}", "null",
             "optimizer.groups.0: no parameter has this name and so many dimensions");
    rejected("{type: adam, groups: [{match: 'a.*', momentum: 0.5}]}", "null",
             "optimizer.groups.0: adam has no key 'momentum'");
    rejected("{type: rprop, groups: [{match: 'a.*', weight_decay: 0.5}]}", "null",
             "optimizer.groups.0: rprop has no key 'weight_decay'");
    rejected("{type: adam, groups: [{match: 'a.*', betas: [0.5]}]}", "null",
             "test:6:34: optimizer.groups.0: betas must be two numbers, got 1");
    rejected("{type: sgd, momentum: 0.9, nesterov: true, groups: [{match: 'a.*', momentum: 0}]}", "null",
             "optimizer.groups.0: nesterov needs momentum > 0 and dampening 0");
    rejected("{type: muon, adamw_match: '*'}", "null",
             "test:6:12: optimizer.type: muon is for matrices, and no trained parameter is one");
    rejected("adam", "[a.bias, c]", "model.freeze: no parameter matches 'c'; the parameters are");
    rejected("adam", "'*'", "model.freeze: every parameter is frozen");
}

static void bad_config(const char *optimizer, const char *sentence) {
    struct config_file *file = NULL;
    snprintf(text, sizeof text,
             "dataset: {format: synthetic}\nmodel: {layers: [relu]}\nloss: mse\ntrain: {epochs: 1}\noptimizer: %s\n",
             optimizer);
    status s = config_parse("test", text, &file);
    ck_assert_msg(s && strstr(status_message(s), sentence), "%s: %s", optimizer, s ? status_message(s) : "accepted");
    status_free(s);
}

TEST(bad_groups) {
    bad_config("{type: adam, groups: [{lr: 1}]}", "optimizer.groups.0: needs match, min_dims or max_dims");
    bad_config("{type: adam, groups: [{match: a, lr: 1, lr_factor: 2}]}", "give lr or lr_factor, not both");
    bad_config("{type: adam, groups: [{match: a, learning_rate: 1}]}", "optimizer.groups.0.learning_rate: unknown key");
    bad_config("{type: adam, decay: biases}", "expected one of all, matrices");
    bad_config("{type: lion, betas: [0.9]}", "betas must be two numbers, got 1");
}

CHECK_MAIN("optimizer groups")
