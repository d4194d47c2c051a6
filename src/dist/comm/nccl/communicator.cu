/* The life of a communicator. NCCL frees it in ncclCommAbort, which the store's thread may call at any time: every use
 * holds the mutex, and none holds it for long. */
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
#include "base/thread.h"
}

#define CLOSE_SECONDS 2.0  /* for the others to close theirs as well */
#define ABORT_SECONDS 5    /* for NCCL to end what was given up */
#define ASKING_SECONDS 0.1 /* between two questions whether a rank has left, while connecting */
#define EAGER_SECONDS 1e-3 /* of a wait without sleeping */

/* ---- failures ---- */

static status lost(const struct communicator *c) {
    return c->is_lost ? status_new(STATUS_PEER, "NCCL was ended because a rank was lost")
                      : status_new(STATUS_PEER, "NCCL was ended by an earlier failure");
}

static status late(struct communicator *c, const char *what) {
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

/* NCCL's own sentence, of its last error in this process, without the newline. */
static void last_error(char text[300]) {
    const char *said = ncclGetLastError(nullptr);
    snprintf(text, 300, "%s", said ? said : "");
    text[strcspn(text, "\n")] = 0;
}

status communicator_failed(struct communicator *c, ncclResult_t result) {
    char said[300];
    if (result == ncclSuccess) return OK;
    last_error(said);
    communicator_abort(c);
    return status_new(STATUS_PEER,
                      "NCCL: %s%s%s; NCCL_DEBUG=INFO shows more, NCCL_SOCKET_IFNAME chooses its interface, "
                      "NCCL_IB_DISABLE=1 keeps it from InfiniBand",
                      ncclGetErrorString(result), said[0] ? ": " : "", said);
}

/* ---- waiting ---- */

/* ncclInProgress: not yet. */
static ncclResult_t state_of(struct communicator *c) {
    ncclResult_t state = ncclSuccess;
    pthread_mutex_lock(&c->mutex);
    ncclResult_t asked = c->comm ? ncclCommGetAsyncError(c->comm, &state) : ncclNumResults;
    pthread_mutex_unlock(&c->mutex);
    return asked == ncclSuccess ? state : asked;
}

static void rest(double begun) {
    if (clock_seconds() - begun < EAGER_SECONDS)
        sched_yield();
    else
        usleep(50);
}

status communicator_settle(struct communicator *c) {
    for (double begun = clock_seconds();; rest(begun)) {
        ncclResult_t state = state_of(c);
        if (state == ncclSuccess) return OK;
        if (state == ncclNumResults) return lost(c);
        if (state != ncclInProgress) return communicator_failed(c, state);
        if (clock_seconds() > begun + c->timeout) return late(c, "NCCL's call");
    }
}

status communicator_wait(struct communicator *c, cudaStream_t stream) {
    for (double begun = clock_seconds();; rest(begun)) {
        cudaError_t done = cudaStreamQuery(stream);
        ncclResult_t state = state_of(c); /* asked last: a stream that was freed by an abort is done, too */
        if (state == ncclNumResults) return lost(c);
        if (state != ncclSuccess && state != ncclInProgress) return communicator_failed(c, state);
        if (done == cudaSuccess) return OK;
        if (done != cudaErrorNotReady) return communicator_cuda(c, done, "the GPU failed");
        if (clock_seconds() > begun + c->timeout) return late(c, "a collective on the GPUs");
    }
}

/* ---- opening ---- */

/* What rank 0 tells: who has another version of NCCL would fail later, in other words. */
struct invitation {
    int version;
    ncclUniqueId id;
};

static status invite(const struct comm_setup *setup, struct invitation *out) {
    char key[STORE_MAX_KEY];
    int own = 0;
    snprintf(key, sizeof key, "%s/id", setup->name);
    ncclGetVersion(&own);
    if (setup->rank == 0) {
        out->version = own;
        ncclResult_t made = ncclGetUniqueId(&out->id);
        if (made != ncclSuccess)
            return status_new(STATUS_PEER, "NCCL cannot begin: %s; NCCL_SOCKET_IFNAME chooses its interface",
                              ncclGetErrorString(made));
        return store_set(setup->store, key, out, sizeof *out);
    }
    void *value;
    size_t size;
    TRY(store_get(setup->store, key, setup->timeout, &value, &size));
    if (size == sizeof *out) memcpy(out, value, sizeof *out);
    free(value);
    if (size == sizeof *out && out->version == own) return OK;
    return status_new(STATUS_USAGE, "rank %d has version %d of NCCL, and rank %d has %d: install the same",
                      setup->members[setup->rank], own, setup->members[0], size == sizeof *out ? out->version : 0);
}

/* A rank that leaves meanwhile is known to the store only. */
static bool has_someone_left(struct store *store, double *asked) {
    double now = clock_seconds();
    if (now < *asked + ASKING_SECONDS) return false;
    *asked = now;
    struct text who = {};
    bool has_left = store_cause(store, 0, &who);
    text_free(&who);
    return has_left;
}

static status connect(struct communicator *c, const struct comm_setup *setup, const struct invitation *invitation) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = ncclCommInitRankConfig(&c->comm, c->world, invitation->id, c->rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) return communicator_failed(c, result);
    for (double begun = clock_seconds(), asked = begun;; rest(begun)) {
        ncclResult_t state = state_of(c);
        if (state == ncclSuccess) return OK;
        if (state != ncclInProgress) return communicator_failed(c, state);
        if (clock_seconds() > begun + c->timeout) return late(c, "connecting the GPUs");
        if (!has_someone_left(setup->store, &asked)) continue;
        communicator_abort(c);
        return lost(c);
    }
}

