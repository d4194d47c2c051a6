/* The backend "mpi": MPI's point-to-point messages, sums by combine(). Built once for each MPI that the build finds
 * (ddptrain_openmpi.so, ddptrain_mpich.so), because their binary interfaces differ; comm.c opens the one that has
 * started the job.
 *
 * MPI's own reductions are not used: their order of sums depends on algorithm, size and number of ranks. Every message
 * is non-blocking and polled with a deadline, because a blocking call of MPI does not end when a peer is lost; the
 * store reports the loss and aborts the poll. MPI_Init_thread and the MPI_Allreduce of `ddptrain comm` do block: after
 * a loss the store ends such a process (store_options.overdue). Groups are not communicators, whose creation would
 * block without a deadline: all messages are in MPI_COMM_WORLD, and the tag holds the number of the group and the lane.
 * MPI connects two ranks at their first message.
 *
 * Rounds of a call on n ranks: up to log2(n) where messages are small, 2 log2(n) where slices are small; else every
 * rank sends its slices directly, and as many bytes as a ring. */
#include <mpi.h>

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/machine.h"
#include "base/system/signals.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm_backend.h"

#define MAX_MESSAGE ((size_t)1 << 30)   /* bytes; MPI counts with int */
#define CHUNK ((size_t)256 << 10)       /* bytes of a slice that are summed at once */
#define PAIR_CHUNK ((size_t)512 << 10)  /* the same between two ranks, */
#define PAIR_PIECE ((size_t)32 << 10)   /* and of up to four of these, which MPI sends without asking the receiver */
#define SMALL_TOTAL ((size_t)128 << 10) /* bytes of all ranks together that each rank may get whole */
#define SMALL_SLICE ((size_t)4 << 10)   /* bytes of a slice below which rounds are fewer, and bytes more */
#define DIRECT_RANKS 4                  /* so few ranks exchange small messages in one round */
/* A poll yields at first, then sleeps an eighth of its time so far, at most MAX_SLEEP. MPI transfers only while it is
 * polled. The communication thread shares the cores with computation. */
#define YIELD_SECONDS 3e-3
#define THREAD_YIELD_SECONDS 2e-4
#define MAX_SLEEP 50e-6
#define FINALIZE_SECONDS 30 /* then the process ends without MPI_Finalize */

extern const struct comm_backend ddptrain_comm_mpi;

/* ---- MPI in this process ---- */

struct group;

/* MPI exists once in a process and cannot be started again. */
static struct {
    struct group *abandoned; /* groups that have failed: MPI may still use their memory */
    pthread_mutex_t mutex;   /* one thread at a time is in MPI (MPI_THREAD_SERIALIZED); guards what follows */
    bool is_initialized, allows_threads;
    int rank, size;
    int max_tag;
    int next_number;        /* of a group */
    atomic_bool has_failed; /* a call failed: MPI is not called again, not even to finalize */
} mpi = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static status failed(int code) {
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return status_new(STATUS_PEER, "MPI: %s", text);
}

static void *end_overdue(void *code) {
    clock_sleep(FINALIZE_SECONDS);
    _exit(*(int *)code);
}

/* After a clean end or a stop, which all ranks reach. After a failure of any rank MPI_Finalize would wait for ranks
 * that do not call it. */
static void finalize(int code, void *unused) {
    static int exit_code;
    (void)unused;
    pthread_t thread;
    if (atomic_load(&mpi.has_failed) || (code != 0 && code != STATUS_STOPPED)) return;
    exit_code = code;
    if (pthread_create(&thread, NULL, end_overdue, &exit_code) != 0) return;
    pthread_mutex_lock(&mpi.mutex);
    MPI_Finalize();
    pthread_mutex_unlock(&mpi.mutex);
}

static status start(void) {
    int provided = 0, *tag = NULL, has_tag = 0;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS) return status_new(STATUS_IO, "MPI_Init_thread failed (%d)", code);
    mpi.is_initialized = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag, &has_tag);
    mpi.max_tag = has_tag ? *tag : 32767;
    on_exit(finalize, NULL);
    mpi.allows_threads = provided >= MPI_THREAD_SERIALIZED;
    return OK;
}

