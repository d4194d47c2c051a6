/* losses: the table of losses, and common functions of element-wise losses. */
#ifndef MODEL_LOSSES_LOSSES_H
#define MODEL_LOSSES_LOSSES_H

#include "model/loss.h"

/* The table: a name here, and a `const struct loss_type loss_<name>` in a file of this folder. */
#define LOSS_TYPES(X) X(cross_entropy) X(mse) X(l1) X(smooth_l1) X(bce_with_logits) X(kl_div)
#define X(name) extern const struct loss_type loss_##name;
LOSS_TYPES(X)
#undef X

/* Checks that each element of the output has one target. */
status loss_check_values(const struct shape *output, size_t target_size);

/* The mean over all elements of the batch. */
void loss_mean_of_elements(const struct elementwise_options *options, struct device *device,
                           const struct shape *output_shape, const float *output, const void *targets, size_t rows,
                           float scale, float *gradient, struct loss_sums *sums);

#endif
