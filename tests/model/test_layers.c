/* Every layer type, with every key it has, against PyTorch: outputs, gradients, the losses of 20 steps of SGD with
 * momentum, and the weights, running statistics and evaluation after them. The cases are in tests/vectors/layers.json,
 * written by make_layers.py. ctest-labels: unit */
#include <math.h>

#include "check_main.h"
#include "model/model.h"
#include "vectors.h"

/* The vectors are float64; what remains is float32's rounding. Relative to the largest value of the tensor. */
#define FORWARD_TOLERANCE 5e-6
#define GRADIENT_TOLERANCE 1e-5
#define LOSS_TOLERANCE 1e-5
#define WEIGHT_TOLERANCE 2e-5

struct test_config {
    struct model_config model;
    struct variant loss;
};

static const struct schema_row config_rows[] = {
    {.key = "model",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct test_config, model),
     .section = &model_schema,
     .doc = "."},
    {.key = "loss",
     .type = SCHEMA_VARIANT,
     .offset = offsetof(struct test_config, loss),
     .variants = &loss_variants,
     .doc = "."},
    {0},
};
static const struct schema config_schema = {.name = "test", .size = sizeof(struct test_config), .rows = config_rows};

struct fixture {
    const json_t *record;
    const char *layers; /* for messages */
    struct document *document;
    struct test_config config;
    struct model *model;
    struct device *device;
    const struct loss_type *loss;
    float *inputs, *values, *velocity;
    int64_t *classes;
    size_t rows;
};

/* make_layers.py's: a number of [-1, 1) in steps of 2^-15 */
static float fraction(size_t index, unsigned salt) {
    uint32_t h = (uint32_t)index * 2654435761u + salt * 40503u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h >> 16) / 32768 - 1;
}

static int32_t token(size_t index, unsigned salt, int64_t vocabulary) {
    return (int32_t)(((double)fraction(index, salt) + 1) / 2 * (double)vocabulary);
}

static const char *string_of(const json_t *record, const char *key) {
    const char *value = json_string_value(json_object_get(record, key));
    ck_assert_msg(value != NULL, "a case has no %s", key);
    return value;
}

/* make_layers.py's lengths, and whether a case has them. */
static size_t length_of(size_t row, size_t positions) { return 1 + 3 * row % positions; }
static bool has_padding(const struct fixture *f) {
    return strstr(f->layers, "padding_idx") && !strstr(f->layers, "embedding_bag");
}
static bool has_steps(const struct fixture *f) { return strstr(f->layers, "sequence_lengths"); }

