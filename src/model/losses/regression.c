/* mse, l1, smooth_l1, huber: torch.nn.MSELoss, L1Loss, SmoothL1Loss and HuberLoss; quantile: scikit-learn's
 * mean_pinball_loss (Koenker and Bassett, "Regression Quantiles", 1978). Means over all elements. */
#include "model/losses/losses.h"

struct smooth_l1_config {
    double beta;
};

static const struct schema_row smooth_l1_rows[] = {
    SCHEMA_ROW(REAL, struct smooth_l1_config, beta, .fallback = "1", .min = 0, .max = INFINITY,
               .doc = "The error at which the loss changes from quadratic to linear; 0: l1."),
    {0},
};
static const struct schema smooth_l1_schema = SCHEMA("loss.smooth_l1", struct smooth_l1_config, .rows = smooth_l1_rows);

struct huber_config {
    double delta;
};

static const struct schema_row huber_rows[] = {
    SCHEMA_ROW(REAL, struct huber_config, delta, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "The error at which the loss changes from quadratic to linear."),
    {0},
};
static const struct schema huber_schema = SCHEMA("loss.huber", struct huber_config, .rows = huber_rows);

struct quantile_config {
    double quantile;
};

static const struct schema_row quantile_rows[] = {
    SCHEMA_ROW(REAL, struct quantile_config, quantile, .fallback = "0.5", .min = 0, .max = 1, .excludes_min = true,
               .excludes_max = true,
               .doc = "The share of targets that are below the prediction, such as 0.9; 0.5: the median."),
    {0},
};
static const struct schema quantile_schema =
    SCHEMA("loss.quantile", struct quantile_config, .rows = quantile_rows, .shorthand = "quantile");

#define MEAN(name_, loss_, beta_)                                                                                      \
    static void name_(const void *config, const struct loss_batch *b) {                                                \
        loss_mean_of_elements(&(struct elementwise_options){.loss = loss_, .beta = beta_}, b);                         \
    }
MEAN(mse, LOSS_MSE, 0)
MEAN(l1, LOSS_L1, 0)
MEAN(smooth_l1, LOSS_SMOOTH_L1, (float)((const struct smooth_l1_config *)config)->beta)
MEAN(huber, LOSS_HUBER, (float)((const struct huber_config *)config)->delta)
MEAN(quantile, LOSS_QUANTILE, (float)((const struct quantile_config *)config)->quantile)

bool loss_is_mse(const struct loss_type *loss) { return loss == &loss_mse; }

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "MSELoss mean_squared_error MeanSquaredError l2 squared_error l2loss", "mse"),
    VALUE_ALIAS("loss", "L1Loss mae mean_absolute_error MeanAbsoluteError absolute_error", "l1"),
    VALUE_ALIAS("loss", "SmoothL1Loss", "smooth_l1"),
    VALUE_ALIAS("loss", "HuberLoss huber_loss", "huber"),
    VALUE_ALIAS("loss", "pinball pinball_loss mean_pinball_loss QuantileLoss quantile_loss", "quantile"),
    {0},
};

const struct loss_type loss_mse = {
    .aliases = aliases,
    .variant = {"mse", NULL, "Squared error, mean over all elements (torch.nn.MSELoss)."},
    .is_regression = true,
    .run = mse,
    .pytorch = "F.mse_loss({y}, {t})",
};
const struct loss_type loss_l1 = {
    .variant = {"l1", NULL, "Absolute error, mean over all elements (torch.nn.L1Loss)."},
    .is_regression = true,
    .run = l1,
    .pytorch = "F.l1_loss({y}, {t})",
};
const struct loss_type loss_smooth_l1 = {
    .variant = {"smooth_l1", &smooth_l1_schema,
                "Squared error below beta, absolute error above (torch.nn.SmoothL1Loss)."},
    .is_regression = true,
    .run = smooth_l1,
    .pytorch = "F.smooth_l1_loss({y}, {t}{,beta})",
};
const struct loss_type loss_huber = {
    .variant = {"huber", &huber_schema,
                "Half the squared error below delta, delta times the absolute error above (torch.nn.HuberLoss)."},
    .is_regression = true,
    .run = huber,
    .pytorch = "F.huber_loss({y}, {t}{,delta})",
};
const struct loss_type loss_quantile = {
    .variant = {"quantile", &quantile_schema,
                "Error times quantile where the output is too small, times 1 - quantile where it is too large, mean "
                "over all elements (scikit-learn's mean_pinball_loss)."},
    .is_regression = true,
    .run = quantile,
    .pytorch = "quantile_loss({y}, {t}, {quantile})",
};
