/* Memory of a GPU and recorded work: copies of any size are in order, and a recording repeats its work until memory
 * that it uses has moved. Skipped where there is no GPU. ctest-labels: gpu */
#include "gpu_work.h"

#define COUNT 100
#define PIECE 25600             /* floats: a few fill the memory that they cross through */
#define LARGE ((size_t)5 << 20) /* floats: more than one piece of a copy */
#define TABLE ((size_t)1 << 19) /* floats: more scratch memory than a small operator has */

static struct device *gpu(void) {
    struct device *device;
    ck_assert(!device_create("cuda", &device));
    return device;
}

static float *numbers(struct device *d, size_t count) {
    float *memory;
    ck_assert(!device_alloc(d, count * sizeof *memory, "a test", (void **)&memory));
    return memory;
}

static float first_of(struct device *d, const float *memory) {
    float value;
    ck_assert(!device_download(d, &value, memory, sizeof value));
    return value;
}

/* The same host memory is overwritten after each call. */
TEST(uploads_are_in_order) {
    struct device *d = gpu();
    float *sum = numbers(d, COUNT), *part = numbers(d, PIECE), *own = guarded_calloc(PIECE, sizeof *own);
    ck_assert_ptr_nonnull(own);
    for (int turn = 1; turn <= 60; turn++) {
        for (size_t i = 0; i < PIECE; i++) own[i] = (float)turn;
        device_upload(d, part, own, PIECE * sizeof *own);
        device_ops(d)->add(d, F32(sum), F32(part + PIECE - COUNT), F32(sum), COUNT);
    }
    ck_assert(!device_download(d, own, sum, COUNT * sizeof *own));
    for (size_t i = 0; i < COUNT; i++) ck_assert(own[i] == 60 * 61 / 2);
    guarded_free(own);
    device_free(d, sum), device_free(d, part);
    device_destroy(d);
}

TEST(large_arrays_are_copied) {
    struct device *d = gpu();
    float *memory = numbers(d, LARGE), *own = guarded_calloc(LARGE, sizeof *own);
    ck_assert_ptr_nonnull(own);
    for (size_t i = 0; i < LARGE; i++) own[i] = (float)(i % 1000003);
    device_upload(d, memory, own, LARGE * sizeof *own);
    memset(own, 0, LARGE * sizeof *own);
    ck_assert(!device_download(d, own, memory, LARGE * sizeof *own));
    for (size_t i = 0; i < LARGE; i++) ck_assert(own[i] == (float)(i % 1000003));
    guarded_free(own);
    device_free(d, memory);
    device_destroy(d);
}

TEST(only_its_own_memory_is_mapped) {
    struct device *d = gpu();
    float own[4], *array = own;
    status s = device_map(d, (void **)&array);
    ck_assert(s && status_code(s) == STATUS_BUG);
    status_free(s);
    device_destroy(d);
}

static struct device_recording *record_increment(struct device *d, const float *one, float *sum) {
    struct device_recording *recording;
    status why;
    ck_assert(!device_record_begin(d, &why));
    ck_assert(!why);
    device_ops(d)->add(d, F32(sum), F32(one), F32(sum), COUNT);
    ck_assert(!device_record_end(d, &recording, &why));
    ck_assert(!why);
    return recording;
}

/* An operand in the host's memory, as tests may have them, goes to scratch memory: here a large one. zero (1), x
 * (COUNT) */
static void work_a_lot(struct device *d, const float *zero, float *x) {
    static float table[TABLE];
    device_ops(d)->sequence->embedding_forward(d, (const int32_t *)(const void *)zero, table, x + COUNT - 1, 1, TABLE,
                                               1);
}

TEST(a_recording_is_run_again) {
    struct device *d = gpu();
    float *sum = numbers(d, COUNT), *one = numbers(d, COUNT), *zero = numbers(d, 1), value = 1;
    device_upload(d, one, &value, sizeof value);
    ck_assert(device_can_record(d));
    work_a_lot(d, zero, one);
    device_ops(d)->add(d, F32(sum), F32(one), F32(sum), COUNT);
    struct device_recording *recording = record_increment(d, one, sum);
    ck_assert(first_of(d, sum) == 1); /* recording executes nothing */
    for (int i = 0; i < 3; i++) ck_assert(device_replay(d, recording));
    ck_assert(first_of(d, sum) == 4);
    value = 10; /* its input may change */
    device_upload(d, one, &value, sizeof value);
    ck_assert(device_replay(d, recording));
    ck_assert(first_of(d, sum) == 14);
    device_recording_destroy(d, recording);
    device_free(d, sum), device_free(d, one), device_free(d, zero);
    device_destroy(d);
}

