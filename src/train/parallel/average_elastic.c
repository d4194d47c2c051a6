/* Elastic shards: each update has one batch, and its shards take the place of accumulation. With ZeRO the updated
 * parameters are then gathered from all ranks. */
#include "train/micro_batch.h"
#include "train/parallel/averaging.h"
#include "train/parts.h"
#include "train/update.h"

static status run(struct trainer *t, struct update *update) {
    size_t number = (size_t)t->state->counters.batch;
    struct batch host, batch;
    activity_phase(t->activity, ACTIVITY_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &batch));
    activity_phase(t->activity, ACTIVITY_FORWARD);
    struct pass pass = parts_pass(t, batch.rows, true);
    TRY(elastic_run(t->averaging.elastic, &batch, number, &pass));
    update->batches = 1;
    update->rows = (double)batch.rows;
    t->state->counters.batch++;
    return OK;
}

static status share_sums(struct trainer *t, struct loss_sums *sums, double *counts, size_t count) {
    return elastic_share(t->averaging.elastic, sums, counts, count);
}

const struct averaging averaging_elastic = {.name = "elastic",
                                            .keeps_gradients = true,
                                            .run = run,
                                            .measure = averaging_measure,
                                            .share_sums = share_sums,
                                            .update = averaging_update_shared};
