/* The backend on NCCL: a module that exports one symbol, a table of functions. The calls of comm.h enqueue on the
 * group's stream and wait; data in host memory is copied to the GPU and back (checks only). The calls of comm_gpu.h
 * return at once. NCCL has no averages with the rounding of the other backends and no compression to bfloat16: kernels
 * before or after its sums compute them. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "device/cuda/gpu.cuh"

extern "C" {
#include "base/bits.h"
#include "base/clock.h"
#include "base/system/thread.h"
#include "dist/comm/comm_backend.h"
extern const struct comm_backend ddptrain_comm_nccl;
}

/* ---- communicator ---- */

/* One NCCL communicator with a stream of its own. No call blocks without a limit: the communicator is non-blocking,
 * every call is polled until NCCL has enqueued it, and when a rank is lost or the group's timeout has passed,
 * ncclCommAbort ends it and the work that waits on the GPU. NCCL frees it in ncclCommAbort, which the store's thread
 * may call at any time, so every use of it locks the mutex, for a short time. */

#define CLOSE_SECONDS 2.0      /* maximum wait until the other ranks close theirs, too */
#define ABORT_SECONDS 5        /* maximum wait for ncclCommAbort */
#define STORE_POLL_SECONDS 0.1 /* while connecting, between two queries whether a rank has left */
#define YIELD_SECONDS 1e-3     /* then a wait sleeps */

struct communicator {
    int rank, world, gpu;
    double timeout; /* seconds */
    cudaStream_t stream;
    cudaEvent_t input_ready, output_ready; /* the stream waits for the first; other streams wait for the second */
    pthread_mutex_t mutex;                 /* guards: */
    ncclComm_t comm;                       /* NULL: not yet created, or aborted */
    pthread_t abort_thread;                /* with is_aborting: runs ncclCommAbort */
    bool is_aborting;
    bool has_lost_rank; /* the reason of an abort; not guarded: __atomic_store_n, __atomic_load_n */
};

/* The result of call(ncclComm_t), which runs while no other thread can abort the communicator; ncclNumResults: it was
 * aborted, and call does not run. */
template <typename F> ncclResult_t communicator_locked(struct communicator *c, F call) {
    pthread_mutex_lock(&c->mutex);
    ncclResult_t result = c->comm ? call(c->comm) : ncclNumResults;
    pthread_mutex_unlock(&c->mutex);
    return result;
}

/* ---- communicator: failures ---- */

static void communicator_abort(struct communicator *c);

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

/* OK for success. For an error of CUDA or NCCL: aborts the communicator and returns STATUS_PEER with its message.
 * [what]: what failed. */
