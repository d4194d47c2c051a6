/* The backend between ranks of one host. A call is a sequence of steps. In a step each rank writes into its own area,
 * increments its step counter, waits until the counters of all ranks have the same value, and reads the areas of the
 * others. A rank has two areas and alternates between them: when it writes an area again, the step between has shown
 * that no rank still reads it. Of small messages every rank computes the whole sum in one step; of large ones every
 * rank sums one slice while the next chunk is copied; buffers of comm_alloc are not copied at all. */
#include "dist/comm/comm_shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/machine.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm_backends.h"
#include "dist/comm/comm_group.h"
#include "dist/comm/shm_map.h"
#include "dist/comm/shm_wait.h"

#define CHUNK ((size_t)512 << 10)     /* bytes of an area for data, and as many for results */
#define PAIR_CHUNK ((size_t)64 << 10) /* of a message between two ranks */
#define ONE_STEP ((size_t)4 << 10)    /* largest message of which every rank computes the whole sum */
#define BLOCK ((size_t)16 << 10)      /* bytes summed before they are copied to all ranks: fits the first-level cache */
#define LINE ((size_t)64)
#define MAX_REGIONS 8

/* The call of a rank: compared between ranks. */
struct shm_call {
    uint32_t what, region; /* region: buffer of comm_alloc, counted from 1; 0: other memory */
    uint64_t size, offset; /* offset: of the data in the region */
};

struct shm_area {
    _Alignas(128) struct shm_call call;
    _Alignas(64) char data[CHUNK];
    _Alignas(64) char result[CHUNK];
};

/* Counters of the messages from one rank to another. */
struct shm_pair {
    struct shm_signal sent, received; /* chunks so far */
};

/* The shared memory of one rank on one lane. */
struct shm_rank_memory {
    struct shm_signal step;
    struct shm_area areas[2];
    _Alignas(64) char send_buffer[2][PAIR_CHUNK];
};

struct shm_lane {
    struct shm_wait_policy policy;
    struct shm_rank_memory *ranks; /* (world) */
    struct shm_pair *pairs;        /* (world, world): from, to */
    uint32_t step;
    double deadline; /* of the call; 0: no long wait yet */
    const void **in; /* (world) */
};

struct shm_group {
    int rank, world;
    const int *members;
    struct comm_setup setup; /* for further maps */
    char *name;
    struct shm_map map;
    atomic_bool is_aborted;
    struct shm_lane lanes[COMM_LANES];
    struct shm_map regions[MAX_REGIONS]; /* comm_alloc's: (world, stride) */
    size_t strides[MAX_REGIONS];
    int region_count;
};

enum kind { BARRIER = 1, REDUCE, REDUCE_SCATTER, GATHER, SCATTER, BROADCAST };

static const char *const kind_names[] = {
    [BARRIER] = "barrier", [REDUCE] = "reduce",   [REDUCE_SCATTER] = "reduce_scatter",
    [GATHER] = "gather",   [SCATTER] = "scatter", [BROADCAST] = "broadcast"};

static uint32_t what_of(enum kind kind, enum comm_type type, enum comm_op op, int root) {
    return (uint32_t)kind | (uint32_t)type << 4 | (uint32_t)op << 8 | (uint32_t)(root + 1) << 12;
}

/* ---- steps ---- */

/* The area that a rank writes before the next step, and the area that it wrote before the last one. */
static struct shm_area *area_next(struct shm_lane *lane, int rank) {
    return &lane->ranks[rank].areas[(lane->step + 1) & 1];
}
static struct shm_area *area_now(struct shm_lane *lane, int rank) { return &lane->ranks[rank].areas[lane->step & 1]; }

static status step(struct shm_group *g, struct shm_lane *lane) {
    shm_signal_raise(&lane->ranks[g->rank].step, ++lane->step);
    for (int i = 1; i < g->world; i++) {
        int rank = g->rank + i < g->world ? g->rank + i : g->rank + i - g->world;
        TRY(shm_signal_wait(&lane->ranks[rank].step, lane->step, &lane->policy, rank, g->members[rank],
                            &lane->deadline));
    }
    return OK;
}

