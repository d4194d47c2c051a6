/* Updates on the GPU: many groups in one call, gradients that are zero afterwards, and the 16-bit copy of the
 * parameters, which round_parameters and updates write and products read, recorded or not. Skipped where there is no
 * GPU. ctest-labels: gpu */
#include "gpu_work.h"

#define IN 64
#define OUT 40
#define COUNT ((size_t)IN * OUT)
#define BLOCK 1024 /* numbers that a block of the kernel takes */

/* ---- groups: against the CPU ---- */

static union optimizer_constants constants_of(float lr) {
    return (union optimizer_constants){.adam = {.beta1 = 0.9f,
                                                .one_minus_beta1 = 0.1f,
                                                .beta2 = 0.99f,
                                                .one_minus_beta2 = 0.01f,
                                                .eps = 1e-8f,
                                                .minus_step_size = -lr,
                                                .sqrt_correction2 = 0.1f,
                                                .decay_factor = 1 - lr,
                                                .uses_lerp = true}};
}

/* Runs within a block, over its end, over many blocks; some are skipped; states have other offsets, as in a shard. */
static const struct optimizer_run runs[] = {{0, 16, 0, 0},
                                            {16, 48, 16, 1},
                                            {48, 1008, 0, OPTIMIZER_SKIP},
                                            {1008, BLOCK + 16, 48, 2},
                                            {BLOCK + 16, 4 * BLOCK, 80, 0},
                                            {4 * BLOCK, 4 * BLOCK + 4, 80 + 3 * BLOCK - 16, 1},
                                            {4 * BLOCK + 4, 6 * BLOCK + 64, 0, OPTIMIZER_SKIP}};
#define RUNS (sizeof runs / sizeof *runs)
#define VALUES ((size_t)6 * BLOCK + 64)
#define STATES ((size_t)80 + 3 * BLOCK - 16 + 4)

static void update_groups(struct device *d, struct results *r) {
    union optimizer_constants constants[] = {constants_of(0.1f), constants_of(0.2f), constants_of(0.4f)};
    float *values = next_from(r, VALUES, 1), *g = random_values(VALUES, 2), *before = random_values(VALUES, 1);
    float *gradients = next(r, VALUES), *exp_avg = next_from(r, STATES, 3), *exp_avg_sq = next(r, STATES);
    for (size_t i = 0; i < STATES; i++) exp_avg_sq[i] = 1;
    struct optimizer_update update = {.rule = RULE_ADAM,
                                      .constants = constants,
                                      .values = values,
                                      .gradients = gradients,
                                      .states = {exp_avg, exp_avg_sq},
                                      .runs = runs,
                                      .run_count = RUNS};
    const float *const clips[] = {&work_clip, &work_held, &work_whole};
    for (size_t t = 0; t < sizeof clips / sizeof *clips; t++) {
        memcpy(gradients, g, VALUES * sizeof *g);
        update.clip = clips[t];
        device_ops(d)->optimizers->update(d, &update);
        for (size_t i = 0; i < VALUES; i++) ck_assert(gradients[i] == 0);
    }
    for (size_t k = 0; k < RUNS; k++)
        for (size_t i = runs[k].begin; i < runs[k].end; i++)
            ck_assert((values[i] == before[i]) == (runs[k].constants == OPTIMIZER_SKIP));
    guarded_free(g), guarded_free(before);
}

/* A part of a parameter, with sizes that are not multiples of 4. */
static void update_part(struct device *d, struct results *r) {
    union optimizer_constants constants = constants_of(0.1f);
    float *values = next_from(r, 2000, 1), *g = random_values(2000, 2), *states = next_from(r, 4000, 3);
    for (size_t i = 2000; i < 4000; i++) states[i] = 1;
    struct optimizer_run part = {.end = 1501, .at = 3};
    struct optimizer_update update = {.rule = RULE_ADAM,
                                      .constants = &constants,
                                      .clip = &work_clip,
                                      .values = values + 1,
                                      .gradients = g + 2,
                                      .states = {states, states + 2000},
                                      .runs = &part,
                                      .run_count = 1};
    device_ops(d)->optimizers->update(d, &update);
    for (size_t i = 0; i < 2000; i++) ck_assert((g[i] == 0) == (i >= 2 && i < 1503));
    guarded_free(g);
}

static const struct operator_case cases[] = {{"groups", update_groups, 1e-6},
                                             {"a part of a parameter", update_part, 1e-6}};

TEST_EACH(agrees, cases) { agrees_with_the_cpu(&cases[_i]); }

/* ---- the copy ---- */

struct copy {
    struct device *d;
    enum precision precision;
    float *values, *gradients, *clip; /* on the device */
    union optimizer_constants *constants;
    float *x, *y; /* the same: the identity (IN, IN), y (IN, OUT) is the weight of a product, transposed */
    struct optimizer_run runs[3];
    float *own; /* (COUNT), of the host */
};

static void *on_device(struct device *d, const void *from, size_t bytes) {
    void *memory;
    ck_assert(!device_alloc(d, bytes, "a test", &memory));
    if (from) device_upload(d, memory, from, bytes);
    return memory;
}

