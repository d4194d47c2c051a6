/* Losses of the parameters of distributions: poisson_nll and gaussian_nll (torch.nn.PoissonNLLLoss, GaussianNLLLoss);
 * kl_div (torch.nn.KLDivLoss); kl_normal, the second term of a variational autoencoder (Kingma and Welling,
 * "Auto-Encoding Variational Bayes", 2013, appendix B). */
#include "model/losses/losses.h"

/* ---- poisson_nll ---- */

/* The model's output are the logarithms of expected counts, or the counts. */

struct poisson_config {
    bool log_input, full;
    double eps;
};

static const struct schema_row poisson_rows[] = {
    SCHEMA_ROW(BOOL, struct poisson_config, log_input, .fallback = "true",
               .doc =
                   "Whether the outputs are logarithms of the expected counts. Predictions and metrics are of counts."),
    SCHEMA_ROW(BOOL, struct poisson_config, full, .fallback = "false",
               .doc = "Add Stirling's approximation of log(t!), which does not change the gradient."),
    SCHEMA_ROW(REAL, struct poisson_config, eps, .fallback = "1e-08", .min = 0, .max = INFINITY,
               .doc = "Added to the outputs before their logarithm, with log_input: false."),
    {0},
};
static const struct schema poisson_schema = SCHEMA("loss.poisson_nll", struct poisson_config, .rows = poisson_rows);

static void poisson_run(const void *config, const struct loss_batch *b) {
    const struct poisson_config *c = config;
    struct elementwise_options options = {
        .loss = c->log_input ? LOSS_POISSON_LOG : LOSS_POISSON, .eps = (float)c->eps, .is_full = c->full};
    loss_mean_of_elements(&options, b);
}

static bool poisson_predicts_logarithms(const void *config) {
    return ((const struct poisson_config *)config)->log_input;
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "PoissonNLLLoss poisson", "poisson_nll"),
    VALUE_ALIAS("loss", "GaussianNLLLoss gaussian", "gaussian_nll"),
    VALUE_ALIAS("loss", "KLDivLoss kl kld kl_divergence KLDivergence", "kl_div"),
    VALUE_ALIAS("loss", "KLD_normal kl_standard_normal kl_loss vae", "kl_normal"),
    {0},
};

const struct loss_type loss_poisson_nll = {
    .aliases = aliases,
    .variant = {"poisson_nll", &poisson_schema,
                "Negative log likelihood of counts, mean over all elements (torch.nn.PoissonNLLLoss)."},
    .targets = "counts",
    .run = poisson_run,
    .predicts_logarithms = poisson_predicts_logarithms,
    .pytorch = "F.poisson_nll_loss({y}, {t}{,log_input}{,full}{,eps})",
};

/* ---- gaussian_nll ---- */

/* An output row holds n means, then n variances (concat of two branches; softplus makes a variance positive), for n
 * targets. */

struct gaussian_config {
    bool full;
    double eps;
};

static const struct schema_row gaussian_rows[] = {
    SCHEMA_ROW(BOOL, struct gaussian_config, full, .fallback = "false",
               .doc = "Add log(2 pi) / 2, which does not change the gradient."),
    SCHEMA_ROW(REAL, struct gaussian_config, eps, .fallback = "1e-06", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Smaller variances are replaced by it."),
    {0},
};
static const struct schema gaussian_schema = SCHEMA("loss.gaussian_nll", struct gaussian_config, .rows = gaussian_rows);

static void gaussian_run(const void *config, const struct loss_batch *b) {
    const struct gaussian_config *c = config;
    struct rowwise_options options = {
        .loss = ROWWISE_GAUSSIAN_NLL, .eps = (float)c->eps, .is_full = c->full, .parts = 2};
    options.targets = shape_elements(b->shape) / loss_row_positions(b->shape) / 2;
    loss_mean_of_rows(&options, b);
}

const struct loss_type loss_gaussian_nll = {
    .variant = {"gaussian_nll", &gaussian_schema,
                "Negative log likelihood of values with a normal distribution; an output holds the means, then the "
                "variances; mean over all elements (torch.nn.GaussianNLLLoss)."},
    .targets = "values",
    .parts = 2,
    .parts_meaning = "means, then as many variances",
    .run = gaussian_run,
    .pytorch = "gaussian_nll({y}, {t}{,full}{,eps})",
};

/* ---- kl_div ---- */

/* The model's output are log-probabilities, the targets probabilities or their logs. */

struct kl_div_config {
    int reduction;
    bool log_target;
};

static const struct schema_row kl_div_rows[] = {
    LOSS_REDUCTION_ROW(
        kl_div_config,
        "`batchmean`: the sum over a row, mean over rows, which is the divergence; `mean`: over all elements."),
    SCHEMA_ROW(BOOL, struct kl_div_config, log_target, .fallback = "false",
               .doc = "Whether the targets are log-probabilities too."),
    {0},
};
static const struct schema kl_div_schema = SCHEMA("loss.kl_div", struct kl_div_config, .rows = kl_div_rows);

static void kl_div_run(const void *config, const struct loss_batch *b) {
    const struct kl_div_config *c = config;
    struct elementwise_options options = {.loss = c->log_target ? LOSS_KL_DIV_LOG : LOSS_KL_DIV,
                                          .is_row_mean = c->reduction == REDUCTION_BATCHMEAN};
    loss_mean_of_elements(&options, b);
}

const struct loss_type loss_kl_div = {
    .variant = {"kl_div", &kl_div_schema, "Kullback-Leibler divergence of log-probabilities (torch.nn.KLDivLoss)."},
    .takes_logarithms = true,
    .run = kl_div_run,
    .pytorch = "F.kl_div({y}, {t}, reduction={reduction}{,log_target})",
};

/* ---- kl_normal ---- */

/* An output row holds n means, then n logarithms of variances. */

static void kl_normal_run(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_KL_NORMAL, .parts = 2};
    loss_mean_of_rows(&options, b);
}

const struct loss_type loss_kl_normal = {
    .variant = {"kl_normal", NULL,
                "The divergence of normal distributions from the standard one, sum over a row, mean over rows: an "
                "output holds the means, then the logarithms of the variances; without a target, in `losses` "
                "(torch.distributions.kl_divergence, the second term of a VAE)."},
    .has_no_target = true,
    .parts = 2,
    .parts_meaning = "means, then as many logarithms of variances",
    .run = kl_normal_run,
    .pytorch = "kl_normal({y})",
};
