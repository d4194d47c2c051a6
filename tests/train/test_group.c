/* Runs that are trained at once have the numbers of each run alone: its state, its best value and its counters.
 * ctest-labels: unit */
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "device/cpu/group.h"
#include "device/internal.h"
#include "files.h"
#include "train/run/run.h"

#define MAX_RUNS 16

static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};

/* The last of three batches is a short one. */
#define ROWS_OF(inputs, sampler)                                                                                       \
    "dataset: {format: synthetic, synthetic: {kind: classes, rows: 120, inputs: " inputs ", classes: 3, seed: 5}, "    \
    "split: {validation: 0.25, seed: 1}}\nsampler: {batch_size: 32" sampler "}\n"
#define CLASSES_OF(inputs, sampler) ROWS_OF(inputs, sampler) "loss: cross_entropy\ntrain: {epochs: 3}\n"
#define ROWS ROWS_OF("6", "")
#define CLASSES CLASSES_OF("6", "")
#define NUMBERS                                                                                                        \
    "dataset: {format: synthetic, synthetic: {kind: linear, rows: 75, inputs: 5, seed: 5}, split: {validation: "       \
    "0.2, seed: 1}}\nsampler: {batch_size: 64}\nloss: mse\ntrain: {epochs: 3}\n"
#define TWO "model: {layers: [{linear: {out: 9}}, relu, {linear: {out: 3}}]}\n"
#define ONE "model: {layers: [{linear: {out: 9}}, relu, {linear: {out: 1}}]}\n"

struct runs {
    const char *config;
    const char *optimizers[MAX_RUNS]; /* up to the first NULL; "!": its run is to be trained alone */
};

/* Seeds that the runs have in turn: of the model, and of the order of the rows. */
#define SEEDS(model, rows) "# seeds: " #model " " #rows "\n"

#define LR(type, lr) "{type: " type ", lr: " lr "}"
#define ADAM5 LR("adam", "0.01"), LR("adam", "0.02"), LR("adam", "0.03"), LR("adam", "0.04"), LR("adam", "0.05")
#define ADAM16                                                                                                         \
    ADAM5, LR("adam", "0.06"), LR("adam", "0.07"), LR("adam", "0.08"), LR("adam", "0.09"), LR("adam", "0.11"),         \
        LR("adam", "0.12"), LR("adam", "0.13"), LR("adam", "0.14"), LR("adam", "0.15"), LR("adam", "0.16"),            \
        LR("adam", "0.17")
