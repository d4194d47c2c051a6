/* Sums of many numbers are as exact as PyTorch's on every instruction set. ctest-labels: unit */
#include "long_sums.h"

TEST_EACH(sums_are_exact, long_sums) {
    for (size_t i = 0; i < SETS; i++) {
        struct device *device = open_set(sets[i]);
        if (!device) continue;
        printf("%s: %s\n", long_sums[_i].name, sets[i]);
        long_sums[_i].run(device);
        device_destroy(device);
    }
}

/* The gradients of the parameters of linear and layer_norm. */
static void gradients(struct device *d, const void *context, struct digest *digest) {
    float *x = positive_values(TERMS * IN, 1), *dy = positive_values(TERMS * IN, 2),
          *dx = positive_values(TERMS * IN, 3);
    float *statistics = positive_values(2 * TERMS, 4), dw[IN * IN] = {0}, db[IN] = {0};
    (void)context;
    device_ops(d)->linear_backward_weight(d, F32(dy), F32(x), dw, db, TERMS, IN, IN);
    device_ops(d)->norm_layers->layer_norm_backward(d, x, NULL, statistics, F32(dy), F32(dx), false, dw, db, TERMS, IN);
    device_ops(d)->sequence->mean_forward(d, x, NULL, dx, 1, TERMS, IN);
    digest_add(digest, dw, sizeof dw);
    digest_add(digest, db, sizeof db);
    digest_add(digest, dx, IN * sizeof *dx);
    guarded_free(x), guarded_free(dy), guarded_free(dx), guarded_free(statistics);
}

TEST(bits_do_not_depend_on_threads) { threads_agree(gradients, NULL); }

CHECK_MAIN("long_sums")
