/* An all-gather of equal parts: the ranks' rows differ in the last batch of an epoch only. */
#include "train/parallel/row_gather.h"

#include <stdlib.h>

#include "dist/comm/comm_gpu.h"

struct row_gather {
    struct comm *comm, *gpus;
    size_t batch;
    size_t *epoch_rows, *rows; /* (world) of an epoch, of the current batch */
    struct all_rows all;
    status failure; /* of the current batch */
};

/* A loss calls it; after a failure nothing is sent. */
static void gather(void *user, void *all, size_t bytes) {
    struct row_gather *g = user;
    const char *own = (const char *)all + g->all.rank * bytes;
    if (!g->failure) g->failure = comm_all_gather(g->comm, own, bytes, COMM_UINT8, all);
}

static status enqueue_calls(struct comm *gpus, float *all, size_t count, void *stream) {
    TRY(comm_gpu_after(gpus, stream));
    TRY(comm_gpu_all_gather(gpus, NULL, all, count));
    return comm_gpu_before(gpus, stream);
}

static void enqueue(void *user, void *all, size_t bytes, void *stream) {
    struct row_gather *g = user;
    if (!g->failure) g->failure = enqueue_calls(g->gpus, all, bytes / sizeof(float), stream);
}

status row_gather_create(struct comm *comm, struct comm *gpus, size_t batch, struct row_gather **out) {
    size_t world = (size_t)comm_world_size(comm);
    struct row_gather *g = calloc(1, sizeof *g);
    *out = g;
    if (!g) return status_memory("the rows of all ranks");
    g->comm = comm;
    g->gpus = gpus;
    g->batch = batch;
    g->epoch_rows = calloc(world, sizeof *g->epoch_rows);
    g->rows = calloc(world, sizeof *g->rows);
    g->all = (struct all_rows){.world_size = world,
                               .rank = (size_t)comm_rank(comm),
                               .rows = g->rows,
                               .gather = gather,
                               .enqueue = gpus ? enqueue : NULL,
                               .user = g};
    if (g->epoch_rows && g->rows) return OK;
    row_gather_destroy(g);
    *out = NULL;
    return status_memory("the rows of all ranks");
}

void row_gather_destroy(struct row_gather *gather) {
    if (!gather) return;
    free(gather->epoch_rows);
    free(gather->rows);
    status_free(gather->failure);
    free(gather);
}

void row_gather_set_rows(struct row_gather *gather, int rank, size_t rows) { gather->epoch_rows[rank] = rows; }

const struct all_rows *row_gather_batch(struct row_gather *g, size_t index) {
    if (!g) return NULL;
    size_t first = index * g->batch;
    g->all.max = 0;
    for (size_t r = 0; r < g->all.world_size; r++) {
        size_t left = g->epoch_rows[r] > first ? g->epoch_rows[r] - first : 0;
        g->rows[r] = left < g->batch ? left : g->batch;
        if (g->rows[r] > g->all.max) g->all.max = g->rows[r];
    }
    return &g->all;
}

status row_gather_take_failure(struct row_gather *gather) {
    status failure = gather ? gather->failure : OK;
    if (gather) gather->failure = OK;
    return failure;
}
