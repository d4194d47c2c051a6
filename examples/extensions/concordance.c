/* concordance: how often the model orders two rows as their targets do (Harrell's C without censoring); 1: always, 0.5:
 * by chance. Pairs with equal targets do not count, equal outputs count half. Of the pairs of all rows, so each row is
 * a record.
 *
 *     extensions: [concordance.c]
 *     loss: mse
 *     train: {metrics: [concordance], early_stop: {metric: val_concordance, patience: 10}}
 *     checkpoint: {best: val_concordance}
 */
#include "extension.h"

#include <math.h>
#include <stdlib.h>

struct record {
    float output, target;
};

static status check(size_t output_size, size_t target_size) {
    if (output_size == 1 && target_size == 1) return OK;
    return status_new(STATUS_USAGE, "it needs one output and one target, not %zu and %zu", output_size, target_size);
}

static void add(const struct metric_rows *rows, struct metric_state *state) {
    for (size_t i = 0; i < rows->rows; i++) {
        const struct record record = {rows->outputs[i], rows->targets[i]};
        metric_record(state, &record, sizeof record);
    }
}

static status value(const struct metric_state *state, double *out) {
    const struct record *rows = state->records;
    double right = 0, pairs = 0;
    for (size_t i = 0; i < state->record_count; i++)
        for (size_t k = 0; k < state->record_count; k++) {
            if (!(rows[i].target > rows[k].target)) continue;
            right += rows[i].output > rows[k].output ? 1 : rows[i].output < rows[k].output ? 0 : 0.5;
            pairs++;
        }
    *out = pairs > 0 ? right / pairs : NAN;
    return OK;
}

static const struct metric_type concordance = {
    .name = "concordance", .record_size = sizeof(struct record), .check = check, .add = add, .value = value};

DDPTRAIN_EXTENSION(.metric = &concordance);
