/* kl_div: torch.nn.KLDivLoss. The model's output are log-probabilities, the targets probabilities or their logs. */
#include "model/losses/losses.h"

struct kl_div_config {
    int reduction;
    bool log_target;
};

static const struct schema_row keys[] = {
    LOSS_REDUCTION_ROW(
        kl_div_config,
        "`batchmean`: the sum over a row, mean over rows, which is the divergence; `mean`: over all elements."),
    SCHEMA_ROW(BOOL, struct kl_div_config, log_target, .fallback = "false",
               .doc = "Whether the targets are log-probabilities too."),
    {0},
};
static const struct schema schema = SCHEMA("loss.kl_div", struct kl_div_config, .rows = keys);

static void run(const void *config, const struct loss_batch *b) {
    const struct kl_div_config *c = config;
    struct elementwise_options options = {.loss = c->log_target ? LOSS_KL_DIV_LOG : LOSS_KL_DIV,
                                          .is_row_mean = c->reduction == REDUCTION_BATCHMEAN};
    loss_mean_of_elements(&options, b);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "KLDivLoss kl kld kl_divergence KLDivergence", "kl_div"),
    {0},
};

const struct loss_type loss_kl_div = {
    .aliases = aliases,
    .variant = {"kl_div", &schema, "Kullback-Leibler divergence of log-probabilities (torch.nn.KLDivLoss)."},
    .takes_logarithms = true,
    .check = loss_check_values,
    .run = run,
    .pytorch = "F.kl_div({y}, {t}, reduction={reduction}{,log_target})",
};