static status communicator_cuda(struct communicator *c, cudaError_t error, const char *what) {
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

static status communicator_failed(struct communicator *c, ncclResult_t result) {
    char message[300];
    if (result == ncclSuccess) return OK;
    last_error(message);
    communicator_abort(c);
    return status_new(STATUS_PEER,
                      "NCCL: %s%s%s; NCCL_DEBUG=INFO shows more, NCCL_SOCKET_IFNAME chooses its interface, "
                      "NCCL_IB_DISABLE=1 keeps it from InfiniBand",
                      ncclGetErrorString(result), message[0] ? ": " : "", message);
}

/* ---- communicator: waiting ---- */

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

/* Waits until NCCL has enqueued all calls. */
static status communicator_wait_enqueued(struct communicator *c) {
    for (double start = clock_seconds();; pause_poll(start)) {
        ncclResult_t state = state_of(c);
        if (state == ncclSuccess) return OK;
        if (state == ncclNumResults) return aborted(c);
        if (state != ncclInProgress) return communicator_failed(c, state);
        if (clock_seconds() > start + c->timeout) return timed_out(c, "NCCL's call");
    }
}

/* Waits until all work in [stream] has completed. */
static status communicator_wait(struct communicator *c, cudaStream_t stream) {
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

/* ---- communicator: opening ---- */

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
    return status_usage("rank %d has version %d of NCCL, and rank %d has %d: install the same version on all hosts",
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

/* All ranks. */
static status communicator_open(struct communicator *c, const struct comm_setup *setup) {
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

/* ---- communicator: abort and close ---- */

static void *run_abort(void *comm) {
    ncclCommAbort((ncclComm_t)comm);
    return nullptr;
}

/* From any thread; does not block. Running calls end soon; later ones fail. ncclCommAbort ends the work that waits on
 * the GPU at once, and then blocks until no CUDA graph contains a call of the communicator. The training thread
 * destroys those graphs after it has got the failure, so the abort needs a thread of its own. */
static void communicator_abort(struct communicator *c) {
    pthread_mutex_lock(&c->mutex);
    if (c->comm) {
        status s = thread_start(&c->abort_thread, "nccl-abort", "the thread that aborts NCCL", run_abort, c->comm);
        c->is_aborting = s == OK;
        status_free(s);
    }
    c->comm = nullptr;
    pthread_mutex_unlock(&c->mutex);
}

/* The same because a rank was lost. */
static void communicator_abort_lost(struct communicator *c) {
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

/* Also after communicator_open failed. CUDA graphs that contain its calls must be destroyed before. false: NCCL did not
 * end in time; memory that it may still use must not be freed. */
static bool communicator_close(struct communicator *c) {
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

/* Runs call(ncclComm_t), which enqueues one call of NCCL, or several between ncclGroupStart and ncclGroupEnd. */
template <typename F> status communicator_enqueue(struct communicator *c, F call) {
    cudaError_t error = cudaSetDevice(c->gpu);
    if (error != cudaSuccess) return communicator_cuda(c, error, "the GPU cannot be used");
    ncclResult_t result = communicator_locked(c, call);
    if (result != ncclSuccess && result != ncclInProgress && result != ncclNumResults)
        return communicator_failed(c, result);
    return communicator_wait_enqueued(c);
}

/* ---- the group ---- */

namespace {

#define STAGING_BUFFERS 2 /* for input, and for results */
#define MAX_BUFFERS 8

struct nccl_group {
    struct communicator link;
    ncclRedOp_t average; /* sums (float)(1 / world) times each rank's float32 */
    float factor;
    bool has_average;
    void *staging[STAGING_BUFFERS]; /* on the GPU, for data in host memory */
    size_t staging_bytes[STAGING_BUFFERS];
    uint16_t *halves; /* (halves_count): bfloat16, for comm_gpu_average */
    size_t halves_count;
    void *buffers[MAX_BUFFERS]; /* of alloc */
    void *handles[MAX_BUFFERS];
    int buffer_count;
    cudaEvent_t *marks; /* (mark_count) */
    size_t mark_count;
};

struct nccl_group *group_of(void *group) {
    return (struct nccl_group *)group;
}

const ncclDataType_t types[] = {ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat16, ncclInt32, ncclInt64, ncclUint8};
const ncclRedOp_t ops[] = {ncclSum, ncclSum, ncclMin, ncclMax, ncclProd}; /* an average is divided afterwards */

/* ---- kernels ---- */

template <typename F> status each(struct nccl_group *g, size_t count, F f) {
    size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS, max_blocks = (size_t)1 << 30;
    return communicator_cuda(&g->link,
                             gpu_launch_on(g->link.stream, gpu_each<F>,
                                           (unsigned)(blocks < max_blocks ? blocks : max_blocks), GPU_THREADS, 0, count,
                                           f),
                             "a kernel of the averages");
}

template <typename T> status divide(struct nccl_group *g, T *data, size_t count) {
    T divisor = (T)g->link.world;
    return each(g, count, [=] __device__(size_t i) { data[i] = data[i] / divisor; });
}

/* Divides a sum by the world size; integers are truncated toward zero, 16-bit floats are divided as float32. */
status divide_by_world(struct nccl_group *g, void *data, size_t count, enum comm_type type) {
    float world = (float)g->link.world;
    uint16_t *bits = (uint16_t *)data;
    switch (type) {
    case COMM_FLOAT32:
        return divide(g, (float *)data, count);
    case COMM_FLOAT64:
        return divide(g, (double *)data, count);
    case COMM_INT32:
        return divide(g, (int32_t *)data, count);
    case COMM_INT64:
        return divide(g, (int64_t *)data, count);
    case COMM_UINT8:
        return divide(g, (uint8_t *)data, count);
    case COMM_BFLOAT16:
        return each(g, count,
                    [=] __device__(size_t i) { bits[i] = bits_to_bfloat16(bits_from_bfloat16(bits[i]) / world); });
    default:
        return each(g, count,
                    [=] __device__(size_t i) { bits[i] = bits_to_float16(bits_from_float16(bits[i]) / world); });
    }
}

/* ---- data in host memory ---- */

bool is_on_gpu(const void *data) {
    struct cudaPointerAttributes where = {};
    if (cudaPointerGetAttributes(&where, data) != cudaSuccess) {
        cudaGetLastError(); /* older runtimes return an error for host memory that CUDA did not allocate */
        return false;
    }
    return where.type == cudaMemoryTypeDevice || where.type == cudaMemoryTypeManaged;
}

/* An operand in memory that NCCL can use: the data itself, or staging buffer [number]. */
class operand {
  public:
    operand(struct nccl_group *group, int number, const void *data, size_t bytes)
        : g(group), at((void *)data), host((void *)data), size(bytes), is_copied(bytes && !is_on_gpu(data)) {
        if (is_copied) at = g->staging[number];
    }
    /* Copies host data to the staging buffer. */
    status copy_to_gpu() const { return copy(at, host, cudaMemcpyHostToDevice); }
    /* Copies the result back to host memory. Waits for it first, with the group's timeout: the copy itself would wait
     * without one. */
    status copy_to_host() const {
        if (is_copied) TRY(communicator_wait(&g->link, g->link.stream));
        return copy(host, at, cudaMemcpyDeviceToHost);
    }

    struct nccl_group *g;
    void *at, *host;
    size_t size;
    bool is_copied;

  private:
    status copy(void *to, const void *from, enum cudaMemcpyKind kind) const {
        if (!is_copied) return OK;
        return communicator_cuda(&g->link, cudaMemcpyAsync(to, from, size, kind, g->link.stream), "a copy");
    }
};

status reserve_staging(struct nccl_group *g, int number, const void *data, size_t bytes) {
    if (g->staging_bytes[number] >= bytes || is_on_gpu(data)) return OK;
    TRY(communicator_cuda(&g->link, cudaFree(g->staging[number]), "the GPU's memory"));
    g->staging[number] = nullptr;
    g->staging_bytes[number] = 0;
    TRY(communicator_cuda(&g->link, cudaMalloc(&g->staging[number], bytes), "memory on the GPU for communication"));
    g->staging_bytes[number] = bytes;
    return OK;
}

status begin(struct nccl_group *g) {
    return communicator_cuda(&g->link, cudaSetDevice(g->link.gpu), "the GPU cannot be used");
}

status wait(struct nccl_group *g) { return communicator_wait(&g->link, g->link.stream); }

/* ---- reductions ---- */

status reduce(void *group, int, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    struct nccl_group *g = group_of(group);
    size_t bytes = count * comm_type_size(type);
    TRY(begin(g));
    TRY(reserve_staging(g, 0, data, bytes));
    operand x(g, 0, data, bytes);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        if (root == COMM_ALL) return ncclAllReduce(x.at, x.at, count, types[type], ops[op], comm, g->link.stream);
        return ncclReduce(x.at, x.at, count, types[type], ops[op], root, comm, g->link.stream);
    }));
    if (root == COMM_ALL || root == g->link.rank) {
        if (op == COMM_AVG) TRY(divide_by_world(g, x.at, count, type));
        TRY(x.copy_to_host());
    }
    return wait(g);
}

status reduce_scatter(void *group, int, const void *data, size_t count, enum comm_type type, enum comm_op op,
                      void *out) {
    struct nccl_group *g = group_of(group);
    size_t bytes = count * comm_type_size(type), all = bytes * (size_t)g->link.world;
    TRY(begin(g));
    TRY(reserve_staging(g, 0, data, all));
    TRY(reserve_staging(g, 1, out, bytes));
    operand x(g, 0, data, all), y(g, 1, out, bytes);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        return ncclReduceScatter(x.at, y.at, count, types[type], ops[op], comm, g->link.stream);
    }));
    if (op == COMM_AVG) TRY(divide_by_world(g, y.at, count, type));
    TRY(y.copy_to_host());
    return wait(g);
}

/* ---- data movement ---- */

status broadcast(void *group, int, void *data, size_t size, int root) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    TRY(reserve_staging(g, 0, data, size));
    operand x(g, 0, data, size);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        return ncclBroadcast(x.at, x.at, size, ncclUint8, root, comm, g->link.stream);
    }));
    TRY(x.copy_to_host());
    return wait(g);
}

