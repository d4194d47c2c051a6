/* Operators of several models: each lane has the bits of the operators for one model, on every instruction set.
 * ctest-labels: unit */
#include "device/cpu/group.h"

#include <string.h>

#include "check_main.h"
#include "device_work.h"

#define MAX_LANES 16

static float *lane_of(const float *from, size_t count, size_t lanes, size_t lane) {
    float *to = guarded_malloc(count * sizeof *to);
    for (size_t i = 0; i < count; i++) to[i] = from[i * lanes + lane];
    return to;
}

/* Of (columns, rows): (rows, columns) of a lane. */
static float *matrix_of(const float *from, size_t rows, size_t columns, size_t lanes, size_t lane) {
    float *to = guarded_malloc(rows * columns * sizeof *to);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) to[i * columns + j] = from[(j * rows + i) * lanes + lane];
    return to;
}

static void assert_same(const float *got, const float *expected, size_t count, const char *what, size_t lane) {
    ck_assert_msg(memcmp(got, expected, count * sizeof *got) == 0, "%s of lane %zu", what, lane);
}

static const struct group_ops *ops_of(struct device *device) {
    const struct group_ops *ops = cpu_group_ops(device, MAX_LANES);
    ck_assert(ops && ops->lanes >= 4 && ops->lanes <= MAX_LANES);
    return ops;
}

/* ---- a linear layer ---- */

static void linear_agrees(struct device *device, size_t rows, size_t in, size_t out, bool is_batch, bool is_shared) {
    const struct group_ops *ops = ops_of(device);
    const struct device_ops *single = device_ops(device);
    size_t lanes = ops->lanes, width = is_shared ? 1 : lanes;
    float *x = random_values(rows * in * width, 1), *w = random_values(out * in * lanes, 2),
          *bias = random_values(out * lanes, 3), *dy = random_values(rows * out * lanes, 4),
          *y = random_values(rows * out * lanes, 5), *dw = random_values(out * in * lanes, 6),
          *db = random_values(out * lanes, 7), *dx = random_values(rows * in * lanes, 8);
    struct group_linear linear = {rows, in, out, is_batch, is_shared};
    struct group_product products[] = {group_linear_forward(&linear, x, w, bias, y),
                                       group_linear_weight(&linear, x, dy, dw), group_linear_bias(&linear, dy, db),
                                       group_linear_input(&linear, dy, w, dx)};
    products[0].has_relu = true;
    products[3].mask = is_batch ? NULL : x;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) ops->product(&products[i]);
    for (size_t l = 0; l < lanes; l++) {
        float *own_x = is_batch ? lane_of(x, rows * in, width, is_shared ? 0 : l) : matrix_of(x, rows, in, lanes, l);
        float *own_w = lane_of(w, out * in, lanes, l), *own_bias = lane_of(bias, out, lanes, l);
        float *own_dy = matrix_of(dy, rows, out, lanes, l), *own_y = matrix_of(y, rows, out, lanes, l);
        float *own_dw = lane_of(dw, out * in, lanes, l), *own_db = lane_of(db, out, lanes, l);
        float *own_dx = matrix_of(dx, rows, in, lanes, l);
        float *expected = guarded_malloc(rows * out * sizeof(float)), *gradient = guarded_malloc(out * in * 4),
              *bias_gradient = guarded_malloc(out * 4), *input_gradient = guarded_malloc(rows * in * 4);
        memset(gradient, 0, out * in * 4);
        memset(bias_gradient, 0, out * 4);
        single->linear_forward(device, F32(own_x), own_w, own_bias, true, F32(expected), rows, in, out);
        single->linear_backward_weight(device, F32(own_dy), F32(own_x), gradient, bias_gradient, rows, in, out);
        single->linear_backward_input(device, F32(own_dy), own_w, F32(input_gradient), rows, in, out);
        if (!is_batch)
            single->image->relu_backward(device, F32(own_x), F32(input_gradient), F32(input_gradient), rows * in);
        assert_same(own_y, expected, rows * out, "y", l);
        assert_same(own_dw, gradient, out * in, "dw", l);
        assert_same(own_db, bias_gradient, out, "db", l);
        assert_same(own_dx, input_gradient, rows * in, "dx", l);
        float *const all[] = {own_x,  own_w,  own_bias, own_dy,   own_y,         own_dw,
                              own_db, own_dx, expected, gradient, bias_gradient, input_gradient};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) guarded_free(all[i]);
    }
    float *const all[] = {x, w, bias, dy, y, dw, db, dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guarded_free(all[i]);
}

/* ---- losses ---- */

