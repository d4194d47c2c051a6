/* The calls of comm.h: argument checks, a call of the backend, and the message of a failure: "rank 1 of 4: all_reduce
 * failed (...)", with the rank that failed first if the store has a report. comm_group.c creates groups. */
#include "dist/comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "dist/comm/comm_group.h"

/* ---- failures ---- */

/* After the first failure the ranks are no longer in the same call, so every later call of either lane returns the
 * message of the first failure, which names the rank that failed first. */
static status first_failure(struct comm_group *g) {
    pthread_mutex_lock(&g->mutex); /* the lane that failed first unlocks it after it has set g->why */
    status failure = status_new(STATUS_PEER, "%s", g->why ? g->why : "communication has failed");
    pthread_mutex_unlock(&g->mutex);
    return failure;
}

/* From here to comm_finish, the heartbeat reports that this rank is in [call]. */
status comm_begin(struct comm *comm, const char *call) {
    if (atomic_load(&comm->shared->has_failed)) return first_failure(comm->shared);
    activity_enter(store_activity(comm->shared->store), comm->lane, call);
    return OK;
}

static status fail(struct comm_group *g, const char *call, status failure) {
    pthread_mutex_lock(&g->mutex);
    bool is_first = !atomic_exchange(&g->has_failed, true);
    if (is_first) {
        failure = comm_explain(g, call, failure);
        g->why = strdup(status_message(failure));
    }
    pthread_mutex_unlock(&g->mutex);
    if (is_first) return failure;
    status_free(failure);
    return first_failure(g);
}

status comm_finish(struct comm *comm, const char *call, status failure) {
    activity_leave(store_activity(comm->shared->store), comm->lane);
    return failure ? fail(comm->shared, call, failure) : OK;
}

/* ---- calls ---- */

static bool is_alone(const struct comm *comm) { return comm->world_size == 1; }

static status check_rank(const struct comm *comm, const char *call, int rank) {
    if (rank >= 0 && rank < comm->world_size) return OK;
    return status_new(STATUS_BUG, "%s with rank %d in a group of %d", call, rank, comm->world_size);
}

static void copy_unless_same(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

/* A group of one: the result of every operation is the input. */
status comm_all_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op) {
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "all_reduce"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "all_reduce", g->backend->reduce(g->group, comm->lane, data, count, type, op, COMM_ALL));
}

status comm_average(struct comm *comm, float *data, size_t count) {
    if (is_alone(comm) || count == 0) return OK;
    struct comm_group *g = comm->shared;
    float factor = (float)(1.0 / comm->world_size);
    if (!g->backend->average) {
        for (size_t i = 0; i < count; i++) data[i] *= factor;
        return comm_all_reduce(comm, data, count, COMM_FLOAT32, COMM_SUM);
    }
    TRY(comm_begin(comm, "all_reduce"));
    return comm_finish(comm, "all_reduce", g->backend->average(g->group, comm->lane, data, count, factor));
}

status comm_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    TRY(check_rank(comm, "reduce", root));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "reduce"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "reduce", g->backend->reduce(g->group, comm->lane, data, count, type, op, root));
}

status comm_reduce_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, enum comm_op op,
                           void *out) {
    if (is_alone(comm)) copy_unless_same(out, data, count * comm_type_size(type));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "reduce_scatter"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "reduce_scatter",
                       g->backend->reduce_scatter(g->group, comm->lane, data, count, type, op, out));
}

status comm_broadcast(struct comm *comm, void *data, size_t count, enum comm_type type, int root) {
    TRY(check_rank(comm, "broadcast", root));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "broadcast"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "broadcast",
                       g->backend->broadcast(g->group, comm->lane, data, count * comm_type_size(type), root));
}

static status gather(struct comm *comm, const char *call, const void *data, const size_t *sizes, void *out, int root) {
    if (is_alone(comm)) copy_unless_same(out, data, sizes[0]);
    if (is_alone(comm)) return OK;
    TRY(comm_begin(comm, call));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, call, g->backend->gather(g->group, comm->lane, data, sizes, out, root));
}

static status gather_equal(struct comm *comm, const char *call, const void *data, size_t size, void *out, int root) {
    if (size == 0) return OK;
    size_t *sizes = comm->shared->equal + comm->lane * comm->world_size;
    for (int r = 0; r < comm->world_size; r++) sizes[r] = size;
    return gather(comm, call, data, sizes, out, root);
}

status comm_all_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out) {
    return gather_equal(comm, "all_gather", data, count * comm_type_size(type), out, COMM_ALL);
}

status comm_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root) {
    TRY(check_rank(comm, "gather", root));
    return gather_equal(comm, "gather", data, count * comm_type_size(type), out, root);
}

/* All ranks first exchange their sizes. */
static status gather_bytes(struct comm *comm, const char *call, const void *data, size_t size, int root, void **out,
                           size_t *sizes) {
    *out = NULL;
    TRY(gather_equal(comm, call, &size, sizeof size, sizes, COMM_ALL));
    size_t total = 0;
    for (int r = 0; r < comm->world_size; r++) total += sizes[r];
    bool is_receiver = root == COMM_ALL || root == comm->rank;
    void *all = is_receiver ? malloc(total + 1) : NULL;
    if (is_receiver && !all) return fail(comm->shared, call, status_memory("%zu bytes", total));
    status failure = total ? gather(comm, call, data, sizes, all, root) : OK;
    if (failure)
        free(all);
    else
        *out = all;
    return failure;
}

status comm_all_gather_bytes(struct comm *comm, const void *data, size_t size, void **out, size_t *sizes) {
    return gather_bytes(comm, "all_gather", data, size, COMM_ALL, out, sizes);
}

status comm_gather_bytes(struct comm *comm, const void *data, size_t size, int root, void **out, size_t *sizes) {
    *out = NULL;
    TRY(check_rank(comm, "gather", root));
    return gather_bytes(comm, "gather", data, size, root, out, sizes);
}

status comm_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root) {
    size_t size = count * comm_type_size(type);
    TRY(check_rank(comm, "scatter", root));
    if (is_alone(comm)) copy_unless_same(out, data, size);
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "scatter"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "scatter", g->backend->scatter(g->group, comm->lane, data, size, out, root));
}

status comm_barrier(struct comm *comm) {
    if (is_alone(comm)) return OK;
    TRY(comm_begin(comm, "barrier"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "barrier", g->backend->barrier(g->group, comm->lane));
}

static status check_peer(const struct comm *comm, const char *call, int peer) {
    TRY(check_rank(comm, call, peer));
    return peer == comm->rank ? status_new(STATUS_BUG, "%s between rank %d and itself", call, peer) : OK;
}

status comm_send(struct comm *comm, const void *data, size_t count, enum comm_type type, int to) {
    TRY(check_peer(comm, "send", to));
    if (count == 0) return OK;
    TRY(comm_begin(comm, "send"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "send", g->backend->send(g->group, comm->lane, data, count * comm_type_size(type), to));
}

status comm_recv(struct comm *comm, void *data, size_t count, enum comm_type type, int from) {
    TRY(check_peer(comm, "recv", from));
    if (count == 0) return OK;
    TRY(comm_begin(comm, "recv"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "recv", g->backend->recv(g->group, comm->lane, data, count * comm_type_size(type), from));
}
