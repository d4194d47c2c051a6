/* store_heartbeat: the thread of a rank that sends its activity to the store five times a second and receives the
 * report of a lost rank. It has a connection of its own, so it continues while the rank computes, saves or waits. */
#ifndef DIST_STORE_HEARTBEAT_H
#define DIST_STORE_HEARTBEAT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "dist/process/activity.h"
#include "dist/store/store.h"
#include "dist/store/store_session.h"

struct heartbeat;

struct heartbeat_config {
    int fd; /* a connection that has joined FOR_HEARTBEAT; owned from now on, also after a failure */
    struct store_session session; /* its authentication */
    int requests; /* a duplicate of the descriptor of FOR_REQUESTS; shut down when rank 0 is lost; owned, too */
    int stop;     /* an eventfd, readable after a request to stop: this rank then leaves the job; -1: none. Not owned */
    int rank;
    uint64_t job;
    struct activity *activity; /* not owned */
    const char *endpoint;      /* of rank 0: "n1:29500"; copied */
    bool is_inference;         /* as in store_options */
    store_overdue_function *overdue;
};

/* Starts the thread, with all signals blocked. */
status heartbeat_start(const struct heartbeat_config *config, struct heartbeat **out);
/* Ends it and closes the connection. Takes NULL. */
void heartbeat_stop(struct heartbeat *h);

/* The code of the job's failure; STATUS_OK: none is known. Adds the message, with the rank that failed first, to [out],
 * unless this rank failed first or [out] is NULL. From any thread. */
enum status_code heartbeat_failure(struct heartbeat *h, struct text *out);

/* After a request to stop: waits up to [timeout] seconds until the thread has reported it. Returns the reported reason,
 * which the caller owns; NULL: timeout. */
status heartbeat_leave_reason(struct heartbeat *h, double timeout);

/* See store_on_failure. */
status heartbeat_on_failure(struct heartbeat *h, void (*handler)(void *data), void *data);
void heartbeat_off_failure(struct heartbeat *h, void *data);

#endif
