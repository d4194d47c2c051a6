/* reducer: averages gradients over ranks while backward runs, like that of DistributedDataParallel. The gradients are
 * one flat buffer; parameters are ranges of it in forward order, and their gradients become ready roughly in reverse
 * order. Buckets are filled in reverse order (PyTorch's rule: a bucket is closed when a parameter has made it reach its
 * limit; limits: first 1 MiB, then bucket_cap_mb), so a bucket is a contiguous range of the buffer and nothing is
 * copied. A communication thread reduces complete buckets; the caller reduces the last one, which cannot overlap with
 * backward, in reducer_finish. Without is_overlapped there is no thread, and reducer_finish reduces all buckets.
 *
 * Each gradient is multiplied by (float)(1.0 / world_size) and then summed, which is DDP's arithmetic. With
 * is_scattered a bucket is reduce-scattered: a rank's own shard has the bits of an all-reduce, the rest of the bucket
 * is undefined afterwards. With is_compressed each product is rounded to bfloat16, which halves the bytes sent; the sum
 * is computed in float32 and rounded once more (PyTorch's bf16_compress_hook sums in bfloat16).
 *
 * With [shards] a rank keeps its shards only, in memory of their own, so that the gradients of several buckets can
 * share memory: reducer_claim waits until a bucket may be written again. Without a thread a bucket is then reduced as
 * soon as it is complete.
 *
 * With gradients in GPU memory and a group on GPUs (comm_gpu.h) there is no thread: a complete bucket is enqueued on
 * the group's stream after the work that is then in the device's stream, and reducer_finish makes that stream wait for
 * all buckets; with [shards], reducer_claim makes it wait for those that share the memory. The host does not wait, so a
 * step can be captured into a CUDA graph; NCCL computes the sums. */
#pragma once

#include "base/status.h"
#include "dist/comm/comm.h"

/* A parameter's range of the flat buffers, in elements. Ranges are ascending and do not overlap; gaps (alignment) are
 * allowed. */
struct reducer_range {
    const char *name;
    size_t offset, count;
};

struct reducer_config {
    double bucket_cap_mb;   /* MiB */
    double first_bucket_mb; /* MiB */
    bool is_scattered;      /* each rank gets only its shard of every bucket (reducer_shards) */
    bool is_compressed;     /* gradients are sent as bfloat16 */
    float *shards; /* with is_scattered, in the same memory as the gradients: receives this rank's shards and rests, in
                      ascending order of the buckets, reducer_shard_floats of each; NULL: they stay in the gradients */
    const size_t *places; /* with shards, during reducer_create: (buckets) where each begins in the gradients; those
                             that share memory must not be written at the same time */
    bool is_overlapped;   /* buckets are reduced by a thread while backward runs (comm_overlaps); equal on all ranks */
    void *stream;         /* with comm_gpu: the device's stream (device_stream), else NULL */
};

/* The shards of a bucket, in elements of the flat buffer: rank r owns [begin + r * size, begin + (r + 1) * size). All
 * ranks own the rest before [end], less than 16 elements for each rank. */
struct reducer_shard {
    size_t begin, size, end;
};

/* The floats that a rank's shard and the rest take in [shards] of the config, so that the next ones are aligned. */
size_t reducer_shard_floats(const struct reducer_shard *shard, int world_size);

/* Times of this rank since reducer_create, in seconds. Both include waiting for slower ranks. */
struct reducer_times {
    double communication; /* at least one bucket was being reduced */
    double waited;        /* in reducer_finish, after backward */
};

/* The share of communication between [before] and [after] that overlapped with backward: 1 - waited / communication; 0
 * with a single bucket. NAN if there was no communication, or it was not measured (GPUs). Pure. */
double reducer_hidden(struct reducer_times before, struct reducer_times after);

struct reducer;

/* bucket_of (count): the bucket of each range; bucket 0 has the last parameters and becomes complete first. Returns the
 * number of buckets. Pure; used by `check`, too. */
size_t reducer_plan(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                    size_t *bucket_of);

/* shards (*shard_count, at most [count]): the shards of all buckets, in ascending order. Pure. */
status reducer_shards(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                      int world_size, struct reducer_shard *shards, size_t *shard_count);

/* [gradients] is not owned. world_size 1: the functions below only check that all gradients become ready. With one
 * bucket no thread is started. Gaps inside a bucket are averaged, too, so they must contain finite numbers. All ranks.
 */
status reducer_create(const struct reducer_config *config, const struct reducer_range *ranges, size_t count,
                      float *gradients, struct comm *comm, struct reducer **out);
void reducer_destroy(struct reducer *reducer); /* takes NULL */

/* Begins a step: no gradient is ready. */
void reducer_start(struct reducer *reducer);
/* The same with [shards], for a further batch of the same update: its averages are added to the shards. */
void reducer_start_next(struct reducer *reducer);
/* With [shards], before [bucket] is written: waits, on GPUs the device's stream does, until those before it that share
 * its memory are reduced. */
void reducer_claim(struct reducer *reducer, size_t bucket);
/* The gradient of range [index] is final for this step (backward calls it once per range). Blocks only with [shards]
 * in host memory and without a thread. */
void reducer_ready(struct reducer *reducer, size_t index);
/* Waits until every gradient is averaged; on GPUs, makes the device's stream wait. STATUS_BUG: a range, which the
 * message names, has not become ready. All ranks. */
status reducer_finish(struct reducer *reducer);

/* On GPUs: the host waits until all work in [stream] has completed, which it must before it reads results of a step.
 * STATUS_PEER: a rank was lost. Does nothing without a group on GPUs. All ranks. */
status reducer_wait(struct reducer *reducer, void *stream);

/* Call it after reducer_finish and before reducer_start. */
struct reducer_times reducer_times(const struct reducer *reducer);
