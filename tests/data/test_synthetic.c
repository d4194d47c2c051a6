/* Synthetic rows: the PyTorch tutorial's toy data bit for bit, and kinds that can be learned. ctest-labels: unit */
#include "base/files/digest.h"
#include "base/numbers/rng.h"
#include "open.h"

static void check_hash(const void *bytes, size_t size, const char *expected) {
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    digest_of(bytes, size, hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, expected);
}

/* torch.manual_seed(0); [(torch.rand(20), torch.rand(1)) for _ in range(2048)], stacked */
TEST(equals_the_tutorial) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, false, "format: synthetic"));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows, 2048);
    ck_assert_uint_eq(info->input_size, 20);
    ck_assert_uint_eq(info->target_size, 1);
    SCOPED_MEMORY float *inputs;
    SCOPED_MEMORY void *targets;
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    check_hash(inputs, 2048 * 20 * sizeof *inputs, "fca4c15761b6d688ff17bdfc169530f34525fbbed55fba7006913d22526dca2a");
    check_hash(targets, 2048 * sizeof *inputs, "2f207353cadcec5786b27dafa51503bce521734d5a6d7f20cbefe8aadd0982f1");
}

/* Without noise the targets are W x / sqrt(n) + b: n + 1 rows determine W and b, which the others must match. n = 1. */
TEST(linear_is_linear) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, false,
                    "{format: synthetic, synthetic: {kind: linear, rows: 50, inputs: 1, targets: 2, noise: 0}}"));
    float *x, *y;
    SCOPED_MEMORY void *targets;
    read_part(dataset, DATASET_TRAIN, &x, &targets);
    y = targets;
    for (int t = 0; t < 2; t++) {
        double w = (y[2 + t] - y[t]) / (x[1] - x[0]), b = y[t] - w * x[0];
        for (int i = 0; i < 50; i++) ck_assert_double_le(fabs(y[2 * i + t] - (w * x[i] + b)), 1e-4);
    }
    free(x);
}

/* W and b are drawn first, then each row: its inputs and its noise. */
TEST(linear_is_what_it_draws) {
    enum { IN = 3, OUT = 2, N = 40 };
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, false,
                    "{format: synthetic, synthetic: {kind: linear, rows: %d, inputs: %d, targets: %d, noise: 0.5, "
                    "seed: 7}}",
                    N, IN, OUT));
    float *x, drawn[IN], noise[OUT], fixed[(IN + 1) * OUT];
    SCOPED_MEMORY void *targets;
    struct rng rng;
    read_part(dataset, DATASET_TRAIN, &x, &targets);
    rng_seed(&rng, 7);
    rng_normal(&rng, fixed, (IN + 1) * OUT, 0, 1);
    for (size_t i = 0; i < N; i++) {
        rng_normal(&rng, drawn, IN, 0, 1);
        rng_normal(&rng, noise, OUT, 0, 0.5);
        for (size_t t = 0; t < OUT; t++) {
            double sum = 0;
            for (size_t k = 0; k < IN; k++) sum += (double)fixed[t * IN + k] * (double)drawn[k];
            double y = sum / sqrt(IN) + (double)fixed[OUT * IN + t] + (double)noise[t];
            ck_assert_double_le(fabs((double)((float *)targets)[i * OUT + t] - y), 1e-6 * (1 + fabs(y)));
        }
        ck_assert_mem_eq(x + i * IN, drawn, sizeof drawn);
    }
    free(x);
}

/* Rows of a class have the mean of the class and the given noise. */
TEST(classes_are_clouds) {
    SCOPED_DATASET dataset;
    ck_ok(
        open_yaml(&dataset, true,
                  "{format: synthetic, split: 0.25, synthetic: {kind: classes, rows: 4000, inputs: [2, 3, 4], classes: "
                  "5, noise: 0.5, seed: 3}}"));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_int_eq(info->classes, 5);
    ck_assert_int_eq(info->input_dims, 3);
    ck_assert_int_eq(info->input_shape[1], 3);
    ck_assert_uint_eq(info->input_size, 24);
    ck_assert_uint_eq(info->validation_rows, 1000);
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *targets;
    read_part(dataset, DATASET_TRAIN, &x, &targets);
    const int64_t *y = targets;
    double mean[5] = {0}, square[5] = {0}, count[5] = {0};
    for (int i = 0; i < 3000; i++) mean[y[i]] += x[24 * i + 7], count[y[i]]++;
    for (int i = 0; i < 3000; i++) square[y[i]] += pow(x[24 * i + 7] - mean[y[i]] / count[y[i]], 2);
    for (int c = 0; c < 5; c++) {
        ck_assert_double_ge(count[c], 500);
        ck_assert_double_le(fabs(sqrt(square[c] / count[c]) - 0.5), 0.06);
        for (int d = 0; d < c; d++) ck_assert_double_ge(fabs(mean[c] / count[c] - mean[d] / count[d]), 0.01);
    }
}

static char *fingerprint_of(const char *synthetic) {
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, false, "{format: synthetic, synthetic: {%s}}", synthetic));
    char *fingerprint = strdup(dataset_info(dataset)->fingerprint);
    dataset_close(dataset);
    return fingerprint;
}

TEST(seed_decides) {
    SCOPED_MEMORY char *a = fingerprint_of("seed: 1"), *b = fingerprint_of("seed: 1"), *c = fingerprint_of("seed: 2");
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, c);
}

TEST(rejects) {
    SCOPED_DATASET dataset;
    ck_failure(open_yaml(&dataset, true, "format: synthetic"), STATUS_USAGE,
               "dataset.synthetic: the loss needs classes; use kind: classes");
    ck_failure(open_yaml(&dataset, false, "{format: synthetic, synthetic: {inputs: [100000, 100000]}}"), STATUS_USAGE,
               "dataset.synthetic.inputs: a row of 1e+10 values is too large");
    ck_failure(open_yaml_as("{format: synthetic, synthetic: {inputs: [1000001, 1000]}}", false, true, &dataset),
               STATUS_USAGE, "a row of 1e+09 values is too large");
    ck_ok(open_yaml_as("{format: synthetic, synthetic: {inputs: [1000, 1000000]}}", false, true, &dataset));
    ck_assert_uint_eq(dataset_info(dataset)->input_size, 1000000000);
}

/* With metadata_only nothing is drawn: a dataset larger than any memory can be described. */
TEST(metadata_draws_nothing) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml_as("{format: synthetic, synthetic: {kind: classes, rows: 1000000000000, inputs: 1000}}", true, true,
                       &dataset));
    ck_assert_int_eq(dataset_info(dataset)->classes, 3);
}

CHECK_MAIN("synthetic")
