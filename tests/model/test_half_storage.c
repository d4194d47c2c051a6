/* The values and gradients that a device stores in 16 bits, and their memory.
 * ctest-labels: unit */
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "device/internal.h"
#include "model/half.h"

static bool can_be_half(const struct device *device, size_t features) {
    (void)device;
    return features % 8 == 0;
}

static const struct sequence_ops sequence = {.max_head_size = 256};
static struct device_ops ops = {.sequence = &sequence, .can_be_half = can_be_half}; /* images': the CPU's, in main */
static const struct device device = {.ops = &ops, .description = "a GPU"};

static struct model *plan(const char *layers, struct document **document) {
    static struct model_config config; /* variants point into the document */
    struct problems problems = {0};
    struct model *model = NULL;
    struct shape input = {.dims = 2, .size = {4, 8}}, image = {.dims = 3, .size = {3, 8, 8}};
    char text[512];
    snprintf(text, sizeof text, "layers:\n%s", layers);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, document));
    schema_bind(&model_schema, document_root(*document), "model", &model_schema, &config, document_arena(*document),
                &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert(!model_plan(&config, strstr(layers, "conv2d") ? &image : &input, &model));
    return model;
}

#define TANH "- gelu: {approximate: tanh}\n"
#define CONV(channels) "{conv2d: {out: " #channels ", kernel_size: 3, padding: 1, bias: false}}"
#define RESIDUAL "- linear: 8\n- residual: [layer_norm, {linear: 8}]\n"

/* For each step its output, dy and dx: n: 16 bits, f: float32, -: none. */
static const struct {
    const char *layers;
    bool is_output_half;
    const char *forms;
} cases[] = {
    {"- linear: 16\n- linear: 16\n", false, "nn- ffn"},
    {"- linear: 16\n- linear: 16\n", true, "nn- nnn"},
    {"- linear: 12\n- linear: 16\n", true, "ff- nnf"}, /* 12 features are not a multiple of 8 */
    {"- layer_norm\n- linear: 24\n- scaled_dot_product_attention: {heads: 1}\n- linear: 8\n", false, "nn- nnn nnn ffn"},
    {"- linear: 24\n- scaled_dot_product_attention: {heads: 2}\n- linear: 8\n", true, "ff- fff nnf"}, /* heads of 4 */
    {"- linear: 16\n- relu\n- linear: 8\n", false, "nn- ffn"},
    {"- linear: 16\n- gelu\n- dropout: 0.1\n- linear: 8\n", false, "nn- nnn nnn ffn"},
    {"- linear: 16\n- softmax\n- linear: 8\n", false, "ff- fff fff"}, /* not every layer */
    {"- linear: 16\n" TANH "- linear: 8\n", false, "nn- nnn ffn"},    /* three fused steps */
    {"- linear: 12\n" TANH "- linear: 8\n", false, "ff- fff fff"},
    {"- linear: 16\n- flatten\n- linear: 8\n", false, "nn- ffn"}, /* a view of 64 features */
    /* as autocast: a norm's output is float32, so is the stream that it starts, and a GELU of it */
    {"- residual: [{linear: 8}]\n- layer_norm\n- residual: [{linear: 8}]\n- layer_norm\n- linear: 8\n", false,
     "nf- ff- fff nff ff- nnf ffn"},
    {"- layer_norm\n- residual: [{linear: 8}]\n- linear: 8\n", false, "ff- nff nf- fff"},
    {"- softmax\n- residual: [{linear: 8}]\n- residual: [{linear: 8}]\n- linear: 8\n", false,
     "f-- nf- ff- nff nf- fff"},
    {"- layer_norm\n- gelu\n- linear: 8\n", false, "ff- nnf ffn"},
    {"- linear: 8\n- residual: [{linear: 8}]\n- linear: 8\n", false, "nn- nnn nn- ffn"},
    {"- layer_norm\n- residual: [{linear: 8}, {linear: 8}]\n- residual: [{linear: 8}]\n", false,
     "ff- nnf nfn ff- nff ff-"},
    {RESIDUAL "- linear: 8\n", false,
     "ff- nnf nfn nf- fff"}, /* the residual stream is float32, its branch is 16 bits */
    {RESIDUAL "- layer_norm\n- linear: 8\n", true, "ff- nnf nfn ff- nnf nnn"},
    /* a CNN: its input is float32, and so are images of 12 channels and the outputs of their convolutions */
    {"- " CONV(16) "\n- batch_norm\n- relu\n- " CONV(24) "\n- relu\n- max_pool2d: 2\n- flatten\n- linear: 8\n", false,
     "f-- nn- nnn nnn nnn nnn ffn"},
    {"- " CONV(16) "\n- " CONV(12) "\n- batch_norm\n- adaptive_avg_pool2d: 1\n- flatten\n- linear: 8\n", false,
     "f-- nn- ffn fff fff fff"},
    /* a ResNet: the residual stream is 16 bits, and so is a recomputed value; a group norm gives float32 */
    {"- " CONV(16) "\n- batch_norm\n- relu\n- residual: [" CONV(16) ", batch_norm, relu, " CONV(
         16) ", batch_norm]\n- relu\n"
             "- residual: [group_norm: 4, relu, " CONV(
                 16) "]\n- avg_pool2d: 2\n- adaptive_avg_pool2d: 1\n- flatten\n- linear: 16\n",
     true, "f-- nn- nnn nnn nnn nnn nnn nn- ffn nnf nnn nn- nnn nnn nnn"},
    {"- conv1d: {out: 16, kernel_size: 3}\n- relu\n- conv1d: {out: 16, kernel_size: 3}\n", false, "f-- nn- nnn ffn"},
    /* reordered for a linear layer: the size of all rows together is checked */
    {"- conv1d: {out: 16, kernel_size: 3}\n- flatten\n- linear: 8\n", false, "f-- nn- nnn ffn"},
    {"- conv1d: {out: 16, kernel_size: 3}\n- linear: 8\n", false, "f-- nn- ffn fff"},
    {"- conv1d: {out: 16, kernel_size: 3}\n- flatten\n", true, "f-- nn- nnn"},
    {"- conv1d: {out: 16, kernel_size: 3}\n", true, "f-- nn- ffn"}, /* the loss reads rows of 6 */
};

