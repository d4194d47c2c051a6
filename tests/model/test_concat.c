/* Concatenations of channels in the memory of later ones (model/concat.h): a model computes the same bits as where all
 * of them copy, in training and evaluation, with less memory. ctest-labels: unit */
#include "model/concat.h"

#include "device/internal.h"
#include "model/model_fixture.h"

#define BLOCK(channels, ...)                                                                                           \
    "{parallel: {branches: [[], [batch_norm, relu, {conv2d: {out: " #channels                                          \
    ", kernel_size: 3, padding: 1}}]]" __VA_ARGS__ "}}"
#define BLOCKS(count, channels, ...)                                                                                   \
    "{repeat: {times: " #count ", layers: [" BLOCK(channels) "], name: r" __VA_ARGS__ "}}, "
#define STEM(channels) "[{conv2d: {out: " #channels ", kernel_size: 1, name: stem}}, "
#define HEAD "batch_norm, relu, {adaptive_avg_pool2d: 1}, flatten, {linear: 3}]"
#define CONV(channels, ...) "{conv2d: {out: " #channels ", kernel_size: 1, " __VA_ARGS__ "}}, "
#define CONCAT(...) "{concat: {" __VA_ARGS__ "}}, "
#define A ", name: a"
#define B ", name: b"

/* How many values and gradients are parts of others. */
static const struct {
    const char *layers;
    size_t values, gradients;
} cases[] = {
    {STEM(20) BLOCKS(4, 12) HEAD, 3, 3},
    {STEM(4) BLOCKS(5, 3) HEAD, 4, 4}, /* fewer channels than a vector */
    {STEM(16) BLOCKS(3, 16) HEAD, 2, 2},
    {STEM(4) "{parallel: {branches: [[], [{batch_norm: {sync: true, affine: false}}, {conv2d: {out: 30, kernel_size: "
             "1}}]], name: a}}, {batch_norm: {sync: true}}, " CONV(5, "name: c") CONCAT("from: [c, a]") HEAD,
     1, 1}, /* behind other channels, without a relu */
    {STEM(4) BLOCKS(3, 12, ", recompute: true") HEAD, 2, 2},
    {STEM(4) "{sequential: {recompute: true, layers: [" BLOCKS(3, 12) "]}}, " HEAD, 2, 2},
    {STEM(20) BLOCKS(3, 12) HEAD "\nfreeze: [stem.*, r.0.*]", 2, 1}, /* the first output has no gradient */
    {STEM(4) BLOCK(7, A ", from: [stem]") ", " BLOCK(8, B ", from: [stem]") ", " CONCAT("from: [a, b]") HEAD, 2, 2},
    /* other readers: a convolution, the same concat again, another concat, a norm behind the concat, a sum */
    {STEM(20) BLOCK(12, A) ", " CONV(3, "from: [a]") CONCAT("from: [a]") HEAD, 0, 0},
    {STEM(20) BLOCK(12, A) ", " CONCAT("from: [a, a]") HEAD, 0, 0},
    {STEM(20) BLOCK(12, A) ", " BLOCK(9, B) ", " CONCAT("from: [b, a]") HEAD, 2, 1},
    {STEM(20)
         BLOCK(12, A) ", " BLOCK(9, B) ", {batch_norm: {from: [a]}}, " CONV(41, "name: c") "{add: {from: [b]}}, " HEAD,
     0, 0},
    {STEM(20) BLOCK(12, A) ", " BLOCK(9, B) ", {residual: [batch_norm]}, " CONCAT("from: [b]") HEAD, 1, 1},
    /* e shares the gradient of the concat's output and reads it later */
    {STEM(20) CONV(41, "name: e") BLOCK(12, A ", from: [stem]") ", " BLOCK(9) ", {add: {from: [e]}}, " HEAD, 0, 0},
    /* inputs: in another order of memory, and vectors */
    {"[" CONCAT("from: [input, input], name: a")
         CONCAT("from: [a, input]") "batch_norm, " CONV(3, "name: c") "flatten]",
     0, 0},
    {"[" CONCAT("from: [input, input], name: a") CONCAT("from: [input, a]") "batch_norm, {linear: 3}]", 1, 0},
    {"[{linear: 20}, {parallel: {branches: [[], [{linear: 3}]], name: a}}, batch_norm, {linear: {out: 30, name: "
     "m}}, " CONCAT("from: [a, m]") "batch_norm, {linear: 3}]",
     1, 1},
};

static const char *const sets[] = {"baseline", "avx2", "avx512"};

#define ROWS 5

