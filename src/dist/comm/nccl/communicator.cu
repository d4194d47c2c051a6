/* Creates, polls, aborts and destroys a communicator. NCCL frees it in ncclCommAbort, which the store's thread may call
 * at any time, so every use of it locks the mutex, for a short time. */
#include "dist/comm/nccl/communicator.cuh"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>
#include <unistd.h>

extern "C" {
#include "base/clock.h"
#include "base/system/thread.h"
}

#define CLOSE_SECONDS 2.0      /* maximum wait until the other ranks close theirs, too */
#define ABORT_SECONDS 5        /* maximum wait for ncclCommAbort */
#define STORE_POLL_SECONDS 0.1 /* while connecting, between two queries whether a rank has left */
#define YIELD_SECONDS 1e-3     /* then a wait sleeps */

/* ---- failures ---- */

static status aborted(const struct communicator *c) {
    return __atomic_load_n(&c->has_lost_rank, __ATOMIC_ACQUIRE)
               ? status_new(STATUS_PEER, "NCCL was aborted because a rank was lost")
               : status_new(STATUS_PEER, "NCCL was aborted after an earlier failure");
}

static status timed_out(struct communicator *c, const char *what) {
    communicator_abort(c);
    return status_new(STATUS_PEER,
                      "%s took more than %g s; NCCL_DEBUG=INFO shows what NCCL does, NCCL_SOCKET_IFNAME chooses its "
                      "interface, NCCL_IB_DISABLE=1 keeps it from InfiniBand",
                      what, c->timeout);
}

status communicator_cuda(struct communicator *c, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return OK;
    communicator_abort(c);
    return status_new(STATUS_PEER, "%s: %s", what, cudaGetErrorString(error));
}

/* NCCL's message of its last error in this process, without the newline. */
static void last_error(char text[300]) {
    const char *message = ncclGetLastError(nullptr);
    snprintf(text, 300, "%s", message ? message : "");
    text[strcspn(text, "\n")] = 0;
}

status communicator_failed(struct communicator *c, ncclResult_t result) {
    char message[300];
    if (result == ncclSuccess) return OK;
    last_error(message);
    communicator_abort(c);
    return status_new(STATUS_PEER,
                      "NCCL: %s%s%s; NCCL_DEBUG=INFO shows more, NCCL_SOCKET_IFNAME chooses its interface, "
                      "NCCL_IB_DISABLE=1 keeps it from InfiniBand",
                      ncclGetErrorString(result), message[0] ? ": " : "", message);
}

/* ---- waiting ---- */

/* ncclInProgress: not yet enqueued; ncclNumResults: aborted. */
static ncclResult_t state_of(struct communicator *c) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = communicator_locked(c, [&](ncclComm_t comm) { return ncclCommGetAsyncError(comm, &state); });
    return result == ncclSuccess ? state : result;
}

/* Pauses a polling loop that has run since [start]. */
static void pause_poll(double start) {
    if (clock_seconds() - start < YIELD_SECONDS)
        sched_yield();
    else
        usleep(50);
}

status communicator_wait_enqueued(struct communicator *c) {
    for (double start = clock_seconds();; pause_poll(start)) {
        ncclResult_t state = state_of(c);
        if (state == ncclSuccess) return OK;
        if (state == ncclNumResults) return aborted(c);
        if (state != ncclInProgress) return communicator_failed(c, state);
        if (clock_seconds() > start + c->timeout) return timed_out(c, "NCCL's call");
    }
}

status communicator_wait(struct communicator *c, cudaStream_t stream) {
    for (double start = clock_seconds();; pause_poll(start)) {
        cudaError_t done = cudaStreamQuery(stream);
        ncclResult_t state = state_of(c); /* after the query: the stream of an aborted communicator completes, too */
        if (state == ncclNumResults) return aborted(c);
        if (state != ncclSuccess && state != ncclInProgress) return communicator_failed(c, state);
        if (done == cudaSuccess) return OK;
        if (done != cudaErrorNotReady) return communicator_cuda(c, done, "the GPU failed");
        if (clock_seconds() > start + c->timeout) return timed_out(c, "a collective on the GPUs");
    }
}

/* ---- opening ---- */

/* What rank 0 publishes. Without the comparison, a rank with another version of NCCL would fail later, with an unclear
 * error. */
struct rendezvous {
    int version;
    ncclUniqueId id;
};

static status exchange_id(const struct comm_setup *setup, struct rendezvous *out) {
    char key[STORE_MAX_KEY];
    int own = 0;
    snprintf(key, sizeof key, "%s/id", setup->name);
    ncclGetVersion(&own);
    if (setup->rank == 0) {
        out->version = own;
        ncclResult_t result = ncclGetUniqueId(&out->id);
        if (result != ncclSuccess)
            return status_new(STATUS_PEER, "NCCL cannot start: %s; NCCL_SOCKET_IFNAME chooses its interface",
                              ncclGetErrorString(result));
        return store_set(setup->store, key, out, sizeof *out);
    }
    void *value;
    size_t size;
    TRY(store_get(setup->store, key, setup->timeout, &value, &size));
    if (size == sizeof *out) memcpy(out, value, sizeof *out);
    free(value);
    if (size == sizeof *out && out->version == own) return OK;
    return status_new(STATUS_USAGE,
                      "rank %d has version %d of NCCL, and rank %d has %d: install the same version on all hosts",
                      setup->members[setup->rank], own, setup->members[0], size == sizeof *out ? out->version : 0);
}

