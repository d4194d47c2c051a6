/* init rules: `model.init`, for what PyTorch scripts do with torch.nn.init after they create a model. The rules are
 * applied in order, each to the parameters that it names, after every layer has drawn its default weights. */
#pragma once

#include "model/model.h"

extern const struct schema_variants init_variants;

/* STATUS_USAGE with file:line:column for a rule that matches no parameter, or one that it cannot be used for. Records
 * the last draw of each parameter (param.last_draw); earlier draws only advance the generator. */
status init_rules_check(const struct model *model, const struct variant_list *rules);

void init_rules_apply(const struct model *model, const struct variant_list *rules, struct rng *rng);

/* Adds the rules for `model` in PyTorch. */
status init_rules_write_pytorch(const struct model *model, const struct variant_list *rules, struct text *out);
