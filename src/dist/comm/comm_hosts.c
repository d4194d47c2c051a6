/* Every call consists of calls of two backends: gather or reduce to the leader by shared memory, exchange between
 * leaders by Gloo or MPI, broadcast or scatter by shared memory. 16-bit floats are exchanged as such, so the sum of a
 * host is rounded before it is sent. Ranks of different hosts send to each other in a group of all ranks, whose
 * connections Gloo and MPI make when they are first used. */
#include "dist/comm/comm_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/comm/combine.h"
#include "dist/comm/comm_shm.h"

#define CHUNK ((size_t)1 << 20) /* elements that a reduction to one root copies at once */

struct scratch {
    void *bytes;
    size_t size;
};

struct hosts_group {
    struct comm_setup setup;
    char *name;
    int rank, world, host, host_count;
    int local_rank, local_size;
    int *local_ranks;                   /* (world) */
    int *leaders, *sizes;               /* (host_count): first rank and number of ranks */
    int *local_members;                 /* (local_size): job ranks of this host */
    int *leader_members;                /* (host_count) */
    const struct comm_backend *between; /* Gloo or MPI */
    void *inner;                        /* shared memory; NULL if this rank is the only one of its host */
    void *outer;                        /* Gloo or MPI between leaders; NULL on others */
    void *everyone;                     /* Gloo or MPI between all ranks, for send and recv */
    size_t *bytes[COMM_LANES];          /* (world) */
    struct scratch scratch[COMM_LANES];
};

/* ---- parts of a call ---- */

static bool is_leader(const struct hosts_group *g) { return g->local_rank == 0; }

/* *out: a buffer of [size] bytes, valid until the next call of the lane. */
static status reserve_scratch(struct hosts_group *g, int lane, size_t size, char **out) {
    struct scratch *scratch = &g->scratch[lane];
    if (scratch->size < size) {
        void *more = realloc(scratch->bytes, size);
        if (!more) return status_memory("communication");
        *scratch = (struct scratch){more, size};
    }
    *out = scratch->bytes;
    return OK;
}

static status broadcast_on_host(struct hosts_group *g, int lane, void *data, size_t size, int from) {
    return g->inner && size ? comm_shm.broadcast(g->inner, lane, data, size, from) : OK;
}

/* The sum of each host is written into the data of its leader, then the result into the data of all leaders or of
 * [root_host]'s leader. */
static status reduce_on_leaders(struct hosts_group *g, int lane, void *data, size_t count, enum comm_type type,
                                enum comm_op op, int root_host) {
    if (g->inner) TRY(comm_shm.reduce(g->inner, lane, data, count, type, op, 0));
    return is_leader(g) ? g->between->reduce(g->outer, lane, data, count, type, op, root_host) : OK;
}

/* ---- reductions ---- */

/* In place; overwrites the data of ranks that do not receive the result, too. [op] is not COMM_AVG. */
static status reduce_all(struct hosts_group *g, int lane, void *data, size_t count, enum comm_type type,
                         enum comm_op op, int root) {
    int root_host = root == COMM_ALL ? COMM_ALL : g->setup.hosts[root];
    TRY(reduce_on_leaders(g, lane, data, count, type, op, root_host));
    bool is_here = root == COMM_ALL || root_host == g->host;
    return is_here ? broadcast_on_host(g, lane, data, count * comm_type_size(type), 0) : OK;
}

static status reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    struct hosts_group *g = group;
    enum comm_op own = op == COMM_AVG ? COMM_SUM : op;
    size_t size = comm_type_size(type);
    char *scratch = NULL;
    if (root == COMM_ALL) {
        TRY(reduce_all(g, lane, data, count, type, own, root));
        if (op == COMM_AVG) combine_divide(data, g->world, count, type);
        return OK;
    }
    TRY(reserve_scratch(g, lane, (count < CHUNK ? count : CHUNK) * size,
                        &scratch)); /* data of ranks other than the root must not change */
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t n = count - at < CHUNK ? count - at : CHUNK;
        char *part = (char *)data + at * size;
        memcpy(scratch, part, n * size);
        TRY(reduce_all(g, lane, scratch, n, type, own, root));
        if (root == g->rank && op == COMM_AVG) combine_divide(scratch, g->world, n, type);
        if (root == g->rank) memcpy(part, scratch, n * size);
    }
    return OK;
}

/* An all-reduce of a copy, of which each rank keeps its part: it sends as many bytes between hosts as an all-reduce. */
static status reduce_scatter(void *group, int lane, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out) {
    struct hosts_group *g = group;
    size_t part = count * comm_type_size(type);
    char *whole = malloc(part * (size_t)g->world);
    if (!whole) return status_memory("communication");
    memcpy(whole, data, part * (size_t)g->world);
    status failure = reduce(g, lane, whole, count * (size_t)g->world, type, op, COMM_ALL);
    if (!failure) memcpy(out, whole + (size_t)g->rank * part, part);
    free(whole);
    return failure;
}

/* ---- data movement ---- */

