/* store: the control plane. A small TCP key-value store served by a thread of rank 0, used to rendezvous (Gloo
 * exchanges its addresses through it), to compare what ranks believe (config, data, model) before step 0, and to tell
 * failures. Every message is authenticated under the job's secret (store_session.h); nothing large goes through it. One
 * per job. */
#ifndef DIST_STORE_H
#define DIST_STORE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "dist/process/pulse.h"

#define STORE_MAX_KEY 255          /* bytes */
#define STORE_MAX_VALUE (64 << 10) /* bytes */

struct store;

/* This rank has not ended within 5 s of a failure of the job ([code] STATUS_PEER), or of a request to stop before
 * training (STATUS_STOPPED); [why] names the rank that failed first. Called by a thread of the store, once: to end the
 * process, which may hang. */
typedef void store_overdue_function(enum status_code code, const char *why);

struct store_options {
    double timeout;  /* seconds for all ranks to join */
    double hang;     /* seconds without progress after which a rank is lost (store_members.h); 0: never */
    struct log *log; /* for "waiting for ..."; NULL: silent. Not owned; used until store_close */
    store_overdue_function *overdue; /* NULL: none */
    status failure;                  /* store_report_before_joining's own, with its words */
    const bool *informed;            /* store_report_before_joining's own */
    int stop;                        /* readable: this process is asked to stop; 0: stop_fd alone says it. Not owned */
    bool trains_nothing;             /* eval, predict: a request to stop is not reported as one before training */
    /* Set to a descriptor while this rank waits or trains, -1 otherwise: a signal handler that writes 8 bytes to it has
     * this rank leave the job, and all others with it, with STATUS_STOPPED. NULL: nobody asks. */
    volatile sig_atomic_t *stop_fd;
};

/* Rank 0 serves on master_port (or on the listening socket that the launcher passed); others connect, retrying until
 * [timeout] seconds are over. Returns when every rank has joined; else, on every rank that can know, STATUS_PEER with
 * the ranks that are missing. It listens on the loopback address when master_addr is one, otherwise on the address of
 * master_addr. world_size 1: an in-process store without a socket. All ranks.
 *
 * The secret comes from the launcher (a descriptor), else from the environment variable DDPTRAIN_SECRET; without either
 * it is derived from the job id, which keeps jobs apart but protects against nobody. */
status store_open(const struct dist_env *env, double timeout, struct store **out);
status store_open_with(const struct dist_env *env, const struct store_options *options, struct store **out);
/* Takes NULL. Rank 0 waits for the others to leave first, for 10 s at most, and 2 s after a failure. */
void store_close(struct store *store);

/* For a rank that cannot take part, because of [failure]: joins, for a minute at most, to say so, so that the ranks of
 * other hosts do not wait for it until their timeout; for three seconds where [failure] is a request to stop
 * (STATUS_STOPPED), since the others have usually had one, too. Where all are on one host the launcher sees it end:
 * nothing. [informed]: NULL, or the caller speaks for all ranks of its host, of which it is the first, and none of them
 * will come, nor one of the other nodes (nodes) that are marked, which know already; its own is. [stop]: as
 * store_options'. */
void store_report_before_joining(const struct dist_env *env, const bool *informed, int stop, struct log *log,
                                 status failure);

/* Keys: at most STORE_MAX_KEY bytes; values: at most STORE_MAX_VALUE. All calls may come from several threads; one
 * waits for the other. */
status store_set(struct store *store, const char *key, const void *value, size_t size);
/* Waits until [key] exists, at most [timeout] seconds (then STATUS_PEER naming the key). A rank that left before
 * ends the wait at once with STATUS_PEER naming it and its reason. *value is malloc'ed, with a NUL behind it. */
status store_get(struct store *store, const char *key, double timeout, void **value, size_t *size);

/* Tells the others why this rank is about to leave; the first report counts. Never waits for long. */
void store_report(struct store *store, status failure);

/* Which rank left first, with its reason ("rank 2 (host n1, pid 71): <its failure>" or "... exited without reporting an
 * error"), added to [out]; waits up to [patience] seconds for one to leave. false: nobody did. For a sentence that
 * names the rank that failed first after a collective failed. */
bool store_cause(struct store *store, double patience, struct text *out);

/* Where to write what this rank does; never NULL. The store tells it to the others. */
struct pulse *store_pulse(struct store *store);

/* Calls [handler] with [data], once and from another thread, as soon as another rank is known to be lost: to free what
 * waits for it. store_off_failure: no more; after it the handler does not run. */
void store_on_failure(struct store *store, void (*handler)(void *data), void *data);
void store_off_failure(struct store *store, void *data);

/* STATUS_STOPPED when the job ends because a rank was asked to stop before training began, else STATUS_PEER: the code
 * for a failure that store_cause explains. */
enum status_code store_failure_code(struct store *store);

/* HMAC-SHA-256 of [message] under the job's secret: a proof for other connections of the same job. */
void store_sign(const struct store *store, const void *message, size_t size, uint8_t proof[32]);

/* The numeric address of this host on the network that leads to rank 0 ("127.0.0.1", "10.0.0.7"). All ranks. */
status store_address(struct store *store, double timeout, char address[64]);

/* Every rank publishes [text] under [what]; when any differs from rank 0's, all ranks get the same failure
 * (STATUS_USAGE) that names the ranks and shows the first differing lines of both. Each wait takes at most [timeout]
 * seconds. All ranks, in the same order. */
status store_agree(struct store *store, const char *what, const char *text, double timeout);

#endif
