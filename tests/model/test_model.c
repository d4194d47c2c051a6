/* The whole model: initial weights against PyTorch's bits, shapes and names, relus that are fused, rules of init, what
 * a wrong model is told. ctest-labels: unit */
#include "model/model_fixture.h"

#include "base/files/digest.h"
#include "vectors.h"

/* Layers with a fused relu give the same bits as a separate relu (the first layer of a list is never fused). */
TEST(fused_relu) {
    static const char *const models[] = {
        "[{conv2d: {out: 17, kernel_size: 3}}, %s, {max_pool2d: 2}, {conv2d: {out: 3, kernel_size: 1}}, %s, flatten, "
        "{linear: {out: 3}}]",
        "[{conv2d: {out: 4, kernel_size: 3, padding: 1}}, batch_norm, %s, {residual: {layers: [{conv2d: {out: 6, "
        "kernel_size: 3, padding: 1, stride: 2}}, batch_norm, %s, {conv2d: {out: 6, kernel_size: 3, padding: 1}}, "
        "batch_norm], shortcut: [{conv2d: {out: 6, kernel_size: 1, stride: 2}}]}}, %s, {residual: [{conv2d: {out: 6, "
        "kernel_size: 1}}, %s]}, %s, {residual: [%s, {conv2d: {out: 6, kernel_size: 1}}]}, {residual: [{max_pool2d: "
        "1}, %s]}, %s, {adaptive_avg_pool2d: 1}, flatten, {linear: {out: 3}}]",
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct shape input = {.dims = 3, .size = {2, 6, 6}};
        struct fixture f[2];
        for (int i = 0; i < 2; i++) {
            char text[1024];
            const char *relu = i ? "{sequential: [relu]}" : "relu";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, models[m], relu, relu, relu, relu, relu, relu, relu, relu);
#pragma GCC diagnostic pop
            f[i] = open_fixture(text, input, 5, "mse");
            loss_of(&f[i], true);
        }
        ck_assert_uint_lt(f[0].model->node_count, f[1].model->node_count);
        const struct layer *first = f[0].model->layers; /* the layer after it has the relu */
        while (strcmp(first->type->variant.name, "conv2d") != 0) first++;
        ck_assert(!first->has_relu);
        const struct params *a = &f[0].model->params, *b = &f[1].model->params;
        ck_assert_uint_eq(a->total, b->total);
        for (size_t i = 0; i < a->total; i++)
            ck_assert_msg(fabsf(a->gradients[i] - b->gradients[i]) <= 1e-6f + 1e-5f * fabsf(b->gradients[i]),
                          "model %zu, gradient %zu: %g and %g", m, i, (double)a->gradients[i], (double)b->gradients[i]);
        for (int i = 0; i < 2; i++) close_fixture(&f[i]);
    }
}

/* The output for [targets] of a model without parameters, whose input is 0, 1, 2, ... */
static void run_for_targets(const char *layers, const struct shape *input, const struct class_targets *targets,
                            struct shape *shape, float *output) {
    char text[256];
    struct model_config config;
    SCOPED_DOCUMENT document;
    struct problems problems = {0};
    struct model *model;
    struct device *device;
    float x[64];
    snprintf(text, sizeof text, "layers: %s", layers);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, &document));
    schema_bind(&model_schema, document_root(document), "model", &model_schema, &config, document_arena(document),
                &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert(!model_plan_named(&config, input, &(struct model_names){.targets = targets}, &model));
    ck_assert(!device_create("cpu", &device));
    ck_assert(!model_alloc(model, device, 1));
    for (size_t i = 0; i < shape_elements(input); i++) x[i] = (float)i;
    *shape = model->out;
    const float *y = floats(model_forward(model, &(struct pass){.device = device, .rows = 1}, x));
    memcpy(output, y, model->out_size * sizeof *y);
    model_destroy(model);
    device_destroy(device);
}

/* Scores (classes, ...) become (positions, classes), in whichever order the last layer has them in memory. */
TEST(scores_by_position) {
    static const char *const models[] = {"[{permute: [0, 2, 1, 3]}]", "[{upsample: 1}, {permute: [0, 2, 1, 3]}]",
                                         "[{reshape: [3, 2, 4]}, {max_pool2d: 1}]", "[{reshape: [3, 2, 4]}]"};
    struct shape input = {.dims = 3, .size = {2, 3, 4}}, shape;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        float plain[24], scores[24];
        run_for_targets(models[m], &input, &(struct class_targets){.are_classes = false}, &shape, plain);
        ck_assert_int_eq(shape.dims, 3);
        bool is_channels_last = shape.is_channels_last;
        run_for_targets(models[m], &input, &(struct class_targets){.are_classes = true, .count = 8}, &shape, scores);
        ck_assert_int_eq(shape.dims, 2);
        ck_assert(shape.size[0] == 8 && shape.size[1] == 3);
        for (size_t position = 0; position < 8; position++)
            for (size_t c = 0; c < 3; c++)
                ck_assert_msg(scores[position * 3 + c] == plain[is_channels_last ? position * 3 + c : c * 8 + position],
                              "%s: class %zu of position %zu", models[m], c, position);
    }
}

static size_t find_param(const struct params *params, const char *prefix, const char *rest) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, rest);
    for (size_t p = 0; p < params->count; p++)
        if (strcmp(params->items[p].name, name) == 0) return p;
    ck_abort_msg("there is no %s", name);
}

#define SHARED(second)                                                                                                 \
    "[{linear: {out: 6, name: in}}, {sequential: {layers: [{linear: 6}, batch_norm, tanh], name: a}}, {sequential: "   \
    "{" second "}}, {linear: {out: 2, name: out}}]"

/* Layers that share parameters compute what two with equal ones do; their gradients are added, and the running means
 * are those of both passes, one after the other. */