/* Reorders data from order of hosts, and of ranks on each host, to order of rank. */
static void put_in_order(const struct hosts_group *g, const size_t *sizes, const char *from, char *out) {
    for (int host = 0; host < g->host_count; host++) {
        size_t offset = 0;
        for (int r = 0; r < g->world; offset += sizes[r++]) {
            if (g->setup.hosts[r] != host) continue;
            memcpy(out + offset, from, sizes[r]);
            from += sizes[r];
        }
    }
}

static status gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root) {
    struct hosts_group *g = group;
    int root_host = root == COMM_ALL ? COMM_ALL : g->setup.hosts[root];
    size_t *parts = g->bytes[lane], total = 0, own = 0;
    char *scratch = NULL;
    for (int r = 0; r < g->world; r++) {
        total += sizes[r];
        if (g->setup.hosts[r] != g->host) continue;
        own += sizes[r];
        parts[g->local_ranks[r]] = sizes[r];
    }
    TRY(reserve_scratch(g, lane, total + own + 1, &scratch));
    char *host_data = scratch + total;
    if (g->inner)
        TRY(comm_shm.gather(g->inner, lane, data, parts, host_data, 0));
    else if (own)
        memcpy(host_data, data, own);
    memset(parts, 0, (size_t)g->world * sizeof *parts);
    for (int r = 0; r < g->world; r++) parts[g->setup.hosts[r]] += sizes[r];
    if (is_leader(g)) TRY(g->between->gather(g->outer, lane, host_data, parts, scratch, root_host));
    if (root == COMM_ALL || root_host == g->host) TRY(broadcast_on_host(g, lane, scratch, total, 0));
    if (root == COMM_ALL || root == g->rank) put_in_order(g, sizes, scratch, out);
    return OK;
}

/* The root sorts its data by host and passes it to its leader, which sends each other leader the part of its host;
 * the leaders scatter it on their hosts. */
static status scatter(void *group, int lane, const void *data, size_t size, void *out, int root) {
    struct hosts_group *g = group;
    int root_host = g->setup.hosts[root];
    size_t total = size * (size_t)g->world, own = size * (size_t)g->local_size, at = 0;
    char *scratch = NULL, *host_data;
    TRY(reserve_scratch(g, lane, total + own, &scratch));
    host_data = scratch + total;
    for (int host = 0; g->rank == root && host < g->host_count; host++)
        for (int r = 0; r < g->world; r++)
            if (g->setup.hosts[r] == host) memcpy(scratch + at++ * size, (const char *)data + (size_t)r * size, size);
    if (g->host == root_host && g->leaders[root_host] != root)
        TRY(broadcast_on_host(g, lane, scratch, total, g->local_ranks[root]));
    at = 0;
    for (int host = 0; is_leader(g) && g->host == root_host && host < g->host_count; host++) {
        size_t part = size * (size_t)g->sizes[host];
        if (host == g->host)
            memcpy(host_data, scratch + at, part);
        else
            TRY(g->between->send(g->outer, lane, scratch + at, part, host));
        at += part;
    }
    if (is_leader(g) && g->host != root_host) TRY(g->between->recv(g->outer, lane, host_data, own, root_host));
    if (g->inner) return comm_shm.scatter(g->inner, lane, host_data, size, out, 0);
    memcpy(out, host_data, size);
    return OK;
}

static status broadcast(void *group, int lane, void *data, size_t size, int root) {
    struct hosts_group *g = group;
    int root_host = g->setup.hosts[root];
    if (g->host == root_host) TRY(broadcast_on_host(g, lane, data, size, g->local_ranks[root]));
    if (is_leader(g)) TRY(g->between->broadcast(g->outer, lane, data, size, root_host));
    return g->host == root_host ? OK : broadcast_on_host(g, lane, data, size, 0);
}

static status barrier(void *group, int lane) {
    struct hosts_group *g = group;
    if (g->inner) TRY(comm_shm.barrier(g->inner, lane));
    if (is_leader(g)) TRY(g->between->barrier(g->outer, lane));
    return g->inner ? comm_shm.barrier(g->inner, lane) : OK;
}

/* ---- send and recv ---- */

static status send(void *group, int lane, const void *data, size_t size, int to) {
    struct hosts_group *g = group;
    if (g->setup.hosts[to] == g->host) return comm_shm.send(g->inner, lane, data, size, g->local_ranks[to]);
    return g->between->send(g->everyone, lane, data, size, to);
}

static status recv(void *group, int lane, void *data, size_t size, int from) {
    struct hosts_group *g = group;
    if (g->setup.hosts[from] == g->host) return comm_shm.recv(g->inner, lane, data, size, g->local_ranks[from]);
    return g->between->recv(g->everyone, lane, data, size, from);
}

/* ---- create and destroy ---- */

