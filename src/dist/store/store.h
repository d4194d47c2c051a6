/* store: the control plane. A small TCP key-value store, served by a thread of rank 0. Ranks use it for rendezvous
 * (Gloo exchanges its addresses through it), to compare what must be identical (config, data, model) before step 0, and
 * to report failures. Every message is authenticated with the job's secret (message.h). Values are small. There
 * is one store for each job. */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "dist/process/activity.h"
#include "dist/process/env.h"

#define STORE_MAX_KEY 255          /* bytes */
#define STORE_MAX_VALUE (64 << 10) /* bytes */

struct store;

/* Called by a thread of the store, once, if this rank is still running 5 s after a failure of the job ([code]
 * STATUS_PEER), or after a request to stop before training (STATUS_STOPPED), or in a call that is not over in time
 * (store_begin_call: STATUS_PEER). [why] names the rank that failed first, or the call. It must end the process, whose
 * main thread may hang. */
typedef void store_overdue_function(enum status_code code, const char *why);

struct store_options {
    double timeout;  /* seconds for all ranks to join */
    double hang;     /* seconds without progress after which a rank counts as lost (store_members.h); 0: never */
    struct log *log; /* for "waiting for ..."; NULL: silent. Not owned; used until store_close */
    store_overdue_function *overdue; /* NULL: none */
    status failure;                  /* only for store_report_before_joining */
    const bool *informed;            /* only for store_report_before_joining */
    int stop;                        /* a descriptor, readable after a request to stop; 0: none. Not owned */
    bool is_inference;               /* eval, predict: a request to stop is not reported as "before training" */
    bool forwards_stop; /* while the store is open, it handles a request to stop this process (stop_forward) */
};

/* Rank 0 serves on master_port (or on the listening socket that the launcher passed); the others connect, with retries
 * for [timeout] seconds. Returns when every rank has joined; otherwise STATUS_PEER with the ranks that are missing, on
 * every rank that is connected. The store listens on the loopback address if master_addr is one, else on the address of
 * master_addr. world_size 1: the store is local and has no socket. All ranks.
 *
 * The secret is read from a descriptor of the launcher, else from the environment variable DDPTRAIN_SECRET; without
 * either it is derived from the job id, which separates jobs but protects against no attacker. */
status store_open(const struct dist_env *env, double timeout, struct store **out);
status store_open_with(const struct dist_env *env, const struct store_options *options, struct store **out);
/* What store_open_with checks first: that this rank may open enough files (net_check_descriptors). *spare: on rank 0
 * the descriptors beyond, for connections that have not proved the secret. */
status store_check_descriptors(const struct dist_env *env, int *spare);
/* hint: "; ..." with what is wrong if MASTER_ADDR is not an address of this host, that of rank 0, to which the others
 * connect; else "". A name may be a loopback address here (Debian's 127.0.1.1) and another one for other hosts. */
void store_describe_wrong_host(const struct dist_env *env, char hint[400]);
/* Takes NULL. Rank 0 waits until the others have closed theirs, for 10 s at most, 2 s after a failure. */
void store_close(struct store *store);

/* For a rank that cannot take part because of [failure]: joins only to report it, so that ranks of other hosts do not
 * wait until their timeout. Tries for a minute at most; for three seconds if [failure] is a request to stop
 * (STATUS_STOPPED), since the others have usually got it, too. Does nothing if all ranks are on one host, where the
 * launcher handles it. [informed]: NULL; or (nodes), if the caller is the first rank of its host and reports for all of
 * them: the nodes that need no report, its own included, none of whose ranks will join. [stop]: as in
 * store_options. */
void store_report_before_joining(const struct dist_env *env, const bool *informed, int stop, struct log *log,
                                 status failure);

/* Keys: at most STORE_MAX_KEY bytes; values: at most STORE_MAX_VALUE. All functions are thread-safe; calls are
 * serialised. */
