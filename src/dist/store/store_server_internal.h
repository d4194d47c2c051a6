/* store_server_internal: what the server's two files share: its connections and its state. store_server.c moves bytes
 * and keeps time, store_server_frames.c gives the answers. All of it belongs to the server's thread, except what the
 * mutex guards. */
#ifndef DIST_STORE_SERVER_INTERNAL_H
#define DIST_STORE_SERVER_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

#include "dist/store/store_frame.h"
#include "dist/store/store_keys.h"
#include "dist/store/store_members.h"
#include "dist/store/store_server.h"

enum stage { AWAITS_HELLO, AWAITS_PROOF, HAS_JOINED, IS_REFUSED };

struct connection {
    int fd;
    enum stage stage;
    uint8_t version; /* of its protocol, when another than ours; 0 */
    double deadline; /* of joining, or of being told the refusal */
    struct store_handshake shake;
    struct store_session session; /* on from PROOF; never on for rank 0's own */
    uint8_t *in, *out;
    size_t in_size, in_capacity, out_size, out_sent, out_capacity;
    enum store_type waits; /* 0: for nothing; else FRAME_READY, FRAME_GET, FRAME_CAUSE */
    double waits_until, waited_seconds;
    char key[STORE_MAX_KEY + 1];
    bool has_news; /* a watch that was told the failure */
    bool is_over;
};

/* How far a rank has come in this start. Its watch is the second connection: until then the first may end because the
 * answer to it was lost, and the rank comes again. */
struct arrival {
    bool has_watch, has_link; /* the launchers are linked once */
    double gone_at;           /* when its connection ended without a watch; 0: it has not */
};

struct store_server {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows up to the next gap */
    double stop_asked_at;  /* 0: not yet */
    struct sockaddr_storage address;
    int address_error; /* why an address is not known: an errno value */

    int listener, wake;
    double listens_again; /* out of descriptors: not before this time */
    int world_size, node_size;
    uint32_t incarnation;
    uint64_t job;
    uint8_t secret[32];
    char place[320], hint[400];
    struct log *log;
    double ticks_at, waits_said_at;
    bool is_one_host;
    bool has_said_waiting, has_said_all; /* who is missing; that nobody is */
    double told_at;                      /* when the watches were told the failure; 0: there is none */
    bool has_said_version;               /* that a rank of another one knocked */
    int64_t saved;                       /* the step of the newest checkpoint that rank 0 told of */
    struct arrival *arrivals;            /* (world_size) */
    char misfit[400]; /* a rank of this job that will not come, since it counts other ranks; "": none */
    struct store_keys *keys;
    struct members *members;
    struct connection **connections;
    size_t count, capacity;
    struct pollfd *polls; /* (capacity + 2) */
};

static inline bool is_watch(const struct connection *c) { return c->shake.purpose == FOR_WATCHING; }
static inline bool is_member(const struct connection *c) { return c->shake.purpose == FOR_REQUESTS; }

static inline bool is_parting(const struct connection *c) { return c->shake.purpose == FOR_PARTING; }
static inline bool is_link(const struct connection *c) { return c->shake.purpose == FOR_LAUNCHERS; }

/* store_server.c: sends at once what the socket takes, the rest later. */
void server_answer(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size);
/* ... and then ends the connection. */
void server_refuse(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size);
/* Remembers at which of our addresses a rank came in. */
void server_note_address(struct store_server *s, int fd);

/* store_server_frames.c: handles what has arrived; false: drop the connection. */
bool server_handle_frames(struct store_server *s, struct connection *c);
/* Answers a parked request if that is possible now. */
void server_try_waiting(struct store_server *s, struct connection *c);
/* To a watch: the failure that ends the job. */
void server_tell_news(struct store_server *s, struct connection *c, int rank);

#endif