static void keep_sums(void *user, double *values, size_t count) { (void)user, (void)values, (void)count; }
static const struct all_sum one_process = {.sum = keep_sums};

static size_t count_parts(const struct tensor_part *parts, size_t count) {
    size_t found = 0;
    for (size_t i = 0; parts && i < count; i++) found += parts[i].stride > 0;
    return found;
}

/* The fixture with its memory, on the CPU with the instruction set; [copies]: its batch norms take no strides. False:
 * this processor does not have the set. */
static bool open_on(struct fixture *f, const char *layers, const char *set, bool copies) {
    static struct image_ops image;
    static struct device_ops ops;
    bool is_vector = !strstr(layers, "conv2d");
    struct shape input =
        is_vector ? (struct shape){.dims = 1, .size = {6}} : (struct shape){.dims = 3, .size = {3, 6, 7}};
    struct device *device;
    status s = cpu_device_create(set, &device);
    if (s) return status_free(s), false;
    *f = plan_fixture("cpu", PRECISION_FLOAT32, layers, input, ROWS, "mse");
    device_destroy(f->device);
    f->device = device;
    if (copies) {
        ops = *device->ops;
        image = *ops.image;
        image.takes_strides = false;
        ops.image = &image;
        device->ops = &ops;
    }
    fill_fixture(f);
    return true;
}

static void check_equal(const float *a, const float *b, size_t count) {
    ck_assert_int_eq(memcmp(a, b, count * sizeof *a), 0);
}

struct visits {
    float *outputs; /* of all nodes, one after another */
    size_t count;
};

static bool keep_output(void *user, const struct layer *layer, const struct tensor *output, size_t size,
                        size_t tensor) {
    struct visits *v = user;
    (void)layer, (void)tensor;
    v->outputs = realloc(v->outputs, (v->count + ROWS * size) * sizeof *v->outputs);
    memcpy(v->outputs + v->count, floats(output), ROWS * size * sizeof *v->outputs);
    v->count += ROWS * size;
    return true;
}

static void check_passes(struct fixture *one, struct fixture *other) {
    struct pass pass = pass_of(one), other_pass = pass_of(other);
    pass.all_sum = other_pass.all_sum = &one_process;
    double loss = forward_and_loss(one, true), other_loss = forward_and_loss(other, true);
    ck_assert(!(loss < other_loss) && !(loss > other_loss));
    model_backward(one->model, &pass, one->inputs, NULL, NULL);
    model_backward(other->model, &other_pass, other->inputs, NULL, NULL);
    check_equal(one->model->params.gradients, other->model->params.gradients, one->model->params.total);
    check_equal(one->model->buffers.values, other->model->buffers.values, one->model->buffers.total);
    for (int is_training = 0; is_training < 2; is_training++) {
        struct visits visits[2] = {0};
        pass.is_training = other_pass.is_training = is_training;
        const float *out = floats(model_forward_visited(one->model, &pass, one->inputs, keep_output, &visits[0]));
        const float *other_out =
            floats(model_forward_visited(other->model, &other_pass, other->inputs, keep_output, &visits[1]));
        check_equal(out, other_out, ROWS * one->model->out_size);
        ck_assert_uint_eq(visits[0].count, visits[1].count);
        check_equal(visits[0].outputs, visits[1].outputs, visits[0].count);
        free(visits[0].outputs), free(visits[1].outputs);
    }
}

TEST_EACH(same_bits, cases) {
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        struct fixture one, other;
        if (!open_on(&one, cases[_i].layers, sets[s], false)) continue;
        ck_assert(open_on(&other, cases[_i].layers, sets[s], true));
        const struct model *m = one.model;
        ck_assert_uint_eq(count_parts(m->tensor_parts, m->tensor_count), cases[_i].values);
        ck_assert_uint_eq(count_parts(m->slot_parts, m->slot_count), cases[_i].gradients);
        ck_assert_ptr_null(other.model->tensor_parts);
        ck_assert_uint_le(m->row_floats, other.model->row_floats);
        for (int step = 0; step < 2; step++) check_passes(&one, &other);
        close_fixture(&one);
        close_fixture(&other);
    }
}

/* Of 6 layers of 12 channels, instead of one output after each of them. */
TEST(memory) {
    struct fixture one, other;
    const char *layers = STEM(12) BLOCKS(6, 12) HEAD;
    ck_assert(open_on(&one, layers, "baseline", false) && open_on(&other, layers, "baseline", true));
    ck_assert_uint_lt(4 * one.model->row_floats, 3 * other.model->row_floats);
    close_fixture(&one);
    close_fixture(&other);
}

CHECK_MAIN("concat")