TEST(shared_layers_are_one) {
    static const char *const own[] = {"0.weight", "0.bias", "1.weight", "1.bias"};
    struct shape input = {.dims = 1, .size = {5}};
    struct fixture one = open_fixture(SHARED("share: a"), input, 6, "mse");
    struct fixture two = open_fixture(SHARED("layers: [{linear: 6}, batch_norm, tanh], name: b"), input, 6, "mse");
    struct fixture single = open_fixture(SHARED("layers: []"), input, 6, "mse");
    const struct params *shared = &one.model->params, *both = &two.model->params, *drawn = &single.model->params;
    ck_assert_uint_eq(shared->count + 4, both->count);
    ck_assert_uint_eq(shared->total, drawn->total);
    ck_assert_mem_eq(shared->values, drawn->values, shared->total * sizeof(float)); /* drawn once */
    for (size_t p = 0; p < both->count; p++) {
        const char *name = both->items[p].name;
        size_t from = name[0] == 'b' ? find_param(shared, "a", name + 1) : find_param(shared, name, "");
        memcpy(params_value(both, p), params_value(shared, from), both->items[p].count * sizeof(float));
    }
    double loss = loss_of(&one, true);
    ck_assert(loss == loss_of(&two, true));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t p = find_param(shared, "a.", own[i]);
        const float *g = params_gradient(shared, p), *a = params_gradient(both, find_param(both, "a.", own[i])),
                    *b = params_gradient(both, find_param(both, "b.", own[i]));
        for (size_t k = 0; k < shared->items[p].count; k++)
            ck_assert_msg(fabsf(g[k] - (a[k] + b[k])) <= 1e-6f, "%s: %g, not %g", own[i], (double)g[k],
                          (double)(a[k] + b[k]));
    }
    const struct params *buffers = &one.model->buffers, *others = &two.model->buffers;
    const float *mean = params_value(buffers, find_param(buffers, "a.", "1.running_mean")),
                *first = params_value(others, find_param(others, "a.", "1.running_mean")),
                *second = params_value(others, find_param(others, "b.", "1.running_mean"));
    for (size_t k = 0; k < 6; k++) ck_assert(fabsf(mean[k] - (0.9f * first[k] + second[k])) <= 1e-6f);
    close_fixture(&one), close_fixture(&two), close_fixture(&single);
}

/* A relu is not fused into a layer whose output another one reads by its name, wherever that is. */
TEST(relus_of_named_outputs_are_not_fused) {
    static const char *const readers[] = {
        "{linear: 4}, {add: {from: n}}",
        "{residual: [{linear: {out: 4, from: n}}]}",
        "{sequential: [{linear: 4}, {repeat: {times: 2, layers: [{add: {from: n}}]}}]}",
        "{parallel: {branches: [[{linear: 3}], [{linear: {out: 2, from: n}}]]}}",
        "{parallel: {branches: [[{linear: 4}], [{residual: [{linear: {out: 4, from: n}}]}]], join: add}}",
    };
    for (size_t r = 0; r < sizeof readers / sizeof *readers; r++) {
        struct fixture f[2];
        double loss[2];
        for (int i = 0; i < 2; i++) {
            char text[512];
            snprintf(text, sizeof text, "[{linear: 6}, {linear: {out: 4, name: n}}, %s, %s, {linear: 2}]",
                     i ? "{sequential: [relu]}" : "relu", readers[r]);
            f[i] = open_fixture(text, (struct shape){.dims = 1, .size = {5}}, 6, "mse");
            loss[i] = loss_of(&f[i], true);
        }
        const struct params *a = &f[0].model->params, *b = &f[1].model->params;
        ck_assert_msg(loss[0] == loss[1], "%s: %.9g and %.9g", readers[r], loss[0], loss[1]);
        ck_assert_uint_eq(a->total, b->total);
        ck_assert_mem_eq(a->gradients, b->gradients, a->total * sizeof(float));
        for (int i = 0; i < 2; i++) close_fixture(&f[i]);
    }
}

static void param_has_bits(const struct params *params, size_t index, const json_t *vector) {
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    digest_of(params_value(params, index), params->items[index].count * sizeof(float), hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, json_string_value(json_object_get(vector, "sha256")));
}