static void destroy(void *group) {
    struct hosts_group *g = group;
    if (!g) return;
    for (int lane = 0; lane < COMM_LANES; lane++) {
        free(g->bytes[lane]);
        free(g->scratch[lane].bytes);
    }
    if (g->outer) g->between->destroy(g->outer);
    if (g->everyone) g->between->destroy(g->everyone);
    comm_shm.destroy(g->inner);
    free(g->local_ranks);
    free(g->leaders);
    free(g->sizes);
    free(g->local_members);
    free(g->leader_members);
    free(g->name);
    free((void *)g->setup.address);
    free(g);
}

static void abort_calls(void *group) {
    struct hosts_group *g = group;
    if (g->inner) comm_shm.abort(g->inner);
    if (g->outer) g->between->abort(g->outer);
    if (g->everyone) g->between->abort(g->everyone);
}

static bool allocate(struct hosts_group *g, const struct comm_setup *setup) {
    size_t world = (size_t)setup->world_size;
    g->name = strdup(setup->name);
    g->setup = *setup;
    g->setup.name = g->name;
    g->setup.address = strdup(setup->address);
    g->local_ranks = calloc(world, sizeof *g->local_ranks);
    g->leaders = calloc(world, sizeof *g->leaders);
    g->sizes = calloc(world, sizeof *g->sizes);
    g->local_members = calloc(world, sizeof *g->local_members);
    g->leader_members = calloc(world, sizeof *g->leader_members);
    bool is_allocated = g->name && g->setup.address && g->local_ranks && g->leaders && g->sizes && g->local_members &&
                        g->leader_members;
    for (int lane = 0; lane < COMM_LANES; lane++) {
        g->bytes[lane] = calloc(world, sizeof *g->bytes[lane]);
        is_allocated = is_allocated && g->bytes[lane];
    }
    return is_allocated;
}

static void number_ranks(struct hosts_group *g) {
    const int *hosts = g->setup.hosts;
    g->rank = g->setup.rank;
    g->world = g->setup.world_size;
    g->host = hosts[g->rank];
    for (int r = 0; r < g->world; r++) {
        int host = hosts[r];
        if (host >= g->host_count) g->host_count = host + 1;
        if (g->sizes[host] == 0) {
            g->leaders[host] = r;
            g->leader_members[host] = g->setup.members[r];
        }
        if (host == g->host) g->local_members[g->sizes[host]] = g->setup.members[r];
        g->local_ranks[r] = g->sizes[host]++;
    }
    g->local_rank = g->local_ranks[g->rank];
    g->local_size = g->sizes[g->host];
}

/* The result of connect_inner, equal on all hosts: the first failure in order of hosts. Consumes [inner]. */
static status agree(const struct hosts_group *g, status inner) {
    char key[STORE_MAX_KEY], *first = NULL;
    int rank;
    snprintf(key, sizeof key, "%s/result", g->name);
    status failure =
        store_first(g->setup.store, key, g->rank, g->world, status_message(inner), g->setup.timeout, &first, &rank);
    if (!failure && first) failure = status_new(STATUS_IO, "%s", first);
    free(first);
    status_free(inner);
    return failure;
}

static status connect_inner(struct hosts_group *g) {
    char name[STORE_MAX_KEY];
    struct comm_setup setup = g->setup;
    snprintf(name, sizeof name, "%s/host%d", g->name, g->host);
    setup.name = name;
    setup.rank = g->local_rank;
    setup.world_size = g->local_size;
    setup.members = g->local_members;
    status inner = g->local_size > 1 ? comm_shm.create(&setup, &g->inner) : OK;
    if (status_code(inner) == STATUS_PEER) return inner;
    return agree(g, inner);
}

static status connect_outer(struct hosts_group *g) {
    char name[STORE_MAX_KEY];
    struct comm_setup setup = g->setup;
    if (g->between->connects_on_demand) TRY(g->between->create(&g->setup, &g->everyone));
    if (!is_leader(g)) return OK;
    snprintf(name, sizeof name, "%s/leaders", g->name);
    setup.name = name;
    setup.rank = g->host;
    setup.world_size = g->host_count;
    setup.members = g->leader_members;
    return g->between->create(&setup, &g->outer);
}

static status create(const struct comm_setup *setup, void **out) {
    struct hosts_group *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g || !allocate(g, setup)) {
        destroy(g);
        return status_memory("a process group");
    }
    number_ranks(g);
    g->between = setup->between;
    status failure = connect_inner(g);
    if (!failure) failure = connect_outer(g);
    if (failure)
        destroy(g);
    else
        *out = g;
    return failure;
}

#define COMM_HOSTS(label)                                                                                              \
    {                                                                                                                  \
        .name = label, .create = create, .destroy = destroy, .abort = abort_calls, .reduce = reduce,                   \
        .reduce_scatter = reduce_scatter, .gather = gather, .scatter = scatter, .broadcast = broadcast,                \
        .barrier = barrier, .send = send, .recv = recv                                                                 \
    }

const struct comm_backend comm_hosts_gloo = COMM_HOSTS("shm+gloo");
const struct comm_backend comm_hosts_mpi = COMM_HOSTS("shm+mpi");
