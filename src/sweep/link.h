/* link: how the ranks of a launcher (srun, mpirun, torchrun) take part in a sweep. Rank 0 is the coordinator and
 * listens on MASTER_ADDR:MASTER_PORT; each other rank connects whenever it is ready, and is one worker. Both ends prove
 * that they know the job's secret (store_secret_find), and every message carries a tag (store_session.h). Messages of
 * one direction have one size, so that no end ever waits for the rest of one. */
#ifndef SWEEP_LINK_H
#define SWEEP_LINK_H

#include "dist/process/env.h"
#include "sweep/worker.h"

enum link_order { LINK_JOB, LINK_ANSWER, LINK_STOP, LINK_END, LINK_REFUSE };

/* From the coordinator. LINK_REFUSE: another process is this rank already. */
struct link_down {
    int order;             /* enum link_order */
    int code;              /* LINK_END: enum status_code that the ranks end with */
    bool must_stop;        /* LINK_ANSWER: worker_answer's */
    struct worker_job job; /* LINK_JOB */
};

struct link;
void link_close(struct link *link);   /* takes NULL */
int link_fd(const struct link *link); /* readable when a whole message is there, or the other end has gone */

/* The next message; *got false: it is not there in full yet. STATUS_PEER: the other end has gone, or a tag is wrong. */
status link_receive_up(struct link *link, struct worker_report *report, bool *got);
status link_receive_down(struct link *link, struct link_down *message, bool *got);
/* false: the other end has gone. */
bool link_send_up(struct link *link, const struct worker_report *report);
bool link_send_down(struct link *link, const struct link_down *message);

/* Rank 0's end for ranks that are to come. */
struct link_server;

/* [what]: what must be the same on all ranks, a text. */
status link_listen(const struct dist_env *env, const char *what, struct link_server **out);
void link_server_close(struct link_server *server); /* takes NULL */
/* Descriptors to wait for, added to fds (*count), at most LINK_DESCRIPTORS. */
#define LINK_DESCRIPTORS 33
struct pollfd;
void link_server_wait(const struct link_server *server, struct pollfd *fds, size_t *count);
/* A rank that has joined since, or NULL; call it after each wait until it is NULL. One with another [what] or
 * WORLD_SIZE is refused. */
struct link *link_accept(struct link_server *server, int *rank);

/* Another rank's end; tries for [timeout] seconds, or until *stop. STATUS_USAGE: the coordinator has another [what] or
 * WORLD_SIZE. STATUS_PEER: it was not reached. STATUS_STOPPED. */
status link_connect(const struct dist_env *env, const char *what, double timeout, const volatile sig_atomic_t *stop,
                    struct link **out);

#endif