static const struct runs cases[] = {
    {CLASSES TWO, {ADAM16}},
    {NUMBERS ONE,
     {LR("sgd", "0.01"), LR("sgd", "0.02"), LR("sgd", "0.03"), LR("sgd", "0.04"), LR("sgd", "0.05"), LR("sgd", "0.06"),
      LR("sgd", "0.07"), LR("sgd", "0.08"), LR("sgd", "0.09")}},
    {CLASSES TWO, {LR("adam", "0.01"), LR("adam", "0.1")}},
    {CLASSES TWO, {LR("adam", "0.01")}},
    {CLASSES TWO, {LR("adam", "0.01"), LR("adam", "0.02"), LR("adam", "0.03"), LR("adam", "0.04")}},
    {CLASSES TWO,
     {"{type: adamw, lr: 0.01, weight_decay: 0.1}", "{type: adamw, lr: 0.1, betas: [0.8, 0.99], eps: 1e-6}"}},
    {CLASSES TWO, {"{type: adam, amsgrad: true}", "{type: adam, lr: 0.1, amsgrad: true}"}},
    {CLASSES TWO, {"{type: adam, arithmetic: torch1}", "{type: adam, arithmetic: torch1, weight_decay: 0.1}!"}},
    {CLASSES TWO, {"{type: adam, weight_decay: 0.2}", "{type: adam, weight_decay: 0.1}", "{type: adam}!"}},
    {CLASSES TWO, {LR("sgd", "0.1"), LR("sgd", "0.01"), LR("adam", "0.01") "!", LR("rmsprop", "0.01") "!"}},
    {CLASSES TWO, {LR("rmsprop", "0.01") "!", LR("adam", "0.01") "!"}},
    {CLASSES TWO,
     {"{type: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.01}",
      "{type: sgd, lr: 0.01, momentum: 0.5, nesterov: true, weight_decay: 0.1}"}},
    {CLASSES TWO,
     {"{type: sgd, lr: 0.1, momentum: 0.9, dampening: 0.1}", "{type: sgd, lr: 0.01, momentum: 0.5, dampening: 0.2}"}},
    {CLASSES TWO,
     {"{type: adam, lr: 0.1, groups: [{match: '*.bias', lr: 0.01}]}",
      "{type: adam, lr: 0.2, groups: [{match: '*.bias', lr: 0.3}]}", "{type: adam, lr: 0.2}!"}},
    {CLASSES TWO, {LR("sgd", "0.1"), LR("sgd", "1.0e+30") "!", LR("sgd", "0.2")}},
    {CLASSES TWO, {LR("sgd", "1.0e+30") "!", LR("sgd", "0.2")}},
    {CLASSES TWO, {"{type: sgd, lr: 0.1, maximize: true}!", "{type: sgd, lr: 0.2, maximize: true}!"}},
    {CLASSES TWO "schedule: {type: step, step_size: 1, gamma: 0.5}\n", {LR("adam", "0.01"), LR("adam", "0.1")}},
    {CLASSES TWO "schedule: {type: one_cycle}\n", {LR("adam", "0.01"), LR("adam", "0.1")}},
    {CLASSES TWO "schedule: {type: reduce_on_plateau, patience: 0}\n", {LR("sgd", "0.01"), LR("sgd", "1.5")}},
    {CLASSES TWO "checkpoint: {best: val_loss}\n", {LR("adam", "0.01"), LR("adam", "0.3")}},
    {CLASSES
     "model: {layers: [{linear: {out: 7}}, tanh, {linear: {out: 5}}, gelu, {linear: {out: 4}}, sigmoid, {linear: "
     "{out: 3, bias: false}}]}\n",
     {LR("adam", "0.01"), LR("adam", "0.3")}},
    {CLASSES "model: {layers: [{linear: {out: 7}}, relu, {linear: {out: 5}}, relu, {linear: {out: 3}}, relu]}\n",
     {LR("adam", "0.01"), LR("adam", "0.3")}},
    {CLASSES "model: {layers: [{linear: {out: 3}}]}\n", {LR("adam", "0.01"), LR("adam", "0.3")}},
    {NUMBERS ONE, {LR("adam", "0.01"), LR("adam", "0.1"), LR("adam", "0.001")}},
    {NUMBERS ONE, {LR("sgd", "0.01"), LR("sgd", "0.001")}},
    {SEEDS(16, 16) CLASSES TWO, {ADAM16}},
    {SEEDS(3, 5) CLASSES TWO, {ADAM16}},
    {SEEDS(5, 1) CLASSES TWO, {ADAM5}},
    {SEEDS(1, 5) CLASSES TWO, {ADAM5}},
    {SEEDS(1, 2) CLASSES TWO, {ADAM5}},
    {SEEDS(16, 16) NUMBERS ONE, {ADAM16}},
    {SEEDS(1, 5) NUMBERS ONE, {ADAM5}},
    {SEEDS(5, 1) CLASSES_OF("6", ", type: dataloader") TWO, {ADAM5}},
    {SEEDS(5, 5) CLASSES_OF("6", ", type: weighted") TWO, {ADAM5}},
    {SEEDS(5, 5) CLASSES_OF("6", ", type: weighted, shuffle: false") TWO, {ADAM5}},
    {SEEDS(5, 5) CLASSES_OF("6", ", shuffle: false") TWO, {ADAM5}},
    {SEEDS(5, 5) CLASSES_OF("6", ", drop_last_batch: true") TWO, {ADAM5}},
    {SEEDS(5, 5) CLASSES "model: {layers: [{linear: {out: 7}}, relu, {linear: {out: 5}}, gelu, {linear: {out: 3}}]}\n",
     {ADAM5}},
    {SEEDS(5, 5) CLASSES "model: {layers: [{linear: {out: 3}}]}\n", {ADAM5}},
    {SEEDS(2, 2) CLASSES TWO "schedule: {type: reduce_on_plateau, patience: 0}\n",
     {LR("sgd", "0.01"), LR("sgd", "1.5")}},
    {SEEDS(3, 3) CLASSES TWO, {LR("sgd", "0.1"), LR("sgd", "1.0e+30") "!", LR("sgd", "0.2")}},
    {SEEDS(3, 3) CLASSES TWO, {LR("sgd", "0.1"), LR("adam", "0.01") "!", LR("sgd", "0.2")}},
    /* The rows of a batch of each lane would be too much memory. */
    {SEEDS(1, 2) CLASSES_OF("800", "") "model: {layers: [{linear: {out: 2}}, relu, {linear: {out: 3}}]}\n",
     {LR("adam", "0.01"), LR("adam", "0.02") "!", LR("adam", "0.03"), LR("adam", "0.04") "!"}},
};

