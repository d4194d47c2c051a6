/* Losses and their gradients against PyTorch's (tests/vectors/make_losses.py), and rejected shapes. test_model.c checks
 * the gradients by finite differences. ctest-labels: unit */
#include "model/loss.h"

#include <math.h>
#include <stdio.h>

#include "check_main.h"
#include "vectors.h"

static const struct schema_row rows[] = {
    {.key = "loss", .type = SCHEMA_VARIANT, .variants = &loss_variants, .doc = "."}, {0}};
static const struct schema schema = {.name = "test", .size = sizeof(struct variant), .rows = rows};

static struct document *bind(const char *yaml, struct variant *out) {
    char text[256];
    struct problems problems = {0};
    struct document *document;
    snprintf(text, sizeof text, "loss: %s\n", yaml);
    ck_assert(!document_parse("test.yaml", text, strlen(text), &problems, &document));
    schema_bind(&schema, document_root(document), "", &schema, out, document_arena(document), &problems);
    ck_assert_msg(problems.count == 0, "%s", yaml);
    return document;
}

static void run_case(const json_t *vector) {
    struct device *device;
    struct variant loss;
    struct loss_sums sums = {0};
    const char *config = json_string_value(json_object_get(vector, "config"));
    struct document *document = bind(config, &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    const json_t *outputs = json_object_get(vector, "outputs"), *targets = json_object_get(vector, "targets");
    const json_t *sizes = json_object_get(vector, "shape"), *expected = json_object_get(vector, "gradient");
    struct shape shape = {.dims = (int)json_array_size(sizes)};
    for (int d = 0; d < shape.dims; d++) shape.size[d] = json_integer_value(json_array_get(sizes, (size_t)d));
    size_t count = json_array_size(outputs), target_count = json_array_size(targets);
    SCOPED_MEMORY float *x = malloc(count * sizeof *x), *gradient = malloc(count * sizeof *gradient);
    void *t = malloc(target_count * sizeof(int64_t));
    for (size_t i = 0; i < count; i++) x[i] = (float)json_number_value(json_array_get(outputs, i));
    for (size_t i = 0; i < target_count; i++) {
        const json_t *value = json_array_get(targets, i);
        if (type->wants_classes)
            ((int64_t *)t)[i] = json_integer_value(value);
        else
            ((float *)t)[i] = (float)json_number_value(value);
    }
    ck_assert(!device_create("cpu", &device));
    size_t n = count / shape_elements(&shape);
    const json_t *given = json_object_get(vector, "lengths"); /* of rows; NULL: all positions are real */
    int32_t lengths[8];
    for (size_t r = 0; given && r < n; r++) lengths[r] = (int32_t)json_integer_value(json_array_get(given, r));
    shape.lengths = given ? 1 : 0;
    struct row_weights weights = {
        .target_size = target_count / n, .lengths = given ? lengths : NULL, .positions = (size_t)shape.size[0]};
    status s = given ? loss_check_sizes(type, loss.config, &shape, weights.target_size, 0) : OK;
    ck_assert_msg(!s, "%s: %s", config, status_message(s));

    ck_assert(!loss_prepare(type, loss.config, device, &shape, weights.target_size, n, 1));
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(x), t, &weights, n, 0.5f, F32(gradient), &sums});
    double mean = json_number_value(json_object_get(vector, "loss"));
    ck_assert_msg(fabs(sums.loss / sums.count - mean) < 2e-7 * (1 + fabs(mean)), "%s: expected %.9g, got %.9g", config,
                  mean, sums.loss / sums.count);
    for (size_t i = 0; i < count; i++) {
        double g = json_number_value(json_array_get(expected, i)) / 2;
        ck_assert_msg(fabs((double)gradient[i] - g) < 1e-7 * (1 + fabs(g)),
                      "%s: gradient[%zu]: expected %.9g, got %.9g", config, i, g, (double)gradient[i]);
    }
    struct loss_sums again = {0};
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(x), t, &weights, n, 1, NULL, &again});
    ck_assert(again.loss == sums.loss && again.count == sums.count && again.correct == sums.correct);
    device_destroy(device);
    document_destroy(document);
    free(t);
}

TEST(losses_are_pytorchs) {
    json_t *root = vectors_load("losses"), *vector;
    size_t i;
    ck_assert_uint_ge(json_array_size(root), 62);
    json_array_foreach(root, i, vector) run_case(vector);
    json_decref(root);
}

