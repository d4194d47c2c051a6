/* kl_normal: the Kullback-Leibler divergence of normal distributions from the standard one, the second term of a
 * variational autoencoder (Kingma and Welling, "Auto-Encoding Variational Bayes", 2013, appendix B). An output row
 * holds n means, then n logarithms of variances. */
#include "model/losses/losses.h"

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes, (void)target_size;
    return loss_check_parts("kl_normal", 2, "means, then as many logarithms of variances", output, 0);
}

static void run(const void *config, const struct loss_batch *b) {
    struct rowwise_options options = {.loss = ROWWISE_KL_NORMAL, .parts = 2};
    (void)config;
    loss_mean_of_rows(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "KLD_normal kl_standard_normal kl_loss vae", "kl_normal"),
    {0},
};

const struct loss_type loss_kl_normal = {
    .aliases = aliases,
    .variant = {"kl_normal", NULL,
                "The divergence of normal distributions from the standard one, sum over a row, mean over rows: an "
                "output holds the means, then the logarithms of the variances; without a target, in `losses` "
                "(torch.distributions.kl_divergence, the second term of a VAE)."},
    .has_no_target = true,
    .parts = 2,
    .check = check,
    .run = run,
    .pytorch = "kl_normal({y})",
};