static void entropy_agrees(struct device *device, size_t rows, size_t classes, bool is_shared) {
    const struct group_ops *ops = ops_of(device);
    size_t lanes = ops->lanes;
    float *x = random_values(rows * classes * lanes, 9), *dx = random_values(rows * classes * lanes, 10);
    int64_t targets[256];
    int32_t own_targets[256 * MAX_LANES];
    for (size_t i = 0; i < rows; i++) targets[i] = (int64_t)(i * i % classes);
    for (size_t i = 0; i < rows * lanes; i++) own_targets[i] = (int32_t)(i * i / 3 % classes);
    size_t step = rows * lanes;                                                       /* between classes */
    for (size_t i = 0; i + step < rows * classes * lanes; i += 5) x[i + step] = x[i]; /* equal outputs */
    double loss[MAX_LANES] = {1.5}, correct[MAX_LANES] = {2};
    ops->cross_entropy(x, is_shared ? (const void *)targets : own_targets, is_shared, rows, classes, 1 / (float)rows,
                       dx, &(struct group_sums){loss, correct});
    for (size_t l = 0; l < lanes; l++) {
        float *own = matrix_of(x, rows, classes, lanes, l), *own_dx = matrix_of(dx, rows, classes, lanes, l);
        float *expected = guarded_malloc(rows * classes * 4);
        struct loss_sums sums = {.loss = l ? 0 : 1.5, .correct = l ? 0 : 2};
        for (size_t i = 0; i < rows && !is_shared; i++) targets[i] = own_targets[i * lanes + l];
        struct cross_entropy_options options = {.ignored = -100, .row_positions = 1};
        device_ops(device)->losses->cross_entropy(device, &options, F32(own), targets, rows, classes, 1, F32(expected),
                                                  &sums);
        assert_same(own_dx, expected, rows * classes, "the derivative", l);
        ck_assert(sums.loss == loss[l] && sums.correct == correct[l]);
        guarded_free(own), guarded_free(own_dx), guarded_free(expected);
    }
    guarded_free(x), guarded_free(dx);
}

static void squares_agree(struct device *device, size_t rows, size_t size, bool is_shared) {
    const struct group_ops *ops = ops_of(device);
    size_t lanes = ops->lanes, count = rows * size;
    float *x = random_values(count * lanes, 11), *dx = random_values(count * lanes, 12),
          *targets = random_values(is_shared ? count : count * lanes, 13);
    double loss[MAX_LANES] = {0};
    ops->squared_error(x, targets, is_shared, rows, size, 1 / (float)count, dx, &(struct group_sums){loss, NULL});
    for (size_t l = 0; l < lanes; l++) {
        float *own = matrix_of(x, rows, size, lanes, l), *own_dx = matrix_of(dx, rows, size, lanes, l);
        float *expected = guarded_malloc(count * 4),
              *own_targets = lane_of(targets, count, is_shared ? 1 : lanes, is_shared ? 0 : l);
        struct loss_sums sums = {0};
        struct elementwise_options options = {.loss = LOSS_MSE, .row_elements = size};
        device_ops(device)->losses->elementwise(device, &options, own, own_targets, count, 1 / (float)count,
                                                (double)count, expected, &sums);
        assert_same(own_dx, expected, count, "the derivative", l);
        ck_assert(sums.loss == loss[l]);
        guarded_free(own), guarded_free(own_dx), guarded_free(expected), guarded_free(own_targets);
    }
    guarded_free(x), guarded_free(dx), guarded_free(targets);
}

/* ---- updates ---- */

static union optimizer_constants constants_of(enum update_rule rule, unsigned flags, size_t lane) {
    float lr = 0.01f * (float)(lane + 1);
    if (rule == RULE_SGD)
        return (union optimizer_constants){.sgd = {.minus_lr = -lr,
                                                   .momentum = 0.9f + 0.001f * (float)lane,
                                                   .one_minus_dampening = 1 - 0.01f * (float)lane,
                                                   .weight_decay = 0.1f * lr,
                                                   .has_weight_decay = flags & 1,
                                                   .is_nesterov = flags & 2,
                                                   .is_first = flags == 3}};
    float beta1 = 0.9f - 0.01f * (float)lane, beta2 = 0.99f + 0.0005f * (float)lane;
    return (union optimizer_constants){.adam = {.beta1 = beta1,
                                                .one_minus_beta1 = 1 - beta1,
                                                .beta2 = beta2,
                                                .one_minus_beta2 = 1 - beta2,
                                                .eps = 1e-8f * (float)(lane + 1),
                                                .minus_step_size = -lr,
                                                .sqrt_correction2 = 0.3f + 0.01f * (float)lane,
                                                .weight_decay = 0.1f * lr,
                                                .decay_factor = 1 - 0.5f * lr,
                                                .has_weight_decay = flags & 1,
                                                .uses_lerp = flags & 2}};
}

