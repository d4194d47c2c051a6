/* GPU operators of models over sequences against the CPU's: attention of many shapes and in every precision, norms
 * and softmax of short and long rows, gradients of embeddings, cross entropy with few and many classes. Skipped where
 * there is no GPU. ctest-labels: gpu */
#include <math.h>

#include "gpu_work.h"
#include "length_cases.h"
#include "long_sums.h"
#include "sequence_cases.h"

TEST_EACH(every_operator, sequence_cases) { agrees_with_the_cpu(&sequence_cases[_i]); }

TEST_EACH(rows_of_different_lengths, length_cases) { agrees_with_the_cpu(&length_cases[_i]); }

/* Rounded factors give other results than float32, and bfloat16 others than float16. */
TEST(precision_is_used) {
    struct attention_shape s = {.rows = 1, .tokens = 5, .heads = 1, .head_size = 8};
    float *qkv = random_values(120, 1), y[3][40], softmaxes[10], found[2] = {0, 0};
    const enum precision precisions[] = {PRECISION_FLOAT32, PRECISION_BFLOAT16, PRECISION_FLOAT16};
    for (int i = 0; i < 3; i++) {
        struct device *d;
        ck_assert(!device_create("cuda", &d));
        ck_assert(!device_set_precision(d, precisions[i]));
        device_ops(d)->sequence->attention_forward(d, &s, F32(qkv), F32(y[i]), softmaxes);
        ck_assert(!device_status(d));
        device_destroy(d);
    }
    for (int i = 0; i < 80; i++) found[i / 40] = fmaxf(found[i / 40], fabsf(y[1 + i / 40][i % 40] - y[0][i % 40]));
    ck_assert(found[0] > 1e-4f && found[1] > 1e-5f && found[1] < found[0]);
    guarded_free(qkv);
}

static float *on_the_gpu(struct device *d, size_t count, uint64_t seed) {
    void *memory;
    float *values = random_values(count, seed);
    ck_assert(!device_alloc(d, count * sizeof *values, "a test", &memory));
    device_upload(d, memory, values, count * sizeof *values);
    guarded_free(values);
    return memory;
}

/* y and dqkv, which attention also writes in 16 bits, as factors of products: the same results as with other arrays of
 * the same values. [heads] of [head_size] numbers: rows of 16 bits that are whole multiples of 16 bytes, or not. */
static void products_follow(size_t heads, size_t head_size, enum precision precision) {
    struct attention_shape s = {.rows = 2, .tokens = 37, .heads = heads, .head_size = head_size, .is_causal = true};
    size_t n = s.rows * s.tokens, c = heads * head_size, all = 3 * c * (3 * n + 3 * c + 1);
    float *found[2];
    struct device *d;
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, precision));
    const struct device_ops *ops = device_ops(d);
    float *qkv = on_the_gpu(d, 3 * n * c, 1), *dy = on_the_gpu(d, n * c, 2), *w = on_the_gpu(d, 3 * c * c, 3);
    float *y = on_the_gpu(d, n * c, 4), *softmaxes = on_the_gpu(d, 2 * n * heads, 5),
          *dqkv = on_the_gpu(d, 3 * n * c, 6);
    float *x = on_the_gpu(d, n * c, 7), *spare = on_the_gpu(d, 1, 8);
    for (int is_apart = 0; is_apart < 2; is_apart++) { /* another operator in between: no copy is valid */
        float *to = on_the_gpu(d, all, 9), *dw = to + 3 * n * c, *db = dw + 3 * c * c, *dx = db + 3 * c;
        ops->sequence->attention_forward(d, &s, F32(qkv), F32(y), softmaxes);
        if (is_apart) ops->copy(d, F32(spare), F32(spare), 1);
        ops->linear_forward(d, F32(y), w, NULL, false, F32(to), n, c, c);
        for (int is_biased = 0; is_biased < 2; is_biased++) {
            ops->sequence->attention_backward(d, &s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
            if (is_apart) ops->copy(d, F32(spare), F32(spare), 1);
            ops->linear_backward_weight(d, F32(dqkv), F32(x), dw, is_biased ? db : NULL, n, c, 3 * c);
            if (is_apart) ops->copy(d, F32(spare), F32(spare), 1);
            ops->linear_backward_input(d, F32(dqkv), w, F32(dx + (size_t)is_biased * n * c), n, c, 3 * c);
        }
        found[is_apart] = guarded_malloc(all * sizeof(float));
        ck_assert(!device_download(d, found[is_apart], to, all * sizeof(float)));
        device_free(d, to);
    }
    /* The copy may have longer rows, for which cuBLASLt may add in another order; db may be of what was rounded. */
    for (size_t i = 0; i < all; i++) {
        bool is_db = i >= 3 * c * (n + c) && i < 3 * c * (n + c + 1);
        ck_assert_float_eq_tol(found[0][i], found[1][i], is_db ? 0.02f : 2e-5f * (1 + fabsf(found[1][i])));
    }
    float *const own[] = {qkv, dy, w, y, softmaxes, dqkv, x, spare};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) device_free(d, own[i]);
    device_destroy(d);
    guarded_free(found[0]), guarded_free(found[1]);
}

TEST(products_use_the_16_bit_copy) {
    products_follow(2, 16, PRECISION_BFLOAT16);
    products_follow(8, 5, PRECISION_FLOAT16);
    products_follow(3, 10, PRECISION_BFLOAT16);
}

TEST_EACH(sums_are_exact, long_sums) {
    struct device *device = open_device("cuda");
    long_sums[_i].run(device);
    status s = device_status(device);
    ck_assert_msg(!s, "%s: %s", long_sums[_i].name, s ? status_message(s) : "");
    device_destroy(device);
}

int main(void) { return gpu_run("gpu_sequence"); }