static void bind(struct fixture *f) {
    struct problems problems = {0};
    struct text yaml = {0};
    const json_t *name;
    size_t i;
    text_printf(&yaml, "loss: %s\nmodel:\n  layers: %s\n", string_of(f->record, "loss"), f->layers);
    json_array_foreach(json_object_get(f->record, "freeze"), i, name)
        text_printf(&yaml, "%s    - '%s'\n", i ? "" : "  freeze:\n", json_string_value(name));
    ck_assert(!document_parse("test.yaml", yaml.data, yaml.length, &problems, &f->document));
    schema_bind(&config_schema, document_root(f->document), "", &config_schema, &f->config, document_arena(f->document),
                &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    ck_assert_msg(!s, "%s: %s", f->layers, status_message(s));
    f->loss = loss_type_at((size_t)f->config.loss.index);
    text_free(&yaml);
    problems_free(&problems);
}

static struct shape input_of(const json_t *record) {
    const json_t *shape = json_object_get(record, "shape");
    int64_t vocabulary = json_integer_value(json_object_get(record, "vocabulary"));
    struct shape input = {.dims = (int)json_array_size(shape), .is_tokens = vocabulary > 0, .vocabulary = vocabulary};
    for (int d = 0; d < input.dims; d++) input.size[d] = json_integer_value(json_array_get(shape, (size_t)d));
    return input;
}

/* As make_layers.py: matrices around 0, vectors around 1. */
static void start_parameters(struct fixture *f) {
    struct params *params = &f->model->params;
    for (size_t p = 0; p < params->count; p++)
        for (size_t i = 0; i < params->items[p].count; i++) {
            float half = 0.5f * fraction(i, 100 + (unsigned)p);
            params_value(params, p)[i] = params->items[p].dims > 1 ? half : 1 + half;
        }
}

/* With steps the inputs are `series` and `steps`, and *input becomes a row of both. */
static status plan(struct fixture *f, struct shape *input) {
    if (!has_steps(f)) return model_plan(&f->config.model, input, &f->model);
    size_t size = shape_elements(input);
    struct model_input inputs[] = {{"series", 0, *input}, {"steps", size, {.dims = 1, .size = {1}}}};
    struct model_names names = {.inputs = inputs, .input_count = 2};
    *input = (struct shape){.dims = 1, .size = {(int64_t)size + 1}};
    return model_plan_named(&f->config.model, input, &names, &f->model);
}

/* Token 0 behind the length of a row, and only there. */
static void pad(struct fixture *f, size_t positions) {
    for (size_t i = 0; i < f->rows * positions; i++) {
        int32_t id;
        memcpy(&id, &f->inputs[i], sizeof id);
        if (i % positions >= length_of(i / positions, positions))
            id = 0;
        else if (id < 1)
            id = 1;
        memcpy(&f->inputs[i], &id, sizeof id);
    }
}

/* The series, each row with the number of its steps behind it. */
static void set_steps(struct fixture *f, size_t row_size, size_t positions) {
    for (size_t r = 0; r < f->rows; r++) {
        for (size_t i = 0; i + 1 < row_size; i++) f->inputs[r * row_size + i] = fraction(r * (row_size - 1) + i, 1);
        f->inputs[(r + 1) * row_size - 1] = (float)length_of(r, positions);
    }
}

static struct fixture open_fixture(const json_t *record) {
    struct fixture f = {.record = record, .layers = string_of(record, "layers")};
    struct shape input = input_of(record);
    struct rng rng;
    f.rows = (size_t)json_integer_value(json_object_get(record, "rows"));
    bind(&f);
    status s = plan(&f, &input);
    ck_assert_msg(!s, "%s: %s", f.layers, status_message(s));
    ck_assert(!device_create("cpu", &f.device));
    ck_assert(!model_alloc(f.model, f.device, f.rows));
    rng_seed(&rng, 0);
    model_init(f.model, &rng); /* buffers */
    start_parameters(&f);
    size_t in = f.rows * shape_elements(&input), out = f.rows * f.model->out_size;
    f.inputs = malloc(in * sizeof *f.inputs);
    f.values = malloc(out * sizeof *f.values);
    f.classes = malloc(out * sizeof *f.classes);
    f.velocity = calloc(f.model->params.total, sizeof *f.velocity);
    for (size_t i = 0; i < in; i++) {
        int32_t id = token(i, 1, input.vocabulary);
        f.inputs[i] = fraction(i, 1);
        if (input.is_tokens) memcpy(&f.inputs[i], &id, sizeof id);
    }
    if (has_padding(&f)) pad(&f, in / f.rows);
    if (has_steps(&f))
        set_steps(&f, in / f.rows, (size_t)json_integer_value(json_array_get(json_object_get(record, "shape"), 0)));
    for (size_t i = 0; i < out; i++) {
        f.values[i] = fraction(i, 2);
        f.classes[i] = token(i, 2, input.vocabulary);
    }
    return f;
}

static void close_fixture(struct fixture *f) {
    free(f->inputs), free(f->values), free(f->classes), free(f->velocity);
    model_destroy(f->model);
    device_destroy(f->device);
    document_destroy(f->document);
}

static void check_close(const struct fixture *f, const json_t *expected, const float *got, size_t count,
                        double tolerance, const char *what) {
    double largest = 0;
    ck_assert_msg(json_array_size(expected) == count, "%s: %s: %zu values in the vector, %zu here", f->layers, what,
                  json_array_size(expected), count);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(json_number_value(json_array_get(expected, i))));
    for (size_t i = 0; i < count; i++) {
        double value = json_number_value(json_array_get(expected, i)), difference = fabs((double)got[i] - value);
        ck_assert_msg(difference <= tolerance * (largest + 0.1), "%s: %s[%zu]: PyTorch %.9g, here %.9g", f->layers,
                      what, i, value, (double)got[i]);
    }
}

/* Every tensor of the vector is in the model, and every one of the model that is not frozen in the vector. */
static void check_tensors(const struct fixture *f, const char *key, const struct params *params, const float *flat,
                          bool has_frozen, double tolerance) {
    const json_t *tensors = json_object_get(f->record, key);
    size_t count = 0;
    for (size_t p = 0; p < params->count; p++) {
        const struct param *param = &params->items[p];
        struct text what = {0};
        if (param->is_frozen && !has_frozen) continue;
        text_printf(&what, "%s of %s", key, param->name);
        check_close(f, json_object_get(tensors, param->name), flat + param->offset, param->count, tolerance,
                    text_string(&what));
        text_free(&what);
        count++;
    }
    ck_assert_msg(count == json_object_size(tensors), "%s: %s: other tensors in the vector", f->layers, key);
}

