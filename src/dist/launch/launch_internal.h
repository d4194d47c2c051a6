/* launch_internal: internal declarations of the launcher: its ranks, how they ended, and the links to the launchers of
 * other nodes. */
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "base/text.h"
#include "dist/launch/launch.h"
#include "dist/process/activity.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/message.h"

struct launched_rank {
    int rank;
    pid_t pid;                 /* 0: not started */
    int report;                /* the launcher's end of the socket for messages of the rank; -1: closed */
    int exits;                 /* the launcher's end of the socket for exits of other ranks; -1: closed */
    int output;                /* the launcher's end of the pipe for standard output and error; -1 for rank 0 */
    int log;                   /* logs/rank-N.txt; -1: not open */
    struct text line;          /* output without a newline yet */
    struct text unlogged;      /* output before the log was open */
    struct activity *activity; /* its activity; NULL: not known, or the only rank */
    bool has_ended;            /* exited and reaped */
    int wait_status;           /* of waitpid, with has_ended */
    long peak_kib;             /* largest resident memory, KiB */
    bool was_signalled;        /* the launcher sent a signal while it was running */
    int order;                 /* of its end, from 1; a report counts as the end */
    bool has_report;           /* MESSAGE_FAILURE was received: */
    int code;
    char text[LAUNCHER_MAX_TEXT];
};

/* The output of ranks: without blocking; sets rank->output to -1 at the end of the pipe. */
void launch_output_read(struct launched_rank *rank);
void launch_output_open(struct launched_rank *rank, const char *run_folder);
void launch_output_note(struct launched_rank *rank, const char *text); /* writes a line with the time to its log only */
void launch_output_close(struct launched_rank *rank);                  /* writes an incomplete line, too */

/* The first failure of the job, reported by a rank of this node: the only source for failures on other nodes. */
struct launch_job_failure {
    bool is_known;
    bool is_hang; /* the rank hung, or its host fell silent */
    int code, rank;
    double at; /* of clock_seconds() */
    char text[LAUNCHER_MAX_TEXT];
};

/* Whether ranks may have run out of memory. */
struct launch_memory {
    bool has_oom;     /* the kernel's out-of-memory killer has killed a process while the ranks ran */
    double limit_gib; /* of this control group, or of the machine; 0: not known */
};

/* The result of ranks (count) that have all ended. Pure. */
enum launch_stop {
    STOP_NONE,
    STOP_ELSEWHERE, /* a rank that had not yet joined, or another node, has stopped on request */
    STOP_REQUESTED, /* a signal to this launcher */
    STOP_NOW        /* a second signal: the ranks are killed */
};
struct launch_context {
    const char *host;
    struct launch_memory memory;
    struct launch_job_failure job_failure;
    enum launch_stop stop;
    double grace; /* seconds; of launch_config */
    bool saves;   /* of launch_config */
};
status launch_result(const struct launched_rank *ranks, int count, const struct launch_context *context);

/* Messages between the launchers of several nodes. All functions take NULL: one node. */
struct launch_nodes;
/* [count] nodes, of which this is number [own]. On a failure *out is NULL. */
status launch_nodes_create(int count, int own, struct launch_nodes **out);
void launch_nodes_destroy(struct launch_nodes *n);
/* Sets the connection to the launcher of node [number], authenticated by [session]. Owns [fd] from now on. */
void launch_nodes_set_link(struct launch_nodes *n, int number, int fd, const struct message_session *session);
/* This is not node 0, and has no link to node 0, or a broken one. */
bool launch_nodes_need_link(struct launch_nodes *n);
/* polls (nodes): fills one entry for each node that has a link. Returns how many it filled. */
size_t launch_nodes_poll(const struct launch_nodes *n, struct pollfd *polls);
/* Reads and handles all messages that have arrived. Does not block. */
void launch_nodes_read(struct launch_nodes *n);
/* The node whose launcher ended first: its ranks will not take part in a restart. -1: none. */
int launch_nodes_lost(const struct launch_nodes *n);
/* How the launcher of that node was lost, to follow "the launcher of node 1 ": "has ended", or why its link was closed.
 */
const char *launch_nodes_describe_loss(const struct launch_nodes *n, int node);
/* The same among nodes whose ranks had not all exited with 0, so that ranks of this node may wait for them; only if the
 * launcher ended at least [seconds] ago. */
int launch_nodes_lost_unfinished(const struct launch_nodes *n, double seconds);
/* The clock_seconds() at which the result of launch_nodes_lost_unfinished changes; 0: not known. */
double launch_nodes_lost_unfinished_time(const struct launch_nodes *n, double seconds);
/* The first node that has ended on a request to stop; -1: none. It does not count as lost. The request may have been
 * sent to another node: all ranks stop, in any order. */
int launch_nodes_stopped(const struct launch_nodes *n);
/* Sends that this node restarts its ranks, with this restart count. */
void launch_nodes_send_restart(struct launch_nodes *n, int64_t restart_count);
/* Sends that this node ends because of a request to stop. */
void launch_nodes_send_stopped(struct launch_nodes *n);
/* A rank of [node] (-1: of every node) has joined the store in this start, so the store informs that node. */
void launch_nodes_joined(struct launch_nodes *n, int node);
/* Whether another node has neither a link nor joined, so that it would not be informed of the end of this one.
 * informed (nodes): this node, and those others that would be. */
bool launch_nodes_need_report(const struct launch_nodes *n, bool *informed);
/* All ranks of this node have exited with 0: waits until those of the other nodes have, too, for 30 s at most.
 * [signals]: a signalfd. STATUS_PEER: a node restarts, with the restart count *newer. STATUS_STOPPED: a request to
 * stop, on any node. */
status launch_nodes_wait_done(struct launch_nodes *n, int signals, int64_t restart_count, int64_t *newer);
