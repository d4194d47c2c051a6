/* launch: the launcher, parent of the ranks of one node. It starts the program itself once per rank, before anything
 * heavy happens, and stays single-threaded, because the kernel's "kill me when my parent dies" is tied to the parent's
 * thread. It passes signals on, ends all when one fails, names the first cause and leaves no process behind. */
#ifndef DIST_LAUNCH_H
#define DIST_LAUNCH_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

struct store_session;

struct launch_config {
    int nproc;               /* ranks on this node */
    int nnodes, node_rank;   /* 1, 0 for one node */
    const char *master_addr; /* with nnodes > 1: host of rank 0; NULL otherwise */
    int master_port;         /* with nnodes > 1: port of rank 0 */
    double grace;            /* seconds a rank has between a request to stop and SIGKILL; 0: 30 */
    int max_restarts;        /* how often in a row all ranks are started again without progress; 0: never */
    bool binds_cores;        /* --cpu-bind cores: each rank gets an even part of this process's processors */
    bool saves;              /* ranks that are asked to stop save first: what is said to the user */
};

/* Starts config->nproc ranks, each /proc/self/exe with [argv] and the variables that dist_env_detect reads, and waits
 * for all of them. Rank 0 inherits the standard streams; what others print appears on standard error behind "[rank 3] "
 * and in logs/rank-3.txt of the run folder. SIGINT, SIGTERM, SIGHUP (unless ignored from the start:
 * signals_is_ignored), SIGUSR1 and SIGALRM reach the ranks as SIGTERM (they save and exit with STATUS_STOPPED); a
 * second SIGINT, or a second SIGTERM or SIGHUP at least a second later, ends them at once. When a rank fails, the
 * others get SIGTERM, then, after at most 5 s, SIGKILL (a second after a rank hung or its host fell silent: the others
 * have stood still for long by then).
 *
 * OK: all ranks ended with 0. STATUS_STOPPED: all ended with 0 or 75, one at least with 75. Otherwise the failure of
 * the rank that failed first, "rank 1 (host n1, pid 71): <its sentence>"; ranks that only lost a peer (STATUS_PEER) are
 * named when there is no other cause. A rank that was killed is STATUS_PEER with the signal's name.
 *
 * A failure that may be an accident (a lost rank, a crash, failing I/O) starts all ranks again, which go on from the
 * newest checkpoint, with pauses of 0.5, 1, 2 ... 30 s, until config->max_restarts starts in a row have brought no new
 * checkpoint. On several nodes every launcher does so, because a failure of one rank is a failure of all; the launcher
 * whose ranks are refused for their incarnation takes over that of rank 0.
 *
 * For a single-threaded process; its signal mask is restored at the end. */
status launch_run(const struct launch_config *config, char *const argv[], struct log *log);

/* For a node of several that will start no ranks, because of [failure]: tells the others, as
 * store_report_before_joining. */
void launch_report_before_joining(const struct launch_config *config, struct log *log, status failure);

/* The processors of ranks (nproc) that are bound, malloc'ed: whole cores of this process's mask while there are enough.
 * STATUS_USAGE when there are fewer processors than ranks. */
status launch_split(int nproc, cpu_set_t **parts);
/* Adds "rank 0 on processors 0-1, rank 1 on 2-3"; the ranks count from [first]. */
void launch_describe_parts(const cpu_set_t *parts, int nproc, int first, struct text *out);

#endif