/* Starts MPI at the first call. [job_rank]: of this process. */
static status start_once(int job_rank, int max_rank) {
    sigset_t before;
    status failure = OK;
    pthread_mutex_lock(&mpi.mutex);
    if (!mpi.is_initialized) {
        signals_block_all(&before); /* MPI's threads must leave signals to the main thread */
        failure = start();
        signals_restore(&before);
    }
    if (!failure && !mpi.allows_threads)
        failure =
            status_new(STATUS_IO, "this MPI allows calls from the main thread only (MPI_THREAD_SERIALIZED is needed)");
    if (!failure && (mpi.rank != job_rank || mpi.size <= max_rank))
        failure =
            status_new(STATUS_IO,
                       "MPI counts this process as rank %d of %d, the job as rank %d; start it with the mpirun of "
                       "this MPI, or with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
                       mpi.rank, mpi.size, job_rank);
    pthread_mutex_unlock(&mpi.mutex);
    return failure;
}

/* ---- the group ---- */

/* Messages that are being transferred. */
struct requests {
    MPI_Request *list;
    MPI_Status *statuses;
    int *sizes; /* bytes to receive; -1: a send */
    int count, capacity;
};

enum { FIRST, SECOND, FIRST_RESULT, SECOND_RESULT, SETS };

struct lane {
    struct requests sets[SETS];
    char *scratch;
    size_t scratch_size;
    char *kept;          /* the result of a slice on a rank whose data must not change */
    const void **inputs; /* (world) */
};

struct group {
    int rank, world, number;
    int *members; /* (world): ranks in MPI_COMM_WORLD */
    double timeout;
    atomic_bool is_aborted;
    struct lane lanes[COMM_LANES];
    struct group *next; /* in the list of groups whose memory MPI may still use */
};

/* A call on one lane. */
struct call {
    struct group *g;
    struct lane *lane;
    int tag;
    double deadline;
};

static struct call begin(struct group *g, int lane) {
    return (struct call){g, &g->lanes[lane], g->number * COMM_LANES + lane, clock_seconds() + g->timeout};
}

static bool is_ended(const struct group *g) { return atomic_load(&g->is_aborted) || atomic_load(&mpi.has_failed); }

/* Requests of a failed call stay with MPI, with their memory, until the process ends. */
static status give_up(status failure) {
    atomic_store(&mpi.has_failed, true);
    return failure;
}

/* *out: [size] bytes, valid until the next call of the lane. */
static status reserve(const struct call *c, size_t size, char **out) {
    struct lane *lane = c->lane;
    if (lane->scratch_size < size) {
        free(lane->scratch);
        lane->scratch = malloc(size);
        lane->scratch_size = lane->scratch ? size : 0;
    }
    *out = lane->scratch;
    return *out ? OK : status_memory("communication");
}

static status grow(struct requests *r) {
    int capacity = r->capacity ? 2 * r->capacity : 16;
    size_t n = (size_t)capacity;
    void *list = realloc(r->list, n * sizeof *r->list);
    if (list) r->list = list;
    void *statuses = list ? realloc(r->statuses, n * sizeof *r->statuses) : NULL;
    if (statuses) r->statuses = statuses;
    void *sizes = statuses ? realloc(r->sizes, n * sizeof *r->sizes) : NULL;
    if (!sizes) return status_memory("communication");
    r->sizes = sizes;
    r->capacity = capacity;
    return OK;
}

static status post(const struct call *c, int set, int peer, char *data, size_t size, bool is_send) {
    struct requests *r = &c->lane->sets[set];
    int to = c->g->members[peer], code = MPI_SUCCESS;
    for (size_t at = 0; at < size; at += MAX_MESSAGE) {
        int part = (int)(size - at < MAX_MESSAGE ? size - at : MAX_MESSAGE);
        if (r->count == r->capacity) TRY(grow(r));
        if (is_ended(c->g)) return status_new(STATUS_PEER, "MPI: aborted");
        pthread_mutex_lock(&mpi.mutex);
        code = is_send ? MPI_Isend(data + at, part, MPI_BYTE, to, c->tag, MPI_COMM_WORLD, &r->list[r->count])
                       : MPI_Irecv(data + at, part, MPI_BYTE, to, c->tag, MPI_COMM_WORLD, &r->list[r->count]);
        pthread_mutex_unlock(&mpi.mutex);
        if (code != MPI_SUCCESS) return give_up(failed(code));
        r->sizes[r->count++] = is_send ? -1 : part;
    }
    return OK;
}

static status post_send(const struct call *c, int set, int peer, const void *data, size_t size) {
    return post(c, set, peer, (char *)(uintptr_t)data, size, true);
}

