/* Records are kept as bytes until the end of an evaluation and gathered once. */
#include "train/metrics/own_metric.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TYPES 32

static const struct metric_type *types[MAX_TYPES];
static size_t type_count;

const struct metric_type *metric_type_find(const char *name) {
    for (size_t i = 0; i < type_count; i++)
        if (strcmp(types[i]->name, name) == 0) return types[i];
    return NULL;
}

bool metric_type_add(const struct metric_type *type) {
    if (metric_type_find(type->name) || type_count == MAX_TYPES) return false;
    types[type_count++] = type;
    return true;
}

void metric_record(struct metric_state *state, const void *record, size_t size) {
    state->is_mixed = state->is_mixed || size != state->record_size;
    text_add_bytes(&state->written, record, size);
}

status own_metric_create(const struct metric_type *type, size_t output_size, size_t target_size, struct comm *ranks,
                         struct metric_state *state) {
    *state = (struct metric_state){
        .output_size = output_size, .target_size = target_size, .ranks = ranks, .record_size = type->record_size};
    if (type->check)
        TRY(status_prefix(type->check(output_size, target_size), "train.metrics: the metric '%s'", type->name));
    state->sums = calloc(type->sums + 1, sizeof *state->sums);
    return state->sums ? OK : status_memory("the metric '%s'", type->name);
}

void own_metric_free(struct metric_state *state) {
    free(state->sums);
    free(state->gathered);
    text_free(&state->written);
    state->sums = state->gathered = NULL;
}

void own_metric_start(const struct metric_type *type, struct metric_state *state) {
    for (size_t i = 0; i <= type->sums; i++) state->sums[i] = 0;
    state->is_mixed = false;
    text_free(&state->written);
    free(state->gathered);
    state->gathered = NULL;
    state->records = NULL;
    state->record_count = 0;
}

/* What [add] did on this rank. */
static status check_added(const struct metric_type *type, const struct metric_state *state) {
    if (state->is_mixed)
        return status_data("the metric '%s': a record has another size than .record_size, %zu bytes", type->name,
                           type->record_size);
    if (state->sums[type->sums] != 0)
        return status_data("the metric '%s': sum %zu was written, but .sums is %zu", type->name, type->sums,
                           type->sums);
    return OK;
}

/* The records of all ranks, in order of rank. */
static status gather(const struct metric_type *type, struct metric_state *state) {
    int world = comm_world_size(state->ranks);
    size_t *sizes = calloc((size_t)world + 1, sizeof *sizes), all = 0;
    if (!sizes) return status_memory("the metric '%s'", type->name);
    status s = comm_all_gather_bytes(state->ranks, text_string(&state->written), state->written.length,
                                     &state->gathered, sizes);
    for (int r = 0; !s && r < world; r++) all += sizes[r];
    free(sizes);
    state->records = state->gathered;
    state->record_count = all / type->record_size;
    return s;
}

/* The same bits on all ranks. */
static status compare(const struct metric_type *type, struct comm *ranks, double value) {
    size_t world = (size_t)comm_world_size(ranks);
    double *all = calloc(world, sizeof *all);
    if (!all) return status_memory("the metric '%s'", type->name);
    status s = comm_all_gather(ranks, &value, 1, COMM_FLOAT64, all);
    for (size_t r = 1; !s && r < world; r++)
        if (!(all[r] >= all[0] && all[r] <= all[0]) && !(all[r] != all[r] && all[0] != all[0]))
            s = status_data("the metric '%s' is %.17g on rank 0, but %.17g on rank %zu; its value may depend on the "
                            "sums and records of all ranks alone",
                            type->name, all[0], all[r], r);
    free(all);
    return s;
}

status own_metric_value(const struct metric_type *type, struct metric_state *state, double *out) {
    TRY(check_added(type, state));
    if (type->sums) TRY(comm_all_reduce(state->ranks, state->sums, type->sums, COMM_FLOAT64, COMM_SUM));
    if (type->record_size) TRY(gather(type, state));
    TRY(status_prefix(type->value(state, out), "the metric '%s'", type->name));
    return compare(type, state->ranks, *out);
}
