/* A device without some operators: a model that needs one is refused with its layer and line, others are not.
 * ctest-labels: unit */
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "device/internal.h"
#include "model/model.h"

/* As a GPU fills it so far. */
static const struct image_ops images = {0};
static const struct sequence_ops sequence = {.most_head_size = 256};
static const struct device_ops ops = {.image = &images, .sequence = &sequence};
static const struct device device = {.ops = &ops, .description = "cuda:0 (a GPU)"};

static status check(const char *layers, struct shape input) {
    char text[512];
    static struct model_config config; /* variants point into the document */
    struct problems problems = {0};
    struct document *document;
    struct model *model = NULL;
    snprintf(text, sizeof text, "layers:\n%s", layers);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, &document));
    schema_bind(&model_schema, document_root(document), "model", &model_schema, &config, document_arena(document),
                &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert(!model_plan(&config, &input, &model));
    status s = model_check_device(model, &device);
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
    {"- conv2d: {out: 2, kernel_size: 3}\n",
     {.dims = 3, .size = {1, 8, 8}},
     "test.yaml:2:3: model.layers.0.conv2d: is not on cuda:0 (a GPU) yet: use train.device: cpu"},
    {"- max_pool2d: 2\n", {.dims = 3, .size = {1, 8, 8}}, "test.yaml:2:3: model.layers.0.max_pool2d: is not on"},
    {"- avg_pool2d: 2\n", {.dims = 3, .size = {1, 8, 8}}, "test.yaml:2:3: model.layers.0.avg_pool2d: is not on"},
    {"- linear: 4\n- batch_norm\n", {.dims = 1, .size = {3}}, "test.yaml:3:3: model.layers.1.batch_norm: is not on"},
    {"- group_norm: 1\n", {.dims = 3, .size = {2, 4, 4}}, "test.yaml:2:3: model.layers.0.group_norm: is not on"},
};

START_TEST(layers) {
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
END_TEST

LOOP_TESTS("device_support", EACH(layers, cases))