TEST(initial_weights_are_pytorchs) {
    static const struct {
        const char *vector, *layers;
        int64_t in;
        int count;
        const char *names[16];
    } cases[] = {
        {"Linear(13,64)", "[{linear: {out: 64}}]", 13, 2, {"0.weight", "0.bias"}},
        {"Linear(64,3,bias=False)", "[{linear: {out: 3, bias: false}}]", 64, 1, {"0.weight"}},
        {"Conv2d(1,8,3)", "[{conv2d: {out: 8, kernel_size: 3}}]", 1, 2, {"0.weight", "0.bias"}},
        {"Conv2d(3,16,5,bias=False)", "[{conv2d: {out: 16, kernel_size: 5, bias: false}}]", 3, 1, {"0.weight"}},
        {"Conv2d(16,16,3,groups=16)",
         "[{conv2d: {out: 16, kernel_size: 3, groups: 16}}]",
         16,
         2,
         {"0.weight", "0.bias"}},
        {"Conv1d(4,6,3)", "[{conv1d: {out: 6, kernel_size: 3}}]", 4, 2, {"0.weight", "0.bias"}},
        {"MultiheadAttention(32,4)",
         "[{attention: {heads: 4}}]",
         32,
         4,
         {"0.in_proj_weight", "0.in_proj_bias", "0.out_proj.weight", "0.out_proj.bias"}},
        {"LSTM(5,4,2,bidirectional)",
         "[{lstm: {hidden_size: 4, num_layers: 2, bidirectional: true}}]",
         5,
         16,
         {"0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0", "0.weight_ih_l0_reverse",
          "0.weight_hh_l0_reverse", "0.bias_ih_l0_reverse", "0.bias_hh_l0_reverse", "0.weight_ih_l1", "0.weight_hh_l1",
          "0.bias_ih_l1", "0.bias_hh_l1", "0.weight_ih_l1_reverse", "0.weight_hh_l1_reverse", "0.bias_ih_l1_reverse",
          "0.bias_hh_l1_reverse"}},
        {"GRU(5,7)", "[{gru: 7}]", 5, 4, {"0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0"}},
        {"RNN(5,7,bias=False)", "[{rnn: {hidden_size: 7, bias: false}}]", 5, 2, {"0.weight_ih_l0", "0.weight_hh_l0"}},
        {"Embedding(65,32)", "[{embedding: 32}]", 65, 1, {"0.weight"}},
        {"Embedding(5,3)", "[{embedding: 3}]", 5, 1, {"0.weight"}},
        {"LayerNorm(32)", "[layer_norm]", 32, 2, {"0.weight", "0.bias"}},
        {"MLP 13-64-3",
         "[{linear: {out: 64}}, relu, {linear: {out: 3}}]",
         13,
         4,
         {"0.weight", "0.bias", "2.weight", "2.bias"}},
    };
    json_t *root = vectors_load("init");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        json_t *vector = json_object_get(json_object_get(root, "modules"), cases[c].vector);
        json_t *tensors = json_object_get(vector, "params");
        ck_assert_ptr_nonnull(tensors);
        struct shape input = {.dims = 1, .size = {cases[c].in}};
        if (strstr(cases[c].layers, "conv")) input = (struct shape){.dims = 3, .size = {cases[c].in, 5, 5}};
        if (strstr(cases[c].layers, "conv1d")) input = (struct shape){.dims = 2, .size = {cases[c].in, 5}};
        if (strstr(cases[c].layers, "hidden_size") || strstr(cases[c].layers, "gru"))
            input = (struct shape){.dims = 2, .size = {5, cases[c].in}};
        if (strstr(cases[c].layers, "attention")) input = (struct shape){.dims = 2, .size = {5, cases[c].in}};
        if (strstr(cases[c].layers, "embedding"))
            input = (struct shape){.dims = 1, .size = {5}, .is_tokens = true, .vocabulary = cases[c].in};
        struct fixture f = open_fixture(cases[c].layers, input, 1, "mse");
        struct rng rng;
        rng_seed(&rng, (uint64_t)json_integer_value(json_object_get(vector, "seed")));
        model_init(f.model, &rng);
        ck_assert_uint_eq(f.model->params.count, (size_t)cases[c].count);
        for (size_t p = 0; p < f.model->params.count; p++) {
            ck_assert_str_eq(f.model->params.items[p].name, cases[c].names[p]);
            const char *key = json_object_get(tensors, cases[c].names[p]) ? cases[c].names[p] : cases[c].names[p] + 2;
            param_has_bits(&f.model->params, p, json_object_get(tensors, key));
        }
        close_fixture(&f);
    }
    json_decref(root);
}

TEST(only_the_last_draw_is_stored) {
    struct shape input = {.dims = 1, .size = {40}};
    struct fixture f =
        open_fixture("[{linear: 30}]\ninit: [{normal: {match: '*.weight'}}, {uniform: {layers: [linear]}}, "
                     "{normal: {match: '*.bias', std: 2}}]",
                     input, 1, "mse");
    float unseen[1200], weight[1200], bias[30];
    struct rng rng, own;
    rng_seed(&rng, 9);
    rng_seed(&own, 9);
    model_init(f.model, &rng);
    rng_uniform(&own, unseen, 1200, -1, 1);
    rng_uniform(&own, unseen, 30, -1, 1);
    rng_normal(&own, unseen, 1200, 0, 1);
    rng_uniform(&own, weight, 1200, 0, 1);
    rng_uniform(&own, unseen, 30, 0, 1);
    rng_normal(&own, bias, 30, 0, 2);
    ck_assert_mem_eq(params_value(&f.model->params, 0), weight, sizeof weight);
    ck_assert_mem_eq(params_value(&f.model->params, 1), bias, sizeof bias);
    ck_assert_uint_eq(rng_u32(&rng), rng_u32(&own));
    close_fixture(&f);
}

TEST(composites_add_levels_to_names) {
    struct shape input = {.dims = 1, .size = {4}};
    struct fixture f = open_fixture("[{repeat: {name: h, times: 2, layers: [{residual: {layers: [{linear: {out: 4, "
                                    "name: fc}}], shortcut: [{linear: {out: 4}}]}}]}}, "
                                    "{sequential: {name: head, layers: [relu, {linear: {out: 2}}]}}]",
                                    input, 1, "mse");
    static const char *const names[] = {
        "h.0.0.fc.weight", "h.0.0.fc.bias", "h.0.0.shortcut.0.weight", "h.0.0.shortcut.0.bias",
        "h.1.0.fc.weight", "h.1.0.fc.bias", "h.1.0.shortcut.0.weight", "h.1.0.shortcut.0.bias",
        "head.1.weight",   "head.1.bias"};
    ck_assert_uint_eq(f.model->params.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) ck_assert_str_eq(f.model->params.items[i].name, names[i]);
    close_fixture(&f);
}

TEST(names_replace_indices) {
    struct shape input = {.dims = 1, .size = {4}};
    struct fixture f = open_fixture("[{linear: {out: 2, name: fc1}}, relu, {linear: {out: 2}}]", input, 1, "mse");
    ck_assert_str_eq(f.model->params.items[0].name, "fc1.weight");
    ck_assert_str_eq(f.model->params.items[3].name, "2.bias");
    close_fixture(&f);
}

static void rejected_on(struct shape input, const char *layers, const char *expected) {
    SCOPED_DOCUMENT document = NULL;
    struct model *model = NULL;
    status s = build(layers, &input, &document, &model);
    ck_assert_msg(s != OK, "%s was accepted", layers);
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_msg(strstr(status_message(s), expected) != NULL, "%s: %s", layers, status_message(s));
    status_free(s);
}

static void rejected(const char *layers, const char *expected) {
    rejected_on((struct shape){.dims = 1, .size = {4}}, layers, expected);
}

