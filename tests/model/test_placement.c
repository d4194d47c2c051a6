/* placement: pieces that are used at the same time do not overlap, and the block is hardly larger than the maximum in
 * use at one time. ctest-labels: unit */
#include "base/numbers/rng.h"
#include "check_main.h"
#include "files.h"
#include "model/model.h"

#define PIECES 300
#define TIMES 100

static size_t min(struct piece *const *pieces, size_t count) {
    size_t max = 0;
    for (size_t t = 0; t < TIMES; t++) {
        size_t lives = 0;
        for (size_t i = 0; i < count; i++)
            if (pieces[i]->first <= t && pieces[i]->last >= t) lives += pieces[i]->size;
        if (lives > max) max = lives;
    }
    return max;
}

static bool is_needed(const struct piece *piece, size_t time) {
    bool again = piece->last_again && piece->first_again <= time && time <= piece->last_again;
    return again || (piece->first <= time && time <= piece->last);
}

/* One assertion for all: each costs a message to the runner. */
static void check_no_overlap(struct piece *const *pieces, size_t count, size_t total) {
    bool is_good = true;
    for (size_t i = 0; i < count; i++) {
        const struct piece *a = pieces[i];
        is_good &= a->offset % PLACEMENT_ALIGNMENT == 0 && a->offset + a->size <= total;
        for (size_t j = 0; j < i; j++) {
            const struct piece *b = pieces[j];
            bool meet = false;
            for (size_t t = 0; t < TIMES && !meet; t++) meet = is_needed(a, t) && is_needed(b, t);
            is_good &= !meet || a->offset + a->size <= b->offset || b->offset + b->size <= a->offset;
        }
    }
    ck_assert(is_good);
}

/* Of a chain, where two are needed at a time, the two largest have memory, whatever the parity of their positions. */
TEST(pieces_in_turn) {
    struct rng rng;
    static struct piece pieces[PIECES];
    struct piece *list[PIECES];
    rng_seed(&rng, 1);
    for (size_t count = 3; count < 12; count++) {
        SCOPED_ARENA arena = arena_create();
        for (size_t i = 0; i < count; i++) {
            pieces[i] = (struct piece){.size = i == 0 ? 16 : i + 1 == count ? 192 : 160, .first = i, .last = i + 1};
            list[i] = &pieces[i];
        }
        size_t total = placement_find_in_turn(arena, list, count);
        check_no_overlap(list, count, total);
        ck_assert_uint_eq(total, 160 + 192);
        for (size_t i = 0; i < PIECES; i++) {
            size_t first = rng_u32(&rng) % TIMES, length = rng_u32(&rng) % 4;
            pieces[i] = (struct piece){.size = rng_u32(&rng) % 50, .first = first, .last = first + length};
            list[i] = &pieces[i];
        }
        total = placement_find_in_turn(arena, list, PIECES);
        check_no_overlap(list, PIECES, total);
        ck_assert_uint_le(total, placement_find(arena, list, PIECES));
    }
}

TEST(any_pieces) {
    struct rng rng;
    static struct piece pieces[PIECES];
    struct piece *list[PIECES];
    rng_seed(&rng, 1);
    for (int round = 0; round < 50; round++) {
        SCOPED_ARENA arena = arena_create();
        for (size_t i = 0; i < PIECES; i++) {
            size_t a = rng_u32(&rng) % TIMES, b = rng_u32(&rng) % TIMES;
            pieces[i] = (struct piece){.size = rng_u32(&rng) % 50, .first = a < b ? a : b, .last = a < b ? b : a};
            list[i] = &pieces[i];
            size_t again = pieces[i].last + rng_u32(&rng) % TIMES; /* every second one is computed again, if in time */
            if (i % 2 == 0 || again <= pieces[i].last || again >= TIMES) continue;
            pieces[i].first_again = pieces[i].last_again = again;
            pieces[i].last_again += rng_u32(&rng) % (TIMES - again);
        }
        size_t total = placement_find(arena, list, PIECES);
        check_no_overlap(list, PIECES, total);
        for (size_t i = 0; i < PIECES; i++) /* their memory is used in between */
            if (pieces[i].last_again) pieces[i].last = pieces[i].last_again, pieces[i].last_again = 0;
        ck_assert_uint_lt(total, placement_find(arena, list, PIECES));
    }
    struct arena *arena = arena_create();
    ck_assert_uint_eq(placement_find(arena, list, 0), 0);
    arena_destroy(arena);
}

