/* poisson_nll: torch.nn.PoissonNLLLoss. The model's output are the logarithms of expected counts, or the counts. */
#include "model/losses/losses.h"

struct poisson_config {
    bool log_input, full;
    double eps;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(BOOL, struct poisson_config, log_input, .fallback = "true",
               .doc =
                   "Whether the outputs are logarithms of the expected counts. Predictions and metrics are of counts."),
    SCHEMA_ROW(BOOL, struct poisson_config, full, .fallback = "false",
               .doc = "Add Stirling's approximation of log(t!), which does not change the gradient."),
    SCHEMA_ROW(REAL, struct poisson_config, eps, .fallback = "1e-08", .min = 0, .max = INFINITY,
               .doc = "Added to the outputs before their logarithm, with log_input: false."),
    {0},
};
static const struct schema schema = SCHEMA("loss.poisson_nll", struct poisson_config, .rows = keys);

static void run(const void *config, const struct loss_batch *b) {
    const struct poisson_config *c = config;
    struct elementwise_options options = {
        .loss = c->log_input ? LOSS_POISSON_LOG : LOSS_POISSON, .eps = (float)c->eps, .is_full = c->full};
    loss_mean_of_elements(&options, b);
}

static bool predicts_logarithms(const void *config) { return ((const struct poisson_config *)config)->log_input; }

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "PoissonNLLLoss poisson", "poisson_nll"),
    {0},
};

const struct loss_type loss_poisson_nll = {
    .aliases = aliases,
    .variant = {"poisson_nll", &schema,
                "Negative log likelihood of counts, mean over all elements (torch.nn.PoissonNLLLoss)."},
    .targets = "counts",
    .check = loss_check_values,
    .run = run,
    .predicts_logarithms = predicts_logarithms,
    .pytorch = "F.poisson_nll_loss({y}, {t}{,log_input}{,full}{,eps})",
};