static status mismatch(const struct shm_group *g, int rank, const struct shm_call *theirs,
                       const struct shm_call *mine) {
    uint32_t their_kind = theirs->what & 15, my_kind = mine->what & 15;
    return status_new(STATUS_PEER, "rank %d is in another call: %s of %llu bytes; here it is %s of %llu bytes",
                      g->members[rank],
                      their_kind <= BROADCAST && kind_names[their_kind] ? kind_names[their_kind] : "?",
                      (unsigned long long)theirs->size, kind_names[my_kind], (unsigned long long)mine->size);
}

static status compare(struct shm_group *g, struct shm_lane *lane, const struct shm_call *mine) {
    for (int r = 0; r < g->world; r++) {
        const struct shm_call *theirs = &area_now(lane, r)->call;
        if (theirs->what != mine->what || theirs->size != mine->size) return mismatch(g, r, theirs, mine);
    }
    return OK;
}

/* The first step of a call. Data that was written to area_next before can be read from area_now afterwards. */
static status begin(struct shm_group *g, struct shm_lane *lane, const struct shm_call *call) {
    area_next(lane, g->rank)->call = *call;
    TRY(step(g, lane));
    return compare(g, lane, call);
}

/* ---- slices ---- */

struct slice {
    size_t begin, count; /* elements */
};

/* The slice of [rank] of [count] elements of [size] bytes, aligned to cache lines. */
static struct slice slice_of(size_t count, size_t size, int rank, int world) {
    size_t line = LINE / size, lines = (count + line - 1) / line;
    size_t begin = lines * (size_t)rank / (size_t)world * line, end = lines * (size_t)(rank + 1) / (size_t)world * line;
    if (end > count) end = count;
    if (begin > count) begin = count;
    return (struct slice){begin, end - begin};
}