/* A chain: each value is used from its forward to its backward step, each gradient in two steps. */
TEST(chains_are_packed) {
    struct rng rng;
    struct piece pieces[2 * TIMES], *list[2 * TIMES];
    SCOPED_ARENA arena = arena_create();
    size_t half = TIMES / 2;
    rng_seed(&rng, 2);
    for (size_t i = 0; i < half; i++) {
        size_t size = 16 * (1 + rng_u32(&rng) % 8);
        pieces[2 * i] = (struct piece){.size = size, .first = i, .last = TIMES - 1 - i};
        pieces[2 * i + 1] = (struct piece){.size = size, .first = TIMES - 2 - i, .last = TIMES - 1 - i};
        list[2 * i] = &pieces[2 * i];
        list[2 * i + 1] = &pieces[2 * i + 1];
    }
    size_t total = placement_find(arena, list, 2 * half);
    check_no_overlap(list, 2 * half, total);
    ck_assert_uint_le(total, min(list, 2 * half) * 11 / 10);
}

static void plan(const char *layers, int64_t in, struct document **document, struct model **model) {
    struct model_config config;
    struct shape input = {.dims = 1, .size = {in}};
    struct problems problems = {0};
    char yaml[256];
    snprintf(yaml, sizeof yaml, "layers: %s", layers);
    ck_assert(!document_parse("test.yaml", yaml, strlen(yaml), &problems, document));
    schema_bind(&model_schema, document_root(*document), "model", &model_schema, &config, document_arena(*document),
                &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_ok(model_plan(&config, &input, model));
}

/* y = x + f(x), where f(x) is not read again: its memory is reused, and so is that of gradients. */
TEST(a_model_reuses_memory) {
    struct document *document;
    struct model *model;
    size_t parameters, activations;
    plan("[{repeat: {times: 8, layers: [{residual: [{linear: 64}, gelu, {linear: 64}]}]}}]", 64, &document, &model);
    model_memory(model, 1, &parameters, &activations);
    /* a residual block keeps three values: the sum, the input and the output of gelu; then come the gradients of the
     * last block, when no memory is free yet */
    ck_assert_uint_ge(activations, 8 * 3 * 64 * sizeof(float));
    ck_assert_uint_le(activations, (8 * 3 + 4) * 64 * sizeof(float));
    model_destroy(model);
    document_destroy(document);
}

/* A value that backward recomputes has memory only while backward reads it: kept are the inputs of the normalisations
 * alone, and there is one recomputed value, two gradients and the output at a time. */
TEST(recomputed_values_have_memory_for_a_moment) {
    struct document *document;
    struct model *model;
    size_t parameters, activations;
    plan("[{repeat: {times: 8, layers: [{linear: 64}, batch_norm, relu]}}, {linear: 1}]", 64, &document, &model);
    model_memory(model, 1, &parameters, &activations);
    ck_assert_uint_ge(activations, 8 * 64 * sizeof(float));
    ck_assert_uint_le(activations, (8 + 4) * 64 * sizeof(float));
    model_destroy(model);
    document_destroy(document);
}

/* The loss reads the output while it writes its gradient, also in a model without trainable parameters. */
TEST(the_output_does_not_overlap_its_gradient) {
    enum { ROWS = 3, OUT = 5 };
    static const char *const models[] = {"[relu]",
                                         "[relu, tanh]",
                                         "[{linear: 5}]",
                                         "[{linear: 5}, relu]",
                                         "[{linear: 4}, tanh, {linear: 5}, tanh]",
                                         "[{residual: [{linear: 5}]}]",
                                         "[{residual: [relu]}, tanh]"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct document *document;
        struct model *model;
        struct device *device;
        float x[ROWS * OUT], y[ROWS * OUT];
        struct rng rng;
        plan(models[m], OUT, &document, &model);
        ck_ok(device_create("cpu", &device));
        ck_ok(model_alloc(model, device, ROWS));
        rng_seed(&rng, 1);
        model_init(model, &rng);
        rng_normal(&rng, x, ROWS * OUT, 0, 1);
        struct pass pass = {.device = device, .rows = ROWS, .is_training = true};
        const float *output = floats(model_forward(model, &pass, x));
        memcpy(y, output, sizeof y);
        memset(model_output_gradient(model).data, 0xff, sizeof y);
        ck_assert_msg(memcmp(y, output, sizeof y) == 0, "%s", models[m]);
        model_destroy(model);
        device_destroy(device);
        document_destroy(document);
    }
}

CHECK_MAIN("placement")