/* Forward, loss and backward of all rows; the mean loss. */
static double train_pass(struct fixture *f, const float **output) {
    static const uint64_t number = 0;
    struct pass pass = {
        .device = f->device, .rows = f->rows, .is_training = true, .draws = {.pass = &number, .row_stride = 1}};
    struct loss_sums sums = {0};
    const void *targets = f->loss->wants_classes ? (const void *)f->classes : (const void *)f->values;
    *output = floats(model_forward(f->model, &pass, f->inputs));
    struct tensor gradient = model_output_gradient(f->model);
    struct row_weights weights = loss_weights(f->model, &f->model->out, NULL, false);
    f->loss->run(f->config.loss.config, &(struct loss_batch){f->device, &f->model->out, F32(*output), targets, &weights,
                                                             f->rows, 1, &gradient, &sums});
    params_zero_gradients(&f->model->params, f->device);
    model_backward(f->model, &pass, f->inputs, NULL, NULL);
    return sums.loss / sums.count;
}

/* v = momentum v + g; w -= lr v */
static void update(struct fixture *f, float lr, float momentum) {
    struct params *params = &f->model->params;
    for (size_t p = 0; p < params->count; p++) {
        float *w = params_value(params, p), *v = f->velocity + params->items[p].offset;
        const float *g = params_gradient(params, p);
        for (size_t i = 0; !params->items[p].is_frozen && i < params->items[p].count; i++) {
            v[i] = momentum * v[i] + g[i];
            w[i] -= lr * v[i];
        }
    }
}

static void replay(const json_t *record, float lr, float momentum) {
    struct fixture f = open_fixture(record);
    struct model *m = f.model;
    const json_t *losses = json_object_get(record, "losses");
    const float *output;
    ck_assert_uint_eq(json_array_size(losses), 20);
    for (size_t step = 0; step < json_array_size(losses); step++) {
        double expected = json_number_value(json_array_get(losses, step)), loss = train_pass(&f, &output);
        ck_assert_msg(fabs(loss - expected) <= LOSS_TOLERANCE * (fabs(expected) + 0.01),
                      "%s: loss of step %zu: PyTorch %.9g, here %.9g", f.layers, step + 1, expected, loss);
        if (step == 0) {
            check_close(&f, json_object_get(record, "outputs"), output, f.rows * m->out_size, FORWARD_TOLERANCE,
                        "outputs");
            check_tensors(&f, "gradients", &m->params, m->params.gradients, false, GRADIENT_TOLERANCE);
        }
        update(&f, lr, momentum);
    }
    check_tensors(&f, "weights", &m->params, m->params.values, true, WEIGHT_TOLERANCE);
    check_tensors(&f, "buffers", &m->buffers, m->buffers.values, true, WEIGHT_TOLERANCE);
    struct pass pass = {.device = f.device, .rows = f.rows};
    output = floats(model_forward(m, &pass, f.inputs));
    check_close(&f, json_object_get(record, "evaluated"), output, f.rows * m->out_size, WEIGHT_TOLERANCE, "evaluated");
    close_fixture(&f);
}

TEST(as_pytorch) {
    json_t *root = vectors_load("layers");
    const json_t *record;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, record)
        replay(record, (float)json_number_value(json_object_get(root, "lr")),
               (float)json_number_value(json_object_get(root, "momentum")));
    ck_assert_uint_gt(i, 0);
    json_decref(root);
}

static bool is_written(const json_t *cases, const char *key) {
    const json_t *record, *written;
    size_t i, j;
    json_array_foreach(cases, i, record) json_array_foreach(
        json_object_get(record, "keys"), j, written) if (strcmp(json_string_value(written), key) == 0) return true;
    return false;
}

/* A new layer type, or a new key of one, needs a case. */
TEST(complete) {
    json_t *root = vectors_load("layers");
    const json_t *cases = json_object_get(root, "cases");
    for (size_t t = 0; layer_type_at(t); t++) {
        const struct schema_variant *variant = &layer_type_at(t)->variant;
        ck_assert_msg(is_written(cases, variant->name),
                      "the layer '%s' has no case in layers.json: add one to tests/vectors/make_layers.py",
                      variant->name);
        for (const struct schema_row *row = variant->schema ? variant->schema->rows : NULL; row && row->key; row++) {
            SCOPED_TEXT key = {0};
            text_printf(&key, "%s.%s", variant->name, row->key);
            ck_assert_msg(is_written(cases, text_string(&key)),
                          "no case of layers.json writes the key '%s': add one to tests/vectors/make_layers.py",
                          text_string(&key));
        }
    }
    json_decref(root);
}

CHECK_MAIN("layers")