static status post_recv(const struct call *c, int set, int peer, void *data, size_t size) {
    return post(c, set, peer, data, size, false);
}

/* A shorter message than expected is one of another call. */
static status compare_sizes(const struct requests *r) {
    for (int i = 0; i < r->count; i++) {
        int received = 0;
        if (r->sizes[i] < 0) continue;
        MPI_Get_count(&r->statuses[i], MPI_BYTE, &received);
        if (received != r->sizes[i])
            return status_new(STATUS_PEER,
                              "MPI: rank %d is in another collective call (%d bytes came, %d are expected)",
                              r->statuses[i].MPI_SOURCE, received, r->sizes[i]);
    }
    return OK;
}

/* Waits for all messages of [set]. */
static status wait(const struct call *c, int set) {
    struct requests *r = &c->lane->sets[set];
    bool is_main = c->lane == &c->g->lanes[COMM_MAIN_LANE];
    double start = clock_seconds(), yield_seconds = is_main ? YIELD_SECONDS : THREAD_YIELD_SECONDS;
    for (int is_complete = r->count == 0; !is_complete;) {
        if (is_ended(c->g)) return give_up(status_new(STATUS_PEER, "MPI: aborted"));
        pthread_mutex_lock(&mpi.mutex);
        int code = MPI_Testall(r->count, r->list, &is_complete, r->statuses);
        pthread_mutex_unlock(&mpi.mutex);
        if (code != MPI_SUCCESS) return give_up(failed(code));
        if (is_complete) break;
        double now = clock_seconds(), waited = now - start;
        if (now > c->deadline) return give_up(status_new(STATUS_PEER, "MPI: no answer for %g s", c->g->timeout));
        if (waited < yield_seconds)
            sched_yield();
        else
            clock_sleep(waited / 8 < MAX_SLEEP ? waited / 8 : MAX_SLEEP);
    }
    status failure = compare_sizes(r);
    r->count = 0;
    return failure ? give_up(failure) : OK;
}

/* ---- exchanges ---- */

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static int rank_after(const struct group *g, int steps) { return (g->rank + steps) % g->world; }

static int rank_before(const struct group *g, int steps) { return (g->rank + g->world - steps % g->world) % g->world; }