/* Parts of any size from every rank to the receivers, as one group of sends and receives: NCCL's gathers need parts of
 * equal size. */
ncclResult_t exchange_parts(struct nccl_group *g, ncclComm_t comm, const void *own, const size_t *sizes, char *all,
                            int root) {
    bool is_receiver = root == COMM_ALL || root == g->link.rank;
    ncclResult_t result = ncclGroupStart();
    for (int r = 0; r < g->link.world; r++) {
        if (result == ncclSuccess && (root == COMM_ALL || root == r) && sizes[g->link.rank])
            result = ncclSend(own, sizes[g->link.rank], ncclUint8, r, comm, g->link.stream);
        if (result == ncclSuccess && is_receiver && sizes[r])
            result = ncclRecv(all, sizes[r], ncclUint8, r, comm, g->link.stream);
        if (is_receiver) all += sizes[r];
    }
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

bool are_equal(const size_t *sizes, int count) {
    for (int r = 1; r < count; r++)
        if (sizes[r] != sizes[0]) return false;
    return true;
}

status gather(void *group, int, const void *data, const size_t *sizes, void *out, int root) {
    struct nccl_group *g = group_of(group);
    bool is_receiver = root == COMM_ALL || root == g->link.rank, are_parts_equal = are_equal(sizes, g->link.world);
    size_t own = sizes[g->link.rank], total = 0;
    for (int r = 0; r < g->link.world; r++) total += sizes[r];
    TRY(begin(g));
    TRY(reserve_staging(g, 0, data, own));
    if (is_receiver) TRY(reserve_staging(g, 1, out, total));
    operand x(g, 0, data, own), y(g, 1, is_receiver ? out : nullptr, is_receiver ? total : 0);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        if (root == COMM_ALL && are_parts_equal) return ncclAllGather(x.at, y.at, own, ncclUint8, comm, g->link.stream);
        return exchange_parts(g, comm, x.at, sizes, (char *)y.at, root);
    }));
    TRY(y.copy_to_host());
    return wait(g);
}

