/* communicator: one NCCL communicator with a stream of its own. No call blocks without a limit: the communicator is
 * non-blocking, every call is polled until NCCL has enqueued it, and when a rank is lost or the group's timeout has
 * passed, ncclCommAbort ends it and the work that waits on the GPU. */
#ifndef DIST_NCCL_COMMUNICATOR_CUH
#define DIST_NCCL_COMMUNICATOR_CUH

#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>

extern "C" {
#include "dist/comm/comm_backend.h"
}

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

/* All ranks. */
status communicator_open(struct communicator *c, const struct comm_setup *setup);
/* Also after communicator_open failed. CUDA graphs that contain its calls must be destroyed before. false: NCCL did not
 * end in time; memory that it may still use must not be freed. */
bool communicator_close(struct communicator *c);

/* From any thread; does not block. Running calls end soon; later ones fail. */
void communicator_abort(struct communicator *c);
/* The same because a rank was lost. */
void communicator_abort_lost(struct communicator *c);

/* OK for success. For an error of CUDA or NCCL: aborts the communicator and returns STATUS_PEER with its message.
 * [what]: what failed. */
status communicator_cuda(struct communicator *c, cudaError_t error, const char *what);
status communicator_failed(struct communicator *c, ncclResult_t result);

/* Waits until NCCL has enqueued all calls. */
status communicator_wait_enqueued(struct communicator *c);
/* Waits until all work in [stream] has completed. */
status communicator_wait(struct communicator *c, cudaStream_t stream);

/* The result of call(ncclComm_t), which runs while no other thread can abort the communicator; ncclNumResults: it was
 * aborted, and call does not run. */
template <typename F> ncclResult_t communicator_locked(struct communicator *c, F call) {
    pthread_mutex_lock(&c->mutex);
    ncclResult_t result = c->comm ? call(c->comm) : ncclNumResults;
    pthread_mutex_unlock(&c->mutex);
    return result;
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

#endif