static void copy(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* ---- reductions ---- */

struct reduction {
    size_t count, size; /* elements, bytes of each */
    enum comm_type type;
    enum comm_op op;
    bool is_receiver; /* whether this rank gets the result */
    float factor;     /* of values before their sum; 0: none */
};

/* data (count): the result of lane->in. */
static void combine_ranks(const struct shm_group *g, struct shm_lane *lane, void *data, size_t count,
                          const struct reduction *r) {
    if (r->factor != 0)
        combine_scaled(data, (const float *const *)lane->in, g->world, count, r->factor);
    else
        combine(data, lane->in, g->world, count, r->type, r->op);
}

static status reduce_in_one_step(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                                 const struct shm_call *call) {
    memcpy(area_next(lane, g->rank)->data, data, r->count * r->size);
    TRY(begin(g, lane, call));
    if (!r->is_receiver) return OK;
    for (int i = 0; i < g->world; i++) lane->in[i] = area_now(lane, i)->data;
    lane->in[g->rank] = data;
    combine_ranks(g, lane, data, r->count, r);
    return OK;
}

/* The elements of chunk [n] of a reduction; empty after the last. */
static struct slice chunk_of(const struct reduction *r, size_t n) {
    size_t limit = CHUNK / r->size, start = n * limit;
    return (struct slice){start, start < r->count ? min(limit, r->count - start) : 0};
}

/* Copies this rank's chunk to its area, without the slice that it sums itself. */
static void copy_chunk(struct shm_group *g, struct shm_lane *lane, const char *data, const struct reduction *r,
                       struct slice chunk) {
    char *to = area_next(lane, g->rank)->data;
    const char *from = data + chunk.begin * r->size;
    struct slice own = slice_of(chunk.count, r->size, g->rank, g->world);
    size_t end = own.begin + own.count;
    memcpy(to, from, own.begin * r->size);
    memcpy(to + end * r->size, from + end * r->size, (chunk.count - end) * r->size);
}

/* Sums this rank's slice of the chunk of the last step; the others read the result after the next step. */
static void sum_own_slice(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                          struct slice chunk) {
    struct slice own = slice_of(chunk.count, r->size, g->rank, g->world);
    char *mine = data + (chunk.begin + own.begin) * r->size;
    char *result = area_next(lane, g->rank)->result + own.begin * r->size;
    for (int i = 0; i < g->world; i++) lane->in[i] = area_now(lane, i)->data + own.begin * r->size;
    lane->in[g->rank] = mine;
    combine_ranks(g, lane, result, own.count, r);
    if (r->is_receiver) memcpy(mine, result, own.count * r->size);
}

static void copy_results(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                         struct slice chunk) {
    for (int i = 0; i < g->world; i++) {
        struct slice s = slice_of(chunk.count, r->size, i, g->world);
        if (i == g->rank) continue;
        memcpy(data + (chunk.begin + s.begin) * r->size, area_now(lane, i)->result + s.begin * r->size,
               s.count * r->size);
    }
}

static status reduce_in_chunks(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r) {
    struct slice previous = {0}, chunk = chunk_of(r, 0);
    for (size_t n = 0; chunk.count || previous.count; n++) {
        if (chunk.count) copy_chunk(g, lane, data, r, chunk);
        TRY(step(g, lane));
        if (previous.count && r->is_receiver) copy_results(g, lane, data, r, previous);
        if (chunk.count) sum_own_slice(g, lane, data, r, chunk);
        previous = chunk;
        chunk = chunk_of(r, n + 1);
    }
    return OK;
}

/* ---- buffers of comm_alloc ---- */

/* Sets region and offset of [call] if [data] (size bytes) is in a buffer of comm_alloc. */
static void find_region(const struct shm_group *g, const void *data, size_t size, struct shm_call *call) {
    for (int i = 0; i < g->region_count; i++) {
        const char *own = (const char *)g->regions[i].base + (size_t)g->rank * g->strides[i], *at = data;
        if (at < own || at + size > own + g->strides[i]) continue;
        call->region = (uint32_t)i + 1;
        call->offset = (uint64_t)(at - own);
    }
}

static bool are_all_shared(struct shm_group *g, struct shm_lane *lane) {
    for (int r = 0; r < g->world; r++)
        if (area_now(lane, r)->call.region == 0) return false;
    return true;
}

/* The address here of the data that [rank] gave in the call of this step. */
static char *shared_data(struct shm_group *g, struct shm_lane *lane, int rank) {
    const struct shm_call *call = &area_now(lane, rank)->call;
    return (char *)g->regions[call->region - 1].base + (size_t)rank * g->strides[call->region - 1] + call->offset;
}

/* Each rank sums its slice and writes the result into the buffers of all ranks. */
static status reduce_in_place(struct shm_group *g, struct shm_lane *lane, const struct reduction *r) {
    struct slice own = slice_of(r->count, r->size, g->rank, g->world);
    size_t limit = BLOCK / r->size;
    for (size_t at = own.begin; at < own.begin + own.count; at += limit) {
        size_t count = min(limit, own.begin + own.count - at);
        for (int i = 0; i < g->world; i++) lane->in[i] = shared_data(g, lane, i) + at * r->size;
        char *mine = shared_data(g, lane, g->rank) + at * r->size;
        combine_ranks(g, lane, mine, count, r);
        for (int i = 0; i < g->world; i++)
            if (i != g->rank) memcpy(shared_data(g, lane, i) + at * r->size, mine, count * r->size);
    }
    return step(g, lane);
}

static status alloc(void *group, size_t size, void **out) {
    struct shm_group *g = group;
    char what[32];
    *out = NULL;
    if (g->region_count == MAX_REGIONS) return status_new(STATUS_IO, "too many shared buffers");
    size_t stride = (size + 4095) / 4096 * 4096 + 4096; /* one page more: avoids cache conflicts between ranks */
    snprintf(what, sizeof what, "alloc%d", g->region_count);
    struct shm_map *map = &g->regions[g->region_count];
    TRY(shm_map_open(&g->setup, what, stride * (size_t)g->world, map));
    g->strides[g->region_count++] = stride;
    *out = (char *)map->base + (size_t)g->rank * stride;
    return OK;
}

/* ---- the calls ---- */

static struct shm_lane *lane_of(struct shm_group *g, int lane) {
    g->lanes[lane].deadline = 0;
    return &g->lanes[lane];
}

static status reduce_by(struct shm_group *g, struct shm_lane *lane, void *data, const struct reduction *r, int root) {
    size_t bytes = r->count * r->size;
    struct shm_call call = {.what = what_of(REDUCE, r->type, r->op, root), .size = bytes};
    if (bytes <= ONE_STEP) return reduce_in_one_step(g, lane, data, r, &call);
    if (root == COMM_ALL) find_region(g, data, bytes, &call);
    TRY(begin(g, lane, &call));
    return root == COMM_ALL && are_all_shared(g, lane) ? reduce_in_place(g, lane, r)
                                                       : reduce_in_chunks(g, lane, data, r);
}

static status reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    struct shm_group *g = group;
    struct reduction r = {.count = count,
                          .size = comm_type_size(type),
                          .type = type,
                          .op = op,
                          .is_receiver = root == COMM_ALL || root == g->rank};
    return reduce_by(g, lane_of(g, lane), data, &r, root);
}

