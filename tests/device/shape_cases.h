/* Every operator that changes shapes, as cases for any device. For tests only. */
#pragma once

#include "operator_case.h"

#define SHAPE_ROWS 3

static void permutations(struct device *d, struct results *r) {
    const struct permutation all[] = {
        {.dims = 1, .size = {70}, .stride = {1}},
        {.dims = 2, .size = {5, 7}, .stride = {1, 5}},
        {.dims = 3, .size = {4, 3, 6}, .stride = {6, 24, 1}},
        {.dims = 5, .size = {2, 3, 4, 5, 2}, .stride = {120, 1, 30, 6, 3}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t count = SHAPE_ROWS;
        for (int k = 0; k < all[i].dims; k++) count *= all[i].size[k];
        float *x = random_values(count, i);
        device_ops(d)->shapes->permute(d, &all[i], x, next(r, count), SHAPE_ROWS);
        guarded_free(x);
    }
}

static void pads(struct device *d, struct results *r) {
    const struct shape_ops *ops = device_ops(d)->shapes;
    const struct pad all[] = {
        {.in = {1, 1, 5}, .before = {0, 0, 2}, .after = {0, 0, 1}, .inner = 1, .mode = PAD_CONSTANT, .value = 0.5f},
        {.in = {1, 4, 3}, .before = {0, 2, 0}, .after = {0, 0, 3}, .inner = 5, .mode = PAD_CONSTANT},
        {.in = {1, 4, 5}, .before = {0, 3, 2}, .after = {0, 2, 4}, .inner = 3, .mode = PAD_REFLECT},
        {.in = {1, 3, 1}, .before = {0, 1, 0}, .after = {0, 2, 0}, .inner = 1, .mode = PAD_REFLECT},
        {.in = {1, 4, 1}, .before = {0, 3, 2}, .after = {0, 5, 1}, .inner = 2, .mode = PAD_REPLICATE},
        {.in = {1, 4, 3}, .before = {0, 4, 1}, .after = {0, 2, 3}, .inner = 2, .mode = PAD_CIRCULAR},
        {.in = {3, 4, 2}, .before = {1, 2, 0}, .after = {2, 1, 3}, .inner = 3, .mode = PAD_CONSTANT, .value = 2},
        {.in = {3, 2, 4}, .before = {2, 1, 3}, .after = {1, 1, 2}, .inner = 2, .mode = PAD_REFLECT},
        {.in = {2, 3, 1}, .before = {3, 1, 2}, .after = {1, 0, 1}, .inner = 1, .mode = PAD_REPLICATE},
        {.in = {2, 3, 4}, .before = {2, 1, 3}, .after = {1, 2, 4}, .inner = 2, .mode = PAD_CIRCULAR},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t in = SHAPE_ROWS * pad_inputs(&all[i]);
        size_t out = SHAPE_ROWS * pad_outputs(&all[i]);
        float *x = random_values(in, i), *dy = random_values(out, i + 50);
        ops->pad_forward(d, &all[i], x, next(r, out), SHAPE_ROWS);
        ops->pad_backward(d, &all[i], dy, next(r, in), SHAPE_ROWS);
        guarded_free(x), guarded_free(dy);
    }
}

static void resizes(struct device *d, struct results *r) {
    const struct shape_ops *ops = device_ops(d)->shapes;
    const struct resize all[] = {
        {.side = {{3, 6, 0.5f}, {4, 12, 1.0f / 3}}, .channels = 5, .is_nearest = true},
        {.side = {{1, 1, 1}, {7, 4, 1.75f}}, .channels = 3, .is_nearest = true},
        {.side = {{3, 6, 0.5f}, {4, 8, 0.5f}}, .channels = 5},
        {.side = {{5, 8, 1 / 1.7f}, {9, 4, 2.25f}}, .channels = 1},
        {.side = {{3, 7, 2.0f / 6}, {5, 5, 1}}, .channels = 2, .align_corners = true},
        {.side = {{3, 1, 0}, {2, 11, 0.1f}}, .channels = 2, .align_corners = true},
        {.side = {{1, 6, 1.0f / 6}, {30, 3, 10}}, .channels = 2},
        {.side = {{2, 60, 1.0f / 30}, {2, 50, 1.0f / 50}}, .channels = 1, .align_corners = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t in = SHAPE_ROWS * all[i].side[0].in * all[i].side[1].in * all[i].channels;
        size_t out = SHAPE_ROWS * all[i].side[0].out * all[i].side[1].out * all[i].channels;
        float *x = random_values(in, i), *dy = random_values(out, i + 50);
        ops->resize_forward(d, &all[i], x, next(r, out), SHAPE_ROWS);
        ops->resize_backward(d, &all[i], dy, next(r, in), SHAPE_ROWS);
        guarded_free(x), guarded_free(dy);
    }
}

/* Multiples of 1/4, so that there are several maxima; NaN. */
static void maxima(struct device *d, struct results *r) {
    const struct shape_ops *ops = device_ops(d)->shapes;
    const size_t all[][3] = {{4, 300, 1}, {3, 7, 5}, {2, 1, 70}, {1, 40, 33}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t outer = all[i][0], count = all[i][1], inner = all[i][2], in = outer * count * inner;
        float *x = random_values(in, i), *dy = random_values(outer * inner, i + 50);
        for (size_t k = 0; k < in; k++) x[k] = roundf(x[k] * 4) / 4;
        x[in / 2] = x[in - 1] = NAN;
        int32_t *index = (int32_t *)(void *)next_bytes(r, outer * inner * sizeof(int32_t));
        ops->max_forward(d, x, NULL, next(r, outer * inner), index, outer, count, inner);
        ops->max_backward(d, index, dy, next(r, in), outer, count, inner);
        int32_t *lengths = guarded_malloc(outer * sizeof *lengths);
        for (size_t k = 0; k < outer; k++) lengths[k] = (int32_t)(1 + (count - 1) * k / (outer > 1 ? outer - 1 : 1));
        index = (int32_t *)(void *)next_bytes(r, outer * inner * sizeof(int32_t));
        ops->max_forward(d, x, lengths, next(r, outer * inner), index, outer, count, inner);
        ops->max_backward(d, index, dy, next(r, in), outer, count, inner);
        guarded_free(x), guarded_free(dy), guarded_free(lengths);
    }
}

static void depths(struct device *d, struct results *r) {
    const struct shape_ops *ops = device_ops(d)->shapes;
    const struct depth_window all[] = {
        {.in = 4, .out = 4, .positions = 6, .channels = 3, .kernel = 1, .stride = 1, .dilation = 1},
        {.in = 5, .out = 5, .positions = 6, .channels = 3, .kernel = 3, .stride = 1, .padding = 1, .dilation = 1},
        {.in = 7, .out = 3, .positions = 1, .channels = 4, .kernel = 3, .stride = 3, .padding = 2, .dilation = 2},
        {.in = 3, .out = 1, .positions = 9, .channels = 1, .kernel = 2, .stride = 4, .padding = 0, .dilation = 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t slice = all[i].positions * all[i].channels, in = SHAPE_ROWS * all[i].in * slice;
        size_t out = SHAPE_ROWS * all[i].out * slice * all[i].kernel;
        float *x = random_values(in, i), *dy = random_values(out, i + 50);
        ops->unfold_depth(d, &all[i], x, next(r, out), SHAPE_ROWS);
        ops->fold_depth(d, &all[i], dy, next(r, in), SHAPE_ROWS);
        guarded_free(x), guarded_free(dy);
    }
}

static const struct operator_case shape_cases[] = {
    {"permutations", permutations, 0},      {"pads", pads, 1e-6}, {"resizes", resizes, 1e-5}, {"maxima", maxima, 0},
    {"windows along the depth", depths, 0},
};
