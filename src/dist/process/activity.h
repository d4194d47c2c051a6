/* activity: the current activity of a rank: phase, step, collective. Its threads write it; the thread of the heartbeat
 * reads it (store/store.c). As in PyTorch's flight recorder, the last activity of a rank that hangs shows where it
 * hangs. A write is a few atomic stores, so it is cheap enough for every step. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* X(enum constant, text for messages, whether it may last as long as dist.timeout). Phases that wait for disks or
 * terminals may last that long; for phases that compute, dist.hang_timeout applies (store_members.h). */
#define ACTIVITY_PHASES(X)                                                                                             \
    X(ACTIVITY_STARTING, "starting", true)                                                                             \
    X(ACTIVITY_LOADING, "loading data", true)                                                                          \
    X(ACTIVITY_FORWARD, "forward", false)                                                                              \
    X(ACTIVITY_BACKWARD, "backward", false)                                                                            \
    X(ACTIVITY_UPDATING, "updating the parameters", false)                                                             \
    X(ACTIVITY_LOGGING, "writing metrics", true)                                                                       \
    X(ACTIVITY_EVALUATING, "evaluating", false)                                                                        \
    X(ACTIVITY_PREDICTING, "predicting", false)                                                                        \
    X(ACTIVITY_SAVING, "saving", true)                                                                                 \
    X(ACTIVITY_ENDING, "ending", true)

enum activity_phase {
#define X(name, text, is_slow) name,
    ACTIVITY_PHASES(X)
#undef X
        ACTIVITY_PHASE_COUNT
};

#define ACTIVITY_LANES 2      /* COMM_LANES */
#define ACTIVITY_CALL_NAME 24 /* bytes of a collective's name, with its NUL */

struct activity;

/* NULL: no memory. */
struct activity *activity_create(void);
/* A memfd for an activity record that two processes map: it can be read after the process that wrote it has ended. -1:
 * failed. */
int activity_file(void);
struct activity *activity_map(int file);          /* NULL: failed */
void activity_destroy(struct activity *activity); /* takes NULL */

/* These do nothing if [activity] is NULL. Only the training thread sets the phase. */
void activity_phase(struct activity *activity, enum activity_phase phase);
/* Step number [step], from 1, has ended; it took [seconds]. */
void activity_step(struct activity *activity, int64_t step, double seconds);
/* The checkpoint of [step] is complete on disk. */
void activity_saved(struct activity *activity, int64_t step);
/* A collective begins, and ends, on [lane]. [call]: its name, a string constant. */
void activity_enter(struct activity *activity, int lane, const char *call);
void activity_leave(struct activity *activity, int lane);

/* A copy of the activity record. */
struct activity_snapshot {
    enum activity_phase phase;
    int64_t step, saved;           /* 0: none yet */
    uint64_t ticks;                /* incremented by every phase, step and collective */
    bool is_in_collective;         /* on any lane */
    char call[ACTIVITY_CALL_NAME]; /* the newest collective, "" before the first */
    uint64_t number;               /* of that collective on its lane, from 1 */
    double median_step;            /* seconds, of the last steps; 0: no step yet */
    double cpu;                    /* seconds of processor time of the calling process so far */
};

void activity_read(const struct activity *activity, struct activity_snapshot *reading);

/* "forward", "saving", ...; "?" if [phase] is not a phase. */
const char *activity_phase_name(int phase);
bool activity_phase_is_slow(int phase);