static status average(void *group, int lane, float *data, size_t count, float factor) {
    struct shm_group *g = group;
    struct reduction r = {.count = count,
                          .size = sizeof *data,
                          .type = COMM_FLOAT32,
                          .op = COMM_SUM,
                          .is_receiver = true,
                          .factor = factor};
    return reduce_by(g, lane_of(g, lane), data, &r, COMM_ALL);
}

/* data (world, count): a chunk has a piece of each rank's part. */
static status reduce_scatter(void *group, int lane_number, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    size_t size = comm_type_size(type), world = (size_t)g->world, line = LINE / size;
    size_t limit = CHUNK / size / world >= line ? CHUNK / size / world / line * line : CHUNK / size / world;
    struct shm_call call = {.what = what_of(REDUCE_SCATTER, type, op, COMM_ALL), .size = count * size};
    for (size_t at = 0; at < count; at += limit) {
        size_t n = min(limit, count - at);
        for (int r = 0; r < g->world; r++)
            if (r != g->rank)
                memcpy(area_next(lane, g->rank)->data + (size_t)r * limit * size,
                       (const char *)data + ((size_t)r * count + at) * size, n * size);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        for (int r = 0; r < g->world; r++) lane->in[r] = area_now(lane, r)->data + (size_t)g->rank * limit * size;
        lane->in[g->rank] = (const char *)data + ((size_t)g->rank * count + at) * size;
        combine((char *)out + at * size, lane->in, g->world, n, type, op);
    }
    return OK;
}

static status gather(void *group, int lane_number, const void *data, const size_t *sizes, void *out, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    bool is_receiver = root == COMM_ALL || root == g->rank;
    struct shm_call call = {.what = what_of(GATHER, 0, 0, root)};
    size_t largest = 0, own = 0;
    for (int r = 0; r < g->world; r++) {
        if (r == g->rank) own = call.size;
        call.size += sizes[r];
        if (sizes[r] > largest) largest = sizes[r];
    }
    if (is_receiver) copy((char *)out + own, data, sizes[g->rank]);
    for (size_t at = 0; at < largest; at += CHUNK) {
        if (at < sizes[g->rank])
            memcpy(area_next(lane, g->rank)->data, (const char *)data + at, min(CHUNK, sizes[g->rank] - at));
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        size_t offset = 0;
        for (int r = 0; is_receiver && r < g->world; offset += sizes[r++])
            if (r != g->rank && at < sizes[r])
                memcpy((char *)out + offset + at, area_now(lane, r)->data, min(CHUNK, sizes[r] - at));
    }
    return OK;
}

static status scatter(void *group, int lane_number, const void *data, size_t size, void *out, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    size_t limit = CHUNK / (size_t)g->world;
    struct shm_call call = {.what = what_of(SCATTER, 0, 0, root), .size = size};
    for (size_t at = 0; at < size; at += limit) {
        size_t n = min(limit, size - at);
        for (int r = 0; root == g->rank && r < g->world; r++)
            memcpy(area_next(lane, g->rank)->data + (size_t)r * limit, (const char *)data + (size_t)r * size + at, n);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        if (root != g->rank) memcpy((char *)out + at, area_now(lane, root)->data + (size_t)g->rank * limit, n);
    }
    if (root == g->rank) copy(out, (const char *)data + (size_t)root * size, size);
    return OK;
}

static status broadcast(void *group, int lane_number, void *data, size_t size, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_call call = {.what = what_of(BROADCAST, 0, 0, root), .size = size};
    for (size_t at = 0; at < size; at += CHUNK) {
        size_t n = min(CHUNK, size - at);
        if (root == g->rank) memcpy(area_next(lane, root)->data, (const char *)data + at, n);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        if (root != g->rank) memcpy((char *)data + at, area_now(lane, root)->data, n);
    }
    return OK;
}

static status barrier(void *group, int lane_number) {
    struct shm_group *g = group;
    struct shm_call call = {.what = what_of(BARRIER, 0, 0, COMM_ALL)};
    return begin(g, lane_of(g, lane_number), &call);
}

/* ---- send and recv ---- */

static struct shm_pair *pair_of(struct shm_group *g, struct shm_lane *lane, int from, int to) {
    return &lane->pairs[(size_t)from * (size_t)g->world + (size_t)to];
}