/* The maximum padding, which PyTorch also enforces, and the maximum window of max_pool2d. */
TEST(limits_of_poolings) {
    struct shape image = {.dims = 3, .size = {1, 20, 20}};
    static const char *const fits[] = {"[{max_pool2d: {kernel_size: 16, stride: 1}}, flatten, {linear: 3}]",
                                       "[{max_pool2d: {kernel_size: [2, 3], padding: [1, 1]}}, flatten, {linear: 3}]",
                                       "[{avg_pool2d: {kernel_size: 20}}, flatten, {linear: 3}]"};
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        struct fixture f = open_fixture(fits[i], image, 2, "mse");
        close_fixture(&f);
    }
    rejected_on(image, "[{max_pool2d: {kernel_size: [16, 17]}}]", "at most 256 elements, got 272");
    rejected_on(image, "[{avg_pool2d: {kernel_size: 21}}]", "the window is larger than the padded input (20 x 20)");
    rejected_on(image, "[{max_pool2d: {kernel_size: [2, 4], padding: [2, 0]}}]", "padding must be at most half");
    rejected_on(image, "[{max_pool2d: {kernel_size: [4, 3], padding: [0, 2]}}]", "padding must be at most half");
}

TEST(bad_models) {
    rejected("[{linear: {out: 2, name: a}}, {linear: {out: 2, name: a}}]",
             "test.yaml:1:39: model.layers.1.linear: the name 'a' is already used by model.layers.0.linear "
             "(test.yaml:1:10)");
    rejected("[{linear: {out: 2, name: a.b}}]", "must not be empty or contain '.' or '/'");
    rejected("[{linear: {out: 2, name: '1'}}, {linear: {out: 2}}]",
             "the name '1' is already used by model.layers.0.linear");
    rejected("[]", "must have at least one layer");
    rejected("[{residual: [{linear: {out: 3}}]}]",
             "test.yaml:1:10: model.layers.0.residual: the two sides of the sum have different shapes: 3 and 4");
    rejected("[{conv2d: {out: 2, kernel_size: 3}}]",
             "model.layers.0.conv2d: needs an input of shape (channels, height, width), got 4");
    rejected("[{conv2d: {out: 3, kernel_size: 3, groups: 2}}]", "groups: must divide out (3), got 2");
    rejected("[{conv2d: {out: 3, kernel_size: [1, 2, 3]}}]", "expected one number or two (height, width), got 3");
    rejected("[{conv1d: {out: 3, kernel_size: [1, 2]}}]", "kernel_size: expected one number, got 2");
    rejected("[{conv_transpose2d: {out: 3, kernel_size: 2}}]",
             "model.layers.0.conv_transpose2d: needs an input of shape (channels, height, width), got 4");
    rejected("[{linear: 5}, glu]", "model.layers.1.glu: dim -1: halves an even number of elements, the input has 5");
    rejected("[{glu: 2}]", "model.layers.0.glu: dim 2: the input has the dimensions 1 to 1 (0 is the batch)");
    rejected("[{conv_transpose1d: {out: 3, kernel_size: 2}}]",
             "model.layers.0.conv_transpose1d: needs an input of shape (channels, length), got 4");
    rejected("[{reshape: [1, 2, 2]}, {conv_transpose2d: {out: 3, kernel_size: 2, stride: 2, output_padding: [1, 2]}}]",
             "output_padding must be less than stride (2), got 2");
    rejected("[{reshape: [1, 2, 2]}, {conv_transpose2d: {out: 3, kernel_size: 2, padding: 2}}]",
             "the output would have 0 rows");
    rejected("[{reshape: [2, 2, 1]}, {conv_transpose2d: {out: 3, kernel_size: 2, groups: 3}}]",
             "groups must divide the input's channels (2), got 3");
    rejected("[{conv_transpose2d: {out: 3, kernel_size: 2, output_padding: [1, 1, 1]}}]",
             "output_padding: expected one number or two (height, width), got 3");
    rejected(
        "[{linear: 1}, {reshape: [1, 1, 1]}, {upsample: 1024}, {upsample: 1024}, {conv2d: {out: 4, kernel_size: 1}}]",
        "model.layers.4.conv2d: its output would be (4, 1048576, 1048576), more than 1099511627776 numbers");
    rejected(
        "[{reshape: [1, 2, 2]}, {conv2d: {out: 1048576, kernel_size: 2}}, {conv2d: {out: 1048576, kernel_size: 4096, "
        "padding: 2048}}]",
        "model.layers.2.conv2d: its parameter '2.weight' would have more than 1099511627776 numbers");
    rejected("[{reshape: [1, 4]}, {conv1d: {out: 3, kernel_size: 2, padding: same, stride: 2}}]",
             "model.layers.1.conv1d.padding: 'same' needs a stride of 1, got 2");
    rejected("[{reshape: [1, 4]}, {conv1d: {out: 3, kernel_size: 2, padding: full}}]",
             "padding: expected a list of integers, or one of same, valid, got 'full'");
    rejected("[{reshape: [1, 4]}, {conv1d: {out: 3, kernel_size: 2, padding: -1}}]", "padding: must be >= 0");
    rejected("[{reshape: [1, 4, 1]}, {conv2d: {out: 3, kernel_size: 2, padding: [same, 1]}}]",
             "padding.0: expected an integer, got 'same'");
    rejected("[{reshape: [1, 4, 1]}, {conv_transpose2d: {out: 3, kernel_size: 2, padding: same}}]",
             "padding: expected an integer, got 'same'");
    rejected("[{dropout2d: 0.5}]", "needs an input of shape (channels, height, width), got 4");
    rejected("[{dropout1d: 0.5}]", "needs an input of shape (channels, length), got 4");
    rejected("[drop_path]", "p: missing; Probability that the branch of a row is zeroed.");
    rejected("[{drop_path: 1.5}]", "p: must be >= 0 and <= 1, got 1.5");
    rejected("[layer_scale2d]", "needs an input of shape (channels, height, width), got 4");
    rejected("[{embedding_bag: 3}]", "its input is not text, a file of tokens, or columns of sentences or with "
                                     "encoding: embedding alone, so num_embeddings is needed");
    rejected("[relu, {embedding_bag: {embedding_dim: 3, num_embeddings: 5}}]",
             "its input must be tokens of the dataset, but it is the output of a layer");
    rejected_on((struct shape){.dims = 2, .size = {4, 2}, .is_tokens = true, .vocabulary = 7}, "[{embedding_bag: 3}]",
                "its input must be rows of one dimension, (tokens)");
    rejected_on((struct shape){.dims = 1, .size = {4}, .is_tokens = true, .vocabulary = 7},
                "[{embedding_bag: {embedding_dim: 3, padding_idx: -8}}]", "padding_idx must be from -7 to 6, got -8");
    rejected("[{max_pool1d: 2}]", "needs an input of shape (channels, length), got 4");
    rejected("[{reshape: [2, 2]}, {max_pool1d: [2, 2]}]", "kernel_size: expected one number, got 2");
    rejected("[{reshape: [2, 2]}, {adaptive_avg_pool1d: [1, 1]}]", "output_size: expected one number, got 2");
    rejected("[{linear: 600}, {reshape: [1, 600]}, {adaptive_max_pool1d: 2}]",
             "a window may have at most 256 elements, got 300");
    rejected("[instance_norm]", "needs an input of shape (channels, length) or (channels, height, width), got 4");
    rejected("[{reshape: [4, 1, 1]}, instance_norm]", "needs more than one position in each channel");
    rejected("[class_token]", "its input must be (positions, features), but is 4");
    rejected("[{reshape: [1, 2, 2]}, {patch_embedding: {embed_dim: 3, patch_size: [1, 3]}}]",
             "patch_size must divide the image (2 x 2), got 1 x 3");
    rejected("[{patch_embedding: {embed_dim: 3, patch_size: [1, 2, 3]}}]",
             "patch_size: expected one number or two (height, width), got 3");
    rejected("[{prelu: 3}]", "num_parameters must be 1 or the channels (4), got 3");
    rejected("[{group_norm: 3}]", "num_groups must divide the channels (4), got 3");
    rejected("[{repeat: {times: 0, layers: [relu]}}]", "must be");
    rejected("[{linear: {out: 0}}]", "must be");
    rejected("[{dropout: {p: 1.5}}]", "must be");
    rejected("[{embedding: 3}]", "its input is not text, a file of tokens, or columns of sentences or with encoding: "
                                 "embedding alone, so num_embeddings is needed");
    rejected("[{linear: 3}, {embedding: {embedding_dim: 3, num_embeddings: 5}}]",
             "its input must be tokens of the dataset");
    rejected("[positional_embedding]", "its input must be (positions, features), but is 4");
    rejected("[{attention: {heads: 2}}]", "its input must be (positions, features), but is 4");
    rejected("[{reshape: [2, 2]}, {attention: {heads: 3}}]", "its input is (2, 2): heads (3) must divide the features");
    rejected("[{reshape: [2, 2]}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 3}}]",
             "num_kv_heads (3) must divide heads (4)");
    rejected("[{reshape: [2, 2]}, {scaled_dot_product_attention: {heads: 2, num_kv_heads: 1}}]",
             "its features must be 2 heads of queries, 1 of keys and 1 of values");
    rejected("[{scaled_dot_product_attention: {heads: 2, num_kv_heads: 1}}]",
             "its input must be (positions, features)");
    rejected("[{rotary_embedding: {head_size: 2}}]", "its input must be (positions, features)");
    rejected("[{reshape: [2, 2]}, {rotary_embedding: {head_size: 3}}]", "head_size must be even, got 3");
    rejected("[{reshape: [2, 2]}, {rotary_embedding: {head_size: 4}}]", "head_size (4) must divide the features");
    rejected("[{reshape: [2, 2]}, {rotary_embedding: {head_size: 2, heads: 2}}]",
             "it has fewer than 2 heads of 2 features");
    rejected("[{reshape: [2, 2]}, {scaled_dot_product_attention: {heads: 1}}]", "its features must be q, k and v");
    rejected("[{reshape: [2, 2]}, {positional_embedding: {num_embeddings: 1}}]", "but the input has 2 positions");
    rejected("[{reshape: [3, -1]}]", "the sizes do not multiply to the input's elements; its input is 4, 4 elements");
    rejected("[{reshape: [-1, -1]}]", "only one size may be -1");
    rejected("[{reshape: [0, -1]}]", "a size must not be 0");
    rejected("[{linear: {out: 3, tie: wte.weight}}]", "tie: no earlier layer has a parameter 'wte.weight'");
    rejected("[{linear: 3}, {linear: {out: 3, tie: 0.weight}}]",
             "model.layers.1.linear: tie: the weight is (3, 3), but '0.weight' is (3, 4)");
    rejected("[{linear: 3}]\ninit: [{normal: {match: '*.wait'}}]",
             "test.yaml:2:8: model.init.0.normal: it matches no parameter");
    rejected("[{linear: 3}]\ninit: [{normal: {layers: [lin]}}]", "unknown layer type 'lin'");
    rejected("[{linear: 3}]\ninit: [xavier_uniform]", "'0.bias' has fewer than two dimensions: exclude it with match");
    rejected("[{linear: 3}]\ninit: [orthogonal]", "'0.bias' has fewer than two dimensions: exclude it with match");
    rejected("[{linear: 3}]\ninit: [{trunc_normal: {a: 1, b: 1}}]", "a must be less than b");
    rejected("[{linear: 3}]\ninit: [{trunc_normal: {a: 2, b: 1.0e9}}]", "nearly every draw would be rejected");
    struct fixture f = open_fixture("[{linear: 3}]\ninit: [{trunc_normal: {mean: 5, std: 0.1, a: -2, b: 10}}]",
                                    (struct shape){.dims = 1, .size = {4}}, 1, "mse");
    for (size_t i = 0; i < 12; i++) ck_assert_float_eq_tol(f.model->params.values[i], 5, 0.6f);
    close_fixture(&f);
    rejected("[{linear: 3}]\ninit: [gpt2]", "`residual` matches no parameter");
    rejected("[{linear: 3}]\ninit: [{gpt2: {match: '*'}}]", "gpt2 selects its parameters itself");
    rejected("[liner]", "unknown layer 'liner'; did you mean 'linear'");
}

