/* fault: lets a test fail the n-th I/O call of the program, or kill the program there. Every wrapper of base/io asks
 * here before its system call; when no fault is set that is one branch. This is the one mutable global of the program,
 * because a fault must reach calls that know nothing of tests.
 *
 * A program is told by its environment, read at the first call:
 *     DDPTRAIN_FAULT=<n>:<kind>[:once|ever]     n counts from 1; kind: enospc eio eintr short kill; default once
 *     DDPTRAIN_FAULT_FILTER=<text>              only calls on paths that contain <text> are counted
 * A value that cannot be read makes every I/O call fail with EINVAL, so that a test with a typo does not pass. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_ENOSPC,
    FAULT_EIO,
    FAULT_EINTR,
    FAULT_SHORT, /* a read or write does half of what it was asked for */
    FAULT_KILL,  /* SIGKILL before the call; in a write: after half of it */
    FAULT_EINVAL /* every call: the environment is malformed */
};

/* The calls of base/io. Each can only fail as the system's call can (see the table in fault.c): a fault that a call
 * cannot have passes it by, but the call is counted. */
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
    bool is_for_ever;   /* this call and all after it */
    const char *filter; /* NULL: all paths; borrowed */
    /* NULL, or called before each counted call: a test can keep what the disk holds at that instant. */
    void (*watch)(void *context, enum fault_call call, const char *path);
    void *context;
};

/* Whether the environment's value, if there is one, can be read. */
bool fault_is_readable(void);

/* Sets a fault in this process and starts counting from 0; NULL: none. For tests: no other thread may be in an I/O call
 * at the time. */
void fault_set(const struct fault *fault);

/* How many calls were counted since fault_set. */
int64_t fault_calls(void);

/* What the next [call] on [path] shall suffer. For base/io only: kills the process itself, except in a write, where
 * FAULT_KILL is returned. */
enum fault_kind fault_next(enum fault_call call, const char *path);

/* A bit of a rank's training state to flip, as a memory fault would:
 *     DDPTRAIN_FAULT_FLIP=<rank>:<step>:<bit>   before the step after <step>; bits are counted over all tensors of a
 *                                               checkpoint, in order, and start again from 0 behind the last */
struct fault_flip {
    bool is_set;
    int rank;
    int64_t step;
    uint64_t bit;
};
/* false: the variable is there but cannot be read. */
bool fault_flip_read(struct fault_flip *flip);

/* How much faster time passes for the rules that save after some time or before a long evaluation, so that a test need
 * not wait for them: DDPTRAIN_FAULT_CLOCK=<factor>; 1 without it, 0: the value cannot be read. */
double fault_clock(void);

/* A rank that begins to train later than the others: DDPTRAIN_FAULT_LATE=<rank>:<seconds>. Sleeps when [rank] is the
 * one that is named; a value that cannot be read names none. */
void fault_be_late(int rank);

/* SIGKILL to this process; does not return. */
void fault_kill(void);

#endif
