/* comm_gpu: collectives on GPU memory, by NCCL. A group keeps its backend for host memory (shared memory, Gloo) and
 * gets a second one for GPU memory, as torch's "cpu:gloo,cuda:nccl": collectives of host memory are few and small, and
 * must not wait for a stream. Each process uses one GPU.
 *
 * The calls of comm.h work on the group that comm_gpu returns, and block. The calls below are enqueued on a stream of
 * the group and return at once, so that they overlap with the compute stream and can be captured into a CUDA graph.
 * NCCL decides the order of a sum from topology and size, so it is not the order of rank: results are equal on all
 * ranks and, without NVLS, the same in every run on the same machines; with two ranks they have the bits of the other
 * backends. */
#pragma once

#include "dist/comm/comm.h"

/* Where an average is written. */
struct comm_result {
    float *to; /* NULL: in place; else the data are undefined afterwards */
    bool adds; /* with [to]: the average is added to what is there */
};

/* Whether the GPU backend of [backend], an enum dist_backend that has one, can be used here. STATUS_USAGE: its module
 * or its library is missing. */
status comm_gpu_check(int backend);

/* Creates the group for GPU memory of [comm], by the GPU backend of [backend]. This process uses GPU number [gpu]; its
 * [identity] must differ from that of every other rank, unless DDPTRAIN_SHARE_GPUS is 1 (for tests: slow). Groups that
 * are split from [comm] later get one, too. [allows_nvls]: sums may be computed by NVLink SHARP, which does not repeat
 * their bits. Does nothing for a group of one. STATUS_USAGE: the backend is missing on a rank, or two ranks have the
 * same GPU. All ranks. */
status comm_open_gpu(struct comm *comm, int backend, int gpu, const char *identity, bool allows_nvls);

/* Adds the NCCL_ variables of the environment, those that comm_open_gpu has set included: "NCCL_A=1, NCCL_B=2". */
void comm_gpu_variables(struct text *out);

/* STATUS_USAGE on all ranks if two ranks have the same GPU, or the same [identity] on one host. All ranks. */
status comm_check_gpus(struct comm *comm, const char *identity);

/* The group for GPU memory, for the calls of comm.h. Data in host memory is copied to the GPU and back, for checks. It
 * has the main lane only. NULL before comm_open_gpu. Not owned. */
struct comm *comm_gpu(struct comm *comm);

/* ---- enqueued: [gpu] is comm_gpu's group, [stream] a cudaStream_t of its GPU ---- */

/* Work enqueued on the group after this call starts when the work that is now in [stream] has completed. */
status comm_gpu_after(struct comm *gpu, void *stream);
/* Work enqueued on [stream] after this call starts when the work that is now enqueued on the group has completed. */
status comm_gpu_before(struct comm *gpu, void *stream);

/* Marks are points in the group's work, for waits that do not include later work. Adds [count] marks, *first, *first +
 * 1, ...; before the first step. */
status comm_gpu_add_marks(struct comm *gpu, size_t count, size_t *first);
/* Sets mark [index] after the work that is now enqueued on the group. */
status comm_gpu_mark(struct comm *gpu, size_t index);
/* As comm_gpu_before, for the work before the newest comm_gpu_mark of [index]. */
status comm_gpu_before_mark(struct comm *gpu, size_t index, void *stream);

/* DDP's average: data (count) = the sum over ranks of (float)(1 / world) * data. [is_compressed]: each product is
 * rounded to bfloat16, and sent and summed as bfloat16. */
status comm_gpu_average(struct comm *gpu, float *data, size_t count, bool is_compressed, struct comm_result to);
/* The same for data (world, count), but rank r gets part r only; the other parts are undefined afterwards. */
status comm_gpu_average_scatter(struct comm *gpu, float *data, size_t count, bool is_compressed, struct comm_result to);
/* Allocates the buffer for compressed averages of up to [count] elements in all; before the first one. All ranks. */
status comm_gpu_reserve(struct comm *gpu, size_t count);
/* data (world, count): every rank gets part r of rank r: its [own] (count), or if that is NULL its part of data. */
status comm_gpu_all_gather(struct comm *gpu, const float *own, float *data, size_t count);
/* to (count) = from, both on this GPU. */
status comm_gpu_copy(struct comm *gpu, float *to, const float *from, size_t count);

/* The host waits until all work in [stream] has completed, at most the group's timeout. The heartbeat reports it as a
 * collective call. STATUS_PEER when a rank was lost: results of enqueued calls may then be wrong. */
status comm_gpu_wait(struct comm *gpu, void *stream);
