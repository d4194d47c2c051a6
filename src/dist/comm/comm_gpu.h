/* comm_gpu: collectives on the memory of GPUs, by NCCL. A group keeps the backend that it has for the host's memory
 * (shared memory, Gloo) and gets a second one for the GPUs' beside it, as torch's "cpu:gloo,cuda:nccl": the numbers
 * that a run's hosts tell each other are few and small, and must not wait for a stream. One process, one GPU.
 *
 * The calls of comm.h take the group that comm_gpu gives, and wait; what is here is enqueued on a stream of the group
 * and returns at once, so that it overlaps with what the compute stream does, and may be captured into a CUDA graph.
 * Sums are taken in NCCL's order, which follows from the topology and the size, not in order of rank: results are equal
 * on all ranks and repeat on the same machines; with two ranks they have the bits of the other backends. */
#ifndef DIST_COMM_GPU_H
#define DIST_COMM_GPU_H

#include "dist/comm/comm.h"

/* Whether the GPU backend of [backend], an enum dist_backend that has one, can be used here: its module and its library
 * are there. STATUS_USAGE says what is missing. */
status comm_gpu_check(int backend);

/* Gives [comm] its group on GPUs, by the GPU backend of [backend]; this process uses GPU number [gpu], whose [identity]
 * no other rank may have, unless DDPTRAIN_SHARE_GPUS is 1 (for tests: slow). Groups that are cut from it later get
 * theirs as well. Nothing happens for a group of one. STATUS_USAGE where the backend is missing on a rank, or where two
 * ranks have one GPU. All ranks. */
status comm_open_gpu(struct comm *comm, int backend, int gpu, const char *identity);

/* Ranks that have the same GPU are STATUS_USAGE on all ranks. All ranks. */
status comm_check_gpus(struct comm *comm, const char *identity);

/* The group on GPUs for the calls of comm.h, with data in the GPU's memory; data in ordinary memory is copied there and
 * back, for checks. It has lane 0 only. NULL without comm_open_gpu. Not owned. */
struct comm *comm_gpu(struct comm *comm);

/* ---- enqueued: [gpu] is comm_gpu's group, [stream] a cudaStream_t of its GPU ---- */

/* What is enqueued from here on begins when everything that [stream] has now is done. */
status comm_gpu_after(struct comm *gpu, void *stream);
/* What [stream] gets from here on begins when everything that was enqueued is done. */
status comm_gpu_before(struct comm *gpu, void *stream);

/* DDP's average: data (count) = the sum over ranks of (float)(1 / world) * data. [is_compressed]: each product is
 * rounded to bfloat16, and bfloat16 travels and is summed. */
status comm_gpu_average(struct comm *gpu, float *data, size_t count, bool is_compressed);
/* The same of data (world, count), where rank r ends with part r only; what the other parts hold means nothing. */
status comm_gpu_average_scatter(struct comm *gpu, float *data, size_t count, bool is_compressed);
/* Room for compressed averages of up to [count] elements in all, made before the first. All ranks. */
status comm_gpu_reserve(struct comm *gpu, size_t count);
/* data (count): the sum over ranks. */
status comm_gpu_sum(struct comm *gpu, void *data, size_t count, enum comm_type type);
/* data (world, count): part r of rank r reaches all. */
status comm_gpu_all_gather(struct comm *gpu, float *data, size_t count);

/* The host waits until [stream] has done all that it has, at most the group's timeout; for other ranks this is a
 * collective call in which this rank waits. STATUS_PEER when a rank was lost: what was enqueued may then be wrong. */
status comm_gpu_wait(struct comm *gpu, void *stream);

#endif
