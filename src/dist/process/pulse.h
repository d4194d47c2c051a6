/* pulse: what a rank is doing at this moment, written by the threads that work and read by the one that tells the store
 * (store_watch.c). It is the flight recorder: when a rank hangs, its last pulse says where. A write is a few atomic
 * stores, so every step can afford it. */
#ifndef DIST_PULSE_H
#define DIST_PULSE_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, words for messages, whether it may last as long as dist.timeout)
 * What waits for disks, terminals or people has no bound of its own; computing does: see members.h. */
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
#define X(name, words, is_slow) name,
    PULSE_PHASES(X)
#undef X
        PULSE_PHASE_COUNT
};

#define PULSE_LANES 2      /* independent streams of collectives, as comm's */
#define PULSE_CALL_NAME 24 /* bytes of a collective's name, with its NUL */

struct pulse;

/* NULL without memory. */
struct pulse *pulse_create(void);
/* A file in memory for one that two processes map: what it says outlives the process that wrote it. -1 without one. */
int pulse_file(void);
struct pulse *pulse_map(int file);       /* NULL when it cannot be mapped */
void pulse_destroy(struct pulse *pulse); /* takes NULL */

/* All of these take NULL and do nothing then. The phase is the training thread's. */
void pulse_phase(struct pulse *pulse, enum pulse_phase phase);
/* A step has ended that took [seconds]; [step] counts from 1. */
void pulse_step(struct pulse *pulse, int64_t step, double seconds);
/* A complete checkpoint of [step] is on disk. */
void pulse_saved(struct pulse *pulse, int64_t step);
/* A collective begins and ends on [lane]; [call] is its name, a constant. */
void pulse_enter(struct pulse *pulse, int lane, const char *call);
void pulse_leave(struct pulse *pulse, int lane);

/* What a pulse says now. */
struct pulse_reading {
    enum pulse_phase phase;
    int64_t step, saved;        /* 0: none yet */
    uint64_t ticks;             /* grows with every phase, step and collective */
    bool is_in_collective;      /* on some lane */
    char call[PULSE_CALL_NAME]; /* the newest collective, "" before the first */
    uint64_t number;            /* of it on its lane, from 1 */
    double median_step;         /* seconds, of the newest steps; 0: no step yet */
    double cpu;                 /* seconds of processor time of this process so far */
};

void pulse_read(const struct pulse *pulse, struct pulse_reading *reading);

/* "forward", "saving", ...; "?" for what is no phase. */
const char *pulse_phase_name(int phase);
bool pulse_phase_is_slow(int phase);

#endif
