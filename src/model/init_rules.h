/* init rules: `model.init`, what PyTorch scripts do with torch.nn.init after a model is made. The rules are applied in
 * order, each to the parameters it names, after every layer has drawn its defaults. */
#ifndef MODEL_INIT_RULES_H
#define MODEL_INIT_RULES_H

#include "model/model.h"

extern const struct schema_variants init_variants;

/* STATUS_USAGE with file:line:column for a rule that fits no parameter, or one it cannot be used for. Notes the last
 * draw of each parameter (param.last_draw); those before it will only move the generator. */
status init_rules_check(const struct model *model, const struct variant_list *rules);

void init_rules_apply(const struct model *model, const struct variant_list *rules, struct rng *rng);

#endif
