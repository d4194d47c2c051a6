/* The backend "mpi": MPI's point-to-point messages, which collectives.c makes into collectives. Built once for each MPI
 * that the build finds (ddptrain_openmpi.so, ddptrain_mpich.so), because their binary interfaces differ; comm.c opens
 * the one that has started the job.
 *
 * MPI's own reductions are not used: their order of sums depends on algorithm, size and number of ranks. Every message
 * is non-blocking and polled with a deadline, because a blocking call of MPI does not end when a peer is lost; the
 * store reports the loss and aborts the poll. MPI_Init_thread and the MPI_Allreduce of `ddptrain comm` do block: after
 * a loss, or dist.timeout, the store ends such a process (store_begin_call). Groups are not communicators, whose
 * creation would block without a deadline: all messages are in MPI_COMM_WORLD, and the tag holds the number of the
 * group and the lane. MPI connects two ranks at their first message. */
#include <mpi.h>

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/machine.h"
#include "base/system/signals.h"
#include "dist/comm/collectives.h"
#include "dist/store/store.h"

#define MAX_MESSAGE ((size_t)1 << 30) /* bytes; MPI counts with int */
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

/* Starts MPI at the first call. */
static status start_once(const struct comm_setup *setup, int max_rank) {
    int job_rank = setup->members[setup->rank];
    sigset_t before;
    status failure = OK;
    pthread_mutex_lock(&mpi.mutex);
    if (!mpi.is_initialized) {
        signals_block_all(&before); /* MPI's threads must leave signals to the main thread */
        store_begin_call(setup->store, "MPI_Init_thread", setup->timeout,
                         "a process that MPI has started has not called it, or the hosts cannot reach each other by "
                         "MPI's network; the backend gloo does without MPI");
        failure = start();
        store_end_call(setup->store);
        signals_restore(&before);
    }
    if (!failure && !mpi.allows_threads)
        failure =
            status_new(STATUS_IO, "this MPI allows calls from the main thread only (MPI_THREAD_SERIALIZED is needed)");
    if (!failure && (mpi.rank != job_rank || mpi.size <= max_rank))
        failure = status_new(STATUS_IO,
                             "MPI counts this process as rank %d of %d, the job as rank %d; start it with the mpirun "
                             "of this MPI, or with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
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

struct group {
    struct collectives collectives; /* first */
    int number;
    int *members; /* (world): ranks in MPI_COMM_WORLD */
    double timeout;
    atomic_bool is_aborted;
    struct requests sets[COMM_LANES][COLLECTIVES_SETS];
    double deadlines[COMM_LANES];
    struct group *next; /* in the list of groups whose memory MPI may still use */
};

static void begin(void *group, int lane) {
    struct group *g = group;
    g->deadlines[lane] = clock_seconds() + g->timeout;
}

static bool is_ended(const struct group *g) { return atomic_load(&g->is_aborted) || atomic_load(&mpi.has_failed); }

/* Requests of a failed call stay with MPI, with their memory, until the process ends. */
static status give_up(status failure) {
    atomic_store(&mpi.has_failed, true);
    return failure;
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

static status post(void *group, int lane, int set, int peer, void *bytes, size_t size, bool is_send) {
    struct group *g = group;
    struct requests *r = &g->sets[lane][set];
    char *data = bytes;
    int to = g->members[peer], tag = g->number * COMM_LANES + lane, code = MPI_SUCCESS;
    for (size_t at = 0; at < size; at += MAX_MESSAGE) {
        int part = (int)(size - at < MAX_MESSAGE ? size - at : MAX_MESSAGE);
        status failure = r->count == r->capacity ? grow(r) : OK;
        if (failure) return give_up(failure); /* the messages before this one stay with MPI */
        if (is_ended(g)) return status_new(STATUS_PEER, "MPI: aborted");
        pthread_mutex_lock(&mpi.mutex);
        code = is_send ? MPI_Isend(data + at, part, MPI_BYTE, to, tag, MPI_COMM_WORLD, &r->list[r->count])
                       : MPI_Irecv(data + at, part, MPI_BYTE, to, tag, MPI_COMM_WORLD, &r->list[r->count]);
        pthread_mutex_unlock(&mpi.mutex);
        if (code != MPI_SUCCESS) return give_up(failed(code));
        r->sizes[r->count++] = is_send ? -1 : part;
    }
    return OK;
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
static status wait(void *group, int lane, int set) {
    struct group *g = group;
    struct requests *r = &g->sets[lane][set];
    double start = clock_seconds(), yield_seconds = lane == COMM_MAIN_LANE ? YIELD_SECONDS : THREAD_YIELD_SECONDS;
    for (int is_complete = r->count == 0; !is_complete;) {
        if (is_ended(g)) return give_up(status_new(STATUS_PEER, "MPI: aborted"));
        pthread_mutex_lock(&mpi.mutex);
        int code = MPI_Testall(r->count, r->list, &is_complete, r->statuses);
        pthread_mutex_unlock(&mpi.mutex);
        if (code != MPI_SUCCESS) return give_up(failed(code));
        if (is_complete) break;
        double now = clock_seconds(), waited = now - start;
        if (now > g->deadlines[lane]) return give_up(status_new(STATUS_PEER, "MPI: no answer for %g s", g->timeout));
        if (waited < yield_seconds)
            sched_yield();
        else
            clock_sleep(waited / 8 < MAX_SLEEP ? waited / 8 : MAX_SLEEP);
    }
    status failure = compare_sizes(r);
    r->count = 0;
    return failure ? give_up(failure) : OK;
}

/* MPI's own, for a group of all ranks. */
static status library_sum(void *group, float *data, size_t count) {
    struct group *g = group;
    if (g->collectives.world != mpi.size || count > INT_MAX) return status_usage("MPI_Allreduce is for all ranks only");
    pthread_mutex_lock(&mpi.mutex);
    int code = MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    pthread_mutex_unlock(&mpi.mutex);
    return code == MPI_SUCCESS ? OK : give_up(failed(code));
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
        for (int set = 0; set < COLLECTIVES_SETS; set++) {
            free(g->sets[lane][set].list);
            free(g->sets[lane][set].statuses);
            free(g->sets[lane][set].sizes);
        }
    }
    collectives_free(&g->collectives);
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
    status failure = start_once(setup, max_rank);
    *number = mpi.next_number;
    TRY(comm_agree(setup, "mpi", failure, number));
    mpi.next_number = *number + 1;
    if (*number >= mpi.max_tag / COMM_LANES)
        return status_new(STATUS_IO, "MPI allows %d tags, too few for another group", mpi.max_tag);
    return OK;
}

static const struct collectives_transport transport = {.begin = begin, .post = post, .wait = wait};

static status create(const struct comm_setup *setup, void **out) {
    int number;
    *out = NULL;
    TRY(number_group(setup, &number));
    processors_shorten_slice(); /* polls yield the processor */
    struct group *g = calloc(1, sizeof *g);
    if (!g) return status_memory("a process group");
    size_t world = (size_t)setup->world_size;
    *g = (struct group){.number = number, .timeout = setup->timeout, .members = malloc(world * sizeof *g->members)};
    status failure = collectives_create(&g->collectives, setup->rank, setup->world_size, &transport);
    if (!failure && !g->members) failure = status_memory("a process group");
    if (failure) {
        destroy(g);
        return failure;
    }
    memcpy(g->members, setup->members, world * sizeof *g->members);
    *out = g;
    return OK;
}

const struct comm_backend ddptrain_comm_mpi = {.name = "mpi",
                                               .create = create,
                                               .destroy = destroy,
                                               .abort = abort_calls,
                                               .reduce = collectives_reduce,
                                               .reduce_scatter = collectives_reduce_scatter,
                                               .gather = collectives_gather,
                                               .scatter = collectives_scatter,
                                               .broadcast = collectives_broadcast,
                                               .barrier = collectives_barrier,
                                               .send = collectives_send,
                                               .recv = collectives_recv,
                                               .connects_on_demand = true,
                                               .library_sum = library_sum};
