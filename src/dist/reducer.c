/* Each gradient that becomes ready decrements the pending count of its bucket. A bucket that is complete, and whose
 * predecessors are, is queued for the communication thread, which reduces buckets in order on its own lane; so the
 * order is the same on all ranks, whatever the order in which their gradients become ready. The caller reduces the last
 * bucket on the main lane, at the same time. Without a thread the caller reduces all buckets at the end, on the main
 * lane. */
#include "dist/reducer.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/system/thread.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm_gpu.h"

struct bucket {
    size_t begin, end; /* of the flat buffer, in elements */
    size_t count;      /* ranges */
    size_t pending;    /* ranges that are not ready in this step */
    size_t at;         /* where it begins in the gradients */
    size_t shard_at;   /* where this rank's shard begins in the shards; the rest follows it */
    size_t after;      /* the buckets before this one share no memory with it */
};

struct reducer {
    struct reducer_range *ranges; /* (count) */
    size_t *bucket_of;            /* (count) */
    bool *is_ready;               /* (count) */
    size_t count;
    struct bucket *buckets; /* (bucket_count) */
    size_t bucket_count;
    size_t complete; /* buckets 0..complete-1 have all their gradients in this step */
    float *gradients;
    float *shards;    /* NULL: they stay in the gradients */
    bool adds_shards; /* in this step */
    struct comm *comm;
    struct comm *gpu;  /* NULL: the gradients are in host memory */
    void *stream;      /* of the device */
    size_t first_mark; /* with gpu and shards: set when bucket i is reduced is mark first_mark + i */
    bool is_scattered, is_compressed;
    uint16_t *halves[COMM_LANES]; /* (the lane's largest bucket), bfloat16, of comm_alloc; NULL: float32 is sent */
    double waited;

    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t work, done;
    size_t queued;  /* buckets queued for the thread in this step */
    size_t reduced; /* buckets that the thread has finished, also after a failure */
    bool is_ending;
    status failure; /* the first failure of the thread */
    int running;    /* buckets that are being reduced now */
    double running_since, communication;
};

/* ---- the plan ---- */

static size_t to_bytes(double mebibytes) {
    double bytes = mebibytes * 1048576.0;
    return bytes < 1 ? 1 : bytes >= 9e18 ? (size_t)9e18 : (size_t)bytes;
}

/* PyTorch's rule (torch.distributed._compute_bucket_assignment_by_size), from the last parameter to the first. A bucket
 * may exceed its limit: the parameter with which it reaches the limit is part of it. */
size_t reducer_plan(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                    size_t *bucket_of) {
    size_t first = to_bytes(config->first_bucket_mb), others = to_bytes(config->bucket_cap_mb);
    size_t bucket = 0, filled = 0;
    for (size_t i = count; i-- > 0;) {
        filled += ranges[i].count * sizeof(float);
        bucket_of[i] = bucket;
        if (filled < (bucket == 0 ? first : others)) continue;
        bucket++;
        filled = 0;
    }
    return count > 0 && bucket_of[0] == bucket ? bucket + 1 : bucket;
}

/* ---- one bucket ---- */

#define SHARD_ALIGNMENT 16 /* floats: a cache line */

static struct reducer_shard shard_of(const struct bucket *b, int world_size) {
    size_t size = (b->end - b->begin) / (size_t)world_size / SHARD_ALIGNMENT * SHARD_ALIGNMENT;
    return (struct reducer_shard){b->begin, size, b->end};
}

/* Sums this rank's shard, and the rest, which all ranks own. data (b->end - b->begin) */
static status scatter(struct comm *comm, const struct bucket *b, void *data, enum comm_type type) {
    struct reducer_shard shard = shard_of(b, comm_world_size(comm));
    size_t size = comm_type_size(type), all = (size_t)comm_world_size(comm) * shard.size;
    char *own = (char *)data + (size_t)comm_rank(comm) * shard.size * size;
    TRY(comm_reduce_scatter(comm, data, shard.size, type, COMM_SUM, own));
    return comm_all_reduce(comm, (char *)data + all * size, shard.end - shard.begin - all, type, COMM_SUM);
}

