/* Values are small whole numbers and powers of two, so that every sum and product is exact and the reference can be
 * computed in double and in 64-bit integers, in any order; only the last rounding to 16 bits remains, and is computed
 * in another way than in combine.c. The values repeat every 44 elements, so that the reference is cheap. */
#include "dist/comm/comm_check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/numbers/statistics.h"
#include "base/system/thread.h"
#include "dist/comm/combine.h"

/* Fewer than ranks; odd ones; around 64 KiB; several chunks. */
static const size_t counts[] = {1, 2, 3, 17, 1000, 8191, 16385, 65536, 200003};
#define COUNTS (sizeof counts / sizeof *counts)
#define MAX_ELEMENTS 800012 /* of a call, the parts of all ranks together */
#define PERIOD 44

static const char *const type_names[COMM_TYPES] = {"float32", "float64", "bfloat16", "float16",
                                                   "int32",   "int64",   "uint8"};
static const char *const op_names[COMM_OPS] = {"sum", "avg", "min", "max", "product"};

struct check {
    struct comm *comm;
    int rank, world;
    char *a, *b;   /* (MAX_ELEMENTS) elements of 8 bytes each */
    size_t *sizes; /* (world) */
    size_t checks;
    comm_check_progress *progress; /* NULL: none */
    void *context;
    const char *part;
    size_t done, total; /* parts */
};

static void report_progress(const struct check *c) {
    if (c->progress) c->progress(c->context, c->part, c->done, c->total, c->checks);
}

/* ---- values ---- */

static bool is_float(enum comm_type type) { return type <= COMM_FLOAT16; }

/* The input of rank r at index i. */
static int64_t whole_value(int rank, size_t i) { return (int64_t)((i * 7 + (size_t)rank * 5) % 11) - 3; }

static double value_of(enum comm_type type, enum comm_op op, int rank, size_t i) {
    static const double factors[] = {1, 2, 0.5, -1};
    if (is_float(type) && op == COMM_PRODUCT) return factors[(i + (size_t)rank) % 4];
    return (double)whole_value(rank, i);
}

static void put(void *data, size_t i, enum comm_type type, double value) {
    float as_float = (float)value;
    switch (type) {
    case COMM_FLOAT32:
        ((float *)data)[i] = as_float;
        break;
    case COMM_FLOAT64:
        ((double *)data)[i] = value;
        break;
    case COMM_BFLOAT16:
    case COMM_FLOAT16:
        combine_to_half((uint16_t *)data + i, &as_float, 1, type);
        break;
    case COMM_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case COMM_INT64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)(int)value;
    }
}

