/* Optimizers against PyTorch's updates bit for bit. ctest-labels: unit */
#include <math.h>

#include "check_main.h"
#include "optim/optimizer.h"
#include "train/config/config.h"
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

/* Of an optimizer with sums over a parameter, whose order is not PyTorch's: a rate of 0.02 times an element of muon's
 * matrix changes by 3e-5 where a sum is rounded to another bfloat16. */
static void are_near(const json_t *hex, const float *values, const char *what) {
    double tolerance = strstr(what, "muon") ? 3e-5 : 1e-6;
    ck_assert_uint_ge(json_array_size(hex), 10);
    for (size_t i = 0; i < json_array_size(hex); i++) {
        double expected = (double)vectors_float(json_array_get(hex, i)), got = (double)values[i];
        ck_assert_msg(fabs(got - expected) <= tolerance * fmax(1, fabs(expected)), "%s[%zu]: expected %.9g, got %.9g",
                      what, i, expected, got);
    }
}

/* Dimensions of "shape"; without one 1: [count]. */
static int shape_of(const json_t *vector, size_t count, int64_t *shape) {
    const json_t *sizes = json_object_get(vector, "shape");
    shape[0] = (int64_t)count;
    for (size_t i = 0; i < json_array_size(sizes); i++) shape[i] = json_integer_value(json_array_get(sizes, i));
    return sizes ? (int)json_array_size(sizes) : 1;
}

static void run_case(const json_t *vector, const char *config) {
    struct config_file *file = config_with("optimizer", config);
    size_t n = json_array_size(json_object_get(vector, "p0"));
    struct params params = {0};
    struct arena *arena = arena_create();
    struct device *device;
    struct optimizer *optimizer;
    ck_assert(!device_create("cpu", &device));
    int64_t shape[MAX_DIMS];
    params_declare(&params, arena, "p", shape_of(vector, n, shape), shape);
    ck_assert(!params_alloc(&params, device, true));
    ck_assert(!optimizer_create(&config_of(file)->optimizer, &params, device, &optimizer));
    for (size_t i = 0; i < n; i++) params.values[i] = vectors_float(json_array_get(json_object_get(vector, "p0"), i));
    json_t *steps = json_object_get(vector, "grads");
    for (size_t t = 0; t < json_array_size(steps); t++) {
        for (size_t i = 0; i < n; i++) params.gradients[i] = vectors_float(json_array_get(json_array_get(steps, t), i));
        optimizer_step(optimizer, &params, (int64_t)t + 1, NULL, NULL, &(float){1});
        (json_object_get(vector, "shape") ? are_near : vectors_equal)(json_array_get(json_object_get(vector, "p"), t),
                                                                      params.values, config);
        for (size_t i = 0; i < n; i++) ck_assert(params.gradients[i] == 0);
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

TEST(updates_are_pytorchs) {
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

/* Vectors that have their config: tests/vectors/make_optim_torch2.py. */
TEST(updates_are_those_of_pytorch_2) {
    json_t *root = vectors_load("optim_torch2"), *vectors = json_object_get(root, "cases"), *vector;
    size_t i;
    ck_assert_uint_ge(json_array_size(vectors), 10);
    json_array_foreach(vectors, i, vector) run_case(vector, json_string_value(json_object_get(vector, "config")));
    json_decref(root);
}

/* The constants of an update late in a run do not depend on whether the updates before it were planned. */
TEST(nadam_resumes_at_any_update) {
    struct config_file *file = config_with("optimizer", "{type: nadam, lr: 0.01}");
    const struct variant *config = &config_of(file)->optimizer;
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    struct optimizer_product running = {0};
    for (int64_t t = 1; t < 3000; t++) {
        struct optimizer_product fresh = {0};
        struct optimizer_settings settings = optimizer_settings(config), other = settings;
        settings.product = &running, other.product = &fresh;
        union optimizer_constants a = type->plan(config->config, &settings, t),
                                  b = type->plan(config->config, &other, t);
        ck_assert(a.nadam.minus_gradient_step_size == b.nadam.minus_gradient_step_size);
        ck_assert(a.nadam.minus_average_step_size == b.nadam.minus_average_step_size);
    }
    config_free(file);
}

/* At each update, also where a power of beta is too small to matter. */
TEST(adam_corrects_its_means) {
    struct config_file *file = config_with("optimizer", "{type: adam, lr: 0.01, betas: [0.9, 0.99]}");
    const struct variant *config = &config_of(file)->optimizer;
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    struct optimizer_settings settings = optimizer_settings(config);
    for (int64_t t = 1; t < 6000; t++) {
        union optimizer_constants c = type->plan(config->config, &settings, t);
        ck_assert(c.adam.minus_step_size == (float)-(0.01 / (1 - pow(0.9, (double)t))));
        ck_assert(c.adam.sqrt_correction2 == (float)sqrt(1 - pow(0.99, (double)t)));
    }
    config_free(file);
}

/* An update of centered RMSprop as PyTorch's loops round it. 2.x: grad_avg.lerp_(grad, 1 - alpha); 1.13:
 * grad_avg.mul_(alpha).add_(grad, alpha=1 - alpha). */
static float update_centered(bool is_torch2, float p, float g, float *square_avg, float *grad_avg) {
    const float alpha = (float)0.99, rest = (float)(1 - 0.99), lr = (float)0.01, eps = (float)1e-8;
    *square_avg = fmaf(rest * g, g, *square_avg * alpha);
    *grad_avg = is_torch2 ? fmaf(rest, g - *grad_avg, *grad_avg) : fmaf(rest, g, *grad_avg * alpha);
    return p + (-lr * g) / (sqrtf(fmaf(-*grad_avg, *grad_avg, *square_avg)) + eps);
}

TEST(centered_rmsprop_is_that_of_torch2) {
    enum { N = 64, STEPS = 20 };
    struct config_file *file = config_with("optimizer", "{type: rmsprop, centered: true}");
    struct params params = {0};
    struct arena *arena = arena_create();
    struct device *device;
    struct optimizer *optimizer;
    float p[2][N], square_avg[2][N] = {0}, grad_avg[2][N] = {0};
    ck_assert(!device_create("cpu", &device));
    params_declare(&params, arena, "p", 1, (int64_t[]){N});
    ck_assert(!params_alloc(&params, device, true));
    ck_assert(!optimizer_create(&config_of(file)->optimizer, &params, device, &optimizer));
    for (int i = 0; i < N; i++) params.values[i] = p[0][i] = p[1][i] = sinf((float)i);
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            float g = params.gradients[i] = 1 + 0.1f * cosf((float)(i * STEPS + t));
            for (int torch2 = 0; torch2 < 2; torch2++)
                p[torch2][i] = update_centered(torch2, p[torch2][i], g, &square_avg[torch2][i], &grad_avg[torch2][i]);
        }
        optimizer_step(optimizer, &params, t + 1, NULL, NULL, &(float){1});
    }
    ck_assert_mem_eq(params.values, p[1], sizeof p[1]);
    ck_assert_mem_ne(params.values, p[0], sizeof p[0]);
    optimizer_destroy(optimizer);
    params_free(&params, device);
    device_destroy(device);
    arena_destroy(arena);
    config_free(file);
}

CHECK_MAIN("optimizer")
