/* store_members: the state of the ranks in the store: which have joined, the last heartbeat of each, which have left
 * and why, and which failure is the root cause. Pure: the time is an argument, so tests need no clock.
 *
 * A rank is lost when
 *   - it reports a failure, its connection ends, or its launcher reports its end: at once;
 *   - its host is unreachable: no heartbeat and no TCP acknowledgement for MEMBERS_SILENT_SECONDS;
 *   - its process does not run (stopped): no heartbeat for MEMBERS_STOPPED_SECONDS although its host answers;
 *   - it hangs: ranks wait in a collective, and no rank has made progress (no phase, step or collective began or ended)
 *     for the limit below. The lost rank is then the one that does not wait in a collective.
 *
 * A thread of its own sends the heartbeats, so a rank that computes forever is detected as well as one that is blocked.
 * The limit is max([hang], 20 x median step) seconds for phases that compute, at least a minute for evaluation; it is
 * [slow] (dist.timeout) before the first step has ended, and for phases that wait for disks or terminals. Processor
 * time does not count as progress, because a loop uses it, too; the message includes it. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "dist/process/activity.h"

/* Multiplied by members_limits.pace. */
#define MEMBERS_SILENT_SECONDS 3.5
#define MEMBERS_STOPPED_SECONDS 8.0
#define MEMBERS_CHECK_SECONDS 0.2   /* between two calls of members_check */
#define MEMBERS_COLLECT_SECONDS 0.3 /* after the first loss: a report of the root cause may still arrive */

struct members;

/* In this order. */
enum member_state {
    MEMBER_ABSENT, /* not yet joined */
    MEMBER_JOINED,
    MEMBER_LEFT,      /* without a failure */
    MEMBER_LOST_PEER, /* left because another rank was lost */
    MEMBER_FAILED     /* may be the root cause */
};

struct members_limits {
    double hang; /* seconds; 0: hangs are not detected */
    double slow; /* seconds */
    double pace; /* store_pace; less than 1 counts as 1 */
};

/* [node_size]: number of ranks of a host, for messages; 0: not known, or one host. NULL: no memory. */
struct members *members_create(int world_size, int node_size, struct members_limits limits, double now);
void members_destroy(struct members *m); /* takes NULL */

enum member_state members_state(const struct members *m, int rank);
const char *members_process(const struct members *m, int rank); /* "host n1, pid 71" */
int members_joined(const struct members *m);                    /* number of ranks that have ever joined */

void members_join(struct members *m, int rank, const char *process, double now);
/* The same for a rank that has ended before it joined, and that does not count as joined; its end is reported next. */
void members_add_unjoined(struct members *m, int rank, const char *process, double now);
void members_heartbeat(struct members *m, int rank, const struct activity_snapshot *reading, double now);
/* [state]: one of the last three. [reason]: text that follows the rank's name, ": the loss is nan"; NULL: it exited
 * without reporting an error. The code of MEMBER_LOST_PEER is STATUS_PEER. Does nothing for a rank that has left. */
void members_leave(struct members *m, int rank, enum member_state state, enum status_code code, const char *reason,
                   double now);
/* The launcher of a rank reports how it ended, " was killed by SIGKILL". Also sets the reason of a rank that has been
 * lost without one. */
void members_exited(struct members *m, int rank, const char *reason, double now);

/* Detects unreachable, stopped and hanging ranks. Call it at least every second: after a longer pause (this process was
 * stopped) the time does not count. link_age(data, rank): seconds since the rank's host last acknowledged data, 0: not
 * known. */
void members_check(struct members *m, double now, double (*link_age)(void *data, int rank), void *data);

/* The rank that is the root cause of the job's failure; does not change once it is known. -1: none yet. */
int members_cause(struct members *m, double now);
/* When the cause will be known; [otherwise] if no rank is lost or the cause is known. */
double members_cause_time(const struct members *m, double otherwise);
enum status_code members_code(const struct members *m, int rank);
bool members_hung(const struct members *m, int rank); /* it was unreachable, stopped or hanging */

/* The last heartbeat of [rank]; all zero before the first. */
const struct activity_snapshot *members_last(const struct members *m, int rank);

/* Whether every rank but [rank] has left without a failure. */
bool members_is_alone(const struct members *m, int rank);

/* "rank 2 (host n1, pid 71) was killed by SIGKILL" */
void members_describe(const struct members *m, int rank, struct text *out);
/* Of a rank that has joined: "; last seen in backward of step 8, in all_reduce #17"; "; last seen when it joined the
 * other ranks" */
void members_last_seen(const struct activity_snapshot *reading, struct text *out);
/* The ranks that have not joined: "ranks 2, 3"; with their number and nodes: "2 of 4 ranks: 2 (node 1), 3 (node 1)". */
void members_missing(const struct members *m, struct text *out);

void members_missing_by_node(const struct members *m, struct text *out);
