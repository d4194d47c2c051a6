/* launch: the launcher, the parent process of the ranks of one node. It starts the program once for each rank, before
 * it allocates anything large, and stays single-threaded, because the kernel binds a parent-death signal to the thread
 * of the parent. It forwards signals, ends all ranks when one fails, reports the root cause and leaves no process
 * behind. */
#pragma once

#include <sched.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

struct message_session;

struct launch_config {
    int nproc;               /* ranks on this node */
    int nnodes, node_rank;   /* 1, 0 for one node */
    const char *master_addr; /* with nnodes > 1: host of rank 0; NULL otherwise */
    int master_port;         /* with nnodes > 1: port of rank 0 */
    double grace;            /* seconds from a request to stop until SIGKILL; 0: 30 */
    int max_restarts;        /* restarts in a row without a new checkpoint; 0: no restarts */
    bool binds_cores;        /* --cpu-bind cores: each rank gets an equal part of this process's processors */
    bool saves;              /* ranks save before they stop: for messages to the user */
};

/* Starts config->nproc ranks, each /proc/self/exe with [argv] and the variables that dist_env_detect reads, and waits
 * for all of them. Rank 0 inherits the standard streams; it may write to the terminal also after
 * `stty tostop`. Output of the others is written to standard error, with
 * "[rank 3] " before each line, and to logs/rank-3.txt of the run folder. SIGINT, SIGTERM, SIGHUP (unless ignored from
 * the start: signals_is_ignored), SIGUSR1, SIGUSR2, SIGALRM and SIGXCPU are forwarded to the ranks as SIGTERM (they
 * save and exit with STATUS_STOPPED); a second SIGINT, or a second SIGTERM or SIGHUP at least a second later, kills
 * them. When a rank fails, the others get SIGTERM, and SIGKILL after at most 5 s (after 1 s if a rank hung or its host
 * fell silent: the others have been idle for longer).
 *
 * OK: all ranks exited with 0. STATUS_STOPPED: all exited with 0 or 75, at least one
 * with 75. Otherwise the failure of the rank that failed first, "rank 1 (host n1, pid 71): <its message>"; a rank that
 * only lost a peer (STATUS_PEER) is named only if there is no other cause. A rank that was killed by a signal is
 * STATUS_PEER with the signal's name.
 *
 * After a failure that may be transient (a lost rank, a crash, an I/O error) all
 * ranks are restarted from the newest checkpoint, with pauses of 0.5, 1, 2 ... 30 s, until config->max_restarts
 * restarts in a row have written no new checkpoint. On several nodes every launcher does so, because a failure of one
 * rank fails all; a launcher whose ranks are rejected because of their restart count uses that of rank 0 for the next
 * start.
 *
 * Call it in a single-threaded process. It restores the signal mask at the end. */
status launch_run(const struct launch_config *config, char *const argv[], struct log *log);

/* What launch_run checks before it starts a rank: that this process may open enough files (net_check_descriptors). */
status launch_check(const struct launch_config *config);

/* For a node of several that will start no ranks, because of [failure]: reports it to the other nodes, as
 * store_report_before_joining does. */
void launch_report_before_joining(const struct launch_config *config, struct log *log, status failure);

/* *parts (nproc): the processors that each rank is bound to, whole cores of this process's mask if there are enough.
 * The caller frees it. STATUS_USAGE: fewer processors than ranks. */
status launch_split(int nproc, cpu_set_t **parts);
/* Adds "rank 0 on processors 0-1, rank 1 on 2-3"; [first]: number of the first rank. */
void launch_describe_parts(const cpu_set_t *parts, int nproc, int first, struct text *out);
