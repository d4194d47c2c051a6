/* store_members: what the store knows of the ranks: who has joined, what each was last seen doing, who left and why,
 * and which of several departures explains the others. Pure: the time is an argument, so tests need no clock.
 *
 * A rank is lost when
 *   - it reports a failure, its connection ends, or its launcher says how it died: at once;
 *   - its host is out of reach: no pulse for MEMBERS_SILENT seconds and not even an acknowledgement from its kernel;
 *   - it does not run (stopped): no pulse for MEMBERS_STOPPED seconds though its host answers;
 *   - it hangs: ranks wait in a collective, and for the limit below no rank has moved at all (no phase, step or
 *     collective began or ended anywhere). The rank that waits for nobody is the one. Pulses come from a thread of
 * their own, so a rank that computes without end is seen as well as one that is stuck. The limit is max([hang], 20 x
 * median step) seconds where computing is done, a minute at least for evaluating, and [slow] (dist.timeout) before the
 * first step is known and for phases that wait for disks or people. Processor time is no sign of progress, because a
 * loop uses it too; it is told in the sentence. */
#ifndef DIST_STORE_MEMBERS_H
#define DIST_STORE_MEMBERS_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "dist/process/pulse.h"

#define MEMBERS_SILENT 3.5
#define MEMBERS_STOPPED 8.0
#define MEMBERS_COLLECT 0.3 /* after the first departure a better explanation may come for so long */

struct members;

enum member_state { IS_ABSENT, IS_HERE, LEFT_IN_PEACE, LEFT_AFTER_PEER, LEFT_AS_CAUSE };

struct members_limits {
    double hang; /* seconds; 0: hangs are not looked for */
    double slow;
};

/* [node_size]: ranks of a host, for messages; 0: not known, or one host. NULL without memory. */
struct members *members_create(int world_size, int node_size, struct members_limits limits, double now);
void members_destroy(struct members *m); /* takes NULL */

enum member_state members_state(const struct members *m, int rank);
const char *members_who(const struct members *m, int rank); /* "host n1, pid 71" */
int members_joined(const struct members *m);                /* how many have ever joined */

void members_join(struct members *m, int rank, const char *who, double now);
/* The same of a rank that has not joined and never will: what happened to it is said next. */
void members_introduce(struct members *m, int rank, const char *who, double now);
void members_beat(struct members *m, int rank, const struct pulse_reading *reading, double now);
/* [fate]: what follows the rank's name, ": the loss is nan"; NULL: it exited without reporting an error. STATUS_PEER is
 * the code of a rank that lost a peer. A second departure of a rank changes nothing. */
void members_leave(struct members *m, int rank, enum member_state how, enum status_code code, const char *fate,
                   double now);
/* How a rank died (" was killed by SIGKILL"), told by its launcher: also after its connection ended, if nothing better
 * is known. */
void members_died(struct members *m, int rank, const char *fate, double now);

/* Looks for silent and hanging ranks. Call it at least every second; after a longer pause (this process itself was
 * stopped) no rank is named. link_age(data, rank): seconds since the rank's host last acknowledged anything, 0 when not
 * known. */
void members_check(struct members *m, double now, double (*link_age)(void *data, int rank), void *data);

/* The rank that explains the job's failure, final once it is known; -1: none yet. */
int members_cause(struct members *m, double now);
/* When a cause will be known; [otherwise] when nobody has left. */
double members_cause_time(const struct members *m, double otherwise);
enum status_code members_code(const struct members *m, int rank);
bool members_stood_still(const struct members *m, int rank); /* silent or hanging, until it was given up */

/* What [rank] told last; all zero before it told anything. */
const struct pulse_reading *members_last(const struct members *m, int rank);

/* Whether every rank but [rank] has left in peace. A rank that left otherwise ends the job by the cause, which may
 * not be known yet. */
bool members_is_alone(const struct members *m, int rank);

/* "rank 2 (host n1, pid 71) was killed by SIGKILL" */
void members_describe(const struct members *m, int rank, struct text *out);
/* "; last seen in backward of step 8, in all_reduce #17"; "; last seen starting" */
void members_last_seen(const struct pulse_reading *reading, struct text *out);
/* "ranks 2, 3" (that have not joined) */
void members_missing(const struct members *m, struct text *out);
/* "2 of 4 ranks: 2 (node 1), 3 (node 1)" */
void members_awaited(const struct members *m, struct text *out);

#endif