/* Backward reports each parameter once, last to first, when its gradient is complete. */
static void note_ready(void *user, size_t index) {
    size_t *seen = user;
    seen[++seen[0]] = index;
}

TEST(ready_order) {
    struct shape input = {.dims = 1, .size = {4}};
    struct fixture f = open_fixture("[relu, {linear: {out: 2}}, tanh, {linear: {out: 2}}]", input, 2, "mse");
    size_t seen[8] = {0}, expected[] = {4, 3, 2, 1, 0};
    struct pass pass = pass_of(&f);
    model_forward(f.model, &pass, f.inputs);
    model_backward(f.model, &pass, f.inputs, note_ready, seen);
    ck_assert_mem_eq(seen, expected, sizeof expected);
    close_fixture(&f);
}

TEST(only_embeddings_accept_tokens) {
    struct shape input = {.dims = 1, .size = {4}, .is_tokens = true, .vocabulary = 7};
    static const struct {
        const char *layers, *expected;
    } cases[] = {
        {"[{linear: 3}]", "its input is token ids, which only an embedding accepts: insert one before it"},
        {"[{embedding: {embedding_dim: 3, num_embeddings: 6}}]",
         "num_embeddings is 6, but the dataset's vocabulary has 7 tokens"},
        {"[{embedding: {embedding_dim: 3, num_embeddings: 16777217}}]", NULL},
        {"[{embedding: {embedding_dim: 3, num_embeddings: 16777217}}]",
         "num_embeddings is 16777217, but the input has values, which are float32"},
        {"[{embedding_bag: {embedding_dim: 3, num_embeddings: 16777217}}]",
         "num_embeddings is 16777217, but the input has values, which are float32"},
        {"[{embedding: {embedding_dim: 3, num_embeddings: 16777216}}]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        input.is_tokens = i < 3;
        input.vocabulary = i < 3 ? 7 : 0;
        SCOPED_DOCUMENT document = NULL;
        struct model *model = NULL;
        status s = build(cases[i].layers, &input, &document, &model);
        ck_assert(cases[i].expected ? s && strstr(status_message(s), cases[i].expected) : !s);
        status_free(s);
        model_destroy(model);
    }
}

/* torch.nn.init's functions bit for bit. The vectors are the first draws after the seed, so the generator is seeded
 * again after the layer's default draws. */
TEST(init_rules_draw_as_torch) {
    static const struct {
        const char *vector, *rule;
    } cases[] = {{"kaiming_normal_", "{kaiming_normal: {mode: fan_out}}"},
                 {"kaiming_uniform_(relu)", "kaiming_uniform"},
                 {"xavier_normal_", "xavier_normal"},
                 {"xavier_uniform_", "xavier_uniform"}};
    json_t *root = vectors_load("init");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        json_t *vector = json_object_get(json_object_get(root, "functions"), cases[c].vector);
        char text[256];
        snprintf(text, sizeof text, "[{linear: {out: 8, bias: false}}]\ninit: [%s]", cases[c].rule);
        struct shape input = {.dims = 1, .size = {12}};
        struct fixture f = open_fixture(text, input, 1, "mse");
        struct rng rng;
        rng_seed(&rng, 42);
        init_rules_apply(f.model, &f.model->init, &rng);
        vectors_equal(json_object_get(vector, "h32"), params_value(&f.model->params, 0), cases[c].rule);
        close_fixture(&f);
    }
    json_decref(root);
}

