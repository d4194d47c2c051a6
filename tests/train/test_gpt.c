/* A GPT with the architecture of nanoGPT, from YAML, against 20 steps of PyTorch: names, initial weights bit for bit,
 * losses and gradient norms to rounding (tests/vectors/loss_gpt.json). ctest-labels: unit */
#include <math.h>

#include "base/files/digest.h"
#include "check_main.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/config/config.h"
#include "vectors.h"

#define BATCH 4
#define BLOCK 32

static const char config_text[] =
    "dataset: {format: synthetic}\n"
    "loss: cross_entropy\n"
    "sampler: {batch_size: 4}\n"
    "train: {epochs: 1}\n"
    "optimizer: {type: adamw, lr: 3.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, decay: matrices, arithmetic: torch1}\n"
    "schedule: {type: cosine, interval: step, warmup: 4, warmup_start_factor: 0.2, t_max: 16, eta_min: 3.0e-4}\n"
    "model:\n"
    "  init: [gpt2]\n"
    "  layers:\n"
    "    - embedding: {embedding_dim: 32, name: wte}\n"
    "    - positional_embedding: {name: wpe}\n"
    "    - repeat:\n"
    "        name: h\n"
    "        times: 2\n"
    "        layers:\n"
    "          - residual:\n"
    "              name: ''\n"
    "              layers:\n"
    "                - layer_norm: {name: ln_1}\n"
    "                - sequential:\n"
    "                    name: attn\n"
    "                    layers:\n"
    "                      - linear: {out: 96, name: c_attn}\n"
    "                      - scaled_dot_product_attention: {heads: 4, causal: true}\n"
    "                      - linear: {out: 32, name: c_proj}\n"
    "          - residual:\n"
    "              name: ''\n"
    "              layers:\n"
    "                - layer_norm: {name: ln_2}\n"
    "                - linear: {out: 128, name: c_fc}\n"
    "                - gelu: {approximate: tanh}\n"
    "                - linear: {out: 32, name: c_proj}\n"
    "    - layer_norm: {name: ln_f}\n"
    "    - linear: {out: 45, bias: false, name: lm_head, tie: wte.weight}\n";

struct run {
    json_t *root, *vector;
    struct config_file *file;
    struct model *model;
    struct device *device;
    struct optimizer *optimizer;
    int32_t tokens[4096];
    size_t length;
};

static void open_run(struct run *r) {
    r->root = vectors_load("loss_gpt");
    r->vector = json_array_get(json_object_get(r->root, "runs"), 0);
    const char *text = json_string_value(json_object_get(r->root, "text"));
    const char *vocabulary = json_string_value(json_object_get(r->root, "vocab"));
    r->length = strlen(text);
    ck_assert_uint_lt(r->length, sizeof r->tokens / sizeof *r->tokens);
    for (size_t i = 0; i < r->length; i++) r->tokens[i] = (int32_t)(strchr(vocabulary, text[i]) - vocabulary);
    status s = config_parse("gpt.yaml", config_text, &r->file);
    ck_assert_msg(!s, "%s", status_message(s));
    struct shape input = {.dims = 1, .size = {BLOCK}, .is_tokens = true, .vocabulary = (int64_t)strlen(vocabulary)};
    s = model_plan(&config_of(r->file)->model, &input, &r->model);
    ck_assert_msg(!s, "%s", status_message(s));
    ck_assert(!device_create("cpu", &r->device));
    ck_assert(!model_alloc(r->model, r->device, BATCH));
    ck_assert(!optimizer_create(&config_of(r->file)->optimizer, &r->model->params, r->device, &r->optimizer));
    struct rng rng;
    rng_seed(&rng, 42);
    model_init(r->model, &rng);
}

static void close_run(struct run *r) {
    optimizer_destroy(r->optimizer);
    model_destroy(r->model);
    device_destroy(r->device);
    config_free(r->file);
    json_decref(r->root);
}

TEST(names_and_initial_weights) {
    static struct run r;
    open_run(&r);
    json_t *names = json_object_get(r.root, "param_order"), *init = json_object_get(r.vector, "init");
    const struct params *params = &r.model->params;
    ck_assert_uint_eq(params->count, json_array_size(names));
    for (size_t i = 0; i < params->count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        ck_assert_str_eq(params->items[i].name, name);
        uint8_t hash[DIGEST_SIZE];
        char hex[DIGEST_HEX_SIZE];
        digest_of(params_value(params, i), params->items[i].count * sizeof(float), hash);
        digest_hex(hash, hex);
        ck_assert_msg(strcmp(hex, json_string_value(json_object_get(json_object_get(init, name), "sha256"))) == 0,
                      "the initial values of %s are not PyTorch's", name);
    }
    close_run(&r);
}

/* Forward and backward on the tokens of step [step]; the mean loss. */
static double one_step(struct run *r, size_t step) {
    size_t batches = (size_t)json_integer_value(json_object_get(r->root, "nb"));
    const int32_t *tokens = r->tokens + step % batches * BATCH * BLOCK;
    int64_t targets[BATCH * BLOCK];
    for (size_t i = 0; i < BATCH * BLOCK; i++) targets[i] = tokens[i + 1];
    struct pass pass = {.device = r->device, .rows = BATCH, .is_training = true};
    struct loss_sums sums = {0};
    const struct variant *loss = &config_of(r->file)->loss;
    const float *inputs = (const float *)(const void *)tokens;
    const struct tensor *output = model_forward(r->model, &pass, inputs);
    struct tensor gradient = model_output_gradient(r->model);
    loss_type_at((size_t)loss->index)
        ->run(loss->config, &(struct loss_batch){r->device, &r->model->out, output, targets, &(struct row_weights){0},
                                                 BATCH, 1, &gradient, &sums});
    ck_assert(sums.count == BATCH * BLOCK);
    params_zero_gradients(&r->model->params, r->device);
    model_backward(r->model, &pass, inputs, NULL, NULL);
    return sums.loss / sums.count;
}

TEST(losses_are_pytorchs) {
    static struct run r;
    open_run(&r);
    json_t *losses = json_object_get(r.vector, "loss"), *norms = json_object_get(r.vector, "grad_norm");
    for (size_t step = 0; step < json_array_size(losses); step++) {
        double loss = one_step(&r, step), expected = json_real_value(json_array_get(losses, step));
        double expected_norm = json_real_value(json_array_get(norms, step));
        struct params *params = &r.model->params;
        double norm = (double)device_ops(r.device)->norm(r.device, params->gradients, params->total);
        ck_assert_msg(fabs(loss - expected) <= 2e-6, "step %zu: loss %.9g, PyTorch's is %.9g", step, loss, expected);
        ck_assert_msg(fabs(norm - expected_norm) <= 1e-5 * expected_norm, "step %zu: norm %.9g, PyTorch's is %.9g",
                      step, norm, expected_norm);
        struct schedule_progress progress = {.steps = (int64_t)step};
        optimizer_step(r.optimizer, params, (int64_t)step + 1, &config_of(r.file)->schedule, &progress,
                       &(float){(float)fmin(1 / (norm + 1e-6), 1)});
    }
    close_run(&r);
}

CHECK_MAIN("gpt")