/* Configs of which no group is made. */
static const char *const unfit[] = {
    CLASSES "model: {layers: [{linear: {out: 9}}, {dropout: 0.1}, {linear: {out: 3}}]}\n",
    CLASSES "model: {layers: [{linear: {out: 9}}, batch_norm, relu, {linear: {out: 3}}]}\n",
    CLASSES "model: {layers: [{linear: {out: 4000}}, relu, {linear: {out: 3}}]}\n",
    CLASSES "model: {layers: [relu, {linear: {out: 3}}]}\n",
    CLASSES "model: {layers: [{residual: {layers: [{linear: {out: 6}}]}}, {linear: {out: 3}}]}\n",
    ROWS "loss: cross_entropy\ntrain: {epochs: 3, ema: 0.9}\n" TWO,
    ROWS "loss: cross_entropy\ntrain: {epochs: 3, clip_grad_norm: 1}\n" TWO,
    ROWS "loss: cross_entropy\ntrain: {epochs: 3, accumulate: 2}\n" TWO,
    ROWS "loss: cross_entropy\ntrain: {steps: 5}\n" TWO,
    ROWS "loss: {type: cross_entropy, label_smoothing: 0.1}\ntrain: {epochs: 3}\n" TWO,
    ROWS "loss: {type: cross_entropy, weight: balanced}\ntrain: {epochs: 3}\n" TWO,
};

static struct config_file *open_config(const char *folder, const char *text, const char *optimizer, int seed,
                                       int row_seed) {
    struct config_file *file;
    char *path = path_in(folder, "config.yaml"), *words[3];
    FILE *f = fopen(path, "w");
    size_t length = strlen(optimizer);
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    if (optimizer[length - 1] == '!') length--;
    ck_assert_int_gt(asprintf(&words[0], "optimizer=%.*s", (int)length, optimizer), 0);
    ck_assert_int_gt(asprintf(&words[1], "seed=%d", seed), 0);
    ck_assert_int_gt(asprintf(&words[2], "sampler.seed=%d", row_seed), 0);
    status s = config_load(path, words, 3, &file);
    ck_assert_msg(!s, "%s", s ? status_message(s) : "");
    free(path);
    for (int i = 0; i < 3; i++) free(words[i]);
    return file;
}

static status train_alone(const struct config_file *file, struct run **parts, struct run_summary *summary) {
    struct log *log = log_create(true, false);
    struct run_options options = {.writes_nothing = true, .stop_after = -1, .parts = parts, .summary = summary};
    status s = run_train(config_of(file), &alone, &options, log);
    log_destroy(log);
    return s;
}

static void assert_same(const struct run_summary *got, const struct run_summary *expected, const char *optimizer) {
    ck_assert_msg(strcmp(got->state_sha256, expected->state_sha256) == 0, "the state of %s", optimizer);
    ck_assert_msg(memcmp(&got->best_value, &expected->best_value, sizeof got->best_value) == 0, "%s: %.17g, not %.17g",
                  optimizer, got->best_value, expected->best_value);
    ck_assert_int_eq(got->best_epoch, expected->best_epoch);
    ck_assert_int_eq(got->epochs, expected->epochs);
    ck_assert_int_eq(got->steps, expected->steps);
    ck_assert(got->seconds > 0);
}