status scatter(void *group, int, const void *data, size_t size, void *out, int root) {
    struct nccl_group *g = group_of(group);
    bool is_root = root == g->link.rank;
    size_t all = is_root ? size * (size_t)g->link.world : 0;
    TRY(begin(g));
    if (is_root) TRY(reserve_staging(g, 0, data, all));
    TRY(reserve_staging(g, 1, out, size));
    operand x(g, 0, is_root ? data : nullptr, all), y(g, 1, out, size);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        ncclResult_t result = ncclGroupStart();
        for (int r = 0; is_root && r < g->link.world && result == ncclSuccess; r++)
            result = ncclSend((const char *)x.at + (size_t)r * size, size, ncclUint8, r, comm, g->link.stream);
        if (result == ncclSuccess) result = ncclRecv(y.at, size, ncclUint8, root, comm, g->link.stream);
        ncclResult_t ended = ncclGroupEnd();
        return result == ncclSuccess ? ended : result;
    }));
    TRY(y.copy_to_host());
    return wait(g);
}

status barrier(void *group, int) {
    struct nccl_group *g = group_of(group);
    uint8_t nothing = 0;
    return reduce(g, 0, &nothing, 1, COMM_UINT8, COMM_SUM, COMM_ALL);
}

status send(void *group, int, const void *data, size_t size, int to) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    TRY(reserve_staging(g, 0, data, size));
    operand x(g, 0, data, size);
    TRY(x.copy_to_gpu());
    TRY(communicator_enqueue(
        &g->link, [&](ncclComm_t comm) { return ncclSend(x.at, size, ncclUint8, to, comm, g->link.stream); }));
    return wait(g);
}

status recv(void *group, int, void *data, size_t size, int from) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    TRY(reserve_staging(g, 1, data, size));
    operand y(g, 1, data, size);
    TRY(communicator_enqueue(
        &g->link, [&](ncclComm_t comm) { return ncclRecv(y.at, size, ncclUint8, from, comm, g->link.stream); }));
    TRY(y.copy_to_host());
    return wait(g);
}

/* ---- enqueued ---- */