static void update_agrees(struct device *device, enum update_rule rule, unsigned flags, size_t states, size_t count) {
    const struct group_ops *ops = ops_of(device);
    size_t lanes = ops->lanes;
    union optimizer_constants numbers[MAX_LANES];
    const union optimizer_constants *constants[MAX_LANES];
    float *values = random_values(count * lanes, 14), *gradients = random_values(count * lanes, 15),
          *kept[OPTIMIZER_STATES] = {NULL}, *own_kept[MAX_LANES][OPTIMIZER_STATES] = {{NULL}}, *own_values[MAX_LANES];
    for (size_t l = 0; l < lanes; l++) {
        numbers[l] = constants_of(rule, flags, l);
        constants[l] = &numbers[l];
        own_values[l] = lane_of(values, count, lanes, l);
    }
    for (size_t s = 0; s < states; s++) {
        kept[s] = random_values(count * lanes, 16 + s);
        for (size_t i = 0; i < count * lanes; i++) kept[s][i] *= kept[s][i]; /* squares are not negative */
        for (size_t l = 0; l < lanes; l++) own_kept[l][s] = lane_of(kept[s], count, lanes, l);
    }
    ops->update(rule, constants, values, gradients, kept, count);
    for (size_t l = 0; l < lanes; l++) {
        const float clip = 1;
        float *own_gradients = lane_of(gradients, count, lanes, l), *got = lane_of(values, count, lanes, l);
        const struct optimizer_run run = {.end = count};
        device_ops(device)->optimizers->update(
            device, &(struct optimizer_update){.rule = rule,
                                               .constants = &numbers[l],
                                               .clip = &clip,
                                               .values = own_values[l],
                                               .gradients = own_gradients,
                                               .states = {own_kept[l][0], own_kept[l][1], own_kept[l][2]},
                                               .runs = &run,
                                               .run_count = 1});
        assert_same(got, own_values[l], count, "the values", l);
        for (size_t s = 0; s < states; s++) {
            float *state = lane_of(kept[s], count, lanes, l);
            assert_same(state, own_kept[l][s], count, "the state", l);
            guarded_free(state), guarded_free(own_kept[l][s]);
        }
        guarded_free(own_gradients), guarded_free(got), guarded_free(own_values[l]);
    }
    for (size_t s = 0; s < states; s++) guarded_free(kept[s]);
    guarded_free(values), guarded_free(gradients);
}

/* ---- tests: one for each instruction set ---- */

TEST_EACH(products, sets) {
    struct device *device = open_set(sets[_i]);
    static const size_t sizes[][3] = {{1, 1, 1},  {2, 3, 4},   {5, 7, 1},   {32, 13, 64}, {14, 64, 3},
                                      {33, 5, 6}, {64, 17, 9}, {32, 64, 3}, {100, 2, 2},  {7, 130, 11}};
    for (size_t i = 0; device && i < sizeof sizes / sizeof *sizes; i++) {
        linear_agrees(device, sizes[i][0], sizes[i][1], sizes[i][2], true, true);
        linear_agrees(device, sizes[i][0], sizes[i][1], sizes[i][2], true, false);
        linear_agrees(device, sizes[i][0], sizes[i][1], sizes[i][2], false, false);
    }
    device_destroy(device);
}

TEST_EACH(losses, sets) {
    struct device *device = open_set(sets[_i]);
    static const size_t rows[] = {1, 14, 32, 33, 64, 200};
    for (size_t i = 0; device && i < sizeof rows / sizeof *rows; i++) {
        for (int is_shared = 0; is_shared < 2; is_shared++) {
            for (size_t classes = 2; classes <= SHORT_ROW; classes++)
                entropy_agrees(device, rows[i], classes, is_shared);
            squares_agree(device, rows[i], 1, is_shared);
            squares_agree(device, rows[i], 5, is_shared);
        }
    }
    device_destroy(device);
}

TEST_EACH(updates, sets) {
    struct device *device = open_set(sets[_i]);
    for (unsigned flags = 0; device && flags < 4; flags++) {
        update_agrees(device, RULE_SGD, flags, 0, 37);
        update_agrees(device, RULE_SGD, flags, 1, 37);
        update_agrees(device, RULE_ADAM, flags, 2, 1);
        update_agrees(device, RULE_ADAM, flags, 2, 100);
        update_agrees(device, RULE_ADAM, flags, 3, 16);
    }
    device_destroy(device);
}

CHECK_MAIN("group")
