/* losses: sums over a batch and gradients of its mean. The caller says what the mean is over: [factor] is what a
 * derivative is multiplied by (the gradient's scale divided by that count). */
#ifndef DEVICE_LOSSES_H
#define DEVICE_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

/* What a loss found in one batch: sums, not means, so that they add up over batches and ranks. Operators add to it in
 * the device's memory. */
struct loss_sums {
    double loss;    /* sum over [count] */
    double count;   /* what the loss is a mean over: rows, elements, or the weights of classes */
    double correct; /* of [scored] positions those whose largest output is the target class; 0 for other losses */
    double scored;
};

struct cross_entropy_options {
    float label_smoothing;
    const double *weight; /* (classes), in the memory of the host; NULL: all 1 */
    int64_t ignored;      /* a target that does not count */
};

enum elementwise_loss {
    LOSS_MSE,             /* (x - t)^2 */
    LOSS_L1,              /* |x - t| */
    LOSS_SMOOTH_L1,       /* d = |x - t|:  d < beta ? d^2 / (2 beta) : d - beta / 2 */
    LOSS_BCE_WITH_LOGITS, /* w = 1 + (pos_weight - 1) t:  (1 - t) x + w (log(1 + exp(-|x|)) + max(-x, 0)) */
    LOSS_KL_DIV,          /* t (log t - x), 0 where t is 0 */
    LOSS_KL_DIV_LOG       /* exp(t) (t - x) */
};

struct elementwise_options {
    enum elementwise_loss loss;
    float beta;               /* LOSS_SMOOTH_L1; 0: L1 */
    const double *pos_weight; /* LOSS_BCE_WITH_LOGITS: (pos_weights), used in turn; in the memory of the host */
    size_t pos_weights;       /* 0: all 1 */
};

struct loss_ops {
    /* logits (positions, classes), targets (positions). *sums += over them, count by the targets' weights; dlogits,
     * unless NULL, = d(mean over the counted)/dlogits * scale, 0 where nothing counts */
    void (*cross_entropy)(struct device *, const struct cross_entropy_options *, const float *logits,
                          const int64_t *targets, size_t positions, size_t classes, float scale, float *dlogits,
                          struct loss_sums *sums);
    /* sums->loss += over the elements, sums->count += counted; doutputs (count), unless NULL, = derivative * factor */
    void (*elementwise)(struct device *, const struct elementwise_options *, const float *outputs, const float *targets,
                        size_t count, float factor, double counted, float *doutputs, struct loss_sums *sums);
};

#endif
