/* Batch shards of mode elastic. The batches of an update are those of all ranks, so their weights and the order of
 * their sum do not depend on the number of ranks. With ZeRO the updated parameters are then gathered from all ranks. */
#include "train/loop/averaging/averaging.h"
#include "train/loop/micro_batch.h"
#include "train/loop/trainer.h"
#include "train/loop/update.h"

/* The weight of a batch of [rows] rows in its update, as without shards. */
static float batch_weight(const struct trainer *t, size_t rows, size_t update_rows) {
    const struct train_config *c = &t->config->train;
    if (c->accumulate_weighting == WEIGHTING_SAMPLES) return (float)((double)rows / (double)update_rows);
    return 1.0f / (float)c->accumulate;
}

static status run_batch(struct trainer *t, struct update *update, size_t update_rows, size_t i) {
    size_t number = (size_t)t->state->counters.batch;
    struct batch host, rows;
    activity_phase(t->activity, ACTIVITY_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &rows));
    activity_phase(t->activity, ACTIVITY_FORWARD);
    struct pass pass = trainer_pass(t, rows.rows, true);
    struct elastic_batch batch = {.rows = &rows,
                                  .number = number,
                                  .weight = batch_weight(t, elastic_rows(t->averaging.elastic, number), update_rows),
                                  .is_first = i == 0,
                                  .is_last = i + 1 == update->batches};
    TRY(elastic_run(t->averaging.elastic, &batch, &pass));
    update->rows += (double)rows.rows;
    t->state->counters.batch++;
    return OK;
}

static status run(struct trainer *t, struct update *update) {
    size_t first = (size_t)t->state->counters.batch, rows = 0;
    update->batches = micro_batches_of_update(t);
    for (size_t i = 0; i < update->batches; i++) rows += elastic_rows(t->averaging.elastic, first + i);
    for (size_t i = 0; i < update->batches; i++) TRY(run_batch(t, update, rows, i));
    return OK;
}

static status all_reduce_sums(struct trainer *t, struct loss_sums *sums, double *counts, size_t count) {
    return elastic_all_reduce_sums(t->averaging.elastic, sums, counts, count);
}

const struct averaging averaging_elastic = {.name = "elastic",
                                            .keeps_gradients = true,
                                            .run = run,
                                            .measure = averaging_measure,
                                            .all_reduce_sums = all_reduce_sums,
                                            .update = averaging_update_shards};
