/* Every layer and loss of a model on a GPU: output, loss and gradients against the CPU's, in float32 and with 16-bit
 * factors. The cases are those of the gradient checks, so a new layer or loss is compared, too. Skipped where there is
 * no GPU. ctest-labels: gpu */
#include "device/gpu_work.h"
#include "model/gradient_cases.h"

#define ROWS 6

/* Allocates what the loss needs on the GPU, and adapts the model to it. */
static void prepare(struct fixture *f, const char *what) {
    status s = model_adapt_to_device(f->model, f->device);
    if (!s) s = loss_prepare(f->loss, f->loss_config, f->device, &f->model->out, 2, ROWS, 1);
    ck_assert_msg(!s, "%s: %s", what, status_message(s));
}

/* The values of one pass; for free_pass. */
struct pass_values {
    double loss;
    float *output, *gradients;
    size_t outputs, parameters;
};

static struct pass_values run_pass(struct fixture *f, const char *what) {
    struct params *params = &f->model->params;
    struct pass pass = pass_of(f);
    struct pass_values v = {.outputs = f->rows * f->model->out_size, .parameters = params->total};
    fill_fixture(f);
    make_positive(f);
    v.output = malloc(v.outputs * sizeof *v.output);
    v.gradients = malloc(v.parameters * sizeof *v.gradients);
    const float *output = floats(model_forward(f->model, &pass, f->inputs));
    status s = device_download(f->device, v.output, output, v.outputs * sizeof *output);
    v.loss = loss_of(f, true);
    if (!s) s = device_download(f->device, v.gradients, params->gradients, v.parameters * sizeof *v.gradients);
    ck_assert_msg(!s, "%s: %s", what, status_message(s));
    return v;
}

static void free_pass(struct pass_values *v) { free(v->output), free(v->gradients); }

/* Values may differ by [tolerance] of the largest one. */
static void values_agree(const float *cpu, const float *gpu, size_t count, double tolerance, const char *what,
                         const char *of) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)cpu[i]));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabs((double)(cpu[i] - gpu[i])) <= tolerance * largest, "%s: %s %zu: %g, on the GPU %g", what, of,
                      i, (double)cpu[i], (double)gpu[i]);
}

/* Trains one pass on the CPU and one on the GPU. */
static void gpu_agrees(enum precision precision, double tolerance, const char *layers, struct shape input,
                       const char *loss) {
    char what[2048];
    snprintf(what, sizeof what, "%s, %s", layers, loss);
    struct fixture on_gpu = plan_fixture("cuda", precision, layers, input, ROWS, loss);
    prepare(&on_gpu, what);
    struct fixture on_cpu = plan_fixture("cpu", PRECISION_FLOAT32, layers, input, ROWS, loss);
    struct pass_values cpu = run_pass(&on_cpu, what), gpu = run_pass(&on_gpu, what);
    values_agree(cpu.output, gpu.output, cpu.outputs, tolerance, what, "output");
    ck_assert_msg(fabs(cpu.loss - gpu.loss) <= tolerance * (1 + fabs(cpu.loss)), "%s: loss %g, on the GPU %g", what,
                  cpu.loss, gpu.loss);
    values_agree(cpu.gradients, gpu.gradients, cpu.parameters, tolerance, what, "gradient");
    free_pass(&cpu), free_pass(&gpu);
    close_fixture(&on_cpu), close_fixture(&on_gpu);
}

/* Whether it has a mask, which GPUs do not have; then it is rejected. */
static bool is_rejected(const char *layers, struct shape input, const char *loss) {
    if (!strstr(layers, "mask: add")) return false;
    struct fixture f = plan_fixture("cuda", PRECISION_FLOAT32, layers, input, ROWS, loss);
    status s = model_adapt_to_device(f.model, f.device);
    if (!s) s = loss_prepare(f.loss, f.loss_config, f.device, &f.model->out, f.model->out_size, ROWS, 1);
    ck_assert_msg(status_code(s) == STATUS_USAGE && strstr(status_message(s), "use train.device: cpu"), "%s: %s",
                  layers, status_message(s));
    status_free(s);
    close_fixture(&f);
    return true;
}

