/* store_server_internal: connections and state of the server. store_server.c reads, writes and handles deadlines;
 * store_server_frames.c handles frames. Only the server's thread accesses this state, except for what the mutex
 * guards. */
#ifndef DIST_STORE_SERVER_INTERNAL_H
#define DIST_STORE_SERVER_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

#include "dist/store/store_frame.h"
#include "dist/store/store_keys.h"
#include "dist/store/store_members.h"
#include "dist/store/store_server.h"

/* In this order. */
enum stage { STAGE_HELLO, STAGE_PROOF, STAGE_JOINED, STAGE_REJECTED };

struct connection {
    int fd;
    enum stage stage;
    uint8_t version; /* of its protocol, if not STORE_VERSION; else 0 */
    double deadline; /* for joining, or for sending the rejection */
    uint64_t host;   /* of the client; equal numbers: the same host */
    struct store_handshake shake;
    struct store_session session; /* on from PROOF; off for rank 0's own connections */
    uint8_t *in, *out;
    size_t in_size, in_capacity, out_size, out_sent, out_capacity;
    enum store_type pending; /* request without an answer yet: FRAME_READY, FRAME_GET, FRAME_CAUSE; 0: none */
    double pending_until, pending_seconds;
    char key[STORE_MAX_KEY + 1];
    bool has_failure; /* JOB_FAILURE has been sent on this heartbeat connection */
    bool is_closed;   /* to be removed */
};

/* The connections of a rank in this start. Until it has its second connection, the heartbeat, the first may end because
 * WELCOME was lost; the rank then joins again. */
struct join_state {
    bool has_heartbeat, has_link;
    double disconnected_at; /* when its first connection ended before the second; 0: it has not */
};

struct store_server {
    pthread_t thread;
    pthread_mutex_t mutex;    /* guards what follows up to the next gap */
    double stop_requested_at; /* 0: not yet */
    struct sockaddr_storage address;
    int address_error; /* errno if the address is not known */

    int listener, wake;
    double accept_after; /* out of descriptors: accepts no connection before this time */
    int world_size, node_size;
    uint32_t restart_count;
    uint64_t job;
    uint8_t secret[32];
    char endpoint[320], hint[400];
    struct log *log;
    double heartbeat_at, log_waiting_at; /* next heartbeat, next "waiting for ..." */
    bool is_one_host, is_guessable;      /* is_guessable: the secret */
    bool has_logged_waiting, has_logged_joined, has_logged_version, has_logged_secret;
    double failure_sent_at;  /* when JOB_FAILURE was sent; 0: no failure */
    int64_t saved;           /* step of the newest checkpoint, from rank 0 */
    struct join_state *join; /* (world_size) */
    char mismatch[400];      /* failure of a rank that will not join because it has another world size; "": none */
    struct store_keys *keys;
    struct members *members;
    struct connection **connections;
    size_t count, capacity;
    struct pollfd *polls; /* (capacity + 2) */
};

static inline bool is_heartbeat(const struct connection *c) { return c->shake.purpose == FOR_HEARTBEAT; }
static inline bool is_member(const struct connection *c) { return c->shake.purpose == FOR_REQUESTS; }

static inline bool is_giving_up(const struct connection *c) { return c->shake.purpose == FOR_GIVING_UP; }
static inline bool is_link(const struct connection *c) { return c->shake.purpose == FOR_LINK; }

/* store_server.c: enlarges a buffer to at least [need] bytes. false: no memory. */
bool server_reserve(uint8_t **bytes, size_t *capacity, size_t need);
/* Sends a frame without blocking; what does not fit into the socket buffer is sent later. */
void server_send(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size);
/* The same, and then closes the connection. */
void server_reject(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size);
/* Sets the address of this host to the local address of the connection of a rank. */
void server_set_address(struct store_server *s, int fd);

/* store_server_frames.c: handles all complete frames in c->in; false: the connection must be closed. */
bool server_handle_frames(struct store_server *s, struct connection *c);
/* Answers the pending request if that is possible now. */
void server_try_pending(struct store_server *s, struct connection *c);
/* Sends JOB_FAILURE, the loss of [rank], on a heartbeat connection. */
void server_send_failure(struct store_server *s, struct connection *c, int rank);

#endif
