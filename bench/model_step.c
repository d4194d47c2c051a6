/* Times training steps of a GPT on random tokens: forward, loss, backward, clipping, AdamW; no data, no ranks. To be
 * set beside PyTorch's numbers for the same sizes:  model_step baby|medium [steps] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/numbers/rng.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/config/config.h"

struct sizes {
    const char *name;
    int layers, heads, width, block, batch;
};

static const struct sizes known[] = {{"baby", 4, 4, 128, 64, 12}, {"medium", 6, 6, 384, 256, 8}};

#define VOCABULARY 65

static status parse(const struct sizes *s, struct config_file **out) {
    char text[4096];
    snprintf(text, sizeof text,
             "dataset: {format: synthetic}\nloss: cross_entropy\nsampler: {batch_size: 1}\ntrain: {epochs: 1}\n"
             "optimizer: {type: adamw, lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices}\n"
             "model:\n  init: [gpt2]\n  layers:\n"
             "    - embedding: {embedding_dim: %d, name: wte}\n    - positional_embedding: {name: wpe}\n"
             "    - repeat: {times: %d, name: h, layers: [{residual: [layer_norm, {linear: %d}, "
             "{scaled_dot_product_attention: {heads: %d, causal: true}}, {linear: {out: %d, name: c_proj}}]}, "
             "{residual: [layer_norm, {linear: %d}, gelu, {linear: {out: %d, name: c_proj}}]}]}\n"
             "    - layer_norm: {name: ln_f}\n    - linear: {out: %d, bias: false, tie: wte.weight}\n",
             s->width, s->layers, 3 * s->width, s->heads, s->width, 4 * s->width, s->width, VOCABULARY);
    return config_parse("model_step", text, out);
}

struct bench {
    struct config_file *file;
    struct device *device;
    struct model *model;
    struct optimizer *optimizer;
    int32_t *tokens;
    int64_t *targets;
};

static status open_bench(struct bench *b, const struct sizes *s) {
    struct shape input = {.dims = 1, .size = {s->block}, .is_tokens = true, .vocabulary = VOCABULARY};
    struct rng rng;
    TRY(parse(s, &b->file));
    TRY(model_plan(&config_of(b->file)->model, &input, &b->model));
    TRY(device_create("cpu", &b->device));
    TRY(model_alloc(b->model, b->device, (size_t)s->batch));
    TRY(optimizer_create(&config_of(b->file)->optimizer, &b->model->params, b->device, &b->optimizer));
    rng_seed(&rng, 42);
    model_init(b->model, &rng);
    size_t count = (size_t)(s->batch * s->block);
    b->tokens = malloc(count * sizeof *b->tokens);
    b->targets = malloc(count * sizeof *b->targets);
    for (size_t i = 0; i < count; i++) {
        b->tokens[i] = (int32_t)(rng_u32(&rng) % VOCABULARY);
        b->targets[i] = (int64_t)(rng_u32(&rng) % VOCABULARY);
    }
    return OK;
}

static double step(struct bench *b, const struct sizes *s, int64_t t) {
    struct pass pass = {.device = b->device, .rows = (size_t)s->batch, .is_training = true};
    struct loss_sums sums = {0};
    struct params *params = &b->model->params;
    const struct variant *loss = &config_of(b->file)->loss;
    const float *inputs = (const float *)(const void *)b->tokens;
    const struct tensor *output = model_forward(b->model, &pass, inputs);
    struct tensor gradient = model_output_gradient(b->model);
    loss_type_at((size_t)loss->index)
        ->run(loss->config,
              &(struct loss_batch){b->device, &b->model->out, output, b->targets, &(struct row_weights){.values = NULL},
                                   pass.rows, 1, &gradient, &sums});
    params_zero_gradients(params, b->device);
    model_backward(b->model, &pass, inputs, NULL, NULL);
    float norm = device_ops(b->device)->norm(b->device, params->gradients, params->total);
    optimizer_step(b->optimizer, params, t, NULL, NULL, &(float){norm > 1 ? 1 / norm : 1});
    return sums.loss / sums.count;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **words) {
    const struct sizes *s = &known[count > 1 && strcmp(words[1], "medium") == 0];
    int steps = count > 2 ? atoi(words[2]) : 50;
    struct bench b = {0};
    status failure = open_bench(&b, s);
    if (failure) {
        fprintf(stderr, "%s\n", status_message(failure));
        return 1;
    }
    double *wall = malloc((size_t)steps * sizeof *wall), *cpu = malloc((size_t)steps * sizeof *cpu), loss = 0;
    for (int i = -3; i < steps; i++) {
        double from = seconds(CLOCK_MONOTONIC), cpu_from = seconds(CLOCK_PROCESS_CPUTIME_ID);
        loss = step(&b, s, i + 4);
        if (i < 0) continue;
        wall[i] = seconds(CLOCK_MONOTONIC) - from;
        cpu[i] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_from;
    }
    qsort(wall, (size_t)steps, sizeof *wall, compare);
    qsort(cpu, (size_t)steps, sizeof *cpu, compare);
    printf("gpt-%s: %.2f ms a step (median of %d; processor time %.2f, min %.2f), loss %.4f\n", s->name,
           1e3 * wall[steps / 2], steps, 1e3 * cpu[steps / 2], 1e3 * cpu[0], loss);
    return 0;
}
