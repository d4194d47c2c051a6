/* init: the initial weights PyTorch gives a module, drawn in the same order from the same generator. */
#ifndef MODEL_INIT_H
#define MODEL_INIT_H

#include <stddef.h>

#include "base/rng.h"

/* torch.nn.init.kaiming_uniform_(a=sqrt(5)), what Linear and convolutions use for their weight: values (count),
 * U(-b, b) with b = sqrt(3) * sqrt(2 / (1 + 5)) / sqrt(fan_in), all in double. */
void init_kaiming_uniform(struct rng *rng, float *values, size_t count, size_t fan_in);

/* U(-1/sqrt(fan_in), 1/sqrt(fan_in)), what they use for their bias. */
void init_fan_in_uniform(struct rng *rng, float *values, size_t count, size_t fan_in);

/* xavier_uniform_ (gain 1) */
void init_xavier_uniform(struct rng *rng, float *values, size_t count, size_t fan_in, size_t fan_out);

#endif
