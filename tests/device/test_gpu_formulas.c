/* Formulas of the config on a GPU: each operation and its derivative, of vectors and of one number for each row,
 * against the CPU. Skipped where there is no GPU. ctest-labels: gpu */
#include "device/expression.h"
#include "gpu_work.h"

static const char *const names[] = {"x", "y", "s", NULL}; /* two vectors, and one number for each row */

static const char *const formulas[] = {
    "x + y * s",
    "(x - y) / (2 + abs(s))",
    "x ^ 2 + abs(x) ^ 1.5 + abs(y) ^ 2.2",
    "min(x, y) * max(x, s)",
    "(x < y) + (x <= s) + (x == x) + (x != y)",
    "(x > 0 and y > 0) + (x > 0 or y > 0) + (not (x > 0))",
    "where(x > s, x * x, -y)",
    "sign(x) * floor(3 * y) + round(4 * x)",
    "sqrt(abs(x) + 1) + exp(x) + expm1(y / 10) + log(2 + abs(y)) + log1p(abs(x))",
    "sin(4 * x) + cos(x) * tanh(y) + erf(x)",
    "sigmoid(x) * softplus(y) + relu(x) + gelu(x)",
    "clamp(x, -0.5, 0.5) + detach(x) * y",
    "x * index + s",
    "mean(x * y) + s",
    "sum(abs(x) ^ 1.5) * mean(y)",
    "max(x) - min(y) + s * s",
    "logsumexp(x) - sum(where(index == 1, x, 0))",
    "norm(x - y) ^ 1.5",
    "softmax(x) * y + x - mean(x)",
    "norm(s) + sum(s) + max(s) * 2 + mean(x) - mean(x)",
    "3",
};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

static const size_t shapes[][2] = {{1, 1}, {300, 1}, {1, 7}, {37, 3}, {300, 70}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct formula {
    struct expression e;
    uint16_t slopes[3];
};

static void parse(const char *text, struct formula *f) {
    const uint16_t by[] = {0, 1, 2};
    size_t at;
    status s = expression_parse(text, &(struct expression_options){.names = names}, &f->e, &at, NULL);
    if (!s) s = expression_differentiate(&f->e, f->e.value, expression_variable(&f->e, 3), by, 3, f->slopes);
    ck_assert_msg(!s, "%s: %s", text, status_message(s));
}

/* The value, the derivatives by x and s, and, of one number for each row, the sum. */
static void run_one(struct device *device, const struct formula *f, size_t rows, size_t size, struct results *r) {
    float *from[] = {random_values(rows * size, 1), random_values(rows * size, 2), random_values(rows, 3)};
    bool is_wide = size > 1,
         is_vector = is_wide && expression_is_vector(&f->e, f->e.value, (const bool[]){true, true, false, false});
    double sum = 1, count = 2;
    struct expression_call call = {.expression = &f->e, .rows = rows, .size = size, .counted = 5, .count = &count};
    for (size_t i = 0; i < 3; i++) call.variables[i].values = from[i];
    call.variables[0].is_vector = call.variables[1].is_vector = is_wide;
    call.variables[3].constant = 1.5f; /* the derivative of what comes after: a vector where the value is one */
    if (is_vector) call.variables[3].values = from[1], call.variables[3].is_vector = true;
    call.outputs[0] = (struct expression_output){f->e.value, next(r, rows * (is_vector ? size : 1)), is_vector};
    call.outputs[1] = (struct expression_output){f->slopes[0], next(r, rows * size), is_wide};
    call.outputs[2] = (struct expression_output){f->slopes[2], next(r, rows), false};
    call.output_count = 3;
    if (!is_vector) call.sums[0].node = f->e.value, call.sums[0].to = &sum, call.sum_count = 1;
    ck_assert(!device_ops(device)->formulas->prepare(device, &call));
    device_ops(device)->formulas->run(device, &call);
    float *sums = next(r, 2);
    sums[0] = (float)(sum / (double)rows), sums[1] = (float)count;
    for (size_t i = 0; i < 3; i++) guarded_free(from[i]);
}

static void run(struct device *device, struct results *r) {
    struct formula *f = malloc(sizeof *f);
    for (size_t i = 0; i < FORMULAS; i++) {
        parse(formulas[i], f);
        for (size_t k = 0; k < SHAPES; k++) run_one(device, f, shapes[k][0], shapes[k][1], r);
    }
    free(f);
}

static const struct operator_case all = {"formulas", run, 2e-5};

TEST(agree_with_the_cpu) { agrees_with_the_cpu(&all); }

TEST(without_rows) {
    struct device *device = open_device("cuda");
    struct formula *f = malloc(sizeof *f);
    double count = 0;
    parse("x + y", f);
    struct expression_call call = {.expression = &f->e, .size = 3, .counted = 0, .count = &count};
    device_ops(device)->formulas->run(device, &call);
    ck_assert(!device_status(device));
    ck_assert(count == 0);
    device_destroy(device);
    free(f);
}

int main(void) { return gpu_run("gpu_formulas"); }
