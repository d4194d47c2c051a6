/* init: the initial weights PyTorch gives a module, drawn in the same order from the same generator. */
#pragma once

#include "base/numbers/rng.h"
#include "model/model.h"

/* torch.nn.init.kaiming_uniform_(a=sqrt(5)), what Linear and convolutions use for their weight: values (count),
 * U(-b, b) with b = sqrt(3) * sqrt(2 / (1 + 5)) / sqrt(fan_in), all in double. */
void init_kaiming_uniform(struct rng *rng, float *values, size_t count, size_t fan_in);

/* U(-1/sqrt(fan_in), 1/sqrt(fan_in)), what they use for their bias. */
void init_fan_in_uniform(struct rng *rng, float *values, size_t count, size_t fan_in);

/* trunc_normal_: normal(mean, std) within [low, high], values (count), by drawing again what is outside. If less than
 * 30 % of the distribution is inside, uniform draws are accepted with the probability of the density. */
struct init_truncation {
    double mean, std, low, high;
};
void init_trunc_normal(struct rng *rng, float *values, size_t count, const struct init_truncation *t);

/* orthogonal_: a matrix (rows, columns) whose rows, or columns if there are fewer, are orthogonal and of length [gain].
 * It is the Q of PyTorch's QR factorization with a positive diagonal of R, to rounding. */
void init_orthogonal(struct rng *rng, float *values, size_t rows, size_t columns, double gain);

/* xavier_uniform_ (gain 1) */
void init_xavier_uniform(struct rng *rng, float *values, size_t count, size_t fan_in, size_t fan_out);

/* ---- rules (src/model/init_rules.c): `model.init`, for what PyTorch scripts do with torch.nn.init after they create a
 * model. The rules are applied in order, each to the parameters that it names, after every layer has drawn its default
 * weights. ---- */

extern const struct schema_variants init_variants;

/* STATUS_USAGE with file:line:column for a rule that matches no parameter, or one that it cannot be used for. Records
 * the last draw of each parameter (param.last_draw); earlier draws only advance the generator. */
status init_rules_check(const struct model *model, const struct variant_list *rules);

void init_rules_apply(const struct model *model, const struct variant_list *rules, struct rng *rng);

/* Adds the rules for `model` in PyTorch. */
status init_rules_write_pytorch(const struct model *model, const struct variant_list *rules, struct text *out);
