/* A fixed number of slots; a new key replaces the oldest one. A run has few keys: whole and short batches, within
 * a step and at its end, with and without a norm. */
#include "train/loop/recording.h"

#include <stdlib.h>

#include "dist/comm/comm_gpu.h"

#define SLOTS 16

struct slot {
    struct recording_key key; /* rows 0: free */
    struct device_recording *recording;
};

struct recordings {
    struct device *device;
    struct comm *comm; /* NULL when the recordings contain no NCCL calls */
    struct log *log;
    struct slot slots[SLOTS];
    size_t next;     /* to be replaced */
    uint64_t moves;  /* device_moves at the last recordings_agree */
    bool has_failed; /* the device cannot record this work; recording is not tried again */
};

status recordings_create(struct device *device, struct comm *comm, bool is_enabled, struct log *log,
                         struct recordings **out) {
    *out = NULL;
    if (!is_enabled || !device_can_record(device)) return OK;
    *out = calloc(1, sizeof **out);
    if (!*out) return status_memory("the recordings of passes");
    (*out)->device = device;
    (*out)->comm = comm && comm_gpu(comm) ? comm : NULL;
    (*out)->log = log;
    return OK;
}

void recordings_destroy(struct recordings *r) {
    if (!r) return;
    for (size_t i = 0; i < SLOTS; i++) device_recording_destroy(r->device, r->slots[i].recording);
    free(r);
}

static void clear(struct recordings *r) {
    for (size_t i = 0; i < SLOTS; i++) {
        device_recording_destroy(r->device, r->slots[i].recording);
        r->slots[i] = (struct slot){0};
    }
}

/* Sets *flag on all ranks if it is set on any. */
static status any_rank(const struct recordings *r, bool *flag) {
    uint8_t value = *flag;
    if (!r->comm) return OK;
    TRY(comm_all_reduce(r->comm, &value, 1, COMM_UINT8, COMM_MAX));
    *flag = value;
    return OK;
}

status recordings_agree(struct recordings *r) {
    if (!r || !r->comm) return OK;
    bool has_moved = device_moves(r->device) != r->moves;
    TRY(any_rank(r, &has_moved));
    r->moves = device_moves(r->device);
    if (has_moved) clear(r);
    return OK;
}

static bool is_equal(const struct recording_key *a, const struct recording_key *b) {
    return a->rows == b->rows && a->scale == b->scale && a->loss_scale == b->loss_scale && a->is_last == b->is_last &&
           a->is_update == b->is_update && a->has_norm == b->has_norm && a->continues == b->continues &&
           a->adds == b->adds;
}

static struct slot *find(struct recordings *r, const struct recording_key *key) {
    for (size_t i = 0; i < SLOTS; i++)
        if (is_equal(&r->slots[i].key, key)) return &r->slots[i];
    return NULL;
}

static void add(struct recordings *r, const struct recording_key *key) {
    struct slot *slot = &r->slots[r->next++ % SLOTS];
    device_recording_destroy(r->device, slot->recording);
    *slot = (struct slot){.key = *key};
}

/* Stops recording for the [reason]; NULL: the device of another rank cannot record. Consumes it. */
static void stop_recording(struct recordings *r, status reason) {
    r->has_failed = true;
    log_line(r->log, "steps are not recorded as a CUDA graph: %s",
             reason ? status_message(reason) : "another rank cannot record");
    status_free(reason);
}

/* Records [work] and replays it; *is_done false: not recorded, and nothing was executed. */
static status record(struct recordings *r, struct slot *slot, status (*work)(void *), void *user, bool *is_done) {
    status reason, failure = OK;
    *is_done = false;
    TRY(device_record_begin(r->device, &reason));
    if (!reason) {
        failure = work(user);
        failure = status_first(failure, device_record_end(r->device, &slot->recording, &reason));
    }
    bool has_failed = reason != OK;
    if (has_failed) { /* nothing was executed: only the recording failed */
        status_free(failure);
        failure = OK;
    }
    if (!failure) failure = any_rank(r, &has_failed);
    if (has_failed) {
        stop_recording(r, reason);
        device_recording_destroy(r->device, slot->recording);
        slot->recording = NULL;
    }
    TRY(failure);
    if (slot->recording) *is_done = device_replay(r->device, slot->recording);
    return OK;
}

status recordings_run(struct recordings *r, const struct recording_key *key, status (*work)(void *), void *user) {
    bool is_done = false;
    if (!r || r->has_failed) return work(user);
    struct slot *slot = find(r, key);
    if (!slot) {
        add(r, key);
        return work(user);
    }
    if (slot->recording && device_replay(r->device, slot->recording)) return OK;
    if (slot->recording) { /* memory has moved since: execute, record again later */
        device_recording_destroy(r->device, slot->recording);
        slot->recording = NULL;
        return work(user);
    }
    TRY(record(r, slot, work, user, &is_done));
    return is_done ? OK : work(user);
}
