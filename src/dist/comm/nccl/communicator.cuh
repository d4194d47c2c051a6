/* communicator: one NCCL communicator with a stream of its own, and the rules by which nothing blocks for ever: it is
 * made non-blocking, every call is polled until NCCL has enqueued it, and a rank that was lost, or the group's timeout,
 * ends it by ncclCommAbort, which frees what waits on the GPU as well. */
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
    double timeout;
    cudaStream_t stream;
    cudaEvent_t from, to;  /* what the stream waits for, and what waits for it */
    pthread_mutex_t mutex; /* guards: */
    ncclComm_t comm;       /* NULL: not yet, or no more */
    pthread_t ender;       /* with is_ending: in ncclCommAbort */
    bool is_lost;          /* aborted because a rank was lost */
    bool is_ending;
};

/* All ranks. */
status communicator_open(struct communicator *c, const struct comm_setup *setup);
/* Also what was opened in part. CUDA graphs that hold calls of it are destroyed before. false: NCCL did not end in
 * time, and what it may still use is not freed. */
bool communicator_close(struct communicator *c);

/* From any thread, without waiting: everything that is under way ends soon, and nothing new begins. */
void communicator_abort(struct communicator *c);

/* A failure of CUDA or NCCL in words; OK for success. It ends the communicator. */
status communicator_cuda(struct communicator *c, cudaError_t error, const char *what);
status communicator_failed(struct communicator *c, ncclResult_t result);

/* Until NCCL has enqueued what it was given. */
status communicator_settle(struct communicator *c);
/* Until [stream] has done all that it has. */
status communicator_wait(struct communicator *c, cudaStream_t stream);

/* call(ncclComm_t) enqueues something; several calls in one stand between ncclGroupStart and ncclGroupEnd. */
template <typename F> status communicator_enqueue(struct communicator *c, F call) {
    cudaError_t error = cudaSetDevice(c->gpu);
    if (error != cudaSuccess) return communicator_cuda(c, error, "the GPU cannot be used");
    pthread_mutex_lock(&c->mutex);
    ncclResult_t result = c->comm ? call(c->comm) : ncclSuccess;
    pthread_mutex_unlock(&c->mutex);
    if (result != ncclSuccess && result != ncclInProgress) return communicator_failed(c, result);
    return communicator_settle(c);
}

#endif