/* A device without so many lanes makes no group. */
static bool has_lanes(void) {
    struct device *device;
    ck_assert_ptr_null(cpu_device_create(getenv("DDPTRAIN_CPU"), &device));
    bool has = cpu_group_ops(device, MAX_RUNS)->lanes >= 8;
    device_destroy(device);
    return has;
}

/* Twice with the same parts, of which nothing may be left, and then half of them, which may be in fewer lanes. */
TEST_EACH(runs_have_the_numbers_of_each_alone, cases) {
    const struct runs *c = &cases[_i];
    struct config_file *files[MAX_RUNS];
    const struct config *configs[MAX_RUNS];
    struct run_summary expected[MAX_RUNS];
    struct run *parts = NULL;
    if (!has_lanes()) return;
    char *folder = make_folder();
    size_t count = 0;
    status s = OK;
    struct config_file *first = open_config(folder, c->config, LR("adam", "0.5"), 0, 0);
    bool fails = false;
    int seeds = 1, row_seeds = 1;
    (void)sscanf(c->config, "# seeds: %d %d", &seeds, &row_seeds);
    for (; count < MAX_RUNS && c->optimizers[count]; count++) {
        struct run *own = NULL;
        int seed = (int)count % seeds, row_seed = (int)count % row_seeds;
        files[count] = open_config(folder, c->config, c->optimizers[count], seed, row_seed);
        configs[count] = config_of(files[count]);
        status failure = train_alone(files[count], &own, &expected[count]);
        fails = failure != NULL;
        status_free(failure);
        run_parts_destroy(own);
    }
    ck_assert_ptr_null(train_alone(first, &parts, &(struct run_summary){0}));
    size_t all = count, lanes = run_parts_lanes(parts, config_of(first));
    ck_assert_int_ge(lanes, 8);
    for (int again = 0; again < 3; again++) {
        struct run_summary got[MAX_RUNS] = {{0}};
        bool is_trained[MAX_RUNS];
        if (again == 2 && count > 8) count = 8;
        struct log *log = log_create(true, false);
        struct run_options options = {.writes_nothing = true, .stop_after = -1, .parts = &parts};
        for (size_t i = 0; i < count && !s; i += lanes)
            s = run_train_group(configs + i, count - i < lanes ? count - i : lanes, &alone, &options, log, got + i,
                                is_trained + i);
        log_destroy(log);
        ck_assert_msg(!s, "%s", s ? status_message(s) : "");
        for (size_t i = 0; i < count; i++) {
            ck_assert_msg(is_trained[i] == !strchr(c->optimizers[i], '!'), "%s", c->optimizers[i]);
            if (is_trained[i]) assert_same(&got[i], &expected[i], c->optimizers[i]);
        }
    }
    struct run_summary last; /* alone, with the parts that the group used */
    s = train_alone(files[all - 1], &parts, &last);
    ck_assert(fails == (s != NULL));
    if (!s) assert_same(&last, &expected[all - 1], "the last one");
    status_free(s);
    run_parts_destroy(parts);
    for (size_t i = 0; i < all; i++) config_free(files[i]);
    config_free(first);
    remove_folder(folder);
}

TEST_EACH(what_is_trained_alone, unfit) {
    char *folder = make_folder();
    struct config_file *file = open_config(folder, unfit[_i], LR("adam", "0.01"), 0, 0);
    struct run *parts = NULL;
    ck_assert_ptr_null(train_alone(file, &parts, &(struct run_summary){0}));
    ck_assert_ptr_nonnull(parts);
    ck_assert_int_eq(run_parts_lanes(parts, config_of(file)), 0);
    run_parts_destroy(parts);
    config_free(file);
    remove_folder(folder);
}

CHECK_MAIN("group")