status after(void *group, void *stream) {
    struct communicator *c = &group_of(group)->link;
    TRY(begin(group_of(group)));
    TRY(communicator_cuda(c, cudaEventRecord(c->input_ready, (cudaStream_t)stream), "an event"));
    return communicator_cuda(c, cudaStreamWaitEvent(c->stream, c->input_ready, 0), "an event");
}

status before(void *group, void *stream) {
    struct communicator *c = &group_of(group)->link;
    TRY(begin(group_of(group)));
    TRY(communicator_cuda(c, cudaEventRecord(c->output_ready, c->stream), "an event"));
    return communicator_cuda(c, cudaStreamWaitEvent((cudaStream_t)stream, c->output_ready, 0), "an event");
}

status add_marks(void *group, size_t count, size_t *first) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    cudaEvent_t *marks = (cudaEvent_t *)realloc(g->marks, (g->mark_count + count + 1) * sizeof *marks);
    if (!marks) return status_memory("a process group");
    g->marks = marks;
    *first = g->mark_count;
    for (size_t i = 0; i < count; i++, g->mark_count++)
        TRY(communicator_cuda(&g->link, cudaEventCreateWithFlags(&marks[g->mark_count], cudaEventDisableTiming),
                              "an event"));
    return OK;
}

status mark(void *group, size_t index) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    return communicator_cuda(&g->link, cudaEventRecord(g->marks[index], g->link.stream), "an event");
}

status before_mark(void *group, size_t index, void *stream) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    return communicator_cuda(&g->link, cudaStreamWaitEvent((cudaStream_t)stream, g->marks[index], 0), "an event");
}

/* to (count) = bfloat16 of factor * from; from_half converts back. */
status to_half(struct nccl_group *g, uint16_t *to, const float *from, size_t count) {
    float factor = g->factor;
    return each(g, count, [=] __device__(size_t i) { to[i] = bits_to_bfloat16(from[i] * factor); });
}

status from_half(struct nccl_group *g, float *to, const uint16_t *from, size_t count, bool adds) {
    return each(g, count, [=] __device__(size_t i) {
        float value = bits_from_bfloat16(from[i]);
        to[i] = adds ? to[i] + value : value;
    });
}

status add_to(struct nccl_group *g, float *to, const float *from, size_t count) {
    return each(g, count, [=] __device__(size_t i) { to[i] += from[i]; });
}

status check_halves(const struct nccl_group *g, size_t count) {
    return count <= g->halves_count
               ? OK
               : status_new(STATUS_BUG, "the buffer for gradients as bfloat16 has %zu elements, and %zu are needed",
                            g->halves_count, count);
}

status average(void *group, float *data, size_t count, bool is_compressed, struct comm_result result) {
    struct nccl_group *g = group_of(group);
    float *to = result.to ? result.to : data, *sum = result.adds ? data : to;
    if (is_compressed) TRY(check_halves(g, count));
    if (is_compressed) TRY(to_half(g, g->halves, data, count));
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        return is_compressed ? ncclAllReduce(g->halves, g->halves, count, ncclBfloat16, ncclSum, comm, g->link.stream)
                             : ncclAllReduce(data, sum, count, ncclFloat32, g->average, comm, g->link.stream);
    }));
    if (is_compressed) return from_half(g, to, g->halves, count, result.adds);
    return result.adds ? add_to(g, to, sum, count) : OK;
}

status average_scatter(void *group, float *data, size_t count, bool is_compressed, struct comm_result result) {
    struct nccl_group *g = group_of(group);
    size_t all = count * (size_t)g->link.world, own = count * (size_t)g->link.rank;
    float *to = result.to ? result.to : data + own, *sum = result.adds ? data + own : to;
    if (is_compressed) TRY(check_halves(g, all));
    if (is_compressed) TRY(to_half(g, g->halves, data, all));
    TRY(communicator_enqueue(&g->link, [&](ncclComm_t comm) {
        return is_compressed
                   ? ncclReduceScatter(g->halves, g->halves + own, count, ncclBfloat16, ncclSum, comm, g->link.stream)
                   : ncclReduceScatter(data, sum, count, ncclFloat32, g->average, comm, g->link.stream);
    }));
    if (is_compressed) return from_half(g, to, g->halves + own, count, result.adds);
    return result.adds ? add_to(g, to, sum, count) : OK;
}

