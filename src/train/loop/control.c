/* One array of float64: the counts in the order of enum count, then the numbers of the hash. */
#include "train/loop/control.h"

#include <math.h>

#include "train/loop/averaging/averaging.h"
#include "train/loop/rank_sync.h"
#include "train/loop/save.h"

enum count {
    COUNT_ROWS,
    COUNT_STOPS,
    COUNT_NONFINITE_LOSSES,
    COUNT_NONFINITE_GRADIENTS,
    COUNT_NONFINITE_STATISTICS,
    COUNT_SKIPS,
    COUNT_SAVES,
    COUNTS
};
_Static_assert(COUNTS + AGREEMENT_NUMBERS <= ELASTIC_MAX_COUNTS, "elastic_all_reduce_sums reduces all of them");

bool control_checks_state(const struct trainer *t) {
    int64_t every = t->config->train.check_state_every;
    return every > 0 && t->state->counters.step % every == 0 && comm_world_size(t->comm) > 1;
}

static status put_hash(struct trainer *t, double *numbers) {
    TRY(state_map(t->state));
    agreement_put(agreement_hash(t->state, false), numbers);
    return state_unmap(t->state, false);
}

status control_all_reduce(struct trainer *t, struct update *update) {
    double counts[COUNTS + AGREEMENT_NUMBERS], *hash = counts + COUNTS;
    size_t count = COUNTS + (update->checks_state ? AGREEMENT_NUMBERS : 0);
    counts[COUNT_ROWS] = update->rows;
    counts[COUNT_STOPS] = t->stop && *t->stop ? 1 : 0;
    counts[COUNT_NONFINITE_LOSSES] = isfinite(update->sums.loss) ? 0 : 1;
    counts[COUNT_NONFINITE_GRADIENTS] = update->nonfinite_gradients;
    counts[COUNT_NONFINITE_STATISTICS] = update->nonfinite_statistics;
    counts[COUNT_SKIPS] = update->skips;
    counts[COUNT_SAVES] = save_is_overdue(t) ? 1 : 0;
    if (update->checks_state) TRY(put_hash(t, hash));
    TRY(t->averaging.method->all_reduce_sums(t, &update->sums, counts, count));
    update->rows = counts[COUNT_ROWS];
    update->stops = counts[COUNT_STOPS];
    update->nonfinite_losses = counts[COUNT_NONFINITE_LOSSES] + (isfinite(update->sums.loss) ? 0 : 1);
    update->nonfinite_gradients = counts[COUNT_NONFINITE_GRADIENTS];
    update->nonfinite_statistics = counts[COUNT_NONFINITE_STATISTICS];
    update->skips = counts[COUNT_SKIPS];
    if (counts[COUNT_SAVES] > 0) save_request(t);
    if (!update->checks_state || agreement_is_equal(hash, comm_world_size(t->comm))) return OK;
    return rank_sync_verify(t, false);
}