/* Chunks go alternately through two send buffers of the sender. It returns when the receiver has copied all chunks. */
static status send(void *group, int lane_number, const void *data, size_t size, int to) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_pair *pair = pair_of(g, lane, g->rank, to);
    uint32_t number = atomic_load(&pair->sent.number);
    for (size_t at = 0; at < size; at += PAIR_CHUNK) {
        TRY(shm_signal_wait(&pair->received, number - 1, &lane->policy, to, g->members[to], &lane->deadline));
        memcpy(lane->ranks[g->rank].send_buffer[number & 1], (const char *)data + at, min(PAIR_CHUNK, size - at));
        shm_signal_raise(&pair->sent, ++number);
    }
    return shm_signal_wait(&pair->received, number, &lane->policy, to, g->members[to], &lane->deadline);
}

static status recv(void *group, int lane_number, void *data, size_t size, int from) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_pair *pair = pair_of(g, lane, from, g->rank);
    uint32_t number = atomic_load(&pair->received.number);
    for (size_t at = 0; at < size; at += PAIR_CHUNK) {
        TRY(shm_signal_wait(&pair->sent, number + 1, &lane->policy, from, g->members[from], &lane->deadline));
        memcpy((char *)data + at, lane->ranks[from].send_buffer[number & 1], min(PAIR_CHUNK, size - at));
        shm_signal_raise(&pair->received, ++number);
    }
    return OK;
}

/* ---- create and destroy ---- */

/* A blocked call checks the flag every few milliseconds. */
static void abort_calls(void *group) { atomic_store(&((struct shm_group *)group)->is_aborted, true); }

static void destroy(void *group) {
    struct shm_group *g = group;
    if (!g) return;
    for (int i = 0; i < g->region_count; i++) shm_map_close(&g->regions[i]);
    shm_map_close(&g->map);
    for (int lane = 0; lane < COMM_LANES; lane++) free(g->lanes[lane].in);
    free(g->name);
    free(g);
}

static size_t lane_size(int world) {
    return (size_t)world * sizeof(struct shm_rank_memory) + (size_t)world * (size_t)world * sizeof(struct shm_pair);
}

static status create(const struct comm_setup *setup, void **out) {
    struct shm_group *g = calloc(1, sizeof *g);
    size_t world = (size_t)setup->world_size;
    *out = NULL;
    if (!g) return status_memory("a process group");
    *g = (struct shm_group){.rank = setup->rank,
                            .world = setup->world_size,
                            .members = setup->members,
                            .setup = *setup,
                            .name = strdup(setup->name),
                            .map = {.fd = -1}};
    g->setup.name = g->name;
    for (int lane = 0; lane < COMM_LANES; lane++) g->lanes[lane].in = calloc(world, sizeof *g->lanes[lane].in);
    processors_shorten_slice(); /* a waiting rank yields its core and must be scheduled again soon */
    status failure = shm_map_open(setup, "shm", COMM_LANES * lane_size(setup->world_size), &g->map);
    for (int i = 0; i < COMM_LANES && !failure; i++) {
        struct shm_lane *lane = &g->lanes[i];
        lane->ranks = (struct shm_rank_memory *)((char *)g->map.base + (size_t)i * lane_size(setup->world_size));
        lane->pairs = (struct shm_pair *)(lane->ranks + world);
        lane->policy = shm_wait_policy(&g->map, &g->is_aborted, setup->timeout, setup->world_size, i);
        if (!g->name || !lane->in) failure = status_memory("a process group");
    }
    if (failure)
        destroy(g);
    else
        *out = g;
    return failure;
}

const struct comm_backend comm_shm = {.name = "shm",
                                      .create = create,
                                      .destroy = destroy,
                                      .abort = abort_calls,
                                      .reduce = reduce,
                                      .average = average,
                                      .reduce_scatter = reduce_scatter,
                                      .gather = gather,
                                      .scatter = scatter,
                                      .broadcast = broadcast,
                                      .barrier = barrier,
                                      .send = send,
                                      .recv = recv,
                                      .alloc = alloc};

status comm_connect_shm(struct comm *comm) {
    if (comm->shared->host_count > 1)
        return status_new(STATUS_USAGE,
                          "dist.backend shm: the ranks are on %d hosts, or in different network namespaces; use auto "
                          "or gloo",
                          comm->shared->host_count);
    TRY(comm_connect_with(comm, &comm_shm));
    comm->shared->description = strdup("shared memory");
    return OK;
}
