/* Optimizers against PyTorch's updates bit for bit. ctest-labels: unit */
#include <math.h>

#include "check_main.h"
#include "train/config.h"
#include "train/optimizer.h"
#include "vectors.h"

/* Binds "{type: ...}" with the rows of [key] ("optimizer", "schedule"). */
static struct config_file *config_with(const char *key, const char *value) {
    char text[1024];
    struct config_file *file;
    snprintf(
        text, sizeof text,
        "dataset: {format: synthetic}\nmodel: {layers: [{linear: {out: 1}}]}\nloss: mse\nsampler: {batch_size: 1}\n"
        "train: {epochs: 100}\n%s: %s\n",
        key, value);
    status s = config_parse("test", text, &file);
    ck_assert_msg(!s, "%s", status_message(s));
    return file;
}

static void run_case(const json_t *vector, const char *config) {
    struct config_file *file = config_with("optimizer", config);
    size_t n = json_array_size(json_object_get(vector, "p0"));
    struct params params = {0};
    struct arena *arena = arena_create();
    struct device *device;
    struct optimizer *optimizer;
    ck_assert(!device_create("cpu", &device));
    params_declare(&params, arena, "p", 1, (int64_t[]){(int64_t)n});
    ck_assert(!params_alloc(&params, device, true));
    ck_assert(!optimizer_create(&config_of(file)->optimizer, &params, device, &optimizer));
    for (size_t i = 0; i < n; i++) params.values[i] = vectors_float(json_array_get(json_object_get(vector, "p0"), i));
    json_t *steps = json_object_get(vector, "grads");
    for (size_t t = 0; t < json_array_size(steps); t++) {
        for (size_t i = 0; i < n; i++) params.gradients[i] = vectors_float(json_array_get(json_array_get(steps, t), i));
        optimizer_step(optimizer, &params, (int64_t)t + 1, NULL, NULL, NAN, &(float){1});
        vectors_equal(json_array_get(json_object_get(vector, "p"), t), params.values, config);
    }
    for (size_t i = n; i < params.total; i++) ck_assert(params.values[i] == 0); /* the gap stays zero */
    optimizer_destroy(optimizer);
    params_free(&params, device);
    device_destroy(device);
    arena_destroy(arena);
    config_free(file);
}

static const struct {
    const char *vector, *config;
} cases[] = {
    {"SGD lr=.1", "{type: sgd, lr: 0.1}"},
    {"SGD lr=.1 mom=.9", "{type: sgd, lr: 0.1, momentum: 0.9}"},
    {"SGD lr=.1 mom=.9 nesterov wd=5e-4", "{type: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 5.0e-4}"},
    {"SGD mom=.9 damp=.1", "{type: sgd, lr: 0.1, momentum: 0.9, dampening: 0.1}"},
    {"Adam lr=1e-3", "{type: adam, lr: 1.0e-3, arithmetic: torch1}"},
    {"Adam lr=1e-2 wd=.01", "{type: adam, lr: 0.01, weight_decay: 0.01, arithmetic: torch1}"},
    {"Adam amsgrad", "{type: adam, lr: 0.01, amsgrad: true, arithmetic: torch1}"},
    {"RMSprop", "{type: rmsprop}"},
    {"Adagrad", "{type: adagrad}"},
    {"AdamW lr=1e-2 wd=.1 betas=.9,.95",
     "{type: adamw, lr: 0.01, weight_decay: 0.1, betas: [0.9, 0.95], arithmetic: torch1}"},
};

START_TEST(updates_are_pytorchs) {
    json_t *root = vectors_load("optim"), *vector;
    size_t i, found = 0;
    json_array_foreach(json_object_get(root, "cases"), i, vector) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            if (strcmp(cases[c].vector, json_string_value(json_object_get(vector, "name"))) == 0) {
                run_case(vector, cases[c].config);
                found++;
            }
    }
    ck_assert_uint_eq(found, sizeof cases / sizeof *cases);
    json_decref(root);
}
END_TEST

TESTS("optimizer", updates_are_pytorchs)