status reserve(void *group, size_t count) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    if (count <= g->halves_count) return OK;
    TRY(communicator_cuda(&g->link, cudaFree(g->halves), "the GPU's memory"));
    g->halves = nullptr;
    g->halves_count = 0;
    TRY(communicator_cuda(&g->link, cudaMalloc((void **)&g->halves, count * sizeof *g->halves),
                          "memory on the GPU for gradients as bfloat16"));
    g->halves_count = count;
    return OK;
}

status all_gather(void *group, const float *own, float *data, size_t count) {
    struct nccl_group *g = group_of(group);
    if (!own) own = data + count * (size_t)g->link.rank;
    return communicator_enqueue(
        &g->link, [&](ncclComm_t comm) { return ncclAllGather(own, data, count, ncclFloat32, comm, g->link.stream); });
}

status copy(void *group, float *to, const float *from, size_t count) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    return communicator_cuda(
        &g->link, cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToDevice, g->link.stream), "a copy");
}

status wait_for(void *group, void *stream) {
    struct nccl_group *g = group_of(group);
    TRY(begin(g));
    return communicator_wait(&g->link, (cudaStream_t)stream);
}

/* ---- memory ---- */

/* Memory of ncclMemAlloc, registered, which NCCL can use without copies. */
status alloc(void *group, size_t size, void **out) {
    struct nccl_group *g = group_of(group);
    void *memory = nullptr;
    if (g->buffer_count == MAX_BUFFERS) return status_new(STATUS_BUG, "too many buffers of comm_alloc");
    TRY(begin(g));
    if (ncclMemAlloc(&memory, size ? size : 1) != ncclSuccess)
        return status_memory("a buffer of %zu bytes on the GPU", size);
    cudaError_t error = cudaMemsetAsync(memory, 0, size, g->link.stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(g->link.stream);
    int i = g->buffer_count++;
    g->buffers[i] = memory;
    TRY(communicator_cuda(&g->link, error, "memory on the GPU"));
    TRY(communicator_enqueue(&g->link,
                             [&](ncclComm_t comm) { return ncclCommRegister(comm, memory, size, &g->handles[i]); }));
    *out = memory;
    return OK;
}

/* ---- create and destroy ---- */

void destroy(void *group) {
    struct nccl_group *g = group_of(group);
    if (!g) return;
    cudaSetDevice(g->link.gpu);
    for (int i = 0; i < g->buffer_count; i++)
        if (g->handles[i])
            communicator_locked(&g->link, [=](ncclComm_t comm) { return ncclCommDeregister(comm, g->handles[i]); });
    if (g->has_average)
        communicator_locked(&g->link, [=](ncclComm_t comm) { return ncclRedOpDestroy(g->average, comm); });
    if (!communicator_close(&g->link)) return; /* NCCL may still use the memory below */
    for (size_t i = 0; i < g->mark_count; i++) cudaEventDestroy(g->marks[i]);
    free(g->marks);
    for (int i = 0; i < g->buffer_count; i++) ncclMemFree(g->buffers[i]);
    for (int i = 0; i < STAGING_BUFFERS; i++) cudaFree(g->staging[i]);
    cudaFree(g->halves);
    free(g);
}

void abort_calls(void *group) { communicator_abort_lost(&group_of(group)->link); }

status create(const struct comm_setup *setup, void **out) {
    struct nccl_group *g = (struct nccl_group *)calloc(1, sizeof *g);
    *out = nullptr;
    if (!g) return status_memory("a process group");
    status failure = communicator_open(&g->link, setup);
    g->factor = (float)(1.0 / setup->world_size);
    if (!failure)
        failure = communicator_enqueue(&g->link, [&](ncclComm_t comm) {
            return ncclRedOpCreatePreMulSum(&g->average, &g->factor, ncclFloat32, ncclScalarHostImmediate, comm);
        });
    g->has_average = !failure;
    if (failure)
        destroy(g);
    else
        *out = g;
    return failure;
}

const struct comm_enqueued enqueued = {after,           before,  add_marks,  mark, before_mark, average,
                                       average_scatter, reserve, all_gather, copy, wait_for};

} // namespace

const struct comm_backend ddptrain_comm_nccl = {"nccl",         create, destroy,   abort_calls, reduce,  nullptr,
                                                reduce_scatter, gather, scatter,   broadcast,   barrier, send,
                                                recv,           alloc,  &enqueued, "NCCL"};