/* Layers whose features are multiples of 8, so that what is between them can be 16 bits. */
static const struct {
    const char *layers;
    int dims;
    int64_t shape[3];
} half_cases[] = {
    {"[{conv2d: {out: 8, kernel_size: 1}}, {conv_transpose2d: {out: 16, kernel_size: 2, stride: 2}}, silu, {conv2d: "
     "{out: 8, kernel_size: 3}}, instance_norm, {conv_transpose2d: {out: 8, kernel_size: 3, bias: false}}]",
     3,
     {8, 3, 4}},
    {"[{conv2d: {out: 8, kernel_size: 1, name: a}}, {prelu: {num_parameters: 8}}, {avg_pool2d: 2}, {upsample: 2}, "
     "{concat: {from: a}}, {conv2d: {out: 8, kernel_size: 1}}, {multiply: {from: [a]}}, {slice: {dim: 3, end: 4}}]",
     3,
     {8, 4, 8}},
    {"[{linear: 8}, class_token, {linear: 24}, {rotary_embedding: {head_size: 8, heads: 2}}, "
     "{scaled_dot_product_attention: {heads: 1}}, {linear: 16}, log_softmax, {linear: 8}, prelu, {linear: 16}]",
     2,
     {4, 8}},
    {"[{linear: 16}, {slice: {end: 8, name: s}}, {linear: 8}, {add: {from: s}}, {concat: {from: s}}, {linear: 8}, "
     "{multiply: {from: s}}, {leaky_relu: 0.1}, softmax, {linear: 8}]",
     1,
     {8}},
    {"[{linear: 32}, {scaled_dot_product_attention: {heads: 2, num_kv_heads: 1, causal: true}}, {linear: 8}, elu, "
     "{residual: [rms_norm, {linear: 16}, {gelu: {approximate: tanh}}, {linear: 8}]}, layer_norm, {linear: 8}]",
     2,
     {5, 8}},
    {"[{linear: 8}, {lstm: 8}, {linear: 16}, {gru: {hidden_size: 8, bidirectional: true}}, {linear: 8}, {rnn: 8}]",
     2,
     {4, 8}},
    /* sums whose sides, and gradients whose terms, have different types: 16 bits + float32, float32 + 16 bits */
    {"[{linear: {out: 8, name: n}}, {linear: {out: 8, name: m}}, {add: {from: [n, m]}}, {softmax: {name: s}}, "
     "{linear: {out: 8, from: n}}, {add: {from: s}}, {linear: 8}]",
     2,
     {4, 8}},
    {"[{linear: {out: 8, name: n}}, {linear: {out: 8, name: m}}, {softmax: {from: n}}, {add: {from: m}}, {linear: 8}]",
     2,
     {4, 8}},
    {"[{layer_norm: {name: r}}, {linear: {out: 8, name: q}}, {linear: {out: 8, name: t}}, {add: {from: [q, t], name: "
     "a}}, "
     "{add: {from: [q, r], name: b}}, {linear: {out: 8, from: a}}, {add: {from: b}}, {linear: 8}]",
     2,
     {4, 8}},
    /* fused relus: of 16-bit values whose gradient is float32 before and 16 bits after it, float32 at both; all 16
     * bits; all float32 */
    {"[{layer_norm: {name: q}}, {linear: 8}, relu, {add: {from: q}}, relu, {linear: 8}]", 2, {4, 8}},
    {"[{linear: {out: 8, name: q}}, {linear: 8}, relu, {add: {from: q}}, relu, {linear: 8}]", 2, {4, 8}},
    {"[layer_norm, {residual: [{linear: 8}]}, relu, {residual: [{linear: 8}]}, relu, {linear: 8}]", 2, {4, 8}},
    {"[{conv2d: {out: 8, kernel_size: 1}}, batch_norm, relu, {residual: [{conv2d: {out: 8, kernel_size: 1}}, "
     "batch_norm, relu, {conv2d: {out: 8, kernel_size: 1}}, batch_norm]}, relu, {residual: [{group_norm: 4}, relu, "
     "{conv2d: {out: 8, kernel_size: 1}}]}, {adaptive_avg_pool2d: 1}, flatten, {linear: 8}]",
     3,
     {8, 3, 4}},
};

TEST_EACH(layers, layer_cases) {
    if (is_rejected(layer_cases[_i].layers, input_of((size_t)_i), "mse")) return;
    gpu_agrees(PRECISION_FLOAT32, 1e-4, layer_cases[_i].layers, input_of((size_t)_i), "cross_entropy");
    gpu_agrees(PRECISION_BFLOAT16, 0.1, layer_cases[_i].layers, input_of((size_t)_i), "mse");
}