static void copy(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

/* blocks (world, size): the data of rank + i is block i; block 0 is this rank's, the others are received. Round by
 * round each rank has twice as many (Bruck's algorithm). */
static status gather_blocks(const struct call *c, char *blocks, size_t size) {
    const struct group *g = c->g;
    for (int have = 1, n; have < g->world; have += n) {
        n = have < g->world - have ? have : g->world - have;
        if (g->world <= DIRECT_RANKS) n = 1;
        TRY(post_recv(c, FIRST, rank_after(g, have), blocks + (size_t)have * size, (size_t)n * size));
        TRY(post_send(c, FIRST, rank_before(g, have), blocks, (size_t)n * size));
        if (g->world > DIRECT_RANKS) TRY(wait(c, FIRST));
    }
    return wait(c, FIRST);
}

/* blocks (world, size): block i is sent to rank + i; after the call it is the one of rank - i. packed (world + 1,
 * size). In the round of bit k, the blocks that have to travel further by 2^k ranks go there together. */
static status exchange_blocks(const struct call *c, char *blocks, char *packed, size_t size) {
    const struct group *g = c->g;
    for (int step = 1; step < g->world; step *= 2) {
        size_t n = 0;
        for (int i = step; i < g->world; i++)
            if (i & step) memcpy(packed + n++ * size, blocks + (size_t)i * size, size);
        char *received = packed + n * size;
        TRY(post_recv(c, FIRST, rank_before(g, step), received, n * size));
        TRY(post_send(c, FIRST, rank_after(g, step), packed, n * size));
        TRY(wait(c, FIRST));
        for (int i = step; i < g->world; i++) {
            if (!(i & step)) continue;
            memcpy(blocks + (size_t)i * size, received, size);
            received += size;
        }
    }
    return OK;
}

/* ---- reductions ---- */

static const void **inputs_of_blocks(const struct call *c, const char *blocks, size_t size, bool is_after) {
    const struct group *g = c->g;
    for (int i = 0; i < g->world; i++)
        c->lane->inputs[is_after ? rank_after(g, i) : rank_before(g, i)] = blocks + (size_t)i * size;
    return c->lane->inputs;
}

static status reduce_small(const struct call *c, void *data, size_t count, enum comm_type type, enum comm_op op) {
    size_t size = count * comm_type_size(type);
    char *blocks;
    TRY(reserve(c, (size_t)c->g->world * size, &blocks));
    memcpy(blocks, data, size);
    TRY(gather_blocks(c, blocks, size));
    combine(data, inputs_of_blocks(c, blocks, size, true), c->g->world, count, type, op);
    return OK;
}

/* Slices of equal size, those of the last ranks partly or wholly beyond the end of the data. */
static status reduce_small_slices(const struct call *c, void *data, size_t count, enum comm_type type,
                                  enum comm_op op) {
    const struct group *g = c->g;
    size_t world = (size_t)g->world, element = comm_type_size(type), part = (count + world - 1) / world;
    size_t size = part * element, bytes = count * element;
    char *blocks, *to = data;
    TRY(reserve(c, (2 * world + 1) * size, &blocks));
    for (int i = 0; i < g->world; i++) {
        size_t at = min_size((size_t)rank_after(g, i) * size, bytes), n = min_size(size, bytes - at);
        memcpy(blocks + (size_t)i * size, to + at, n);
        memset(blocks + (size_t)i * size + n, 0, size - n);
    }
    TRY(exchange_blocks(c, blocks, blocks + world * size, size));
    combine(blocks, inputs_of_blocks(c, blocks, size, false), g->world, part, type, op);
    TRY(gather_blocks(c, blocks, size));
    for (int i = 0; i < g->world; i++) {
        size_t at = min_size((size_t)rank_after(g, i) * size, bytes);
        memcpy(to + at, blocks + (size_t)i * size, min_size(size, bytes - at));
    }
    return OK;
}

/* Two ranks send each other all data: as many bytes as slices and results, in one phase. While a chunk is summed the
 * next is transferred. */
static status reduce_pair(const struct call *c, void *data, size_t count, enum comm_type type, enum comm_op op,
                          int root) {
    const struct group *g = c->g;
    size_t element = comm_type_size(type), bytes = count * element;
    bool is_receiver = root == COMM_ALL || root == g->rank, is_sender = root != g->rank;
    size_t chunk = bytes <= 4 * PAIR_PIECE ? PAIR_PIECE : PAIR_CHUNK;
    char *buffers, *mine = data;
    TRY(reserve(c, 2 * chunk, &buffers));
    for (size_t posted = 0, at = 0; at < bytes; at += chunk) {
        for (; posted < bytes && posted <= at + chunk; posted += chunk) {
            size_t n = min_size(chunk, bytes - posted);
            int turn = (int)(posted / chunk % 2);
            if (is_receiver) TRY(post_recv(c, turn, 1 - g->rank, buffers + (size_t)turn * chunk, n));
            if (is_sender) TRY(post_send(c, turn, 1 - g->rank, mine + posted, n));
        }
        int turn = (int)(at / chunk % 2);
        TRY(wait(c, turn));
        const void *inputs[2] = {mine + at, mine + at};
        inputs[1 - g->rank] = buffers + (size_t)turn * chunk;
        if (is_receiver) combine(mine + at, inputs, 2, min_size(chunk, bytes - at) / element, type, op);
    }
    return OK;
}

/* The slices of an array: slice r, of rank r, begins at element begins[r] and ends at begins[r + 1]. */
struct slices {
    const char *data;
    size_t element; /* bytes */
    size_t count, world;
    bool are_equal; /* world * count elements, count in each slice; else count elements in all */
};

static size_t slice_begin(const struct slices *s, size_t rank) {
    if (s->are_equal) return rank * s->count;
    size_t more = s->count % s->world;
    return rank * (s->count / s->world) + (rank < more ? rank : more);
}

/* *at: byte at which chunk [chunk] of the slice of [rank] begins; its size in bytes, 0: the slice ends before. */
static size_t slice_chunk(const struct slices *s, int rank, size_t chunk, size_t *at) {
    size_t begin = slice_begin(s, (size_t)rank) * s->element, end = slice_begin(s, (size_t)rank + 1) * s->element;
    *at = begin + chunk * CHUNK;
    return *at < end ? min_size(CHUNK, end - *at) : 0;
}

static status post_parts(const struct call *c, const struct slices *s, size_t chunk, char *buffers) {
    const struct group *g = c->g;
    size_t at, own = slice_chunk(s, g->rank, chunk, &at), turn = chunk % 2;
    for (int step = 1; step < g->world; step++) {
        int from = rank_before(g, step), to = rank_after(g, step);
        char *buffer = buffers + (turn * s->world + (size_t)from) * CHUNK;
        TRY(post_recv(c, (int)turn, from, buffer, own));
        size_t n = slice_chunk(s, to, chunk, &at);
        TRY(post_send(c, (int)turn, to, s->data + at, n));
    }
    return OK;
}

/* The results of chunk [chunk] of every slice; out: this rank's result. data: where they go, NULL: only to [root]. */
static status post_results(const struct call *c, const struct slices *s, size_t chunk, char *data, const char *out,
                           int root) {
    const struct group *g = c->g;
    size_t at, own = slice_chunk(s, g->rank, chunk, &at);
    int set = FIRST_RESULT + (int)(chunk % 2);
    bool is_receiver = root == COMM_ALL || root == g->rank;
    TRY(wait(c, set));
    for (int step = 1; step < g->world; step++) {
        int from = rank_before(g, step), to = rank_after(g, step);
        size_t n = slice_chunk(s, from, chunk, &at);
        if (is_receiver) TRY(post_recv(c, set, from, data + at, n));
        if (root == COMM_ALL || root == to) TRY(post_send(c, set, to, out, own));
    }
    return OK;
}

/* out (own slice): the result of this rank's slice. Chunk by chunk, while the parts of the next are transferred.
 * [data]: where the results of the other slices go, on [root]; NULL: nowhere. */
static status reduce_slices(const struct call *c, const struct slices *s, enum comm_type type, enum comm_op op,
                            char *out, char *data, int root) {
    const struct group *g = c->g;
    size_t longest = (slice_begin(s, 1) - slice_begin(s, 0)) * s->element, chunks = (longest + CHUNK - 1) / CHUNK;
    char *buffers;
    TRY(reserve(c, 2 * s->world * CHUNK, &buffers));
    for (size_t chunk = 0; chunk < 2 && chunk < chunks; chunk++) TRY(post_parts(c, s, chunk, buffers));
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        size_t at, n = slice_chunk(s, g->rank, chunk, &at);
        TRY(wait(c, (int)(chunk % 2)));
        for (int r = 0; r < g->world; r++)
            c->lane->inputs[r] = r == g->rank ? s->data + at : buffers + (chunk % 2 * s->world + (size_t)r) * CHUNK;
        char *result = out + chunk * CHUNK;
        if (n) combine(result, c->lane->inputs, g->world, n / s->element, type, op);
        if (data) TRY(post_results(c, s, chunk, data, result, root));
        if (chunk + 2 < chunks) TRY(post_parts(c, s, chunk + 2, buffers));
    }
    TRY(wait(c, FIRST_RESULT));
    return wait(c, SECOND_RESULT);
}

