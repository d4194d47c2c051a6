/* nll: torch.nn.NLLLoss. The model's output are log-probabilities, shaped as for cross_entropy. */
#include "model/losses/losses.h"

struct nll_config {
    struct real_list weight;
    int64_t ignore_index;
};

static const struct schema_row keys[] = {LOSS_WEIGHT_ROW(nll_config), LOSS_IGNORE_ROW(nll_config), {0}};
static const struct schema schema = SCHEMA("loss.nll", struct nll_config, .rows = keys);

static int64_t ignored(const void *config) { return ((const struct nll_config *)config)->ignore_index; }

static struct real_list *class_weight(void *config) { return &((struct nll_config *)config)->weight; }

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    return loss_check_classes("nll", &((const struct nll_config *)config)->weight, output, target_size, classes);
}

static void run(const void *config, const struct loss_batch *b) {
    const struct nll_config *c = config;
    struct cross_entropy_options options = {.weight = c->weight.count ? c->weight.items : NULL,
                                            .ignored = c->ignore_index,
                                            .rows = *b->weights,
                                            .row_positions = loss_positions_of(b->shape, 1).positions};
    struct loss_positions p = loss_positions_of(b->shape, b->rows);
    device_ops(b->device)->losses->nll(b->device, &options, floats(b->output), b->targets, p.positions, p.classes,
                                       b->scale, floats(b->gradient), b->sums);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("loss", "NLLLoss nll_loss", "nll"),
    {0},
};

const struct loss_type loss_nll = {
    .aliases = aliases,
    .variant = {"nll", &schema,
                "Negative log likelihood of integer classes, for a model that ends in log_softmax; mean over rows or "
                "positions (torch.nn.NLLLoss)."},
    .wants_classes = true,
    .ignored = ignored,
    .takes_logarithms = true,
    .ignored_key = "ignore_index",
    .class_weight = class_weight,
    .divides_by_weights = true,
    .check = check,
    .run = run,
    .pytorch = "F.nll_loss({y}, {t}{weight}{,ignore_index})",
};