/* The sums of two batches give the mean over both; ignored positions do not count. */
TEST(sums_add_up) {
    struct device *device;
    struct variant loss;
    struct document *document = bind("{type: cross_entropy, weight: [1, 3], ignore_index: -1}", &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape shape = {.dims = 1, .size = {2}};
    const float logits[] = {1, 2, 3, 1, 0, 0, 5, -5}, gradient_of_ignored[] = {0, 0};
    const int64_t classes[] = {1, 1, -1, 0};
    float gradient[8];
    struct loss_sums parts = {0}, whole = {0};
    ck_assert(!device_create("cpu", &device));
    type->run(loss.config,
              &(struct loss_batch){device, &shape, F32(logits), classes, &(struct row_weights){0}, 1, 1, NULL, &parts});
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(logits + 2), classes + 1, &(struct row_weights){0},
                                                3, 1, NULL, &parts});
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(logits), classes, &(struct row_weights){0}, 4, 1,
                                                F32(gradient), &whole});
    ck_assert(fabs(parts.loss - whole.loss) < 1e-12);
    ck_assert(parts.count == 7 && whole.count == 7 && parts.correct == 2 && parts.scored == 3);
    ck_assert_mem_eq(gradient + 4, gradient_of_ignored, sizeof gradient_of_ignored);
    ck_assert_int_eq(type->ignored(loss.config), -1);

    const int64_t nothing[] = {-1, -1};
    struct loss_sums none = {0};
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(logits), nothing, &(struct row_weights){0}, 2, 1,
                                                F32(gradient), &none});
    ck_assert(none.loss == 0 && none.count == 0 && gradient[0] == 0 && gradient[3] == 0);
    device_destroy(device);
    document_destroy(document);
}

/* Without a gradient another code path computes many classes; the largest output may be the last, the first or
 * the second, and very large. */
