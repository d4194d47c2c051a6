/* Every layer and loss: gradients against central differences. The list of layers is taken from the table, so a layer
 * without a case here fails. ctest-labels: unit */
#include <stdlib.h>

#include "base/files/digest.h"
#include "model/gradient_cases.h"

/* With DDPTRAIN_RECORD, a file: adds a hash of the loss and of all gradients, for scripts/states.py. */
static void record(const struct params *params, double loss, const char *what) {
    const char *path = getenv("DDPTRAIN_RECORD");
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    if (!path) return;
    digest_start(&digest);
    digest_add(&digest, &loss, sizeof loss);
    for (size_t p = 0; p < params->count; p++)
        digest_add(&digest, params_gradient(params, p), params->items[p].count * sizeof(float));
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
    FILE *file = fopen(path, "a");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "%.12s %s\n", hex, what);
    fclose(file);
}

/* |analytic - numeric| <= tolerance * (|analytic| + |numeric| + floor); steps are large because values are float32. */
static void check_gradients(struct fixture *f, const char *what) {
    struct params *params = &f->model->params;
    record(params, loss_of(f, true), what);
    float *analytic = malloc(params->total * sizeof *analytic);
    memcpy(analytic, params->gradients, params->total * sizeof *analytic);
    double largest = 0;
    for (size_t i = 0; i < params->total; i++) largest = fmax(largest, fabs((double)analytic[i]));
    ck_assert_msg(largest > 1e-4, "%s: every gradient is zero", what);
    for (size_t p = 0; p < params->count; p++)
        for (size_t i = 0; i < params->items[p].count; i += 1 + params->items[p].count / 40) {
            float *value = params_value(params, p) + i, keep = *value, step = 4e-3f;
            *value = keep + step;
            double above = loss_of(f, false);
            *value = keep - step;
            double below = loss_of(f, false);
            double numeric = (above - below) / ((double)(keep + step) - (double)(keep - step));
            *value = keep;
            double here = loss_of(f, false), right = (above - here) / (double)step,
                   left = (here - below) / (double)step;
            double exact = (double)analytic[params->items[p].offset + i];
            ck_assert_msg(
                fabs(exact - numeric) <= 5e-3 * (fabs(exact) + fabs(numeric)) + 2e-4 * largest + 2e-5,
                "%s: %s[%zu]: %g, by differences %g; to the left %g, to the right %g: if these differ, there is a "
                "kink within a step, and the case needs another size",
                what, params->items[p].name, i, exact, numeric, left, right);
        }
    free(analytic);
}

TEST(layer_gradients) {
    static const char *const losses[] = {"cross_entropy", "mse"};
    for (size_t i = 0; i < sizeof layer_cases / sizeof *layer_cases; i++)
        for (int loss = 0; loss < 2; loss++) { /* of classes and of values */
            struct fixture f = open_fixture(layer_cases[i].layers, input_of(i), 6, losses[loss]);
            check_gradients(&f, layer_cases[i].layers);
            close_fixture(&f);
        }
    for (size_t t = 0; layer_type_at(t); t++) {
        size_t found = 0;
        for (size_t i = 0; i < sizeof layer_cases / sizeof *layer_cases; i++)
            found += strcmp(layer_cases[i].type, layer_type_at(t)->variant.name) == 0;
        ck_assert_msg(found > 0, "the layer '%s' has no row in layer_cases of gradient_cases.h",
                      layer_type_at(t)->variant.name);
    }
}

TEST(loss_gradients) {
    size_t cases[32] = {0};
    for (size_t i = 0; i < sizeof loss_cases / sizeof *loss_cases; i++) {
        char layers[LOSS_LAYERS];
        layers_of_loss(i, layers);
        struct fixture f = open_fixture(layers, loss_input(i), 8, loss_cases[i].config);
        make_positive(&f);
        check_gradients(&f, loss_cases[i].config);
        for (size_t t = 0; loss_type_at(t); t++) cases[t] += loss_type_at(t) == f.loss;
        close_fixture(&f);
    }
    for (size_t t = 0; loss_type_at(t); t++)
        ck_assert_msg(cases[t] > 0, "the loss '%s' has no row in loss_cases of gradient_cases.h",
                      loss_type_at(t)->variant.name);
}

CHECK_MAIN("gradients")
