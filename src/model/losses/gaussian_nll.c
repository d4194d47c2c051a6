/* gaussian_nll: torch.nn.GaussianNLLLoss. An output row holds n means, then n variances (concat of two branches;
 * softplus makes a variance positive), for n targets. */
#include "model/losses/losses.h"

struct gaussian_config {
    bool full;
    double eps;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(BOOL, struct gaussian_config, full, .fallback = "false",
               .doc = "Add log(2 pi) / 2, which does not change the gradient."),
    SCHEMA_ROW(REAL, struct gaussian_config, eps, .fallback = "1e-06", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Smaller variances are replaced by it."),
    {0},
};
static const struct schema schema = SCHEMA("loss.gaussian_nll", struct gaussian_config, .rows = keys);

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes;
    return loss_check_parts("gaussian_nll", 2, "means, then as many variances", output, target_size);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct gaussian_config *c = config;
    struct rowwise_options options = {
        .loss = ROWWISE_GAUSSIAN_NLL, .eps = (float)c->eps, .is_full = c->full, .parts = 2};
    options.targets = shape_elements(b->shape) / loss_row_positions(b->shape) / 2;
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "GaussianNLLLoss gaussian", "gaussian_nll"),
    {0},
};

const struct loss_type loss_gaussian_nll = {
    .aliases = aliases,
    .variant = {"gaussian_nll", &schema,
                "Negative log likelihood of values with a normal distribution; an output holds the means, then the "
                "variances; mean over all elements (torch.nn.GaussianNLLLoss)."},
    .targets = "values",
    .parts = 2,
    .check = check,
    .run = run,
    .pytorch = "gaussian_nll({y}, {t}{,full}{,eps})",
};