/* With slices and a root: the others must keep their data, so their results are elsewhere. */
static status reduce_to_slices(const struct call *c, char *data, size_t count, enum comm_type type, enum comm_op op,
                               int root) {
    const struct group *g = c->g;
    struct slices s = {data, comm_type_size(type), count, (size_t)g->world, false};
    size_t begin = slice_begin(&s, (size_t)g->rank), end = slice_begin(&s, (size_t)g->rank + 1);
    bool is_receiver = root == COMM_ALL || root == g->rank;
    char *kept = is_receiver ? NULL : realloc(c->lane->kept, (end - begin) * s.element + 1);
    if (!is_receiver && !kept) return status_memory("communication");
    if (kept) c->lane->kept = kept;
    return reduce_slices(c, &s, type, op, kept ? kept : data + begin * s.element, data, root);
}

static status reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    struct call c = begin(group, lane);
    size_t world = (size_t)c.g->world, bytes = count * comm_type_size(type);
    if (world == 2) return reduce_pair(&c, data, count, type, op, root);
    if (root == COMM_ALL && bytes * world <= SMALL_TOTAL) return reduce_small(&c, data, count, type, op);
    if (root == COMM_ALL && world > DIRECT_RANKS && bytes / world < SMALL_SLICE)
        return reduce_small_slices(&c, data, count, type, op);
    return reduce_to_slices(&c, data, count, type, op, root);
}