TEST_EACH(layers_with_16_bit_storage, half_cases) {
    struct shape input = {.dims = half_cases[_i].dims};
    memcpy(input.size, half_cases[_i].shape, sizeof half_cases[_i].shape);
    gpu_agrees(PRECISION_FLOAT32, 1e-4, half_cases[_i].layers, input, "mse");
    gpu_agrees(PRECISION_BFLOAT16, 0.1, half_cases[_i].layers, input, "mse");
    gpu_agrees(PRECISION_FLOAT16, 0.05, half_cases[_i].layers, input, "cross_entropy");
}

TEST_EACH(losses, loss_cases) {
    char text[LOSS_LAYERS];
    layers_of_loss((size_t)_i, text);
    if (is_rejected(text, loss_input((size_t)_i), loss_cases[_i].config)) return;
    gpu_agrees(PRECISION_FLOAT32, 1e-4, text, loss_input((size_t)_i), loss_cases[_i].config);
    gpu_agrees(PRECISION_BFLOAT16, 0.1, text, loss_input((size_t)_i), loss_cases[_i].config);
}

static void check_evaluation(struct fixture *cpu, struct fixture *gpu) {
    struct pass pass_on_cpu = pass_of(cpu), pass_on_gpu = pass_of(gpu);
    size_t count = cpu->rows * cpu->model->out_size;
    float *found = malloc(count * sizeof *found);
    pass_on_cpu.is_training = pass_on_gpu.is_training = false;
    const float *output = floats(model_forward(gpu->model, &pass_on_gpu, gpu->inputs));
    ck_assert(!device_download(gpu->device, found, output, count * sizeof *found));
    values_agree(floats(model_forward(cpu->model, &pass_on_cpu, cpu->inputs)), found, count, 0.1, "an evaluation",
                 "output");
    free(found);
}

/* The loss reads the output; *loss and gradients (params.total). */
static void train(struct fixture *f, double *loss, float *gradients) {
    struct params *params = &f->model->params;
    struct pass pass = pass_of(f);
    struct loss_sums sums = {0};
    const struct tensor *output = model_forward(f->model, &pass, f->inputs);
    loss_run(f->loss, f->loss_config, f->model, output, f->classes, NULL, NULL, f->rows, 1, &sums);
    params_zero_gradients(params, f->device);
    model_backward(f->model, &pass, f->inputs, NULL, NULL);
    ck_assert(!device_download(f->device, gradients, params->gradients, params->total * sizeof *gradients));
    *loss = sums.loss / sums.count;
}

/* A loss that takes 16 bits may get a 16-bit output in training; that of an evaluation is float32, also after a pass of
 * training. */
TEST(outputs_of_evaluations_are_float32) {
    struct shape input = {.dims = 1, .size = {8}};
    const char *what = "[{linear: 16}, relu, {linear: 8}]";
    struct fixture gpu = plan_fixture("cuda", PRECISION_BFLOAT16, what, input, ROWS, "cross_entropy");
    struct fixture cpu = open_fixture(what, input, ROWS, "cross_entropy");
    size_t count = cpu.model->params.total;
    float *expected = malloc(count * sizeof *expected), *found = malloc(count * sizeof *found);
    double loss_on_cpu, loss_on_gpu;
    ck_assert(gpu.loss->accepts_half);
    gpu.model->target_size = cpu.model->target_size = 1;
    model_allow_half_output(gpu.model);
    prepare(&gpu, what);
    fill_fixture(&gpu);
    for (int step = 0; step < 2; step++) {
        check_evaluation(&cpu, &gpu);
        train(&cpu, &loss_on_cpu, expected);
        train(&gpu, &loss_on_gpu, found);
        ck_assert_msg(fabs(loss_on_cpu - loss_on_gpu) <= 0.1, "%g, on the GPU %g", loss_on_cpu, loss_on_gpu);
        values_agree(expected, found, count, 0.1, what, "gradient");
    }
    check_evaluation(&cpu, &gpu);
    free(expected), free(found);
    close_fixture(&cpu), close_fixture(&gpu);
}

int main(void) { return gpu_run("gpu_layers"); }