static status sum(const struct reducer *r, const struct bucket *b, void *data, enum comm_type type, int lane) {
    struct comm *comm = comm_lane(r->comm, lane);
    if (r->is_scattered) return scatter(comm, b, data, type);
    return comm_all_reduce(comm, data, b->end - b->begin, type, COMM_SUM);
}

/* DDP's arithmetic: g = g * (float)(1 / world), then the sum over ranks. */
static status average(const struct reducer *r, const struct bucket *b, int lane) {
    float factor = (float)(1.0 / comm_world_size(r->comm));
    size_t count = b->end - b->begin;
    float *g = r->gradients + b->at;    /* (count) */
    uint16_t *halves = r->halves[lane]; /* (count) */
    if (!halves && !r->is_scattered) return comm_average(comm_lane(r->comm, lane), g, count);
    for (size_t i = 0; i < count; i++) g[i] *= factor;
    if (!halves) return scatter(comm_lane(r->comm, lane), b, g, COMM_FLOAT32);
    combine_to_half(halves, g, count, COMM_BFLOAT16);
    TRY(sum(r, b, halves, COMM_BFLOAT16, lane));
    combine_from_half(g, halves, count, COMM_BFLOAT16);
    return OK;
}

static void keep(float *to, const float *from, size_t count, bool adds) {
    if (!adds && count) memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; adds && i < count; i++) to[i] += from[i];
}

/* Averages a bucket; with shards this rank's part of it is moved there, after which no one needs the bucket. */
static status reduce(const struct reducer *r, const struct bucket *b, int lane) {
    TRY(average(r, b, lane));
    if (!r->shards) return OK;
    struct reducer_shard shard = shard_of(b, comm_world_size(r->comm));
    const float *g = r->gradients + b->at; /* (b->end - b->begin) */
    size_t all = (size_t)comm_world_size(r->comm) * shard.size;
    float *own = r->shards + b->shard_at;
    keep(own, g + (size_t)comm_rank(r->comm) * shard.size, shard.size, r->adds_shards);
    keep(own + shard.size, g + all, shard.end - shard.begin - all, r->adds_shards);
    return OK;
}

/* Called before and after each average, with the mutex locked: measure the time in which at least one runs. */
static void begin(struct reducer *r, double now) {
    if (r->running++ == 0) r->running_since = now;
}

static void end(struct reducer *r, double now) {
    if (--r->running == 0) r->communication += now - r->running_since;
}