/* Whether the store reports that a rank has left; NCCL does not notice it while connecting. *queried: time of the last
 * query. */
static bool has_rank_left(struct store *store, double *queried) {
    double now = clock_seconds();
    if (now < *queried + STORE_POLL_SECONDS) return false;
    *queried = now;
    struct text cause = {};
    bool has_left = store_cause(store, 0, &cause);
    text_free(&cause);
    return has_left;
}

static status connect(struct communicator *c, const struct comm_setup *setup, const struct rendezvous *rendezvous) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = ncclCommInitRankConfig(&c->comm, c->world, rendezvous->id, c->rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) return communicator_failed(c, result);
    for (double start = clock_seconds(), queried = start;; pause_poll(start)) {
        ncclResult_t state = state_of(c);
        if (state == ncclSuccess) return OK;
        if (state != ncclInProgress) return communicator_failed(c, state);
        if (clock_seconds() > start + c->timeout) return timed_out(c, "connecting the GPUs");
        if (!has_rank_left(setup->store, &queried)) continue;
        communicator_abort(c);
        return aborted(c);
    }
}

status communicator_open(struct communicator *c, const struct comm_setup *setup) {
    struct rendezvous rendezvous = {};
    int lowest = 0, highest = 0;
    *c = {};
    pthread_mutex_init(&c->mutex, nullptr);
    c->rank = setup->rank;
    c->world = setup->world_size;
    c->gpu = setup->gpu;
    c->timeout = setup->timeout;
    cudaError_t error = cudaSetDevice(c->gpu);
    if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    /* the highest priority: other ranks wait for this rank's communication */
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, highest);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->input_ready, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->output_ready, cudaEventDisableTiming);
    TRY(communicator_cuda(c, error, "the GPU cannot be used for communication"));
    TRY(exchange_id(setup, &rendezvous));
    return connect(c, setup, &rendezvous);
}

/* ---- abort and close ---- */

static void *run_abort(void *comm) {
    ncclCommAbort((ncclComm_t)comm);
    return nullptr;
}

/* ncclCommAbort ends the work that waits on the GPU at once, and then blocks until no CUDA graph contains a call of the
 * communicator. The training thread destroys those graphs after it has got the failure, so the abort needs a thread of
 * its own. */
void communicator_abort(struct communicator *c) {
    pthread_mutex_lock(&c->mutex);
    if (c->comm) {
        status s = thread_start(&c->abort_thread, "nccl-abort", "the thread that aborts NCCL", run_abort, c->comm);
        c->is_aborting = s == OK;
        status_free(s);
    }
    c->comm = nullptr;
    pthread_mutex_unlock(&c->mutex);
}

void communicator_abort_lost(struct communicator *c) {
    __atomic_store_n(&c->has_lost_rank, true, __ATOMIC_RELEASE);
    communicator_abort(c);
}

/* Waits for ncclCommAbort. false: it did not end in time, and NCCL may still use its memory. */
static bool wait_for_abort(struct communicator *c) {
    struct timespec until;
    pthread_mutex_lock(&c->mutex);
    bool is_aborting = c->is_aborting;
    c->is_aborting = false;
    pthread_mutex_unlock(&c->mutex);
    if (!is_aborting) return true;
    clock_gettime(CLOCK_MONOTONIC, &until); /* that of the system may be set meanwhile */
    until.tv_sec += ABORT_SECONDS;
    if (pthread_clockjoin_np(c->abort_thread, nullptr, CLOCK_MONOTONIC, &until) == 0) return true;
    pthread_detach(c->abort_thread);
    return false;
}

/* Closes the communicator; leaves it open, to be aborted, if the other ranks do not close theirs in time. */
static void finalize(struct communicator *c) {
    ncclResult_t result = communicator_locked(c, ncclCommFinalize);
    double start = clock_seconds();
    while (result == ncclInProgress || result == ncclSuccess) {
        result = state_of(c);
        if (result == ncclSuccess) break;
        if (clock_seconds() > start + CLOSE_SECONDS) result = ncclSystemError;
        pause_poll(start);
    }
    pthread_mutex_lock(&c->mutex);
    if (c->comm && result == ncclSuccess) {
        ncclCommDestroy(c->comm);
        c->comm = nullptr;
    }
    pthread_mutex_unlock(&c->mutex);
}

bool communicator_close(struct communicator *c) {
    cudaSetDevice(c->gpu);
    finalize(c);
    communicator_abort(c);
    if (!wait_for_abort(c)) return false;
    if (c->stream) cudaStreamSynchronize(c->stream);
    if (c->input_ready) cudaEventDestroy(c->input_ready);
    if (c->output_ready) cudaEventDestroy(c->output_ready);
    if (c->stream) cudaStreamDestroy(c->stream);
    pthread_mutex_destroy(&c->mutex);
    return true;
}