static status reduce_scatter(void *group, int lane, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out) {
    struct call c = begin(group, lane);
    struct slices s = {data, comm_type_size(type), count, (size_t)c.g->world, true};
    return reduce_slices(&c, &s, type, op, out, NULL, COMM_ALL);
}

/* MPI's own, for a group of all ranks. */
static status library_sum(void *group, float *data, size_t count) {
    struct group *g = group;
    if (g->world != mpi.size || count > INT_MAX) return status_new(STATUS_USAGE, "MPI_Allreduce is for all ranks only");
    pthread_mutex_lock(&mpi.mutex);
    int code = MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    pthread_mutex_unlock(&mpi.mutex);
    return code == MPI_SUCCESS ? OK : give_up(failed(code));
}

/* ---- data movement ---- */

static status gather_direct(const struct call *c, const void *data, const size_t *sizes, char *out, int root) {
    const struct group *g = c->g;
    bool is_receiver = root == COMM_ALL || root == g->rank;
    for (int r = 0; is_receiver && r < g->world; out += sizes[r++]) {
        if (r == g->rank)
            copy(out, data, sizes[r]);
        else
            TRY(post_recv(c, FIRST, r, out, sizes[r]));
    }
    for (int step = 1; step < g->world; step++) {
        int to = rank_after(g, step);
        if (root == COMM_ALL || root == to) TRY(post_send(c, FIRST, to, data, sizes[g->rank]));
    }
    return wait(c, FIRST);
}

static status gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root) {
    struct call c = begin(group, lane);
    const struct group *g = c.g;
    size_t total = 0, size = sizes[0];
    bool are_equal = true;
    char *blocks;
    for (int r = 0; r < g->world; r++) {
        total += sizes[r];
        are_equal = are_equal && sizes[r] == size;
    }
    if (root != COMM_ALL || !are_equal || total > SMALL_TOTAL || g->world <= DIRECT_RANKS)
        return gather_direct(&c, data, sizes, out, root);
    TRY(reserve(&c, total, &blocks));
    memcpy(blocks, data, size);
    TRY(gather_blocks(&c, blocks, size));
    for (int i = 0; i < g->world; i++)
        memcpy((char *)out + (size_t)rank_after(g, i) * size, blocks + (size_t)i * size, size);
    return OK;
}

static status scatter(void *group, int lane, const void *data, size_t size, void *out, int root) {
    struct call c = begin(group, lane);
    const struct group *g = c.g;
    for (int r = 0; r < g->world; r++) {
        const char *part = g->rank == root ? (const char *)data + (size_t)r * size : NULL;
        if (part && r == root) copy(out, part, size);
        if (part && r != root) TRY(post_send(&c, FIRST, r, part, size));
    }
    if (g->rank != root) TRY(post_recv(&c, FIRST, root, out, size));
    return wait(&c, FIRST);
}

/* A binomial tree. */
static status broadcast_tree(const struct call *c, void *data, size_t size, int root) {
    const struct group *g = c->g;
    int from_root = (g->rank + g->world - root) % g->world, step = 1;
    while (step < g->world && !(from_root & step)) step *= 2;
    if (from_root) TRY(post_recv(c, FIRST, rank_before(g, step), data, size));
    TRY(wait(c, FIRST));
    for (step /= 2; step; step /= 2)
        if (from_root + step < g->world) TRY(post_send(c, FIRST, rank_after(g, step), data, size));
    return wait(c, FIRST);
}

/* The root sends each rank a slice, which that rank sends to all others: no rank sends more than twice the data. */
static status broadcast_slices(const struct call *c, char *data, size_t size, int root) {
    const struct group *g = c->g;
    struct slices s = {data, 1, size, (size_t)g->world, false};
    size_t own = slice_begin(&s, (size_t)g->rank), bytes = slice_begin(&s, (size_t)g->rank + 1) - own;
    for (int r = 0; g->rank == root && r < g->world; r++) {
        size_t begin = slice_begin(&s, (size_t)r);
        if (r != root) TRY(post_send(c, FIRST, r, data + begin, slice_begin(&s, (size_t)r + 1) - begin));
    }
    if (g->rank != root) TRY(post_recv(c, FIRST, root, data + own, bytes));
    TRY(wait(c, FIRST));
    for (int step = 1; step < g->world; step++) {
        int from = rank_before(g, step), to = rank_after(g, step);
        size_t begin = slice_begin(&s, (size_t)from);
        if (g->rank != root) TRY(post_recv(c, FIRST, from, data + begin, slice_begin(&s, (size_t)from + 1) - begin));
        if (to != root) TRY(post_send(c, FIRST, to, data + own, bytes));
    }
    return wait(c, FIRST);
}

