/* launch_internal: what the launcher's files share: the ranks, how they end, and which of their ends explains the rest.
 */
#ifndef DIST_LAUNCH_INTERNAL_H
#define DIST_LAUNCH_INTERNAL_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"
#include "dist/launch/launch.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/pulse.h"
#include "dist/store/store_session.h"

struct launched_rank {
    int rank;
    pid_t pid;           /* 0: not started */
    int report;          /* our end of its socket; -1 */
    int news;            /* our end of the socket on which it hears of others' deaths; -1 */
    int output;          /* our end of the pipe that is its standard output and error; -1 for rank 0 */
    int log;             /* logs/rank-N.txt; -1: not open */
    struct text line;    /* printed, but without a newline yet */
    struct text early;   /* printed before the log was open */
    struct pulse *pulse; /* what it was doing; NULL: not known, or the only rank */
    bool is_over;        /* ended and reaped */
    int wait_status;
    long peak_kib;        /* largest resident memory */
    bool was_ended_by_us; /* it was still running when we sent a signal */
    int order;            /* of its end, from 1; a report counts as the end */
    bool has_report;
    int code; /* reported */
    char sentence[LAUNCHER_MAX_SENTENCE];
};

/* launch_spawn.c: what all ranks of this node share. */
struct launch_job {
    const struct launch_config *config;
    char *const *argv;
    char job_id[128];
    int incarnation;
    bool has_begun;  /* an earlier start has opened the run folder: it goes on, also with --fresh */
    bool wants_link; /* its first rank makes one to node 0 */
    char master_addr[256];
    int master_port;
    int listener;     /* for rank 0's store; -1: rank 0 makes its own */
    int secret;       /* a file in memory; -1: the user's variable */
    cpu_set_t *parts; /* (nproc) to which ranks are bound; NULL: to nothing */
};

status launch_prepare(struct launch_job *job);
/* As launch_report_before_joining; [informed], [stop]: as store_report_before_joining's. */
void launch_report(const struct launch_job *job, const bool *informed, int stop, struct log *log, status failure);
void launch_forget(struct launch_job *job); /* the launcher's copies of what the ranks inherited */
status launch_spawn(const struct launch_job *job, int local_rank, struct launched_rank *rank);

/* launch_output.c: what ranks print. */
void output_read(struct launched_rank *rank); /* what is there now; -1 in rank->output after the end */
void output_open(struct launched_rank *rank, const char *run_folder);
void output_note(struct launched_rank *rank, const char *sentence); /* to its log only */
void output_close(struct launched_rank *rank);                      /* also what has no newline */

/* The first failure of the job, told by a rank that is still there: the only way to know what happened on other nodes.
 */
struct launch_news {
    bool is_known, is_standstill;
    int code, rank;
    double at; /* of clock_seconds() */
    char sentence[LAUNCHER_MAX_SENTENCE];
};

/* Signs of a lack of memory. */
struct launch_memory {
    bool has_oom;     /* the kernel's out-of-memory killer has struck while the ranks ran */
    double limit_gib; /* of this control group, or of the machine; 0: not known */
};

/* launch_cause.c: the result of ranks (count) that have all ended. [stop]: what the user asked for; elsewhere:
 * a rank that had not yet joined, or another node, has ended on a request. Pure. */
enum launch_stop { STOP_NONE, STOP_ELSEWHERE, STOP_ASKED, STOP_AT_ONCE };
struct launch_circumstances {
    const char *host;
    struct launch_memory memory;
    struct launch_news news;
    enum launch_stop stop;
    double grace;
    bool saves; /* launch_config's */
};
status launch_result(const struct launched_rank *ranks, int count, const struct launch_circumstances *around);
/* Whether a rank failed: neither 0 nor STATUS_STOPPED; and whether it merely lost a peer. */
bool launch_has_failed(const struct launched_rank *rank);
bool launch_lost_peer(const struct launched_rank *rank);
/* Whether a rank has ended on a request to stop before it could tell the other ranks, which may wait for it. */
bool launch_left_early(const struct launched_rank *rank);
/* How a rank ended that said nothing itself: " was killed by SIGKILL"; "" when it has reported. */
void launch_describe_end(const struct launched_rank *rank, const struct launch_memory *memory, struct text *out);

/* launch_memory.c */
long launch_oom_kills(void);      /* how often the out-of-memory killer has struck here; -1: unknown */
double launch_memory_limit(void); /* GiB; 0: unknown */

/* launch_nodes.c: what the launchers of several nodes tell each other. All take NULL: one node. */
struct launch_nodes;
struct launch_nodes *nodes_create(int count, int own);
void nodes_destroy(struct launch_nodes *n);
/* Takes over [fd], which leads to the launcher of another node, with the session that authenticates it. */
void nodes_link(struct launch_nodes *n, int number, int fd, const struct store_session *session);
/* This is not node 0, and has no link to it, or one that is cut. */
bool nodes_want_link(struct launch_nodes *n);
size_t nodes_poll(const struct launch_nodes *n, struct pollfd *polls); /* how many it filled: 0 or one a node */
void nodes_hear(struct launch_nodes *n);
/* The node whose launcher ended first, with its ranks: none of it will come to another start. -1: none. */
int nodes_lost(const struct launch_nodes *n);
/* How such a node ended, after "the launcher of node 1 ": "has ended", or what happened to the link to it. */
const char *nodes_describe_loss(const struct launch_nodes *n, int node);
/* The same, [seconds] ago or earlier, among those whose ranks had not all ended with 0 by then: it may be waited for.
 */
int nodes_missed(const struct launch_nodes *n, double seconds);
double nodes_missed_time(const struct launch_nodes *n, double seconds); /* when nodes_missed changes; 0: not known */
/* The first node that has ended on a request to stop; -1: none. It is not lost. The request may have come to another
 * one: ranks agree to stop, and end in any order. */
int nodes_stopped(const struct launch_nodes *n);
void nodes_say_again(struct launch_nodes *n, int64_t incarnation); /* this node starts again, as this start */
void nodes_say_stopped(struct launch_nodes *n);                    /* this node ends because of a request to stop */
/* A rank of [node] has joined the store in this start (-1: all nodes have been informed): what happens to this node it
 * hears from there. */
void nodes_joined(struct launch_nodes *n, int node);
/* Whether another node neither has a link nor joined: it would not hear of the end of this one. [informed] (nodes):
 * those of the others that would, and this one. */
bool nodes_need_report(const struct launch_nodes *n, bool *informed);
/* All ranks of this node have ended with 0: waits until it is known that those of the others have, too. STATUS_PEER
 * when one of them starts again, with *newer, the number of that start. STATUS_STOPPED after a request, here or
 * elsewhere. */
status nodes_settle(struct launch_nodes *n, int signals, int64_t incarnation, int64_t *newer);

/* launch_watch.c: starts the ranks and waits for their end. */
struct launch_start {
    struct launch_job *job;
    struct log *log;
    struct launch_nodes *nodes; /* NULL: one node */
    int signals;                /* signalfd */
    double grace;
    /* results */
    enum launch_stop stop;
    int64_t checkpoint;  /* the newest step known to be saved: grows over starts */
    bool has_begun;      /* a rank has opened the run folder */
    bool has_news;       /* a rank of this node has failed, not for the lack of another; or none could be started */
    int64_t incarnation; /* of the store that refused our ranks; -1: none did */
};
status launch_once(struct launch_start *start);
/* For restarts: waits [seconds], or until a request to stop comes, here or elsewhere, or another node is lost. */
void launch_pause(struct launch_start *start, double seconds);

#endif