/* [value] rounded to [bits] significant bits, to nearest even. */
static double rounded(double value, int bits) {
    int exponent;
    double fraction = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

static double expected_float(enum comm_type type, enum comm_op op, int world, size_t i) {
    static const int bits[] = {[COMM_FLOAT32] = 24, [COMM_FLOAT64] = 53, [COMM_BFLOAT16] = 8, [COMM_FLOAT16] = 11};
    double result = value_of(type, op, 0, i);
    for (int r = 1; r < world; r++) {
        double next = value_of(type, op, r, i);
        result = op == COMM_PRODUCT ? result * next
                 : op == COMM_MIN   ? fmin(result, next)
                 : op == COMM_MAX   ? fmax(result, next)
                                    : result + next;
    }
    if (op == COMM_AVG) result = type == COMM_FLOAT64 ? result / world : (double)((float)result / (float)world);
    return rounded(result, bits[type]);
}

/* [value] converted to the type: uint8 values wrap around before they are compared or divided. */
static int64_t as_type(uint64_t value, enum comm_type type) {
    return type == COMM_UINT8 ? (int64_t)(uint8_t)value : type == COMM_INT32 ? (int32_t)value : (int64_t)value;
}

static double expected_whole(enum comm_type type, enum comm_op op, int world, size_t i) {
    int64_t result = as_type((uint64_t)whole_value(0, i), type);
    for (int r = 1; r < world; r++) {
        int64_t next = as_type((uint64_t)whole_value(r, i), type);
        if (op == COMM_MIN || op == COMM_MAX)
            result = (op == COMM_MIN) == (next < result) ? next : result;
        else
            result = as_type(op == COMM_PRODUCT ? (uint64_t)result * (uint64_t)next : (uint64_t)result + (uint64_t)next,
                             type);
    }
    return (double)(op == COMM_AVG ? result / world : result);
}

/* The source of a number: the input of rank [owner], or the result over all [world] ranks. */
struct check_source {
    int owner; /* -1: the result */
    int world;
    enum comm_op op;
};

static double number_of(struct check_source source, enum comm_type type, size_t i) {
    if (source.owner < 0)
        return is_float(type) ? expected_float(type, source.op, source.world, i)
                              : expected_whole(type, source.op, source.world, i);
    return is_float(type) ? value_of(type, source.op, source.owner, i)
                          : (double)as_type((uint64_t)whole_value(source.owner, i), type);
}

/* pattern (PERIOD): the numbers of elements [from], [from] + 1, ... */
static void make_pattern(void *pattern, struct check_source source, enum comm_type type, size_t from) {
    for (size_t i = 0; i < PERIOD; i++) put(pattern, i, type, number_of(source, type, (from + i) % PERIOD));
}

/* data (count): the input of [rank]. */
static void fill_input(void *data, size_t count, enum comm_type type, enum comm_op op, int rank) {
    char pattern[PERIOD * 8];
    size_t size = comm_type_size(type), all = count * size, period = PERIOD * size;
    make_pattern(pattern, (struct check_source){.owner = rank, .op = op}, type, 0);
    for (size_t at = 0; at < all; at += period)
        memcpy((char *)data + at, pattern, all - at < period ? all - at : period);
}

/* ---- comparing ---- */

/* A call, as it is named in a failure. */
struct call {
    const char *name;
    size_t count;
    enum comm_type type;
    enum comm_op op; /* COMM_OPS: none */
};

static double get(const void *data, size_t i, enum comm_type type) {
    float as_float;
    switch (type) {
    case COMM_FLOAT32:
        return (double)((const float *)data)[i];
    case COMM_FLOAT64:
        return ((const double *)data)[i];
    case COMM_BFLOAT16:
    case COMM_FLOAT16:
        combine_from_half(&as_float, (const uint16_t *)data + i, 1, type);
        return (double)as_float;
    case COMM_INT32:
        return ((const int32_t *)data)[i];
    case COMM_INT64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static status wrong_result(const struct check *c, struct call call, size_t i, double got, double expected) {
    return status_new(STATUS_BUG, "rank %d of %d, %s: %s of %zu %s%s%s: element %zu is %.9g, expected %.9g", c->rank,
                      c->world, comm_backend(c->comm), call.name, call.count, type_names[call.type],
                      call.op == COMM_OPS ? "" : ", ", call.op == COMM_OPS ? "" : op_names[call.op], i, got, expected);
}

/* data (count) must have the bits of the numbers of [source], starting at its element [from]. */
static status expect(struct check *c, struct call call, const void *data, size_t count, struct check_source source,
                     size_t from) {
    char pattern[PERIOD * 8];
    size_t size = comm_type_size(call.type), all = count * size, period = PERIOD * size;
    make_pattern(pattern, source, call.type, from);
    c->checks++;
    for (size_t at = 0; at < all; at += period) {
        size_t bytes = all - at < period ? all - at : period;
        const char *got = (const char *)data + at;
        if (memcmp(got, pattern, bytes) == 0) continue;
        size_t i = 0;
        while (memcmp(got + i * size, pattern + i * size, size) == 0) i++;
        return wrong_result(c, call, at / size + i, get(got, i, call.type), get(pattern, i, call.type));
    }
    return OK;
}

static status expect_result(struct check *c, struct call call, const void *data, size_t count, size_t from) {
    return expect(c, call, data, count, (struct check_source){.owner = -1, .world = c->world, .op = call.op}, from);
}

static status expect_data(struct check *c, struct call call, const void *data, size_t count, int owner, size_t from) {
    return expect(c, call, data, count, (struct check_source){.owner = owner, .op = COMM_SUM}, from);
}

/* ---- reductions ---- */

static status check_all_reduce(struct check *c, struct call call) {
    call.name = "all_reduce";
    fill_input(c->a, call.count, call.type, call.op, c->rank);
    TRY(comm_all_reduce(c->comm, c->a, call.count, call.type, call.op));
    return expect_result(c, call, c->a, call.count, 0);
}

static status check_reduce(struct check *c, struct call call) {
    call.name = "reduce";
    int root = (int)((call.count + (size_t)call.op) % (size_t)c->world);
    size_t bytes = call.count * comm_type_size(call.type);
    fill_input(c->a, call.count, call.type, call.op, c->rank);
    memcpy(c->b, c->a, bytes);
    TRY(comm_reduce(c->comm, c->a, call.count, call.type, call.op, root));
    if (c->rank == root) return expect_result(c, call, c->a, call.count, 0);
    return memcmp(c->a, c->b, bytes) == 0 ? OK : wrong_result(c, call, 0, NAN, 0);
}

/* [out] is this rank's part of the data, or another buffer. */
static status check_reduce_scatter(struct check *c, struct call call) {
    call.name = "reduce_scatter";
    if (call.count * (size_t)c->world > MAX_ELEMENTS) return OK;
    size_t size = comm_type_size(call.type), own = (size_t)c->rank * call.count;
    char *out = call.count % 2 ? c->a + own * size : c->b;
    fill_input(c->a, call.count * (size_t)c->world, call.type, call.op, c->rank);
    TRY(comm_reduce_scatter(c->comm, c->a, call.count, call.type, call.op, out));
    return expect_result(c, call, out, call.count, own);
}

/* ---- data movement ---- */

static status check_broadcast(struct check *c, struct call call) {
    call.name = "broadcast";
    int root = (int)(call.count % (size_t)c->world);
    fill_input(c->a, call.count, call.type, COMM_SUM, c->rank);
    TRY(comm_broadcast(c->comm, c->a, call.count, call.type, root));
    return expect_data(c, call, c->a, call.count, root, 0);
}

static status expect_gathered(struct check *c, struct call call, const char *all) {
    for (int r = 0; r < c->world; r++)
        TRY(expect_data(c, call, all + (size_t)r * call.count * comm_type_size(call.type), call.count, r, 0));
    return OK;
}

static status check_all_gather(struct check *c, struct call call) {
    call.name = "all_gather";
    if (call.count * (size_t)c->world > MAX_ELEMENTS) return OK;
    char *own = call.count % 2 ? c->b + (size_t)c->rank * call.count * comm_type_size(call.type) : c->a;
    fill_input(own, call.count, call.type, COMM_SUM, c->rank);
    TRY(comm_all_gather(c->comm, own, call.count, call.type, c->b));
    return expect_gathered(c, call, c->b);
}

static status check_gather(struct check *c, struct call call) {
    call.name = "gather";
    if (call.count * (size_t)c->world > MAX_ELEMENTS) return OK;
    int root = (int)(call.count % (size_t)c->world);
    fill_input(c->a, call.count, call.type, COMM_SUM, c->rank);
    TRY(comm_gather(c->comm, c->a, call.count, call.type, c->b, root));
    return c->rank == root ? expect_gathered(c, call, c->b) : OK;
}

static status check_scatter(struct check *c, struct call call) {
    call.name = "scatter";
    if (call.count * (size_t)c->world > MAX_ELEMENTS) return OK;
    int root = (int)(call.count % (size_t)c->world);
    if (c->rank == root) fill_input(c->a, call.count * (size_t)c->world, call.type, COMM_SUM, root);
    TRY(comm_scatter(c->comm, c->a, call.count, call.type, c->b, root));
    return expect_data(c, call, c->b, call.count, root, (size_t)c->rank * call.count);
}

/* Each rank sends to the next one, the last to the first; even ranks send before they receive. */
static status check_pairs(struct check *c, struct call call) {
    call.name = "send";
    if (c->world == 1) return OK;
    int next = (c->rank + 1) % c->world, previous = (c->rank + c->world - 1) % c->world;
    fill_input(c->a, call.count, call.type, COMM_SUM, c->rank);
    if (c->rank % 2 == 0) TRY(comm_send(c->comm, c->a, call.count, call.type, next));
    TRY(comm_recv(c->comm, c->b, call.count, call.type, previous));
    if (c->rank % 2) TRY(comm_send(c->comm, c->a, call.count, call.type, next));
    return expect_data(c, call, c->b, call.count, previous, 0);
}

/* Rank r sends r * 13 % 29 times ([count] % 1024) bytes with the value r + 1; some send none. [root] -1:
 * all_gather_bytes. */
static status check_bytes(struct check *c, struct call call, int root) {
    call.name = root < 0 ? "all_gather_bytes" : "gather_bytes";
    size_t unit = call.count % 1024, own = unit * (size_t)(c->rank * 13 % 29);
    void *all;
    memset(c->a, c->rank + 1, own);
    TRY(root < 0 ? comm_all_gather_bytes(c->comm, c->a, own, &all, c->sizes)
                 : comm_gather_bytes(c->comm, c->a, own, root, &all, c->sizes));
    c->checks++;
    status failure = OK;
    const uint8_t *at = all;
    for (int r = 0; r < c->world && !failure; r++) {
        if (c->sizes[r] != unit * (size_t)(r * 13 % 29))
            failure = wrong_result(c, call, (size_t)r, (double)c->sizes[r], (double)(unit * (size_t)(r * 13 % 29)));
        for (size_t i = 0; all && i < c->sizes[r] && !failure; i++)
            if (at[i] != (uint8_t)(r + 1)) failure = wrong_result(c, call, i, at[i], r + 1);
        if (all) at += c->sizes[r];
    }
    if (!failure && !all != (root >= 0 && root != c->rank)) failure = wrong_result(c, call, 0, NAN, 0);
    free(all);
    return failure;
}

/* ---- parts ---- */

/* Every type with every operation; each combination at a third of the sizes. */
static status check_reductions(struct check *c) {
    for (int type = 0; type < COMM_TYPES; type++)
        for (int op = 0; op < COMM_OPS; op++)
            for (size_t i = (size_t)(type + op) % 3; i < COUNTS; i += 3) {
                report_progress(c);
                struct call call = {.count = counts[i], .type = (enum comm_type)type, .op = (enum comm_op)op};
                TRY(check_all_reduce(c, call));
                TRY(check_reduce(c, call));
                TRY(check_reduce_scatter(c, call));
            }
    return OK;
}

static status check_moves(struct check *c) {
    for (int type = 0; type < COMM_TYPES; type++)
        for (size_t i = (size_t)type % 3; i < COUNTS; i += 3) {
            report_progress(c);
            struct call call = {.count = counts[i], .type = (enum comm_type)type, .op = COMM_OPS};
            TRY(check_broadcast(c, call));
            TRY(check_all_gather(c, call));
            TRY(check_gather(c, call));
            TRY(check_scatter(c, call));
            TRY(check_pairs(c, call));
            TRY(comm_barrier(c->comm));
        }
    return OK;
}

static status check_all_bytes(struct check *c) {
    for (size_t i = 0; i < COUNTS; i++) {
        report_progress(c);
        struct call call = {.count = counts[i], .type = COMM_UINT8, .op = COMM_OPS};
        TRY(check_bytes(c, call, -1));
        TRY(check_bytes(c, call, (int)(counts[i] % (size_t)c->world)));
    }
    return OK;
}

struct lane_call {
    struct check check;
    size_t count;
    status failure;
};

static void *call_on_lane(void *argument) {
    struct lane_call *call = argument;
    for (int i = 0; i < 20 && !call->failure; i++)
        call->failure =
            check_all_reduce(&call->check, (struct call){.count = call->count, .type = COMM_FLOAT32, .op = COMM_SUM});
    return NULL;
}

/* Both lanes at once, with calls of different sizes. */
static status check_lanes(struct check *c) {
    struct lane_call calls[COMM_LANES] = {{.check = *c, .count = 1000}, {.check = *c, .count = 100001}};
    pthread_t thread;
    if (!comm_lane(c->comm, COMM_THREAD_LANE)) return OK; /* a group on GPUs */
    calls[1].check.comm = comm_lane(c->comm, COMM_THREAD_LANE);
    calls[1].check.a = c->b;
    TRY(thread_start(&thread, "lane", "a thread for the second lane", call_on_lane, &calls[1]));
    call_on_lane(&calls[0]);
    pthread_join(thread, NULL);
    c->checks += calls[0].check.checks + calls[1].check.checks - 2 * c->checks;
    return status_first(calls[0].failure, calls[1].failure);
}

/* ---- groups ---- */

static const struct part {
    const char *name;
    status (*run)(struct check *c);
} parts[] = {{"reductions", check_reductions},
             {"data between ranks", check_moves},
             {"bytes of any size", check_all_bytes},
             {"two lanes at once", check_lanes}};
#define PARTS (sizeof parts / sizeof *parts)

static status check_parts(struct comm *comm, comm_check_progress *progress, void *context, size_t *checks) {
    struct check c = {.comm = comm,
                      .rank = comm_rank(comm),
                      .world = comm_world_size(comm),
                      .progress = progress,
                      .context = context,
                      .total = PARTS + 1};
    c.a = malloc((size_t)MAX_ELEMENTS * 8);
    c.b = malloc((size_t)MAX_ELEMENTS * 8);
    c.sizes = malloc((size_t)c.world * sizeof *c.sizes);
    status failure = c.a && c.b && c.sizes ? OK : status_memory("the check of the collectives");
    for (size_t i = 0; i < PARTS && !failure; i++) {
        c.part = parts[i].name;
        c.done = i;
        report_progress(&c);
        failure = parts[i].run(&c);
    }
    free(c.a);
    free(c.b);
    free(c.sizes);
    *checks += c.checks;
    return failure;
}

/* One reduction and one gather, which show the members of the group. */
static status check_members(struct comm *comm, int world, int rank, size_t *checks) {
    int32_t number = 1, numbers[2] = {world, rank}, all[2 * 64];
    ++*checks;
    if (comm_world_size(comm) != world || comm_rank(comm) != rank)
        return status_new(STATUS_BUG, "split: rank %d of %d, expected rank %d of %d", comm_rank(comm),
                          comm_world_size(comm), rank, world);
    TRY(comm_all_reduce(comm, &number, 1, COMM_INT32, COMM_SUM));
    if (number != world) return status_new(STATUS_BUG, "split: a sum over %d ranks, expected %d", number, world);
    if (world > 64) return OK;
    TRY(comm_all_gather(comm, numbers, 2, COMM_INT32, all));
    for (int r = 0; r < world; r++)
        if (all[2 * r] != world || all[2 * r + 1] != r)
            return status_new(STATUS_BUG, "split: the ranks are in the wrong order");
    return OK;
}

/* Groups of even and of odd ranks, the latter in reverse order; halves of those; and a group without rank 0. */
static status check_split(struct comm *comm, size_t *checks) {
    int rank = comm_rank(comm), world = comm_world_size(comm);
    int is_odd = rank % 2, count = (world + !is_odd) / 2, new_rank = is_odd ? count - 1 - rank / 2 : rank / 2;
    struct comm *half, *quarter = NULL, *others;
    TRY(comm_split(comm, is_odd, is_odd ? -rank : 0, &half));
    status failure = check_members(half, count, new_rank, checks);
    if (!failure) failure = comm_split(half, new_rank < count / 2, 0, &quarter);
    if (!failure)
        failure = check_members(quarter, new_rank < count / 2 ? count / 2 : count - count / 2,
                                new_rank < count / 2 ? new_rank : new_rank - count / 2, checks);
    comm_destroy(quarter);
    comm_destroy(half);
    TRY(failure);
    TRY(comm_split(comm, rank == 0 ? -1 : 7, 0, &others));
    if (!others != (rank == 0)) return status_new(STATUS_BUG, "split: rank %d has the wrong group", rank);
    if (others) failure = check_members(others, world - 1, rank - 1, checks);
    comm_destroy(others);
    return failure;
}

status comm_check(struct comm *comm, comm_check_progress *progress, void *context, size_t *checks) {
    *checks = 0;
    TRY(check_parts(comm, progress, context, checks));
    if (progress) progress(context, "groups", PARTS, PARTS + 1, *checks);
    return check_split(comm, checks);
}

/* ---- measurements ---- */

/* The number of calls in a round is computed from the time of the first ones on the slowest rank, so it is equal on all
 * ranks. */

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

bool comm_measure_exists(enum comm_measure measure, struct comm *comm) {
    bool is_on_gpus = !comm_lane(comm, COMM_THREAD_LANE); /* never copied there */
    if (measure == MEASURE_LIBRARY_SUM) return comm_has_library_sum(comm);
    return measure != MEASURE_ALL_REDUCE_COPIED || !is_on_gpus;
}

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
    case MEASURE_LIBRARY_SUM:
        return comm_library_sum(m->comm, m->shared, count);
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

status comm_measurer_run(struct comm_measurer *m, enum comm_measure measure, size_t bytes, double *seconds) {
    double rounds[ROUNDS], first;
    size_t count = bytes / sizeof(float);
    TRY(time_calls(m, measure, count, 2, &first)); /* warm-up: page faults of the first accesses */
    TRY(time_calls(m, measure, count, 2, &first));
    double calls = first > 0 ? ROUND_SECONDS / (first / 2) : MAX_CALLS;
    int times = calls < 2 ? 2 : calls > MAX_CALLS ? (int)MAX_CALLS : (int)calls;
    for (int i = 0; i < ROUNDS; i++) TRY(time_calls(m, measure, count, times, &rounds[i]));
    qsort(rounds, ROUNDS, sizeof *rounds, statistics_compare);
    *seconds = rounds[ROUNDS / 2] / times / (measure == MEASURE_SEND_RECV ? 2 : 1);
    return OK;
}
