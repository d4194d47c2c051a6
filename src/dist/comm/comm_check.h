/* comm_check: checks a process group: every collective, type and operation, at sizes around the thresholds between the
 * algorithms of the backends, against the same arithmetic done serially. For `ddptrain comm` and the tests. */
#ifndef DIST_COMM_CHECK_H
#define DIST_COMM_CHECK_H

#include "dist/comm/comm.h"

/* "float32", "sum" */
const char *comm_type_name(enum comm_type type);
const char *comm_op_name(enum comm_op op);

/* Called before each part, number [done] of [total], and often within it; [checks]: results compared so far. */
typedef void comm_check_progress(void *context, const char *part, size_t done, size_t total, size_t checks);

/* [progress] may be NULL; [context] is passed to it. *checks: collective calls whose result was compared. A wrong
 * result is STATUS_BUG with the call, the element and both values; this rank then makes no further calls, so the calls
 * of the other ranks time out. All ranks. */
status comm_check(struct comm *comm, comm_check_progress *progress, void *context, size_t *checks);

#endif