static void *communicate(void *argument) {
    struct reducer *r = argument;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (r->reduced == r->queued && !r->is_ending) pthread_cond_wait(&r->work, &r->mutex);
        if (r->is_ending) break;
        size_t index = r->reduced;
        bool has_failed = r->failure != OK;
        begin(r, clock_seconds());
        pthread_mutex_unlock(&r->mutex);

        status failure = has_failed ? OK : reduce(r, &r->buckets[index], COMM_THREAD_LANE);

        pthread_mutex_lock(&r->mutex);
        end(r, clock_seconds());
        r->failure = status_first(r->failure, failure);
        r->reduced++;
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- on GPUs ---- */

static status enqueue_scatter(struct reducer *r, const struct bucket *b) {
    struct reducer_shard shard = shard_of(b, comm_world_size(r->gpu));
    size_t all = (size_t)comm_world_size(r->gpu) * shard.size, rest = shard.end - shard.begin - all;
    float *g = r->gradients + b->at; /* (b->end - b->begin) */
    struct comm_result own = {0}, shared = {0};
    if (r->shards) own = (struct comm_result){r->shards + b->shard_at, r->adds_shards};
    if (r->shards) shared = (struct comm_result){own.to + shard.size, r->adds_shards};
    TRY(comm_gpu_average_scatter(r->gpu, g, shard.size, r->is_compressed, own));
    TRY(comm_gpu_average(r->gpu, g + all, rest, r->is_compressed, shared));
    return r->shards ? comm_gpu_mark(r->gpu, r->first_mark + (size_t)(b - r->buckets)) : OK;
}

/* After the work that is now in the device's stream, which computes the bucket's gradients. */
static status enqueue(struct reducer *r, const struct bucket *b) {
    TRY(comm_gpu_after(r->gpu, r->stream));
    if (r->is_scattered) return enqueue_scatter(r, b);
    return comm_gpu_average(r->gpu, r->gradients + b->begin, b->end - b->begin, r->is_compressed,
                            (struct comm_result){0});
}

static status reserve(struct reducer *r) {
    size_t largest = 0;
    if (r->shards) TRY(comm_gpu_add_marks(r->gpu, r->bucket_count, &r->first_mark));
    if (!r->is_compressed) return OK;
    for (size_t i = 0; i < r->bucket_count; i++)
        if (r->buckets[i].end - r->buckets[i].begin > largest) largest = r->buckets[i].end - r->buckets[i].begin;
    return comm_gpu_reserve(r->gpu, largest);
}

/* ---- create and destroy ---- */

static void fill_buckets(const struct reducer_range *ranges, size_t count, const size_t *bucket_of,
                         struct bucket *buckets) {
    for (size_t i = count; i-- > 0;) { /* bucket 0 has the last ranges */
        struct bucket *b = &buckets[bucket_of[i]];
        if (b->count++ == 0) b->end = ranges[i].offset + ranges[i].count;
        b->begin = ranges[i].offset;
    }
}

static bool share_memory(const struct bucket *a, const struct bucket *b) {
    return a->at < b->at + (b->end - b->begin) && b->at < a->at + (a->end - a->begin);
}

/* Where the buckets are, and their shards, in ascending order. */
static void place_buckets(struct reducer *r, const size_t *places) {
    size_t world = (size_t)comm_world_size(r->comm), shards = 0;
    for (size_t i = r->bucket_count; i-- > 0;) {
        struct bucket *b = &r->buckets[i];
        struct reducer_shard shard = shard_of(b, (int)world);
        b->at = places ? places[i] : b->begin;
        b->shard_at = shards;
        shards += reducer_shard_floats(&shard, (int)world);
    }
    for (size_t i = 0; i < r->bucket_count; i++)
        for (size_t before = 0; before < i; before++)
            if (share_memory(&r->buckets[i], &r->buckets[before])) r->buckets[i].after = before + 1;
}

size_t reducer_shard_floats(const struct reducer_shard *shard, int world_size) {
    size_t floats = shard->size + (shard->end - shard->begin - (size_t)world_size * shard->size);
    return (floats + SHARD_ALIGNMENT - 1) / SHARD_ALIGNMENT * SHARD_ALIGNMENT;
}

status reducer_shards(const struct reducer_range *ranges, size_t count, const struct reducer_config *config,
                      int world_size, struct reducer_shard *shards, size_t *shard_count) {
    size_t *bucket_of = calloc(count + 1, sizeof *bucket_of);
    struct bucket *buckets = calloc(count + 1, sizeof *buckets);
    bool is_allocated = bucket_of && buckets;
    if (is_allocated) {
        *shard_count = reducer_plan(ranges, count, config, bucket_of);
        fill_buckets(ranges, count, bucket_of, buckets);
        for (size_t b = 0; b < *shard_count; b++) shards[b] = shard_of(&buckets[*shard_count - 1 - b], world_size);
    }
    free(bucket_of);
    free(buckets);
    return is_allocated ? OK : status_memory("the reducer");
}

/* With a thread the last bucket uses the main lane, the others its lane. */
static status allocate_halves(struct reducer *r, bool needs_thread) {
    size_t largest[COMM_LANES] = {0};
    for (size_t i = 0; i < r->bucket_count; i++) {
        size_t count = r->buckets[i].end - r->buckets[i].begin;
        size_t *of_lane = &largest[needs_thread && i + 1 < r->bucket_count ? COMM_THREAD_LANE : COMM_MAIN_LANE];
        if (count > *of_lane) *of_lane = count;
    }
    for (int lane = 0; lane < COMM_LANES; lane++) {
        void *halves = NULL;
        if (largest[lane]) TRY(comm_alloc(r->comm, largest[lane] * sizeof **r->halves, &halves));
        r->halves[lane] = halves;
    }
    return OK;
}

static status start_thread(struct reducer *r) {
    TRY(thread_start(&r->thread, "reducer", "the communication thread", communicate, r));
    r->has_thread = true;
    return OK;
}

/* What a group for host memory needs. */
static status prepare_host(struct reducer *r, bool is_overlapped) {
    bool needs_thread = is_overlapped && r->bucket_count > 1;
    if (r->is_compressed) TRY(allocate_halves(r, needs_thread));
    return needs_thread ? start_thread(r) : OK;
}

status reducer_create(const struct reducer_config *config, const struct reducer_range *ranges, size_t count,
                      float *gradients, struct comm *comm, struct reducer **out) {
    *out = NULL;
    struct reducer *r = calloc(1, sizeof *r);
    if (!r) return status_memory("the reducer");
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    r->count = count;
    r->gradients = gradients;
    r->comm = comm;
    r->gpu = config->stream ? comm_gpu(comm) : NULL;
    r->stream = config->stream;
    r->is_scattered = config->is_scattered;
    r->shards = config->shards;
    r->is_compressed = config->is_compressed;
    r->ranges = malloc((count + 1) * sizeof *r->ranges);
    r->bucket_of = calloc(count + 1, sizeof *r->bucket_of);
    r->is_ready = calloc(count + 1, sizeof *r->is_ready);
    r->buckets = calloc(count + 1, sizeof *r->buckets);
    status failure = OK;
    if (!r->ranges || !r->bucket_of || !r->is_ready || !r->buckets) {
        failure = status_memory("the reducer");
    } else {
        if (count) memcpy(r->ranges, ranges, count * sizeof *ranges);
        r->bucket_count = reducer_plan(ranges, count, config, r->bucket_of);
        fill_buckets(r->ranges, count, r->bucket_of, r->buckets);
        place_buckets(r, config->places);
        if (r->gpu) failure = reserve(r);
        if (comm_world_size(comm) > 1 && !r->gpu) failure = prepare_host(r, config->is_overlapped);
    }
    if (failure) {
        reducer_destroy(r);
        return failure;
    }
    *out = r;
    return OK;
}

void reducer_destroy(struct reducer *r) {
    if (!r) return;
    if (r->has_thread) {
        pthread_mutex_lock(&r->mutex);
        r->is_ending = true;
        pthread_cond_signal(&r->work);
        pthread_mutex_unlock(&r->mutex);
        pthread_join(r->thread, NULL);
    }
    status_free(r->failure);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->mutex);
    free(r->ranges);
    free(r->bucket_of);
    free(r->is_ready);
    free(r->buckets);
    free(r);
}

