/* store_join: connects a rank to the store of rank 0; sends and receives frames over a socket. */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "dist/store/store_frame.h"

#define STORE_LOST_SECONDS 5.0 /* retries after the connection of a rank that had joined has ended */

struct store_join {
    const char *host;
    int port, rank, world_size;
    int node_size; /* ranks of this host; 0: not known */
    uint64_t job;
    const uint8_t *secret; /* (32) */
    const char *process;   /* "host n1, pid 71" */
    double deadline;       /* of clock_seconds() */
    uint32_t restart_count;
    enum store_purpose purpose; /* FOR_RANK: joins; others: a further connection of a rank that has joined */
    int joined_fd;              /* for those: the connection of FOR_RANK; else 0 */
    bool is_again;              /* the rank had joined, and its connection has ended */
    bool is_inference;          /* as in store_options */
    int stop_fd; /* a descriptor, readable after a request to stop, which ends the retries (STATUS_STOPPED). 0: none */
    struct log *log; /* for "waiting for rank 0"; NULL: silent */
};

/* Connects, with retries while no process listens or rank 0 is of an older start; for STORE_LOST_SECONDS after
 * joined_fd has ended. *fd: the connection of a rank that has joined, authenticated by *session. On failure *fd is -1:
 * STATUS_PEER: rank 0 did not answer, has left, or its answer was tampered with; STATUS_IO: no memory or descriptors;
 * STATUS_USAGE: rank 0 rejected this rank, or another program answered. A rank that
 * gives up after a rejection reports so to rank 0, so that no rank waits for it. *restart_count is set if the store has
 * another one and this rank must not join (STATUS_PEER), else not changed. */
status store_join(const struct store_join *join, int *fd, struct message_session *session, uint32_t *restart_count);

/* Send or receive one frame; body (limit). false: errno as of net_send and net_receive, or EPROTO for bytes that are
 * not a frame, or EBADMSG for a frame with a wrong tag. */
bool store_send_frame(int fd, struct message_session *session, const struct store_frame *frame, double deadline);
bool store_receive_frame(int fd, struct message_session *session, size_t limit, struct store_frame *frame,
                         uint8_t *body, double deadline);
/* Whether an errno of store_receive_frame means that a connection with a session was tampered with; the failure "the
 * connection to rank 0 at n1:29500 was tampered with or corrupted". */
bool store_is_tampered(int error);
status store_tampered(const char *endpoint);
