/* store_watch: the thread of a rank that tells the store five times a second what the rank is doing, and hears at once
 * when another rank is lost. It has a connection of its own, so it goes on while the rank computes, saves or waits. */
#ifndef DIST_STORE_WATCH_H
#define DIST_STORE_WATCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "dist/process/pulse.h"
#include "dist/store/store.h"
#include "dist/store/store_session.h"

struct watch;

struct watch_config {
    int fd; /* a connection that has joined as a watch; owned by the watch from now on, also after a failure */
    struct store_session session; /* its authentication */
    int requests; /* a duplicate of the other one's descriptor; shut down when rank 0 is lost; owned as well */
    int stop;     /* an eventfd: readable, this rank leaves the job; -1: none. Never read; not owned */
    int rank;
    uint64_t job;
    struct pulse *pulse; /* not owned */
    const char *place;   /* of rank 0: "n1:29500"; copied */
    bool trains_nothing; /* store_options' */
    store_overdue_function *overdue;
};

/* Starts the thread, which has all signals blocked. */
status watch_start(const struct watch_config *config, struct watch **out);
/* Ends it and closes the connection. Takes NULL. */
void watch_stop(struct watch *w);

/* From any thread. A failure is known: its code, or STATUS_OK while there is none. The sentence that names the rank
 * that failed first is added to [out], unless that is this rank itself or [out] is NULL. */
enum status_code watch_failure(struct watch *w, struct text *out);

/* After config.stop was written to: what the watch has reported as the reason why this rank leaves, once it has; NULL
 * when it has not within [patience] seconds. The caller owns it. */
status watch_leaving(struct watch *w, double patience);

/* See store_on_failure. */
void watch_on_failure(struct watch *w, void (*handler)(void *data), void *data);
void watch_off_failure(struct watch *w, void *data);

#endif
