/* reducer: averages gradients over ranks while backward goes on, like DistributedDataParallel's. The gradients are one
 * flat buffer; parameters are ranges of it in forward order; backward makes them ready roughly in reverse. Buckets are
 * filled in reverse order (PyTorch's rule: after adding a parameter, a bucket that reached its limit is closed; limits:
 * first 1 MiB, then bucket_cap_mb), so a bucket is a contiguous range of the buffer and nothing is copied. A full
 * bucket goes to a communication thread; the last one, with which nothing can overlap, is reduced by the caller in
 * reducer_finish. Where is_scattered, a bucket is reduce-scattered: a rank's own cut has the bits of an all-reduce, the
 * rest of the bucket means nothing afterwards. Each gradient is multiplied by (float)(1.0 / world_size) and then
 * summed, which is DDP's arithmetic. Where is_compressed, each rank's product is rounded to bfloat16, half as many
 * bytes travel, the sum is taken in float32 and rounded once more (PyTorch's bf16_compress_hook, but for its sums in
 * bfloat16).
 *
 * With the gradients in a GPU's memory and a group on GPUs (comm_gpu.h) there is no thread: a full bucket is enqueued
 * on the group's stream behind what the device's stream has so far, and reducer_finish has that stream wait for all of
 * them. The host waits for nothing, so a step may be captured into a CUDA graph; sums are NCCL's. */
#ifndef DIST_REDUCER_H
#define DIST_REDUCER_H

#include <stdbool.h>
#include <stddef.h>

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
    bool is_scattered;      /* each rank ends with its cut of every bucket only (reducer_cuts) */
    bool is_compressed;     /* as bfloat16 */
    void *stream;           /* with comm_gpu: where the device computes (device_stream), else NULL */
};

/* How ranks share a bucket: rank r owns [begin + r * share, begin + (r + 1) * share) of the flat buffer; what is left
 * before [end], less than 16 elements for each rank, all own alike. */
struct reducer_cut {
    size_t begin, share, end;
};

/* What this rank's averaging cost since reducer_create, in seconds. Waiting for a slower rank counts in both. */
struct reducer_times {
    double communication; /* at least one bucket was being reduced; two at once count once */
    double waited;        /* from the end of backward, which is where reducer_finish begins, to its end */
};

/* The share of communication between [before] and [after] that was hidden behind backward: 1 - waited / communication,
 * 0 with a single bucket. NAN when there was no communication, or none that the host saw (GPUs). Pure. */
double reducer_hidden(struct reducer_times before, struct reducer_times after);

struct reducer;

/* Which bucket each range belongs to, bucket 0 being the first that becomes ready (the last parameters).
 * bucket_of (count). Returns the number of buckets. Pure; used by `check` too. */
size_t reducer_plan(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                    size_t *bucket_of);

/* The cuts of all buckets, ascending: cuts (count of buckets, at most [count]), *cut_count of them. Pure. */
status reducer_cuts(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                    int world_size, struct reducer_cut *cuts, size_t *cut_count);

/* [gradients] is not owned. world_size 1: everything below does nothing but check that all became ready. One bucket: no
 * thread is started. Gaps inside a bucket are averaged too, so they must hold finite numbers. All ranks. */
status reducer_create(const struct reducer_config *config, const struct reducer_range *ranges, size_t count,
                      float *gradients, struct comm *comm, struct reducer **out);
void reducer_destroy(struct reducer *reducer); /* takes NULL */

/* A step begins: no gradient is ready. */
void reducer_start(struct reducer *reducer);
/* The gradient of range [index] is final for this step (backward calls it once per range). Never blocks. */
void reducer_ready(struct reducer *reducer, size_t index);
/* Waits until every gradient is averaged, or has the device wait. A range that never became ready is STATUS_BUG naming
 * it. All ranks. */
status reducer_finish(struct reducer *reducer);

/* On GPUs: the host waits until [stream] (device_stream and the like) has done all that it was given, which must be so
 * before results of a step are read: a rank that was lost meanwhile is STATUS_PEER. Elsewhere nothing happens. All
 * ranks. */
status reducer_wait(struct reducer *reducer, void *stream);

/* Between reducer_finish and reducer_start. */
struct reducer_times reducer_times(const struct reducer *reducer);

#endif