/* Its copy would be part of the graph, which would read host memory again in each replay. */
TEST(a_recording_with_a_new_constant_fails) {
    struct device *d = gpu();
    struct device_recording *recording = NULL;
    double weight[] = {1, 2, 3};
    int64_t target = 1;
    struct cross_entropy_options o = {.weight = weight, .ignored = -100};
    float *logits = numbers(d, 3);
    struct loss_sums *sums = (struct loss_sums *)(void *)numbers(d, sizeof *sums / sizeof(float));
    int64_t *targets = (int64_t *)(void *)numbers(d, 2);
    device_upload(d, targets, &target, sizeof target);
    device_ops(d)->losses->cross_entropy(d, &o, F32(logits), targets, 1, 3, 1, NULL, sums);
    for (int turn = 0; turn < 2; turn++) {
        status why;
        ck_assert(!device_record_begin(d, &why));
        ck_assert(!why);
        device_ops(d)->losses->cross_entropy(d, &o, F32(logits), targets, 1, 3, 1, NULL, sums);
        ck_assert(!device_record_end(d, &recording, &why));
        if (turn == 0) ck_assert_msg(!why, "%s", status_message(why));
        if (turn == 1)
            ck_assert_msg(why && strstr(status_message(why), "needs a constant that"), "%s", status_message(why));
        status_free(why);
        device_recording_destroy(d, recording);
        recording = NULL;
        weight[1] = 4;
    }
    device_ops(d)->losses->cross_entropy(d, &o, F32(logits), targets, 1, 3, 1, NULL,
                                         sums); /* it is not an error later */
    ck_assert(!device_wait(d));
    device_free(d, logits), device_free(d, sums), device_free(d, targets);
    device_destroy(d);
}

TEST(a_recording_ends_when_memory_moves) {
    struct device *d = gpu();
    float *sum = numbers(d, COUNT), *one = numbers(d, COUNT), *zero = numbers(d, 1), value = 1;
    device_upload(d, one, &value, sizeof value);
    ck_assert(device_ops(d)->is_finite(d, F32(one), COUNT)); /* some scratch memory */
    struct device_recording *recording = record_increment(d, one, sum);
    ck_assert(device_replay(d, recording));
    work_a_lot(d, zero, one);
    device_ops(d)->add(d, F32(one), F32(sum), F32(one), COUNT);
    ck_assert(!device_replay(d, recording));
    ck_assert(first_of(d, sum) == 1);
    ck_assert(!device_wait(d));
    device_recording_destroy(d, recording);
    device_free(d, sum), device_free(d, one), device_free(d, zero);
    device_destroy(d);
}

/* An operator without enough memory cannot be recorded: nothing is executed, and it can still be run. */
TEST(operators_that_need_memory_are_not_recorded) {
    struct device *d = gpu();
    struct device_recording *recording;
    float *x = numbers(d, COUNT), *zero = numbers(d, 1), value = 1;
    status why;
    device_upload(d, x, &value, sizeof value);
    ck_assert(!device_record_begin(d, &why));
    ck_assert(!why);
    work_a_lot(d, zero, x);
    ck_assert(!device_record_end(d, &recording, &why));
    ck_assert_ptr_null(recording);
    ck_assert_ptr_nonnull(why);
    status_free(why);
    ck_assert(!device_status(d));
    device_ops(d)->add(d, F32(x), F32(x), F32(x), COUNT);
    ck_assert(first_of(d, x) == 2);
    device_free(d, x), device_free(d, zero);
    device_destroy(d);
}

/* The next batch is copied while the last one is used; the host memory changes as early as allowed. */
TEST(batches_are_copied_asynchronously) {
    struct device *d = gpu();
    float *sum = numbers(d, COUNT), *batch = numbers(d, PIECE), *beside = numbers(d, PIECE);
    float *own = guarded_calloc(PIECE, sizeof *own), value;
    ck_assert_ptr_nonnull(own);
    for (int turn = 1; turn <= 40; turn++) {
        if (turn == 20) device_pin(d, own, PIECE * sizeof *own);
        ck_assert(!device_upload_wait(d));
        for (size_t i = 0; i < PIECE; i++) own[i] = (float)turn;
        const struct device_transfer pieces[] = {
            {batch, beside, own, COUNT * sizeof *own},
            {batch + COUNT, beside + COUNT, own + COUNT, (PIECE - COUNT) * sizeof *own}};
        device_upload_async(d, pieces, 2);
        device_ops(d)->add(d, F32(sum), F32(batch + PIECE - COUNT), F32(sum), COUNT);
    }
    ck_assert(!device_wait(d));
    device_unpin(d, own);
    ck_assert(!device_download(d, &value, sum, sizeof value));
    ck_assert(value == 40 * 41 / 2);
    guarded_free(own);
    device_free(d, sum), device_free(d, batch), device_free(d, beside);
    device_destroy(d);
}

TEST(downloads_are_asynchronous) {
    struct device *d = gpu();
    float *x = numbers(d, 1), value = 1, found[4];
    device_upload(d, x, &value, sizeof value);
    for (int i = 0; i < 4; i++) { /* the value at the start of the download */
        if (i >= 2) ck_assert(!device_download_end(d, i % 2, &found[i - 2], sizeof value));
        device_download_begin(d, i % 2, x, sizeof value);
        device_ops(d)->add(d, F32(x), F32(x), F32(x), 1);
    }
    for (int i = 2; i < 4; i++) ck_assert(!device_download_end(d, i % 2, &found[i], sizeof value));
    for (int i = 0; i < 4; i++) ck_assert(found[i] == (float)(1 << i));
    device_free(d, x);
    device_destroy(d);
}

int main(void) { return gpu_run("gpu_memory"); }