static char form(bool is_half, bool is_there) { return is_there ? is_half ? 'n' : 'f' : '-'; }

static void describe(const struct model *m, char *text) {
    for (size_t i = 0; i < m->node_count; i++) {
        const struct graph_node *s = &m->nodes[i];
        size_t dy = s->dy_after_relu == SIZE_MAX ? s->dy : s->dy_after_relu;
        *text++ = form(half_storage_of_value(m, s->out), true);
        *text++ = form(half_storage_of_gradient(m, dy), s->dy != SIZE_MAX);
        *text++ = form(half_storage_of_gradient(m, s->dx[0]), s->layer && s->dx[0] != SIZE_MAX);
        *text++ = ' ';
    }
    text[-1] = 0;
}

TEST_EACH(which_are_half, cases) {
    struct document *document;
    struct model *m = plan(cases[_i].layers, &document);
    char found[256];
    size_t parameters, before, after;
    model_memory(m, 1, &parameters, &before);
    if (cases[_i].is_output_half) model_allow_half_output(m);
    ck_assert(!model_adapt_to_device(m, &device));
    m->is_output_half = cases[_i].is_output_half; /* as in a pass of training */
    describe(m, found);
    ck_assert_str_eq(found, cases[_i].forms);
    ck_assert_int_eq(half_storage_of_value(m, m->output),
                     found[strlen(found) - 3] == 'n'); /* the output of the last step */
    m->is_output_half = false;
    ck_assert(!half_storage_of_value(m, m->output));
    model_memory(m, 1, &parameters, &after);
    size_t copies = 0; /* of what stays float32; not needed before */
    for (size_t c = 0; c < m->copy_count; c++) copies += m->copies[c].piece.size * sizeof(float);
    ck_assert_uint_le(after, before + copies);
    ck_assert(!model_adapt_to_device(m, &device)); /* the second call does nothing */
    size_t again;
    model_memory(m, 1, &parameters, &again);
    ck_assert_uint_eq(again, after);
    model_destroy(m);
    document_destroy(document);
}

/* All values but the input and the first output, all recomputed values and all gradients are 16 bits. */
TEST(memory_is_half) {
    struct document *document;
    size_t parameters, before, after, input = 3 * 8 * 8 * sizeof(float);
    struct model *m = plan(
        "- " CONV(16) "\n- repeat: {times: 4, layers: [" CONV(16) ", batch_norm, relu]}\n"
                                                                  "- adaptive_avg_pool2d: 1\n- flatten\n- linear: 8\n",
        &document);
    model_memory(m, 1, &parameters, &before);
    ck_assert(!model_adapt_to_device(m, &device));
    model_memory(m, 1, &parameters, &after);
    ck_assert_msg(after - input <= (before - input) / 2 + 1024, "%zu bytes of %zu", after, before);
    model_destroy(m);
    document_destroy(document);
}

int main(void) {
    struct device *cpu;
    if (device_create("cpu", &cpu)) return 1;
    ops.image = device_ops(cpu)->image;
    ops.convolution = device_ops(cpu)->convolution;
    int failed = check_suite("half_storage");
    device_destroy(cpu);
    return failed;
}
