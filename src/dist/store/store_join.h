/* store_join: how a rank connects to the store of rank 0, and frames over a socket. */
#ifndef DIST_STORE_JOIN_H
#define DIST_STORE_JOIN_H

#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/store/store_frame.h"

#define STORE_GONE_SECONDS 5.0

struct store_join {
    const char *host;
    int port, rank, world_size;
    int node_size; /* ranks of this host; 0: not known */
    uint64_t job;
    const uint8_t *secret; /* (32) */
    const char *who;       /* this rank's "host n1, pid 71" */
    double deadline;       /* of clock_seconds() */
    uint32_t incarnation;
    enum store_purpose purpose; /* FOR_REQUESTS joins; the others are further connections of a rank that has joined */
    int joined_fd;              /* of such a rank: the connection with which it has joined; else 0 */
    bool trains_nothing;        /* store_options' */
    int stop_fd; /* readable: this rank is asked to stop, and tries no more (STATUS_STOPPED), but for its watch, which
                    reports the request, while rank 0 is there; 0: nobody asks */
    struct log *log; /* for "waiting for rank 0"; NULL: silent */
};

/* Retries while nobody listens, or rank 0 is still of an older incarnation; when joined_fd has ended, for
 * STORE_GONE_SECONDS. *fd is the connection of a rank that has joined, and *session authenticates it; -1 on a failure:
 * STATUS_PEER when rank 0 did not answer, has left, or its answer was tampered with, STATUS_IO when this process lacked
 * memory or descriptors, STATUS_USAGE when it refused (the watch of a rank: at once) or is somebody else.
 * A rank that rank 0 goes on refusing tells it so at last: one that counts other ranks keeps nobody waiting.
 * *incarnation is that of the store when it is another than ours and this rank must not join (STATUS_PEER); else it
 * stays. */
status store_join(const struct store_join *join, int *fd, struct store_session *session, uint32_t *incarnation);

/* One frame; false with errno as net_send and net_receive, EPROTO for bytes that are no frame, EBADMSG for a frame with
 * a wrong tag. body (limit). */
bool store_send_frame(int fd, struct store_session *session, const struct store_frame *frame, double deadline);
bool store_receive_frame(int fd, struct store_session *session, size_t limit, struct store_frame *frame, uint8_t *body,
                         double deadline);
/* "the connection to rank 0 at n1:29500 was tampered with or corrupted": for errors of store_receive_frame other than
 * those of net_receive, once a session is on. */
bool store_is_tampered(int error);
status store_tampered(const char *place);

#endif