/* Vectors of tests/vectors/make_init.py. The number of draws depends on the drawn numbers, also where a later rule
 * replaces them; orthogonal matrices agree to rounding. */
TEST(trunc_normal_and_orthogonal_are_torchs) {
    json_t *root = vectors_load("init_torch2"), *vectors = json_object_get(root, "cases"), *vector;
    size_t i;
    ck_assert_uint_ge(json_array_size(vectors), 9);
    json_array_foreach(vectors, i, vector) {
        const char *rule = json_string_value(json_object_get(vector, "rule"));
        json_t *shape = json_object_get(vector, "shape"), *expected = json_object_get(vector, "h32");
        int out = (int)json_integer_value(json_array_get(shape, 0));
        struct shape input = {.dims = 1, .size = {json_integer_value(json_array_get(shape, 1))}};
        for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
            char text[256];
            snprintf(text, sizeof text, "[{linear: {out: %d, bias: false}}]\ninit: [%s%s%s%s]", out,
                     strchr(rule, ':') && *rule != '{' ? "{" : "", rule, strchr(rule, ':') && *rule != '{' ? "}" : "",
                     is_replaced ? ", zeros" : "");
            struct fixture f = open_fixture(text, input, 1, "mse");
            struct rng rng;
            rng_seed(&rng, 42);
            init_rules_apply(f.model, &f.model->init, &rng);
            const float *values = params_value(&f.model->params, 0);
            for (size_t v = 0; v < json_array_size(expected); v++) {
                float number = is_replaced ? 0 : vectors_float(json_array_get(expected, v));
                float tolerance = strstr(rule, "orthogonal") ? 1e-5f : 0;
                ck_assert_msg(fabsf(values[v] - number) <= tolerance, "%s: number %zu is %g instead of %g", rule, v,
                              (double)values[v], (double)number);
            }
            ck_assert_int_eq(rng_int64(&rng), json_integer_value(json_object_get(vector, "next")));
            close_fixture(&f);
        }
    }
    json_decref(root);
}