static void open_copy(struct copy *c, enum precision precision) {
    size_t bytes = COUNT * sizeof *c->own;
    union optimizer_constants constants[] = {{.sgd = {.minus_lr = -0.1f}}, {.sgd = {.minus_lr = -0.3f}}};
    float one[IN * IN] = {0}, clip = 1;
    for (size_t i = 0; i < IN; i++) one[i * IN + i] = 1;
    *c = (struct copy){.precision = precision, .own = random_values(COUNT, 1)};
    ck_assert(!device_create("cuda", &c->d));
    ck_assert(!device_set_precision(c->d, precision));
    c->values = on_device(c->d, c->own, bytes);
    c->gradients = on_device(c->d, c->own, bytes);
    c->clip = on_device(c->d, &clip, sizeof clip);
    c->constants = on_device(c->d, constants, sizeof constants);
    c->x = on_device(c->d, one, sizeof one);
    c->y = on_device(c->d, NULL, bytes);
    c->runs[0] = (struct optimizer_run){0, 32, 0, 0};
    c->runs[1] = (struct optimizer_run){32, COUNT - 16, 0, 1};
    c->runs[2] = (struct optimizer_run){COUNT - 16, COUNT, 0, OPTIMIZER_SKIP};
}

static void close_copy(struct copy *c) {
    status s = device_status(c->d);
    ck_assert_msg(!s, "%s", status_message(s));
    void *all[] = {c->values, c->gradients, c->clip, c->constants, c->x, c->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_free(c->d, all[i]);
    device_destroy(c->d);
    guarded_free(c->own);
}

static void round_all(struct copy *c) { device_ops(c->d)->round_parameters(c->d, c->values, COUNT); }

static void run_product(struct copy *c) {
    device_ops(c->d)->linear_forward(c->d, F32(c->x), c->values, NULL, false, F32(c->y), IN, IN, OUT);
}

/* Of other gradients each time. */
static void run_update(struct copy *c) {
    struct optimizer_update update = {.rule = RULE_SGD,
                                      .constants = c->constants,
                                      .clip = c->clip,
                                      .values = c->values,
                                      .gradients = c->gradients,
                                      .runs = c->runs,
                                      .run_count = 3};
    device_ops(c->d)->optimizers->update(c->d, &update);
}

static void new_gradients(struct copy *c, uint64_t seed, float clip) {
    float *g = random_values(COUNT, seed);
    device_upload(c->d, c->gradients, g, COUNT * sizeof *g);
    device_upload(c->d, c->clip, &clip, sizeof clip);
    guarded_free(g);
}

static float rounded(enum precision precision, float x) {
    return precision == PRECISION_BFLOAT16 ? bits_from_bfloat16(bits_to_bfloat16(x))
                                           : bits_from_float16(bits_to_float16(x));
}

/* The product before has used [values] (COUNT), rounded. */
static void check_seen(struct copy *c, const float *values, const char *when) {
    float *y = random_values(COUNT, 9);
    ck_assert(!device_download(c->d, y, c->y, COUNT * sizeof *y));
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_msg(y[i % IN * OUT + i / IN] == rounded(c->precision, values[i]), "%s: weight %zu is %.9g, not %.9g",
                      when, i, (double)y[i % IN * OUT + i / IN], (double)rounded(c->precision, values[i]));
    guarded_free(y);
}

static void check_copy(struct copy *c, const char *when) {
    run_product(c);
    ck_assert(!device_download(c->d, c->own, c->values, COUNT * sizeof *c->own));
    check_seen(c, c->own, when);
}

static void check_gradients(struct copy *c) {
    ck_assert(!device_download(c->d, c->own, c->gradients, COUNT * sizeof *c->own));
    for (size_t i = 0; i < COUNT; i++) ck_assert(c->own[i] == 0);
}

static void write_by_upload(struct copy *c) {
    float *other = random_values(COUNT, 20);
    device_upload(c->d, c->values + 128, other, 512 * sizeof *other);
    guarded_free(other);
}

static void write_by_mapping(struct copy *c) {
    ck_assert(!device_map(c->d, (void **)&c->values));
    for (size_t i = 0; i < 100; i++) c->values[i] = (float)i;
    ck_assert(!device_unmap(c->d, (void **)&c->values, true));
}

static void write_zeros(struct copy *c) { device_zero(c->d, c->values + COUNT - 8, 8 * sizeof *c->values); }

static void write_by_operator(struct copy *c) {
    float *other = random_values(COUNT, 21);
    device_ops(c->d)->copy(c->d, F32(other), F32(c->values + 64), 3);
    guarded_free(other);
}

/* Before the next pass, which rounds. */
static void write_and_update(struct copy *c) {
    write_by_upload(c);
    run_update(c);
}

static void (*const writers[])(struct copy *) = {write_by_upload, write_by_mapping, write_zeros, write_by_operator,
                                                 write_and_update};
#define WRITERS (sizeof writers / sizeof *writers)

static enum precision precision_at(int i) { return i % 2 ? PRECISION_FLOAT16 : PRECISION_BFLOAT16; }

/* Products use the updated parameters without another round_parameters. */
TEST_LOOP(an_update_updates_the_copy, 0, 2) {
    struct copy c;
    open_copy(&c, precision_at(_i));
    round_all(&c);
    check_copy(&c, "at first");
    for (uint64_t t = 0; t < 3; t++) {
        new_gradients(&c, 30 + t, t == 1 ? NAN : 0.5f);
        run_update(&c);
        check_copy(&c, t == 1 ? "after an update that was skipped" : "after an update");
        check_gradients(&c);
    }
    close_copy(&c);
}

TEST_LOOP(changes_by_others_are_rounded_in_the_next_pass, 0, 2) {
    for (size_t i = 0; i < WRITERS; i++) {
        struct copy c;
        open_copy(&c, precision_at(_i));
        round_all(&c);
        writers[i](&c);
        round_all(&c);
        check_copy(&c, "after others have written");
        close_copy(&c);
    }
}

typedef void work(struct copy *);

static void run_pass(struct copy *c) {
    round_all(c);
    run_product(c);
    run_update(c);
}

static struct device_recording *record(struct copy *c, work *recorded) {
    struct device_recording *recording;
    status why;
    ck_assert(!device_record_begin(c->d, &why));
    ck_assert(!why);
    recorded(c);
    ck_assert(!device_record_end(c->d, &recording, &why));
    ck_assert(!why);
    return recording;
}

/* The recorded pass uses the current parameters, and its update updates the copy. */
static void check_replay(struct copy *c, const struct device_recording *recording, const char *when) {
    float *before = random_values(COUNT, 9);
    ck_assert(!device_download(c->d, before, c->values, COUNT * sizeof *before));
    new_gradients(c, 40, 0.5f);
    ck_assert(device_replay(c->d, recording));
    check_seen(c, before, when);
    check_copy(c, when);
    check_gradients(c);
    guarded_free(before);
}

/* Recorded and replayed with a current copy, an outdated copy, or one of other values. */
TEST_LOOP(a_recording_rounds_if_necessary, 0, 2) {
    enum precision precision = precision_at(_i);
    for (int is_current = 0; is_current < 2; is_current++) {
        struct copy c;
        open_copy(&c, precision);
        float *other = on_device(c.d, NULL, COUNT * sizeof *other);
        run_pass(&c);
        if (!is_current) write_by_upload(&c);
        struct device_recording *recording = record(&c, run_pass);
        check_replay(&c, recording, "at first");
        check_replay(&c, recording, "again");
        for (size_t i = 0; i < WRITERS; i++) {
            writers[i](&c);
            check_replay(&c, recording, "after others have written");
        }
        device_ops(c.d)->round_parameters(c.d, other, COUNT); /* as an evaluation of averages */
        check_replay(&c, recording, "after a pass with other values");
        new_gradients(&c, 50, NAN);
        ck_assert(device_replay(c.d, recording));
        check_copy(&c, "after an update that was skipped");
        device_recording_destroy(c.d, recording);
        device_free(c.d, other);
        close_copy(&c);
    }
}

/* Two sets of values, each recorded while the copy is that of one or the other. */
TEST_LOOP(recordings_of_two_sets_of_values, 0, 2) {
    struct copy c, others;
    open_copy(&c, precision_at(_i));
    others = c;
    others.values = on_device(c.d, NULL, COUNT * sizeof *others.values);
    run_pass(&others);
    run_pass(&c);
    struct device_recording *own = record(&c, run_pass);
    round_all(&c);
    check_copy(&c, "after recording");
    check_replay(&c, own, "of its own");
    round_all(&others);
    struct device_recording *other = record(&others, run_pass);
    write_by_upload(&others);
    check_replay(&others, other, "of others");
    check_replay(&c, own, "of its own again");
    check_replay(&others, other, "of others again");
    round_all(&c);
    check_copy(&c, "without a recording");
    device_recording_destroy(c.d, own), device_recording_destroy(c.d, other);
    device_free(c.d, others.values);
    close_copy(&c);
}

/* The recording changes parameters by another operator than an update. */
static void write_recorded(struct copy *c) { device_ops(c->d)->copy(c->d, F32(c->gradients), F32(c->values), COUNT); }

static void run_pass_and_write(struct copy *c) {
    run_pass(c);
    write_recorded(c);
}

TEST_LOOP(changes_by_other_operators_of_a_recording_are_rounded, 0, 2) {
    static work *const all[] = {write_recorded, run_pass_and_write};
    for (size_t i = 0; i < 2; i++) {
        struct copy c;
        open_copy(&c, precision_at(_i));
        run_pass(&c);
        struct device_recording *recording = record(&c, all[i]);
        new_gradients(&c, 70, 1);
        ck_assert(device_replay(c.d, recording));
        round_all(&c);
        check_copy(&c, "after a recording that writes");
        device_recording_destroy(c.d, recording);
        close_copy(&c);
    }
}

int main(void) { return gpu_run("gpu_update"); }