status communicator_open(struct communicator *c, const struct comm_setup *setup) {
    struct invitation invitation = {};
    int least = 0, greatest = 0;
    *c = {};
    pthread_mutex_init(&c->mutex, nullptr);
    c->rank = setup->rank;
    c->world = setup->world_size;
    c->gpu = setup->gpu;
    c->timeout = setup->timeout;
    cudaError_t error = cudaSetDevice(c->gpu);
    if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    /* first in line for the processors of the GPU: whoever waits for this rank waits for little */
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->from, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->to, cudaEventDisableTiming);
    TRY(communicator_cuda(c, error, "the GPU cannot be used for communication"));
    TRY(invite(setup, &invitation));
    return connect(c, setup, &invitation);
}

/* ---- the end ---- */

static void *end(void *comm) {
    ncclCommAbort((ncclComm_t)comm);
    return nullptr;
}

/* ncclCommAbort frees what waits on the GPU at once, and then itself waits until no CUDA graph holds a call of the
 * communicator. Those are destroyed by the thread that trains, which is to hear of the failure meanwhile. */
void communicator_abort(struct communicator *c) {
    pthread_mutex_lock(&c->mutex);
    if (c->comm) {
        status s = thread_start(&c->ender, "nccl-abort", "the thread that ends NCCL", end, c->comm);
        c->is_ending = s == OK;
        status_free(s);
    }
    c->comm = nullptr;
    pthread_mutex_unlock(&c->mutex);
}

/* Whether NCCL has let go of everything. */
static bool has_ended(struct communicator *c) {
    struct timespec until;
    if (!c->is_ending) return true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_SECONDS;
    c->is_ending = false;
    if (pthread_timedjoin_np(c->ender, nullptr, &until) == 0) return true;
    pthread_detach(c->ender);
    return false;
}

/* All ranks close theirs at about the same time, else it is an abort. */
static void finalize(struct communicator *c) {
    ncclResult_t result = ncclCommFinalize(c->comm);
    double begun = clock_seconds();
    while (result == ncclInProgress || result == ncclSuccess) {
        result = state_of(c);
        if (result == ncclSuccess) break;
        if (clock_seconds() > begun + CLOSE_SECONDS) result = ncclSystemError;
        rest(begun);
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
    if (c->comm) finalize(c);
    communicator_abort(c);
    if (!has_ended(c)) return false;
    if (c->stream) cudaStreamSynchronize(c->stream);
    if (c->from) cudaEventDestroy(c->from);
    if (c->to) cudaEventDestroy(c->to);
    if (c->stream) cudaStreamDestroy(c->stream);
    pthread_mutex_destroy(&c->mutex);
    return true;
}