TEST(init_rules_select_parameters) {
    struct shape input = {.dims = 1, .size = {4}};
    struct fixture f =
        open_fixture("[{linear: {out: 3, name: a}}, layer_norm, {linear: {out: 3, name: b}}]\n"
                     "init: [{constant: {value: 2, layers: linear, match: '*.weight'}}, "
                     "{zeros: {match: ['*.bias', b.weight]}}, {uniform: {from: 5, to: 6, match: a.bias}}, "
                     "{ones: {match: '1.bias'}}]",
                     input, 1, "mse");
    const struct params *p = &f.model->params;
    ck_assert_uint_eq(p->count, 6);
    const float min[] = {2, 5, 1, 1, 0, 0}, max[] = {2, 6, 1, 1, 0, 0}; /* a: weight, bias; 1: both; b: both */
    for (size_t i = 0; i < p->count; i++)
        for (size_t j = 0; j < p->items[i].count; j++)
            ck_assert_msg(params_value(p, i)[j] >= min[i] && params_value(p, i)[j] <= max[i], "%s[%zu] is %g",
                          p->items[i].name, j, (double)params_value(p, i)[j]);
    close_fixture(&f);
}

/* A tied weight is one parameter, whose gradient is complete when both layers have added theirs. */
TEST(tied_weights_are_one) {
    struct shape input = {.dims = 1, .size = {3}, .is_tokens = true, .vocabulary = 5};
    struct fixture f =
        open_fixture("[{embedding: {embedding_dim: 4, name: wte}}, {linear: 4}, {linear: {out: 5, tie: wte.weight}}]",
                     input, 2, "mse");
    size_t seen[8] = {0}, expected[] = {4, 3, 2, 1, 0};
    struct pass pass = pass_of(&f);
    ck_assert_uint_eq(f.model->params.count, 4); /* wte.weight, 1.weight, 1.bias, 2.bias */
    model_forward(f.model, &pass, f.inputs);
    model_backward(f.model, &pass, f.inputs, note_ready, seen);
    ck_assert_mem_eq(seen, expected, sizeof expected);
    close_fixture(&f);
}

/* The state of a pass with groups: which have begun, and a copy of each gradient when it was complete. */
struct groups {
    struct model *model;
    float *copies; /* (params.total) */
    float *full;   /* (params.total) the values, where passes gather them */
    size_t gathered;
    size_t begun, ready;
    bool has_overlap; /* a group began in the memory of one that was not complete, or whose next one was not */
    bool is_ready[32];
    struct {
        size_t group;
        float *to;
    } awaited[8]; /* gathers that were started, by their number */
    size_t started;
    bool was_ahead;
};

static bool is_complete(const struct groups *g, size_t group) {
    for (size_t p = 0; p < g->model->params.count; p++)
        if (g->model->gradient_group_of[p] == group && !g->is_ready[p]) return false;
    return true;
}

static void note_begin(void *user, size_t group) {
    struct groups *g = user;
    const struct gradient_group *groups = g->model->gradient_groups;
    const struct piece *own = &groups[group].piece;
    for (size_t other = 0; other < g->model->gradient_group_count; other++) {
        const struct piece *piece = &groups[other].piece;
        bool shares = own->offset < piece->offset + piece->size && piece->offset < own->offset + own->size;
        if (other == group || !shares || !groups[other].has_begun) continue;
        g->has_overlap |= !is_complete(g, other) || !is_complete(g, other + 1);
    }
    g->begun++;
    memset(g->model->params.gradients + own->offset, 0xff, own->size * sizeof(float));
}

static void note_complete(void *user, size_t index) {
    struct groups *g = user;
    const struct params *params = &g->model->params;
    g->is_ready[index] = true;
    g->ready++;
    memcpy(g->copies + params->items[index].offset, params_gradient(params, index),
           params->items[index].count * sizeof(float));
}

static void keep_values(void *user, size_t index) {
    struct groups *g = user;
    const struct param *p = &g->model->params.items[index];
    memcpy(g->full + p->offset, params_value(&g->model->params, index), p->count * sizeof(float));
}

static void gather_values(void *user, size_t group, size_t number, float *to) {
    struct groups *g = user;
    const struct gradient_group *values = &g->model->gradient_groups[group];
    g->gathered++;
    ck_assert_uint_le(++g->started, 3); /* that are not awaited: of an operator with two, and the next one */
    g->awaited[number % 8].group = group;
    g->awaited[number % 8].to = to;
    memset(to, 0xff, (values->end - values->begin) * sizeof(float)); /* no one may use the memory */
}

static void await_values(void *user, size_t number) {
    struct groups *g = user;
    const struct gradient_group *values = &g->model->gradient_groups[g->awaited[number % 8].group];
    memcpy(g->awaited[number % 8].to, g->full + values->begin, (values->end - values->begin) * sizeof(float));
    g->was_ahead |= g->started > 1;
    g->started--;
}

/* Groups of two parameters, from the last to the first; returns their number. */
static size_t pair_parameters(const struct params *params, size_t *group_of) {
    size_t trained = 0;
    for (size_t i = params->count; i-- > 0;) group_of[i] = params->items[i].is_frozen ? SIZE_MAX : trained++ / 2;
    return (trained + 1) / 2;
}

/* Gradients that exist one group after another have the bits of those that exist all at once: of a tied weight, of
 * shared layers in another order than their parameters, of frozen ones; also if the values are gathered for each use,
 * when they are needed or ahead. */