/* ---- a step ---- */

void reducer_start(struct reducer *r) {
    for (size_t i = 0; i < r->count; i++) r->is_ready[i] = false;
    for (size_t b = 0; b < r->bucket_count; b++) r->buckets[b].pending = r->buckets[b].count;
    r->complete = 0;
    r->adds_shards = false;
    if (r->has_thread) pthread_mutex_lock(&r->mutex);
    r->queued = r->reduced = 0;
    if (r->has_thread) pthread_mutex_unlock(&r->mutex);
}

void reducer_start_next(struct reducer *r) {
    reducer_start(r);
    r->adds_shards = true;
}

/* A bucket that is not queued will not be: a gradient before it was not sent, so the step has failed. */
void reducer_claim(struct reducer *r, size_t bucket) {
    size_t after = r->buckets[bucket].after;
    if (r->gpu && after > 0 && after <= r->complete && !r->failure)
        r->failure = comm_gpu_before_mark(r->gpu, r->first_mark + after - 1, r->stream);
    if (!r->has_thread || after == 0) return;
    pthread_mutex_lock(&r->mutex);
    while (r->reduced < after && r->reduced < r->queued) pthread_cond_wait(&r->done, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

/* Reduces buckets [first, last), unless an earlier one failed. */
static status reduce_now(struct reducer *r, size_t first, size_t last) {
    double start = clock_seconds();
    status failure = OK;
    pthread_mutex_lock(&r->mutex);
    begin(r, start);
    pthread_mutex_unlock(&r->mutex);
    for (size_t b = first; b < last && !failure; b++) failure = reduce(r, &r->buckets[b], COMM_MAIN_LANE);
    double now = clock_seconds();
    pthread_mutex_lock(&r->mutex);
    end(r, now);
    pthread_mutex_unlock(&r->mutex);
    r->waited += now - start;
    return failure;
}

static bool reduces_in_ready(const struct reducer *r) {
    return r->shards && !r->gpu && !r->has_thread && comm_world_size(r->comm) > 1;
}

void reducer_ready(struct reducer *r, size_t index) {
    if (r->is_ready[index]) return;
    r->is_ready[index] = true;
    r->buckets[r->bucket_of[index]].pending--;
    size_t before = r->complete;
    while (r->complete < r->bucket_count && r->buckets[r->complete].pending == 0) r->complete++;
    for (size_t b = before; r->gpu && b < r->complete && !r->failure; b++) r->failure = enqueue(r, &r->buckets[b]);
    if (reduces_in_ready(r) && r->complete > before && !r->failure) r->failure = reduce_now(r, before, r->complete);
    if (r->complete == before || !r->has_thread) return;
    pthread_mutex_lock(&r->mutex);
    r->queued = r->complete < r->bucket_count ? r->complete : r->bucket_count - 1; /* the caller reduces the last */
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->mutex);
}

static status check_all_ready(const struct reducer *r) {
    for (size_t i = 0; i < r->count; i++)
        if (!r->is_ready[i])
            return status_new(STATUS_BUG, "the gradient of parameter '%s' did not become ready in this step",
                              r->ranges[i].name);
    return OK;
}

static status wait_for_thread(struct reducer *r) {
    pthread_mutex_lock(&r->mutex);
    while (r->reduced < r->queued) pthread_cond_wait(&r->done, &r->mutex);
    status failure = r->failure;
    r->failure = OK;
    pthread_mutex_unlock(&r->mutex);
    return failure;
}

static status finish_on_gpu(struct reducer *r) {
    status failure = r->failure;
    r->failure = OK;
    return failure ? failure : comm_gpu_before(r->gpu, r->stream);
}

/* The buckets that are left to the caller: the last, all of them, or none. */
static status reduce_rest(struct reducer *r) {
    if (!reduces_in_ready(r)) return reduce_now(r, r->has_thread ? r->bucket_count - 1 : 0, r->bucket_count);
    status failure = r->failure;
    r->failure = OK;
    return failure;
}

status reducer_wait(struct reducer *r, void *stream) { return r->gpu ? comm_gpu_wait(r->gpu, stream) : OK; }

status reducer_finish(struct reducer *r) {
    status missing = check_all_ready(r);
    if (!missing && r->gpu) return finish_on_gpu(r);
    /* buckets that are queued must be reduced on all ranks: the other ranks wait for them */
    if (missing) return r->has_thread ? status_first(missing, wait_for_thread(r)) : missing;
    if (comm_world_size(r->comm) == 1 || r->bucket_count == 0) return OK;
    status failure = reduce_rest(r);
    if (r->has_thread) {
        double start = clock_seconds();
        failure = status_first(failure, wait_for_thread(r));
        r->waited += clock_seconds() - start;
    }
    return failure;
}

/* After reducer_finish the thread is idle, so the mutex need not be locked. */
struct reducer_times reducer_times(const struct reducer *r) {
    return (struct reducer_times){.communication = r->communication, .waited = r->waited};
}

/* The thread may start after the caller has started to wait, so the wait may be longer than the communication. */
double reducer_hidden(struct reducer_times before, struct reducer_times after) {
    double communication = after.communication - before.communication, waited = after.waited - before.waited;
    if (!(communication > 0)) return NAN;
    return waited < communication ? 1 - waited / communication : 0;
}