status store_set(struct store *store, const char *key, const void *value, size_t size);
/* Waits until [key] exists, at most [timeout] seconds (then STATUS_PEER with the key). The loss of a rank ends the wait
 * at once: STATUS_PEER with the rank and the reason. *value (size) is followed by a NUL; the caller frees it. */
status store_get(struct store *store, const char *key, double timeout, void **value, size_t *size);
/* The same for a value that only this rank needs: removes the key. */
status store_take(struct store *store, const char *key, double timeout, void **value, size_t *size);

/* Gatherings: each of several ranks sends one value and waits until the store has those of all, at most [timeout]
 * seconds; all get the same answer. So a gathering is one message to and one from each rank, and what the answer needs
 * does not grow with the ranks where their values are equal or regular. [key] as above, but with names of their own.
 * Failures are those of store_get.
 *
 * numbers (world_size): equal values have equal numbers, which count from 0 in order of the first rank. All ranks. */
status store_number(struct store *store, const char *key, const void *value, size_t size, double timeout, int *numbers);
/* *first: the first text in order of [index] that is not empty, *first_index its index; NULL if all are empty. The
 * caller frees it. All [count] ranks of a group, each with its [index]. */
status store_first(struct store *store, const char *key, int index, int count, const char *text, double timeout,
                   char **first, int *first_index);

/* Reports to the others why this rank is about to leave; only the first report counts. Blocks for a second at most. */
void store_report(struct store *store, status failure);

/* Adds the rank that failed first, with its reason, to [out]: "rank 2 (host n1, pid 71): <its failure>" or "... exited
 * without reporting an error". Waits up to [timeout] seconds for a report. false: no rank has failed. For the message
 * of a failed collective. */
bool store_cause(struct store *store, double timeout, struct text *out);

/* The record of what this rank is doing, which the heartbeat sends; never NULL. */
struct activity *store_activity(struct store *store);

/* Before a call that may block without a deadline ([what], a literal, in a library that no other thread can interrupt):
 * if store_end_call does not follow within [seconds], this rank reports that to the others, and store_options.overdue
 * ends the process with STATUS_PEER. [why]: a literal, what may be the reason and what to do. One call at a time;
 * without a function [overdue] nothing happens. */
void store_begin_call(struct store *store, const char *what, double seconds, const char *why);
void store_end_call(struct store *store);

/* Calls handler(data), once and from another thread, when another rank is lost: to end blocked calls. After
 * store_off_failure the handler is not called and not running. STATUS_BUG for more than STORE_MAX_HANDLERS at a time.
 */
#define STORE_MAX_HANDLERS 32
status store_on_failure(struct store *store, void (*handler)(void *data), void *data);
void store_off_failure(struct store *store, void *data);

/* The code of the failure that store_cause describes: STATUS_STOPPED if a rank got a request to stop before training
 * began, else STATUS_PEER. */
enum status_code store_failure_code(struct store *store);

/* HMAC-SHA-256 of [message] with the job's secret: a proof for other connections of the same job. */
void store_sign(const struct store *store, const void *message, size_t size, uint8_t proof[32]);

/* The numeric address of this host on the network that reaches rank 0 ("127.0.0.1", "10.0.0.7"). All ranks. */
status store_address(struct store *store, double timeout, char address[64]);

/* What has crossed the store of rank 0 since its start, for tests of its growth. Zeros on other ranks. */
struct store_traffic {
    uint64_t received, sent, bytes_received, bytes_sent; /* frames but heartbeats, those of the handshakes included */
    uint64_t heartbeats;                                 /* frames in both directions */
    uint64_t connections;                                /* also rank 0's own two */
    uint64_t keys;                                       /* in the store now */
};
void store_count_traffic(const struct store *store, struct store_traffic *out);

/* Compares [text] of every rank with that of rank 0. If one differs, all ranks get the same failure (STATUS_USAGE),
 * with the ranks and the first lines that differ. [what]: what is compared, for the message. Each wait takes at most
 * [timeout] seconds. All ranks, in the same order. */
status store_agree(struct store *store, const char *what, const char *text, double timeout);