TEST(groups_of_gradients_share_memory) {
    static const char *const layers[] = {
        "[{linear: {out: 40, name: a}}, relu, {linear: {out: 40, name: b}}, tanh, {linear: {out: 40, name: c}}, gelu, "
        "{linear: 5}]",
        "[{linear: {out: 40, name: a}}, tanh, {linear: {out: 40, name: b}}, {linear: {out: 40, name: c, share: b}}, "
        "tanh, "
        "{linear: {out: 40, name: d}}, {linear: {out: 40, name: e, share: b}}, {linear: 5}]",
        "[{linear: {out: 40, name: a}}, {linear: {out: 40, name: b}}, {linear: {out: 40, name: c}}, {linear: "
        "5}]\nfreeze: "
        "['b.*', c.weight]"};
    for (size_t n = 0; n < 3 * sizeof layers / sizeof *layers; n++) {
        size_t i = n / 3;
        bool gathers = n % 3 > 0, is_ahead = n % 3 > 1;
        struct shape input = {.dims = 1, .size = {7}};
        struct fixture f = open_fixture(layers[i], input, 4, "mse");
        loss_of(&f, true);
        size_t total = f.model->params.total, group_of[32];
        float *expected = malloc(total * sizeof *expected), *copies = calloc(total, sizeof *copies);
        memcpy(expected, f.model->params.gradients, total * sizeof *expected);
        close_fixture(&f);

        f = plan_fixture("cpu", PRECISION_FLOAT32, layers[i], input, 4, "mse");
        struct params *params = &f.model->params;
        size_t count = pair_parameters(params, group_of);
        model_group_gradients(f.model, group_of, count);
        struct groups g = {.model = f.model, .copies = copies, .full = calloc(total, sizeof *g.full)};
        if (gathers) {
            model_gather_values(f.model, is_ahead);
            ck_assert_uint_lt(params->value_floats, params->total);
            params->keep = keep_values;
            f.model->gather = gather_values;
            f.model->await_gather = await_values;
            params->keeper = f.model->gatherer = &g;
        }
        fill_fixture(&f);
        ck_assert_uint_lt(params->gradient_floats, params->total);
        for (int pass_number = 0; pass_number < 2; pass_number++) {
            struct pass pass = pass_of(&f);
            forward_and_loss(&f, true);
            memset(g.is_ready, 0, sizeof g.is_ready);
            g.begun = g.ready = 0;
            model_backward_in_groups(f.model, &pass, f.inputs, note_begin, note_complete, &g);
            ck_assert_uint_eq(g.begun, count);
            ck_assert(!g.has_overlap);
            ck_assert(gathers == (g.gathered >= 2 * count));
            ck_assert(g.started == 0 && (!is_ahead || g.was_ahead));
            g.gathered = 0;
            for (size_t p = 0; p < params->count; p++) {
                const struct param *param = &params->items[p];
                ck_assert(g.is_ready[p] == !param->is_frozen);
                if (!param->is_frozen)
                    ck_assert_mem_eq(copies + param->offset, expected + param->offset, param->count * sizeof *copies);
            }
        }
        memset(g.is_ready, 0, sizeof g.is_ready);
        model_backward_in_groups(f.model, NULL, NULL, note_begin, note_complete, &g);
        for (size_t k = 0; k < params->trained; k++) ck_assert(copies[k] == 0);
        close_fixture(&f);
        free(expected), free(copies), free(g.full);
    }
}

/* torch.nn.functional.interpolate: a signal and a large image by the scale, a small image of the same or twice the size
 * by the size. */
TEST(nearest_pixels_are_pytorchs) {
    static const struct {
        const char *layers;
        size_t count, pixels[6];
    } cases[] = {{"[{reshape: [1, 3]}, {upsample: 1.3}, flatten]", 3, {0, 0, 1}},
                 {"[{reshape: [1, 3]}, {upsample: 2.3}, flatten]", 6, {0, 0, 0, 1, 1, 2}},
                 {"[{reshape: [1, 1, 3]}, {upsample: 1.3}, flatten]", 3, {0, 1, 2}},
                 {"[{reshape: [1, 1, 3]}, {upsample: [1, 2.3]}, flatten]", 6, {0, 0, 1, 1, 2, 2}},
                 {"[{reshape: [1, 1, 3]}, {upsample: {size: [200, 3]}}, {upsample: [1, 2.3]}, {slice: {end: 1, dim: "
                  "2}}, flatten]",
                  6,
                  {0, 0, 0, 1, 1, 2}},
                 {"[{reshape: [1, 3]}, {upsample: {size: 3}}, flatten]", 3, {0, 1, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = open_fixture(cases[i].layers, (struct shape){.dims = 1, .size = {3}}, 2, "mse");
        struct pass pass = {.device = f.device, .rows = 2};
        const float *y = floats(model_forward(f.model, &pass, f.inputs));
        ck_assert_uint_eq(f.model->out_size, cases[i].count);
        for (size_t o = 0; o < 2 * cases[i].count; o++)
            ck_assert(y[o] == f.inputs[o / cases[i].count * 3 + cases[i].pixels[o % cases[i].count]]);
        close_fixture(&f);
    }
}

/* Bits of a pass: the mean of [sum] over the positions, and its gradients. */
static void mean_of(const char *sum, float **output, float **gradients, size_t counts[2]) {
    char text[512];
    snprintf(text, sizeof text,
             "[{linear: {out: 3, from: series, name: a}}, {linear: {out: 3, from: series, name: b}}, %s, {mean: 1}]",
             sum);
    struct fixture f = open_fixture(text, (struct shape){.dims = 1, .size = {13}}, 6, "mse");
    struct pass pass = pass_of(&f);
    loss_of(&f, true);
    const float *y = floats(model_forward(f.model, &pass, f.inputs));
    counts[0] = f.rows * f.model->out_size, counts[1] = f.model->params.total;
    *output = malloc(counts[0] * sizeof **output), *gradients = malloc(counts[1] * sizeof **gradients);
    memcpy(*output, y, counts[0] * sizeof *y);
    memcpy(*gradients, f.model->params.gradients, counts[1] * sizeof **gradients);
    close_fixture(&f);
}

/* The padding of one part is padding of the sum, whichever part has it. */
TEST(a_sum_has_the_lengths_of_any_part) {
#define SUM(of) "{sequence_lengths: {from: [b, steps], name: c}}, {add: {from: " of "}}"
    static const char *const sums[] = {"{add: {from: [a, b], name: s}}, {sequence_lengths: {from: [s, steps]}}",
                                       SUM("[c, a]"), SUM("[a, c]")};
    float *output[3], *gradients[3];
    size_t counts[2];
    for (size_t i = 0; i < 3; i++) mean_of(sums[i], &output[i], &gradients[i], counts);
    for (size_t i = 1; i < 3; i++) {
        ck_assert_mem_eq(output[0], output[i], counts[0] * sizeof(float));
        ck_assert_mem_eq(gradients[0], gradients[i], counts[1] * sizeof(float));
    }
    for (size_t i = 0; i < 3; i++) free(output[i]), free(gradients[i]);
}

CHECK_MAIN("model")
