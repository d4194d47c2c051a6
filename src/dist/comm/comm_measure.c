/* The number of calls in a round is computed from the time of the first ones on the slowest rank, so it is equal on all
 * ranks. */
#include "dist/comm/comm_measure.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ROUNDS 5
#define ROUND_SECONDS 0.02
#define MAX_CALLS 20000.0

struct comm_measurer {
    struct comm *comm;
    float *shared;       /* of comm_alloc, for all_reduce */
    float *data, *other; /* from calloc; on GPUs, of comm_alloc */
    bool is_on_gpus;
};

static const char *const names[] = {
#define X(name, label, factor) label,
    COMM_MEASURES(X)
#undef X
};

const char *comm_measure_name(enum comm_measure measure) { return names[measure]; }

double comm_measure_factor(enum comm_measure measure, int world_size) {
    double n = world_size;
    const double factors[] = {
#define X(name, label, factor) factor,
        COMM_MEASURES(X)
#undef X
    };
    return factors[measure];
}

static status alloc_on_host(struct comm_measurer *m, size_t size) {
    m->data = calloc(size, 1);
    m->other = calloc(size, 1);
    return m->data && m->other ? OK : status_memory("the measurement");
}

static status alloc_on_gpus(struct comm_measurer *m, size_t size) {
    void *data, *other;
    TRY(comm_alloc(m->comm, size, &data));
    TRY(comm_alloc(m->comm, size, &other));
    m->data = data;
    m->other = other;
    return OK;
}

status comm_measurer_create(struct comm *comm, size_t max_bytes, struct comm_measurer **out) {
    struct comm_measurer *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return status_memory("the measurement");
    size_t size = max_bytes + (size_t)comm_world_size(comm) * sizeof(float); /* at least one element for each rank */
    *m = (struct comm_measurer){.comm = comm, .is_on_gpus = !comm_lane(comm, COMM_THREAD_LANE)};
    void *shared = NULL;
    status failure = m->is_on_gpus ? alloc_on_gpus(m, size) : alloc_on_host(m, size);
    if (!failure) failure = comm_alloc(comm, max_bytes, &shared);
    m->shared = shared;
    if (failure)
        comm_measurer_destroy(m);
    else
        *out = m;
    return failure;
}

void comm_measurer_destroy(struct comm_measurer *m) {
    if (!m) return;
    if (!m->is_on_gpus) free(m->data);
    if (!m->is_on_gpus) free(m->other);
    free(m);
}

/* Rank 0 sends to rank 1, which sends back. */
static status ping_pong(struct comm_measurer *m, size_t count) {
    int rank = comm_rank(m->comm);
    if (rank > 1) return OK;
    if (rank == 0) TRY(comm_send(m->comm, m->data, count, COMM_FLOAT32, 1));
    TRY(comm_recv(m->comm, m->other, count, COMM_FLOAT32, 1 - rank));
    return rank == 1 ? comm_send(m->comm, m->data, count, COMM_FLOAT32, 0) : OK;
}

static status call(struct comm_measurer *m, enum comm_measure measure, size_t count) {
    size_t world = (size_t)comm_world_size(m->comm), part = count < world ? 1 : count / world;
    switch (measure) {
    case MEASURE_ALL_REDUCE:
        return comm_all_reduce(m->comm, m->shared, count, COMM_FLOAT32, COMM_SUM);
    case MEASURE_ALL_REDUCE_COPIED:
        return comm_all_reduce(m->comm, m->data, count, COMM_FLOAT32, COMM_SUM);
    case MEASURE_REDUCE_SCATTER:
        return comm_reduce_scatter(m->comm, m->data, part, COMM_FLOAT32, COMM_SUM, m->other);
    case MEASURE_ALL_GATHER:
        return comm_all_gather(m->comm, m->data, part, COMM_FLOAT32, m->other);
    case MEASURE_BROADCAST:
        return comm_broadcast(m->comm, m->data, count, COMM_FLOAT32, 0);
    default:
        return ping_pong(m, count);
    }
}

/* *seconds: the time of [times] calls on the slowest rank. */
static status time_calls(struct comm_measurer *m, enum comm_measure measure, size_t count, int times, double *seconds) {
    TRY(comm_barrier(m->comm));
    double start = clock_seconds();
    for (int i = 0; i < times; i++) TRY(call(m, measure, count));
    *seconds = clock_seconds() - start;
    return comm_all_reduce(m->comm, seconds, 1, COMM_FLOAT64, COMM_MAX);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

status comm_measurer_run(struct comm_measurer *m, enum comm_measure measure, size_t bytes, double *seconds) {
    double rounds[ROUNDS], first;
    size_t count = bytes / sizeof(float);
    TRY(time_calls(m, measure, count, 2, &first)); /* warm-up: page faults of the first accesses */
    TRY(time_calls(m, measure, count, 2, &first));
    double calls = first > 0 ? ROUND_SECONDS / (first / 2) : MAX_CALLS;
    int times = calls < 2 ? 2 : calls > MAX_CALLS ? (int)MAX_CALLS : (int)calls;
    for (int i = 0; i < ROUNDS; i++) TRY(time_calls(m, measure, count, times, &rounds[i]));
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    *seconds = rounds[ROUNDS / 2] / times / (measure == MEASURE_SEND_RECV ? 2 : 1);
    return OK;
}