TEST(many_classes) {
    enum { CLASSES = 300 };
    struct device *device;
    struct variant loss;
    struct document *document = bind("cross_entropy", &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape shape = {.dims = 1, .size = {CLASSES}};
    float logits[3 * CLASSES] = {[CLASSES - 1] = 200, [CLASSES] = 200, [2 * CLASSES + 1] = 200}, gradient[3 * CLASSES];
    const int64_t targets[] = {0, 0, 1};
    ck_assert(!device_create("cpu", &device));
    for (int has_gradient = 0; has_gradient < 2; has_gradient++) {
        struct loss_sums sums = {0};
        type->run(loss.config, &(struct loss_batch){device, &shape, F32(logits), targets, &(struct row_weights){0}, 3,
                                                    1, F32(has_gradient ? gradient : NULL), &sums});
        ck_assert_msg(sums.loss == 200 && sums.correct == 2, "loss %g, %g correct", sums.loss, sums.correct);
    }
    device_destroy(device);
    document_destroy(document);
}

/* Two equal labels need three steps. */
TEST(ctc_of_too_many_labels) {
    struct device *device;
    struct variant loss;
    struct loss_sums sums = {0};
    struct document *document = bind("ctc", &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape shape = {.dims = 2, .size = {2, 2}};
    struct row_weights weights = {.target_size = 2};
    float gradient[4], x[] = {-0.1f, -2.4f, -0.1f, -2.4f};
    ck_assert(!device_create("cpu", &device));
    ck_assert(!loss_prepare(type, loss.config, device, &shape, 2, 1, 1));
    type->run(loss.config,
              &(struct loss_batch){device, &shape, F32(x), (int64_t[]){1, 1}, &weights, 1, 1, F32(gradient), &sums});
    ck_assert(isinf(sums.loss) && sums.loss > 0);
    for (size_t i = 0; i < 4; i++) ck_assert(isnan(gradient[i]));
    device_destroy(device);
    document_destroy(document);
}

/* zero_infinity is for targets that do not fit into the steps, not for outputs that are NaN. */
TEST(ctc_of_nan) {
    struct device *device;
    struct variant loss;
    struct document *document = bind("{type: ctc, zero_infinity: true}", &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape shape = {.dims = 2, .size = {2, 2}};
    struct row_weights weights = {.target_size = 1};
    float gradient[4], x[] = {NAN, NAN, NAN, NAN};
    ck_assert(!device_create("cpu", &device));
    ck_assert(!loss_prepare(type, loss.config, device, &shape, 1, 1, 1));
    for (int has_gradient = 0; has_gradient < 2; has_gradient++) {
        struct loss_sums sums = {0};
        type->run(loss.config, &(struct loss_batch){device, &shape, F32(x), (int64_t[]){1}, &weights, 1, 1,
                                                    F32(has_gradient ? gradient : NULL), &sums});
        ck_assert(isnan(sums.loss));
    }
    for (size_t i = 0; i < 4; i++) ck_assert(isnan(gradient[i]));
    device_destroy(device);
    document_destroy(document);
}

/* PyTorch's input_lengths: a row of which the last steps are padding is like a shorter one. */
TEST(ctc_of_lengths) {
    struct device *device;
    struct variant loss;
    struct document *document = bind("ctc", &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape whole = {.dims = 2, .size = {5, 3}}, first = {.dims = 2, .size = {3, 3}};
    int32_t lengths[] = {3, 0};
    struct row_weights weights = {.target_size = 2}, with_lengths = weights;
    float x[30], gradient[30], expected[9];
    struct loss_sums sums = {0}, sums_of_first = {0};
    int64_t targets[] = {1, 2, -100, -100};
    with_lengths.lengths = lengths;
    with_lengths.positions = 5;
    for (size_t i = 0; i < 30; i++) x[i] = -0.5f - 0.1f * (float)(i * 7 % 11);
    ck_assert(!device_create("cpu", &device));
    ck_assert(!loss_prepare(type, loss.config, device, &whole, 2, 2, 1));
    type->run(loss.config,
              &(struct loss_batch){device, &whole, F32(x), targets, &with_lengths, 2, 2, F32(gradient), &sums});
    type->run(loss.config,
              &(struct loss_batch){device, &first, F32(x), targets, &weights, 1, 1, F32(expected), &sums_of_first});
    ck_assert(isfinite(sums.loss) && sums.loss == sums_of_first.loss); /* no steps and no targets: probability 1 */
    ck_assert_mem_eq(gradient, expected, sizeof expected);
    for (size_t i = 9; i < 30; i++) ck_assert(gradient[i] == 0);
    device_destroy(device);
    document_destroy(document);
}

/* Sums of rows of different lengths with weights, which count. */
static struct loss_sums run_weighted(const char *config, const float *x, const float *t, const int32_t *lengths,
                                     const float *values, size_t n, float *gradient) {
    struct device *device;
    struct variant loss;
    struct document *document = bind(config, &loss);
    struct shape shape = {.dims = 2, .size = {3, 2}, .lengths = 1};
    struct row_weights weights = {.values = values, .is_counted = true, .lengths = lengths, .positions = 3};
    struct loss_sums sums = {0};
    ck_assert(!device_create("cpu", &device));
    loss_type_at((size_t)loss.index)
        ->run(loss.config, &(struct loss_batch){device, &shape, F32(x), t, &weights, n, 1, F32(gradient), &sums});
    device_destroy(device);
    document_destroy(document);
    return sums;
}

/* A row of weight 2 counts as two rows. */
TEST(weights_of_rows_of_different_lengths) {
    static const char *const configs[] = {"mse",  "kl_div",       "{type: kl_div, reduction: batchmean}",
                                          "dice", "gaussian_nll", "{type: cosine_embedding, margin: 0.9}"};
    static const int32_t lengths[] = {2, 1, 1};
    static const float weights[] = {1, 2};
    float x[18], t[18], gradient[18];
    for (size_t i = 0; i < 12; i++) x[i] = 0.1f + 0.3f * (float)(i * 5 % 7), t[i] = 0.2f + 0.1f * (float)(i % 4);
    memcpy(x + 12, x + 6, 6 * sizeof *x);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        size_t targets = i < 4 ? 6 : 3; /* of a row */
        memcpy(t + 2 * targets, t + targets, targets * sizeof *t);
        struct loss_sums two = run_weighted(configs[i], x, t, lengths, weights, 2, gradient);
        struct loss_sums three = run_weighted(configs[i], x, t, lengths, NULL, 3, NULL);
        ck_assert_msg(fabs(two.loss - three.loss) < 1e-9 && fabs(two.count - three.count) < 1e-9,
                      "%s: %.9g / %.9g, with weights %.9g / %.9g", configs[i], three.loss, three.count, two.loss,
                      two.count);
        for (size_t k = 0; k < 12; k++) ck_assert((k < 4 || k == 6 || k == 7) || gradient[k] == 0);
    }
}

static void run_bce(const char *config, const struct shape *shape, const float *x, const float *t, float *gradient,
                    struct loss_sums *sums) {
    struct device *device;
    struct variant loss;
    struct document *document = bind(config, &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct row_weights weights = {0};
    ck_assert(!device_create("cpu", &device));
    ck_assert(!loss_check_sizes(type, loss.config, shape, 12, 0));
    type->run(loss.config, &(struct loss_batch){device, shape, F32(x), t, &weights, 2, 1, F32(gradient), sums});
    device_destroy(device);
    document_destroy(document);
}

/* A weight for each class is that of all its positions or pixels. */
TEST(positives_are_weighted_by_class) {
    static const struct {
        struct shape shape;
        const char *of_all;
    } cases[] = {{{.dims = 2, .size = {4, 3}}, "1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3"},
                 {{.dims = 3, .size = {3, 2, 2}}, "1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3"}};
    float x[24], t[24], gradients[2][24];
    char config[128];
    for (size_t i = 0; i < 24; i++) x[i] = 0.3f * (float)(i % 7) - 1, t[i] = (float)(i % 3 == 0);
    for (size_t i = 0; i < 2; i++) {
        struct loss_sums sums[2];
        memset(sums, 0, sizeof sums);
        struct shape flat = {.dims = 1, .size = {12}};
        snprintf(config, sizeof config, "{type: bce_with_logits, pos_weight: [%s]}", cases[i].of_all);
        run_bce("{type: bce_with_logits, pos_weight: [1, 2, 3]}", &cases[i].shape, x, t, gradients[0], &sums[0]);
        run_bce(config, &flat, x, t, gradients[1], &sums[1]);
        ck_assert(sums[0].loss == sums[1].loss && sums[0].count == sums[1].count);
        ck_assert_mem_eq(gradients[0], gradients[1], sizeof gradients[0]);
    }
}

static void rejected(const char *config, struct shape output, size_t target_size, int64_t classes,
                     const char *sentence) {
    struct variant loss;
    struct document *document = bind(config, &loss);
    status s = loss_check_sizes(loss_type_at((size_t)loss.index), loss.config, &output, target_size, classes);
    ck_assert_msg((s != OK) == (sentence != NULL), "%s", config);
    if (s) ck_assert_str_eq(status_message(s), sentence);
    status_free(s);
    document_destroy(document);
}

TEST(shapes_are_checked) {
    struct shape three = {.dims = 1, .size = {3}}, sequence = {.dims = 2, .size = {4, 3}};
    rejected(
        "cross_entropy", three, 1, 4,
        "the model's output is 3, but the targets have 4 classes (0 to 3): cross_entropy needs one output per class");
    rejected("cross_entropy", three, 1, 3, NULL);
    rejected("cross_entropy", sequence, 4, 3, NULL);
    rejected("cross_entropy", sequence, 5, 3,
             "the model's output is (4, 3), but a target row has 5 classes: cross_entropy needs an output (5, 3), or "
             "(3, height, width) with 5 pixels");
    rejected("{type: cross_entropy, weight: [1, 2]}", three, 1, 3, "weight has 2 numbers, but the model has 3 classes");
    rejected("{type: cross_entropy, weight: [0, 0, 0]}", three, 1, 3, "weight: at least one must be greater than 0");
    rejected("{type: cross_entropy, weight: [0, 0, 1]}", three, 1, 3, NULL);
    rejected("nll", three, 1, 4,
             "the model's output is 3, but the targets have 4 classes (0 to 3): nll needs one output per class");
    rejected(
        "multi_margin", three, 1, 4,
        "the model's output is 3, but the targets have 4 classes (0 to 3): multi_margin needs one output per class");
    rejected("multilabel_margin", three, 2, 4,
             "the model's output is 3, but the targets have 4 classes (0 to 3): multilabel_margin needs one output per "
             "class");
    rejected("multilabel_margin", three, 2, 3, NULL);
    rejected("multilabel_margin", (struct shape){.dims = 2, .size = {4, 3}, .lengths = 1}, 8, 3, NULL);
    for (int i = 0; i < 2; i++)
        rejected("multilabel_margin", i ? three : sequence, 4, 2,
                 i ? "the model's output is 3, but a target row has 4 values: multilabel_margin needs an output "
                     "(classes), or (positions, classes) of rows of different lengths, and a list of at most as many "
                     "classes for each"
                   : "the model's output is (4, 3), but a target row has 4 values: multilabel_margin needs an output "
                     "(classes), or (positions, classes) of rows of different lengths, and a list of at most as many "
                     "classes for each");
    rejected("nll", sequence, 5, 3,
             "the model's output is (4, 3), but a target row has 5 classes: nll needs an output (5, 3), or "
             "(3, height, width) with 5 pixels");
    rejected("ctc", sequence, 9, 3, NULL);
    rejected("{type: ctc, blank: 3}", sequence, 2, 3, "the blank is class 3, but the model has 3 classes (0 to 2)");
    rejected(
        "ctc", three, 2, 3,
        "the model's output is 3, but the targets have 3 classes (0 to 2): ctc needs an output (steps, classes) of "
        "log-probabilities");
    rejected("huber", three, 1, 0, "the model's output is 3, but a target row has 1 value");
    rejected("dice", sequence, 12, 0, NULL);
    rejected("gaussian_nll", sequence, 6, 0, NULL);
    rejected(
        "gaussian_nll", sequence, 12, 0,
        "the model's output is (4, 3): gaussian_nll needs 24 values for 12 targets (means, then as many variances)");
    rejected("cosine_embedding", three, 1, 0,
             "the model's output is 3: cosine_embedding needs a multiple of 2 values (an embedding, then the one to "
             "compare)");
    rejected("cosine_embedding", sequence, 2, 0, "a target row has 2 values: cosine_embedding needs one, 1 or -1");
    rejected("triplet_margin", sequence, 0, 0, NULL);
    rejected(
        "triplet_margin", (struct shape){.dims = 1, .size = {4}}, 0, 0,
        "the model's output is 4: triplet_margin needs a multiple of 3 values (an anchor, a positive and a negative)");
    struct shape padded = {.dims = 2, .size = {4, 3}, .lengths = 1}, pairs = {.dims = 2, .size = {4, 6}, .lengths = 1};
    rejected("gaussian_nll", pairs, 12, 0, NULL);
    rejected(
        "gaussian_nll", pairs, 6, 0,
        "the model's output is (4, 6): gaussian_nll needs 12 values for 6 targets (means, then as many variances)");
    rejected(
        "cosine_embedding", padded, 4, 0,
        "the model's output is (4, 3): cosine_embedding needs (positions, features) with a multiple of 2 features, "
        "of rows of different lengths (an embedding, then the one to compare)");
    rejected("cosine_embedding", pairs, 4, 0, NULL);
    rejected("cosine_embedding", pairs, 1, 0,
             "a target row has 1 value: cosine_embedding needs one for each of the 4 positions, 1 or -1");
    rejected("triplet_margin", padded, 0, 0, NULL);
    rejected(
        "triplet_margin", (struct shape){.dims = 3, .size = {4, 3, 2}, .lengths = 1}, 0, 0,
        "the model's output is (4, 3, 2): triplet_margin needs (positions, features) with a multiple of 3 features, "
        "of rows of different lengths (an anchor, a positive and a negative)");
    rejected("dice", padded, 12, 0, NULL);
    rejected("dice", (struct shape){.dims = 2, .size = {4, 1}, .lengths = 1}, 4, 0,
             "dice compares the values of each position of rows of different lengths, of which the model has only one; "
             "use bce_with_logits or focal");
    rejected("soft_cross_entropy", three, 2, 0, "the model's output is 3, but a target row has 2 values");
    rejected("{type: soft_cross_entropy, weight: [1, 2]}", three, 3, 0,
             "weight has 2 numbers, but the model has 3 classes");
    rejected("soft_cross_entropy", (struct shape){.dims = 3, .size = {4, 3, 2}}, 24, 0,
             "the model's output is (4, 3, 2): soft_cross_entropy needs (classes) or (positions, classes)");
    rejected(
        "margin_ranking", sequence, 12, 0,
        "the model's output is (4, 3): margin_ranking needs 24 values for 12 targets (scores, then as many that are "
        "compared with them)");
    rejected("focal", three, 2, 0, "the model's output is 3, but a target row has 2 values");
    rejected("poisson_nll", three, 2, 0, "the model's output is 3, but a target row has 2 values");
    rejected("mse", three, 1, 0, "the model's output is 3, but a target row has 1 value");
    rejected("mse", three, 3, 0, NULL);
    rejected("kl_div", three, 2, 0, "the model's output is 3, but a target row has 2 values");
    rejected("{type: bce_with_logits, pos_weight: [1, 2]}", three, 3, 0,
             "pos_weight has 2 numbers, but the model has 3 outputs");
    rejected("{type: bce_with_logits, pos_weight: [1, 2, 3]}", sequence, 12, 0, NULL);
    rejected("{type: bce_with_logits, pos_weight: [1, 2, 3, 4]}", sequence, 12, 0,
             "pos_weight has 4 numbers, but the model has 3 classes and 12 outputs");
}

/* Where a loss has a corner: gradients of PyTorch 2.15, of the sum over one row. */
static const struct {
    const char *config;
    int64_t size;
    float outputs[6], targets[3], gradient[6];
} ties[] = {
    /* the distances of the negative from the anchor and from the positive are equal: half of each; all are 0 */
    {"{type: triplet_margin, swap: true, eps: 0}",
     6,
     {0, 1, 0, -1, 2, 0},
     {0},
     {0.4472136f, 0.7763932f, 0.4472136f, -0.7763932f, -0.8944272f, 0}},
    {"{type: triplet_margin, swap: true, eps: 0}", 6, {0, 1, 0, 1, 0, 1}, {0}, {0}},
    /* exactly at the margin */
    {"{type: triplet_margin, eps: 0}", 6, {0, 0, 1, 0, 0, 2}, {0}, {0}},
    {"cosine_embedding", 4, {1, 0, 0, 1}, {-1}, {0}},
    {"{type: cosine_embedding, margin: -0.5}", 4, {1, 0, 0, 1}, {-1}, {0, 1, 1, 0}},
    /* exactly at beta, and at 0 */
    {"l1", 3, {-1, 0, 1}, {0}, {-1, 0, 1}},
    {"smooth_l1", 3, {-1, 0, 1}, {0}, {-1, 0, 1}},
    {"{type: smooth_l1, beta: 0}", 3, {-1, 0, 1}, {0}, {-1, 0, 1}},
    {"{type: huber, delta: 0.5}", 3, {-0.5f, 0, 0.5f}, {0}, {-0.5f, 0, 0.5f}},
    {"bce_with_logits", 3, {0, 0, 0}, {1, 0, 0.5f}, {-0.5f, 0.5f, 0}},
    {"hinge_embedding", 3, {1, 1, 2}, {1, -1, -1}, {1, -1, 0}},
    {"margin_ranking", 2, {1, 1}, {1}, {-1, 1}},
    {"multilabel_margin", 3, {0, 1, 2}, {1, -1, 0}, {0, -1 / 3.0f, 1 / 3.0f}},
};

TEST_EACH(ties_are_pytorchs, ties) {
    struct device *device;
    struct variant loss;
    struct loss_sums sums = {0};
    struct document *document = bind(ties[_i].config, &loss);
    const struct loss_type *type = loss_type_at((size_t)loss.index);
    struct shape shape = {.dims = 1, .size = {ties[_i].size}};
    struct row_weights weights = {.target_size = type->parts ? 1 : (size_t)ties[_i].size};
    float gradient[6];
    ck_assert(!device_create("cpu", &device));
    type->run(loss.config, &(struct loss_batch){device, &shape, F32(ties[_i].outputs), ties[_i].targets, &weights, 1, 1,
                                                F32(gradient), &sums});
    float count = (float)sums.count;
    for (int64_t i = 0; i < ties[_i].size; i++)
        ck_assert_msg(fabsf(gradient[i] * count - ties[_i].gradient[i]) < 1e-6f, "%s: gradient[%d]: %g, not %g",
                      ties[_i].config, (int)i, (double)(gradient[i] * count), (double)ties[_i].gradient[i]);
    device_destroy(device);
    document_destroy(document);
}

CHECK_MAIN("loss")
