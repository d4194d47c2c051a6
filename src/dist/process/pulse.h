/* pulse: the current activity of a rank: phase, step, collective. Its threads write it; the thread of the heartbeat
 * reads it (store_heartbeat.c). As in PyTorch's flight recorder, the last pulse of a rank that hangs shows where it
 * hangs. A write is a few atomic stores, so it is cheap enough for every step. */
#ifndef DIST_PULSE_H
#define DIST_PULSE_H

#include <stdbool.h>
#include <stdint.h>

/* X(enum constant, text for messages, whether it may last as long as dist.timeout). Phases that wait for disks or
 * terminals may last that long; for phases that compute, dist.hang_timeout applies (store_members.h). */
#define PULSE_PHASES(X)                                                                                                \
    X(PULSE_STARTING, "starting", true)                                                                                \
    X(PULSE_LOADING, "loading data", true)                                                                             \
    X(PULSE_FORWARD, "forward", false)                                                                                 \
    X(PULSE_BACKWARD, "backward", false)                                                                               \
    X(PULSE_UPDATING, "updating the parameters", false)                                                                \
    X(PULSE_LOGGING, "writing metrics", true)                                                                          \
    X(PULSE_EVALUATING, "evaluating", false)                                                                           \
    X(PULSE_PREDICTING, "predicting", false)                                                                           \
    X(PULSE_SAVING, "saving", true)                                                                                    \
    X(PULSE_ENDING, "ending", true)

enum pulse_phase {
#define X(name, text, is_slow) name,
    PULSE_PHASES(X)
#undef X
        PULSE_PHASE_COUNT
};

#define PULSE_LANES 2      /* COMM_LANES */
#define PULSE_CALL_NAME 24 /* bytes of a collective's name, with its NUL */

struct pulse;

/* NULL: no memory. */
struct pulse *pulse_create(void);
/* A memfd for a pulse that two processes map: it can be read after the process that wrote it has ended. -1: failed. */
int pulse_file(void);
struct pulse *pulse_map(int file);       /* NULL: failed */
void pulse_destroy(struct pulse *pulse); /* takes NULL */

/* These do nothing if [pulse] is NULL. Only the training thread sets the phase. */
void pulse_phase(struct pulse *pulse, enum pulse_phase phase);
/* Step number [step], from 1, has ended; it took [seconds]. */
void pulse_step(struct pulse *pulse, int64_t step, double seconds);
/* The checkpoint of [step] is complete on disk. */
void pulse_saved(struct pulse *pulse, int64_t step);
/* A collective begins, and ends, on [lane]. [call]: its name, a string constant. */
void pulse_enter(struct pulse *pulse, int lane, const char *call);
void pulse_leave(struct pulse *pulse, int lane);

/* A copy of the pulse. */
struct pulse_reading {
    enum pulse_phase phase;
    int64_t step, saved;        /* 0: none yet */
    uint64_t ticks;             /* incremented by every phase, step and collective */
    bool is_in_collective;      /* on any lane */
    char call[PULSE_CALL_NAME]; /* the newest collective, "" before the first */
    uint64_t number;            /* of that collective on its lane, from 1 */
    double median_step;         /* seconds, of the last steps; 0: no step yet */
    double cpu;                 /* seconds of processor time of the calling process so far */
};

void pulse_read(const struct pulse *pulse, struct pulse_reading *reading);

/* "forward", "saving", ...; "?" if [phase] is not a phase. */
const char *pulse_phase_name(int phase);
bool pulse_phase_is_slow(int phase);

#endif
