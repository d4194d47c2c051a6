/* A device whose operators have limits: a model that exceeds one is rejected with layer and line, others are accepted.
 * And the steps that a device may fuse. ctest-labels: unit */
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "device/internal.h"
#include "model/model.h"

/* The operators that the fake GPU has. */
static const struct image_ops images = {0};
static const struct sequence_ops sequence = {.max_head_size = 256};
static const struct device_ops ops = {.image = &images, .sequence = &sequence};
static const struct device device = {.ops = &ops, .description = "cuda:0 (a GPU)"};

static struct model *plan(const char *layers, struct shape input, struct document **document) {
    char text[512];
    static struct model_config config; /* variants point into the document */
    struct problems problems = {0};
    struct model *model = NULL;
    snprintf(text, sizeof text, "layers:\n%s", layers);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, document));
    schema_bind(&model_schema, document_root(*document), "model", &model_schema, &config, document_arena(*document),
                &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert(!model_plan(&config, &input, &model));
    return model;
}

static status check(const char *layers, struct shape input) {
    struct document *document;
    struct model *model = plan(layers, input, &document);
    status s = model_adapt_to_device(model, &device);
    model_destroy(model);
    document_destroy(document);
    return s;
}

static const struct {
    const char *layers;
    struct shape input;
    const char *sentence; /* NULL: none */
} cases[] = {
    {"- linear: 4\n- gelu\n- dropout: {p: 0.1}\n- layer_norm\n", {.dims = 1, .size = {3}}, NULL},
    {"- attention: {heads: 2}\n", {.dims = 2, .size = {3, 512}}, NULL},
    {"- attention: {heads: 2}\n",
     {.dims = 2, .size = {3, 520}},
     "test.yaml:2:3: model.layers.0.attention: on cuda:0 (a GPU): a head has at most 256 features, got 260: use more "
     "heads, or train.device: cpu"},
    {"- scaled_dot_product_attention: {heads: 1}\n",
     {.dims = 2, .size = {3, 771}},
     "test.yaml:2:3: model.layers.0.scaled_dot_product_attention: on cuda:0 (a GPU): a head has at most 256"},
    {"- embedding: {embedding_dim: 6, padding_idx: 0}\n- attention: {heads: 2, dropout: 0.1}\n- mean: 1\n",
     {.dims = 1, .size = {3}, .is_tokens = true, .vocabulary = 5},
     NULL},
    {"- linear: {out: 8, name: q}\n- linear: 8\n- cross_attention: {heads: 2, from: q}\n",
     {.dims = 2, .size = {3, 16}},
     NULL},
    {"- reshape: {shape: [3, 3], name: m}\n- linear: {out: 8, name: q}\n- cross_attention: {heads: 2, from: [q, q, "
     "m]}\n",
     {.dims = 2, .size = {3, 3}},
     "test.yaml:4:3: model.layers.2.cross_attention: on cuda:0 (a GPU): a mask is for the CPU only: use train.device: "
     "cpu"},
    {"- linear: {out: 520, name: q}\n- linear: 520\n- cross_attention: {heads: 2, from: q}\n",
     {.dims = 2, .size = {3, 16}},
     "test.yaml:4:3: model.layers.2.cross_attention: on cuda:0 (a GPU): a head has at most 256 features, got 260"},
};

TEST_EACH(layers, cases) {
    status s = check(cases[_i].layers, cases[_i].input);
    if (!cases[_i].sentence) {
        ck_assert_msg(!s, "%s", status_message(s));
        return;
    }
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_msg(strncmp(status_message(s), cases[_i].sentence, strlen(cases[_i].sentence)) == 0, "%s",
                  status_message(s));
    status_free(s);
}

#define TANH "- gelu: {approximate: tanh}\n"

static const struct {
    const char *layers;
    const char *fusions; /* of each node: - of none, b before the GELU, g, a after it */
} gelus[] = {
    {"- linear: 4\n" TANH "- linear: 3\n", "bga"},
    {"- layer_norm\n- linear: 4\n" TANH "- linear: 3\n- relu\n- linear: 2\n", "-bga-"},
    {"- linear: 4\n" TANH "- linear: 5\n" TANH "- linear: 3\n",
     "bga--"}, /* the middle layer belongs to one group only */
    {"- linear: 4\n- gelu\n- linear: 3\n", "---"},
    {"- linear: 4\n- relu\n" TANH "- linear: 3\n", "---"},
    {"- linear: 4\n" TANH "- dropout: 0.1\n- linear: 3\n", "----"},
    {"- linear: 4\n" TANH, "--"},
    {"- linear: 4\n" TANH "- residual: [{linear: 4}]\n", "----"}, /* the sum reads the output of the GELU too */
    {"- linear: 4\n- residual: [{gelu: {approximate: tanh}}, {linear: 4}]\n", "----"},
    {"- residual: [{linear: 4}, {gelu: {approximate: tanh}}, {linear: 3}]\n", "bga-"},
};

/* The gradient before a GELU exists when the backward of the layer after it runs. */
TEST_EACH(nodes_around_a_gelu, gelus) {
    struct document *document;
    struct model *m = plan(gelus[_i].layers, (struct shape){.dims = 1, .size = {3}}, &document);
    ck_assert_uint_eq(m->node_count, strlen(gelus[_i].fusions));
    for (size_t i = 0; i < m->node_count; i++) {
        ck_assert_int_eq("-bga"[m->nodes[i].fusion], gelus[_i].fusions[i]);
        if (m->nodes[i].fusion != FUSION_GELU) continue;
        ck_assert_uint_eq(m->slots[m->nodes[i].dx[0]].first, 2 * m->node_count - (i + 1));
        ck_assert_uint_eq(m->nodes[i].dx[0], m->nodes[i - 1].dy);
    }
    model_destroy(m);
    document_destroy(document);
}

CHECK_MAIN("device_support")
