/* comm_check: proves a process group: every collective, type and operation, at sizes around the borders of the
 * backends' ways, against the same arithmetic done serially. For `ddptrain comm` and the tests. */
#ifndef DIST_COMM_CHECK_H
#define DIST_COMM_CHECK_H

#include "dist/comm/comm.h"

/* "float32", "sum" */
const char *comm_type_name(enum comm_type type);
const char *comm_op_name(enum comm_op op);

/* Told before each part, (done) of (total), and often within it; (checks): calls so far. */
typedef void comm_check_told(void *context, const char *part, size_t done, size_t total, size_t checks);

/* All ranks. [told] may be NULL. *checks: collective calls whose result was compared. A wrong result is STATUS_BUG with
 * the call, the element and both values; this rank then leaves the others in the middle. */
status comm_check(struct comm *comm, comm_check_told *told, void *context, size_t *checks);

#endif
