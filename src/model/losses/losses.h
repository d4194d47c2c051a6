/* Every loss, for the table in loss.c, and what those of values share. */
#ifndef MODEL_LOSSES_LOSSES_H
#define MODEL_LOSSES_LOSSES_H

#include "model/loss.h"

extern const struct loss_type loss_cross_entropy, loss_mse, loss_l1, loss_smooth_l1, loss_bce_with_logits, loss_kl_div;

/* Each element of the output has one target. */
status loss_check_values(const struct shape *output, size_t target_size);

/* The mean over all elements of the batch. */
void loss_mean_of_elements(const struct elementwise_options *options, struct device *device,
                           const struct shape *output_shape, const float *output, const void *targets, size_t rows,
                           float scale, float *gradient, struct loss_sums *sums);

#endif