static status broadcast(void *group, int lane, void *data, size_t size, int root) {
    struct call c = begin(group, lane);
    bool is_small = size <= SMALL_TOTAL || c.g->world == 2;
    return is_small ? broadcast_tree(&c, data, size, root) : broadcast_slices(&c, data, size, root);
}

static status barrier(void *group, int lane) {
    struct call c = begin(group, lane);
    char *bytes;
    TRY(reserve(&c, (size_t)c.g->world, &bytes));
    bytes[0] = 0;
    return gather_blocks(&c, bytes, 1);
}

static status send(void *group, int lane, const void *data, size_t size, int to) {
    struct call c = begin(group, lane);
    TRY(post_send(&c, FIRST, to, data, size));
    return wait(&c, FIRST);
}

static status recv(void *group, int lane, void *data, size_t size, int from) {
    struct call c = begin(group, lane);
    TRY(post_recv(&c, FIRST, from, data, size));
    return wait(&c, FIRST);
}

/* ---- create and destroy ---- */

/* Not while a thread is in a call. After a failure MPI may still use the group's memory, which is kept. */
static void destroy(void *group) {
    struct group *g = group;
    if (!g) return;
    if (is_ended(g)) {
        pthread_mutex_lock(&mpi.mutex);
        g->next = mpi.abandoned;
        mpi.abandoned = g;
        pthread_mutex_unlock(&mpi.mutex);
        return;
    }
    for (int lane = 0; lane < COMM_LANES; lane++) {
        struct lane *l = &g->lanes[lane];
        for (int set = 0; set < SETS; set++) {
            free(l->sets[set].list);
            free(l->sets[set].statuses);
            free(l->sets[set].sizes);
        }
        free(l->scratch);
        free(l->kept);
        free(l->inputs);
    }
    free(g->members);
    free(g);
}

static void abort_calls(void *group) {
    struct group *g = group;
    atomic_store(&g->is_aborted, true);
    atomic_store(&mpi.has_failed, true);
}

/* Numbers are counted up in each process, so a number that is free on all members of a group is the maximum of theirs.
 */
static status number_group(const struct comm_setup *setup, int *number) {
    int max_rank = 0;
    for (int r = 0; r < setup->world_size; r++)
        if (setup->members[r] > max_rank) max_rank = setup->members[r];
    status failure = start_once(setup->members[setup->rank], max_rank);
    *number = mpi.next_number;
    TRY(comm_agree(setup, "mpi", failure, number));
    mpi.next_number = *number + 1;
    if (*number >= mpi.max_tag / COMM_LANES)
        return status_new(STATUS_IO, "MPI allows %d tags, too few for another group", mpi.max_tag);
    return OK;
}

static status create(const struct comm_setup *setup, void **out) {
    int number;
    *out = NULL;
    TRY(number_group(setup, &number));
    processors_shorten_slice(); /* polls yield the processor */
    struct group *g = calloc(1, sizeof *g);
    if (!g) return status_memory("a process group");
    *g = (struct group){.rank = setup->rank, .world = setup->world_size, .number = number, .timeout = setup->timeout};
    size_t world = (size_t)g->world;
    g->members = malloc(world * sizeof *g->members);
    bool is_allocated = g->members != NULL;
    for (int lane = 0; lane < COMM_LANES; lane++) {
        g->lanes[lane].inputs = calloc(world, sizeof *g->lanes[lane].inputs);
        is_allocated = is_allocated && g->lanes[lane].inputs;
    }
    if (!is_allocated) {
        destroy(g);
        return status_memory("a process group");
    }
    memcpy(g->members, setup->members, world * sizeof *g->members);
    *out = g;
    return OK;
}

const struct comm_backend ddptrain_comm_mpi = {.name = "mpi",
                                               .create = create,
                                               .destroy = destroy,
                                               .abort = abort_calls,
                                               .reduce = reduce,
                                               .reduce_scatter = reduce_scatter,
                                               .gather = gather,
                                               .scatter = scatter,
                                               .broadcast = broadcast,
                                               .barrier = barrier,
                                               .send = send,
                                               .recv = recv,
                                               .has_group_of_all = true,
                                               .library_sum = library_sum};
