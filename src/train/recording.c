/* A few places, the oldest of which is given up for a new key: a run has a whole and a short batch, each within
 * and at the end of a group, with a norm and without. */
#include "train/recording.h"

#include <stdlib.h>

#include "dist/comm/comm_gpu.h"

#define PLACES 16

struct place_of_key {
    struct recording_key key; /* rows 0: free */
    struct device_recording *recording;
};

struct recordings {
    struct device *device;
    struct comm *comm; /* NULL where recordings hold no calls of NCCL */
    struct log *log;
    struct place_of_key places[PLACES];
    size_t next;     /* to be given up */
    uint64_t moves;  /* device_moves when the ranks agreed on it */
    bool has_failed; /* the device cannot record this work: it is not tried again */
};

status recordings_create(struct device *device, struct comm *comm, bool is_wanted, struct log *log,
                         struct recordings **out) {
    *out = NULL;
    if (!is_wanted || !device_can_record(device)) return OK;
    *out = calloc(1, sizeof **out);
    if (!*out) return status_memory("the recordings of passes");
    (*out)->device = device;
    (*out)->comm = comm && comm_gpu(comm) ? comm : NULL;
    (*out)->log = log;
    return OK;
}

void recordings_destroy(struct recordings *r) {
    if (!r) return;
    for (size_t i = 0; i < PLACES; i++) device_recording_destroy(r->device, r->places[i].recording);
    free(r);
}

static void forget(struct recordings *r) {
    for (size_t i = 0; i < PLACES; i++) {
        device_recording_destroy(r->device, r->places[i].recording);
        r->places[i] = (struct place_of_key){0};
    }
}

/* Whether it is so on any rank. */
static status is_so_anywhere(const struct recordings *r, bool *is_so) {
    uint8_t is_so_here = *is_so;
    if (!r->comm) return OK;
    TRY(comm_all_reduce(r->comm, &is_so_here, 1, COMM_UINT8, COMM_MAX));
    *is_so = is_so_here;
    return OK;
}

status recordings_agree(struct recordings *r) {
    if (!r || !r->comm) return OK;
    bool has_moved = device_moves(r->device) != r->moves;
    TRY(is_so_anywhere(r, &has_moved));
    r->moves = device_moves(r->device);
    if (has_moved) forget(r);
    return OK;
}

static bool is_equal(const struct recording_key *a, const struct recording_key *b) {
    return a->rows == b->rows && a->scale == b->scale && a->loss_scale == b->loss_scale && a->is_last == b->is_last &&
           a->is_update == b->is_update && a->has_norm == b->has_norm;
}

static struct place_of_key *find(struct recordings *r, const struct recording_key *key) {
    for (size_t i = 0; i < PLACES; i++)
        if (is_equal(&r->places[i].key, key)) return &r->places[i];
    return NULL;
}

static void add(struct recordings *r, const struct recording_key *key) {
    struct place_of_key *place = &r->places[r->next++ % PLACES];
    device_recording_destroy(r->device, place->recording);
    *place = (struct place_of_key){.key = *key};
}

/* The device cannot, or with [why] NULL that of another rank: it is not tried again. */
static void give_up(struct recordings *r, status why) {
    r->has_failed = true;
    log_line(r->log, "steps are not recorded as a CUDA graph: %s", why ? status_message(why) : "another rank cannot");
    status_free(why);
}

/* *is_done: the device has been asked to do it. */
static status record(struct recordings *r, struct place_of_key *place, status (*work)(void *), void *user,
                     bool *is_done) {
    status why, failure = OK;
    *is_done = false;
    TRY(device_record_begin(r->device, &why));
    if (!why) {
        failure = work(user);
        failure = status_first(failure, device_record_end(r->device, &place->recording, &why));
    }
    bool has_failed = why != OK;
    if (has_failed) { /* nothing has run: what failed was the recording */
        status_free(failure);
        failure = OK;
    }
    if (!failure) failure = is_so_anywhere(r, &has_failed);
    if (has_failed) {
        give_up(r, why);
        device_recording_destroy(r->device, place->recording);
        place->recording = NULL;
    }
    TRY(failure);
    if (place->recording) *is_done = device_replay(r->device, place->recording);
    return OK;
}

status recordings_run(struct recordings *r, const struct recording_key *key, status (*work)(void *), void *user) {
    bool is_done = false;
    if (!r || r->has_failed) return work(user);
    struct place_of_key *place = find(r, key);
    if (!place) {
        add(r, key);
        return work(user);
    }
    if (place->recording && device_replay(r->device, place->recording)) return OK;
    if (place->recording) { /* memory has moved since: as at first */
        device_recording_destroy(r->device, place->recording);
        place->recording = NULL;
        return work(user);
    }
    TRY(record(r, place, work, user, &is_done));
    return is_done ? OK : work(user);
}
