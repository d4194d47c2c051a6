/* dropout1d, dropout2d, drop_path: what shares one draw, that masks belong to the rows of the global batch, and that
 * nothing changes outside of training. ctest-labels: unit */
#include "model/model_fixture.h"

#define ROWS 64

/* The outputs of a layer for inputs of 1, as rank [rank] of [world] in a step; a batch is interleaved over the ranks.
 */
static float *outputs_of(const char *layers, struct shape shape, bool is_training, uint64_t step, size_t rank,
                         size_t world) {
    struct fixture f = open_fixture(layers, shape, ROWS / world, "mse");
    size_t size = f.model->out_size, count = f.rows * size;
    float *y = malloc(count * sizeof *y);
    struct pass pass = {.device = f.device,
                        .rows = f.rows,
                        .is_training = is_training,
                        .draws = {.seed = 7, .pass = &step, .first_row = rank, .row_stride = world}};
    for (size_t i = 0; i < f.rows * shape_elements(&shape); i++) f.inputs[i] = 1;
    memcpy(y, model_forward(f.model, &pass, f.inputs)->data, count * sizeof *y);
    close_fixture(&f);
    return y;
}

static const struct {
    const char *layers;
    struct shape shape;
    size_t run; /* consecutive elements of an output that share a draw */
} cases[] = {
    {"[{dropout1d: 0.25}]", {.dims = 2, .size = {6, 5}}, 5},
    {"[{dropout2d: 0.25}]", {.dims = 3, .size = {6, 3, 4}}, 12},
    {"[{drop_path: 0.25}]", {.dims = 2, .size = {6, 5}}, 30},
    {"[{drop_path: 0.25}]", {.dims = 3, .size = {6, 3, 4}}, 72},
    {"[{drop_path: {p: 0.5, mode: batch}}]", {.dims = 1, .size = {6}}, ROWS * 6},
};

TEST_EACH(what_shares_a_draw, cases) {
    size_t size = shape_elements(&cases[_i].shape), run = cases[_i].run, runs = ROWS * size / run, kept = 0;
    float *y = outputs_of(cases[_i].layers, cases[_i].shape, true, 3, 0, 1), scale = run == ROWS * 6 ? 2 : 1 / 0.75f;
    for (size_t r = 0; r < runs; r++) {
        float first = y[r * run];
        ck_assert_msg(first == 0 || first == scale, "got %g", (double)first);
        for (size_t i = 0; i < run; i++) ck_assert_float_eq(y[r * run + i], first);
        kept += first != 0;
    }
    if (runs > 1) {
        ck_assert_uint_gt(kept, runs * 6 / 10);
        ck_assert_uint_lt(kept, runs * 9 / 10);
    }
    free(y);
}

TEST_EACH(masks_belong_to_global_rows, cases) {
    size_t size = shape_elements(&cases[_i].shape), differ = 0;
    SCOPED_MEMORY float *all = outputs_of(cases[_i].layers, cases[_i].shape, true, 3, 0, 1);
    for (size_t rank = 0; rank < 4; rank++) {
        SCOPED_MEMORY float *own = outputs_of(cases[_i].layers, cases[_i].shape, true, 3, rank, 4);
        for (size_t r = 0; r < ROWS / 4; r++)
            ck_assert_mem_eq(own + r * size, all + (4 * r + rank) * size, size * sizeof *own);
    }
    for (uint64_t step = 4; step < 12; step++) {
        SCOPED_MEMORY float *other = outputs_of(cases[_i].layers, cases[_i].shape, true, step, 0, 1);
        differ += memcmp(other, all, ROWS * size * sizeof *all) != 0;
    }
    ck_assert_uint_gt(differ, 0);
}

TEST_EACH(evaluation_changes_nothing, cases) {
    SCOPED_MEMORY float *y = outputs_of(cases[_i].layers, cases[_i].shape, false, 3, 0, 1);
    for (size_t i = 0; i < ROWS * shape_elements(&cases[_i].shape); i++) ck_assert_float_eq(y[i], 1);
}

/* As torchvision's StochasticDepth and torch's dropouts: nothing is kept, and nothing is divided by 0. */
TEST(a_probability_of_one) {
    static const char *const layers[] = {"[{dropout1d: 1}]", "[{drop_path: 1}]"};
    for (size_t l = 0; l < 2; l++) {
        struct shape shape = {.dims = 2, .size = {3, 2}};
        SCOPED_MEMORY float *y = outputs_of(layers[l], shape, true, 3, 0, 1);
        for (size_t i = 0; i < ROWS * 6; i++) ck_assert_float_eq(y[i], 0);
    }
}

/* The vector of the padding is 0, the others are those of the same draws; a scale has its value. */
TEST(initial_weights) {
    struct shape tokens = {.dims = 1, .size = {4}, .is_tokens = true, .vocabulary = 7};
    static const char *const padded[] = {"[{embedding: {embedding_dim: 5, padding_idx: 2}}, {linear: 3}]",
                                         "[{embedding_bag: {embedding_dim: 5, padding_idx: -5}}, {linear: 3}]",
                                         "[{embedding_bag: {embedding_dim: 5, padding_idx: 2}}, {linear: 3}]"};
    struct fixture plain = open_fixture("[{embedding: 5}, {linear: 3}]", tokens, 2, "mse");
    for (size_t i = 0; i < 3; i++) {
        struct fixture f = open_fixture(padded[i], tokens, 2, "mse");
        for (size_t j = 0; j < f.model->params.total; j++)
            ck_assert_float_eq(f.model->params.values[j], j >= 10 && j < 15 ? 0 : plain.model->params.values[j]);
        close_fixture(&f);
    }
    close_fixture(&plain);
    struct fixture f =
        open_fixture("[{layer_scale: 0.1}, layer_scale]", (struct shape){.dims = 1, .size = {3}}, 2, "mse");
    for (size_t j = 0; j < 3; j++) {
        ck_assert_float_eq(params_value(&f.model->params, 0)[j], 0.1f);
        ck_assert_float_eq(params_value(&f.model->params, 1)[j], 1e-5f);
    }
    ck_assert_str_eq(f.model->params.items[0].name, "0.gamma");
    close_fixture(&f);
}

CHECK_MAIN("dropout")
