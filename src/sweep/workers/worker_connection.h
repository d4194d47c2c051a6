/* worker_connection: how the ranks of a launcher (srun, mpirun, torchrun) take part in a sweep. Rank 0 is the
 * coordinator and listens on MASTER_ADDR:MASTER_PORT; each other rank connects whenever it is ready, and is one worker.
 * Both sides prove that they know the job's secret (dist_env_secret), and every message carries a tag
 * (message.h). Messages of one direction have one size, so that no side ever waits for the rest of one. */
#pragma once

#include "dist/process/env.h"
#include "dist/process/net.h"
#include "sweep/workers/worker.h"

enum command_type { COMMAND_WELCOME, COMMAND_JOB, COMMAND_ANSWER, COMMAND_STOP, COMMAND_END, COMMAND_REJECT };

/* From the coordinator. COMMAND_WELCOME: the first one, of worker_accept. COMMAND_REJECT: another process is this rank
 * already. */
struct worker_command {
    int type;              /* enum command_type */
    int code;              /* COMMAND_END: enum status_code that the ranks end with */
    bool must_stop;        /* COMMAND_ANSWER: worker_answer's */
    struct worker_job job; /* COMMAND_JOB */
};

struct worker_connection;
void worker_connection_close(struct worker_connection *connection);   /* takes NULL */
int worker_connection_fd(const struct worker_connection *connection); /* readable when more of a message is there, or
                                                                         the peer closed the connection */

/* The next message; *got false: it is not there in full yet. STATUS_PEER: the peer closed the connection, or a tag is
 * wrong. */
status worker_connection_receive_report(struct worker_connection *connection, struct worker_report *report, bool *got);
status worker_connection_receive_command(struct worker_connection *connection, struct worker_command *message,
                                         bool *got);
/* false: the peer closed the connection. */
bool worker_connection_send_report(struct worker_connection *connection, const struct worker_report *report);
bool worker_connection_send_command(struct worker_connection *connection, const struct worker_command *message);

/* What rank 0 accepts connections with. */
struct worker_listener;

/* [what]: what must be the same on all ranks, a text. */
status worker_listen(const struct dist_env *env, const char *what, struct worker_listener **out);
void worker_listener_close(struct worker_listener *listener); /* takes NULL */
/* Descriptors to wait for, added to fds (*count), at most WORKER_LISTENER_DESCRIPTORS. */
#define WORKER_LISTENER_DESCRIPTORS (1 + NET_MIN_UNPROVEN)
struct pollfd;
void worker_listener_wait(const struct worker_listener *listener, struct pollfd *fds, size_t *count);
/* A rank that has joined since, or NULL; call it after each wait until it is NULL. One with another [what] or
 * WORLD_SIZE is refused. */
struct worker_connection *worker_accept(struct worker_listener *listener, int *rank);

/* Connects another rank to rank 0; tries for [timeout] seconds, or until a request to stop. STATUS_USAGE: the
 * coordinator has another [what] or WORLD_SIZE. STATUS_PEER: it was not reached. STATUS_STOPPED. */
status worker_connect(const struct dist_env *env, const char *what, double timeout, struct worker_connection **out);
