/* fault: fault injection for tests. It makes the n-th I/O call of the program fail, or kills the program there. Every
 * wrapper of base/io calls fault_next before its system call; without a fault that costs one branch. This is the only
 * mutable global state of the program, because a fault must reach code that has no test parameter.
 *
 * Environment variables, read at the first call:
 *     DDPTRAIN_FAULT=<n>:<kind>[:once|ever]     n counts from 1; kind: enospc eio eintr short kill slow; default once
 *     DDPTRAIN_FAULT_FILTER=<text>              only calls on paths that contain <text> are counted
 * A malformed value makes every I/O call fail with EINVAL, so that a test with a typo does not pass. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_ENOSPC,
    FAULT_EIO,
    FAULT_EINTR,
    FAULT_SHORT, /* a read or write transfers half of the bytes */
    FAULT_KILL,  /* SIGKILL before the call; in a write: after half of it */
    FAULT_SLOW,  /* the call succeeds, FAULT_SLOW_SECONDS later */
    FAULT_EINVAL /* every call: the environment variable is malformed */
};

#define FAULT_SLOW_SECONDS 0.02

/* The calls of base/io. A call gets only the faults that its system call can have (see the table in fault.c); it is
 * counted in any case. */
enum fault_call {
    CALL_OPEN,
    CALL_CREATE,
    CALL_READ,
    CALL_WRITE,
    CALL_SYNC,
    CALL_RESERVE,
    CALL_TRUNCATE,
    CALL_RENAME,
    CALL_REMOVE,
    CALL_CLOSE,
    CALL_STAT,
    CALL_MKDIR,
    CALL_LIST,
    CALL_LOCK,
    CALLS
};

struct fault {
    enum fault_kind kind;
    int64_t at;         /* the number of the call, from 1; 0: only count */
    bool is_permanent;  /* this call and all after it */
    const char *filter; /* NULL: all paths; not owned */
    /* NULL, or called before each counted call, so that a test can copy the files at that moment. */
    void (*watch)(void *context, enum fault_call call, const char *path);
    void *context;
};

/* Whether the environment variable, if set, is well-formed. */
bool fault_is_readable(void);

/* Sets a fault in this process and restarts the count at 0; NULL: none. No other thread may be in an I/O call. */
void fault_set(const struct fault *fault);

/* The number of calls counted since fault_set. */
int64_t fault_calls(void);

/* The fault of the next [call] on [path]. For base/io only. FAULT_KILL kills the process here, except in a write, where
 * it is returned; FAULT_SLOW waits here. */
enum fault_kind fault_next(enum fault_call call, const char *path);

/* Flips a bit of a rank's training state, as a memory error would, or a bit during a computation, as a processor would
 * that computes wrong:
 *     DDPTRAIN_FAULT_FLIP=<rank>:<step>:<bit>          before the step after <step>; <bit> counts over all tensors of a
 *                                                      checkpoint, in order, modulo their total
 *     DDPTRAIN_FAULT_FLIP=<rank>:<step>:<bit>:<part>   in the first computation of the first piece of that step only;
 *                                                      <part>: weights, for that time; activations: outputs of nodes,
 *                                                      after forward of each; gradients, after backward */
enum fault_flip_part { FLIP_STATE, FLIP_WEIGHTS, FLIP_ACTIVATIONS, FLIP_GRADIENTS };
struct fault_flip {
    bool is_set;
    enum fault_flip_part part;
    int rank;
    int64_t step;
    uint64_t bit;
};
/* false: the variable is malformed. */
bool fault_flip_read(struct fault_flip *flip);

/* DDPTRAIN_FAULT_CLOCK=<factor>: multiplies the elapsed time that decides when to save (save_every: minutes, a long
 * evaluation), so that tests need not wait. 1: not set; 0: malformed. */
double fault_clock(void);

/* DDPTRAIN_FAULT_LATE=<rank>:<seconds>: delays the start of training of one rank. Sleeps when [rank] is that rank; a
 * malformed value is ignored. */
void fault_delay(int rank);

/* SIGKILL to this process; does not return. */
void fault_kill(void);
