/* A model of a config's layers, with inputs, targets and a loss, for tests of passes. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check_main.h"
#include "model/init.h"
#include "model/model.h"

/* A model from the YAML of its layers list. */
static inline status build(const char *layers, const struct shape *input, struct document **document,
                           struct model **out) {
    char text[2048];
    static struct model_config config; /* variants point into the document */
    struct problems problems = {0};
    snprintf(text, sizeof text, "layers: %s\n", layers);
    status s = document_parse("test.yaml", text, strlen(text), &problems, document);
    if (!s)
        schema_bind(&model_schema, document_root(*document), "model", &model_schema, &config, document_arena(*document),
                    &problems);
    s = status_first(s, problems_status(&problems, STATUS_USAGE));
    problems_free(&problems);
    if (s || !strstr(layers, "sequence_lengths")) return s ? s : model_plan(&config, input, out);
    /* a row is (n), a series of (n / 2, 2), and the number of its steps */
    int64_t size = input->size[0] - 1;
    struct model_input inputs[] = {{"series", 0, {.dims = 2, .size = {size / 2, 2}}},
                                   {"steps", (size_t)size, {.dims = 1, .size = {1}}}};
    return model_plan_named(&config, input, &(struct model_names){.inputs = inputs, .input_count = 2}, out);
}

struct fixture {
    struct document *document, *loss_document;
    struct model *model;
    struct device *device;
    const struct loss_type *loss;
    const void *loss_config;
    float *inputs, *values;
    int64_t *classes;
    size_t rows;
    struct shape input;
    bool has_padding, has_steps; /* rows have different lengths */
};

/* The loss from its YAML. */
static inline void bind_loss(struct fixture *f, const char *yaml) {
    static const struct schema_row loss_row[] = {
        {.key = "loss", .type = SCHEMA_VARIANT, .variants = &loss_variants, .doc = "."}, {0}};
    static const struct schema loss_schema = {.name = "test", .size = sizeof(struct variant), .rows = loss_row};
    char text[256];
    struct problems problems = {0};
    struct variant loss;
    snprintf(text, sizeof text, "loss: %s\n", yaml);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, &f->loss_document));
    schema_bind(&loss_schema, document_root(f->loss_document), "", &loss_schema, &loss,
                document_arena(f->loss_document), &problems);
    ck_assert_uint_eq(problems.count, 0);
    f->loss = loss_type_at((size_t)loss.index);
    f->loss_config = loss.config;
}

/* The model and its device, without memory: model_adapt_to_device may still be called. */
static inline struct fixture plan_fixture(const char *device, enum precision precision, const char *layers,
                                          struct shape input, size_t rows, const char *loss) {
    struct fixture f = {.rows = rows, .has_padding = strstr(layers, "padding_idx: 0") != NULL};
    f.has_steps = strstr(layers, "sequence_lengths") != NULL;
    f.input = input;
    bind_loss(&f, loss);
    status s = build(layers, &input, &f.document, &f.model);
    ck_assert_msg(!s, "%s", status_message(s));
    ck_assert(!device_create(device, &f.device));
    ck_assert(!device_set_precision(f.device, precision));
    return f;
}

/* Its memory, weights, inputs and targets. */
static inline void fill_fixture(struct fixture *f) {
    struct rng rng;
    ck_assert(!model_alloc(f->model, f->device, f->rows));
    ck_assert(!model_prepare(f->model, f->rows, true));
    rng_seed(&rng, 5); /* a seed with no relu input within a difference step of its kink */
    ck_assert(!model_map(f->model));
    model_init(f->model, &rng);
    ck_assert(!model_unmap(f->model, true));
    rng_seed(&rng, 11);
    size_t rows = f->rows, in = shape_elements(&f->input), out = f->model->out_size;
    f->inputs = malloc(rows * in * sizeof *f->inputs);
    f->values = malloc(rows * out * sizeof *f->values);
    f->classes = malloc(rows * out * sizeof *f->classes); /* one per position: as many as are used */
    rng_normal(&rng, f->inputs, rows * in, 0, 1);
    for (size_t i = 0; f->input.is_tokens && i < rows * in; i++) {
        int32_t token = (int32_t)(rng_u32(&rng) % (uint32_t)f->input.vocabulary);
        if (f->has_padding) token = i % in > i / in ? 0 : token ? token : 1; /* behind a row's length, and only there */
        memcpy(&f->inputs[i], &token, sizeof token);
    }
    for (size_t r = 0; f->has_steps && r < rows; r++) /* the last value of a row: 1, 2, ... */
        f->inputs[(r + 1) * in - 1] = (float)(r + 1);
    rng_normal(&rng, f->values, rows * out, 0, 1);
    int64_t classes = f->model->out.size[f->model->out.dims - 1];
    for (size_t i = 0; i < rows * out; i++) f->classes[i] = (int64_t)rng_u32(&rng) % classes;
}

static inline struct fixture open_fixture(const char *layers, struct shape input, size_t rows, const char *loss) {
    bool is_recorded = getenv("DDPTRAIN_RECORD") != NULL; /* for other processors */
    struct fixture f =
        plan_fixture("cpu", is_recorded ? PRECISION_FLOAT32_PORTABLE : PRECISION_FLOAT32, layers, input, rows, loss);
    fill_fixture(&f);
    return f;
}

static inline void close_fixture(struct fixture *f) {
    free(f->inputs), free(f->values), free(f->classes);
    model_destroy(f->model);
    device_destroy(f->device);
    document_destroy(f->document);
    document_destroy(f->loss_document);
}

static inline struct pass pass_of(const struct fixture *f) {
    static const uint64_t number = 2;
    return (struct pass){.device = f->device,
                         .rows = f->rows,
                         .is_training = true,
                         .draws = {.seed = 1, .pass = &number, .first_row = 0, .row_stride = 1}};
}

/* The mean loss of the whole batch; with [gradient] that of the output is computed, too. */
static inline double forward_and_loss(struct fixture *f, bool gradient) {
    struct pass pass = pass_of(f);
    struct loss_sums sums = {0};
    const struct tensor *output = model_forward(f->model, &pass, f->inputs);
    struct tensor output_gradient = model_output_gradient(f->model);
    const void *targets = f->loss->wants_classes ? (const void *)f->classes : (const void *)f->values;
    struct row_weights weights = loss_weights(f->model, &f->model->out, NULL, false);
    weights.target_size = f->loss->aligns_targets ? 2 : f->model->out_size; /* of ctc 2 */
    ck_assert(!loss_prepare(f->loss, f->loss_config, f->device, &f->model->out, weights.target_size, f->rows, 1));
    f->loss->run(f->loss_config, &(struct loss_batch){f->device, &f->model->out, output, targets, &weights, f->rows, 1,
                                                      gradient ? &output_gradient : NULL, &sums});
    return sums.loss / sums.count;
}

/* The same; with [gradient] the gradients of all parameters are left in the model. */
static inline double loss_of(struct fixture *f, bool gradient) {
    struct pass pass = pass_of(f);
    double loss = forward_and_loss(f, gradient);
    if (gradient) {
        params_zero_gradients(&f->model->params, f->device);
        model_backward(f->model, &pass, f->inputs, NULL, NULL);
    }
    return loss;
}
