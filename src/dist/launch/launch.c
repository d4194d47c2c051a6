/* Starts and restarts the ranks. The code of a failure decides whether a restart may help; a new checkpoint, which is
 * reported to every launcher, counts as progress. */
#include "dist/launch/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/system/signals.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/net.h"

#define DEFAULT_GRACE 30.0
#define DESCRIPTORS 8 /* needed before the first rank is started */
#define FIRST_PAUSE 0.5
#define LONGEST_PAUSE 30.0

static status check_config(const struct launch_config *c) {
    if (c->nproc < 1 || c->nnodes < 1 || c->node_rank < 0 || c->node_rank >= c->nnodes)
        return status_new(STATUS_USAGE, "%d processes on node %d of %d nodes is not possible", c->nproc, c->node_rank,
                          c->nnodes);
    return OK;
}

static bool is_transient(status failure) {
    enum status_code code = status_code(failure);
    return code == STATUS_PEER || code == STATUS_BUG || code == STATUS_IO || code == STATUS_DIVERGED;
}

static double pause_before(int tries) {
    double seconds = FIRST_PAUSE;
    for (int i = 1; i < tries && seconds < LONGEST_PAUSE; i++) seconds *= 2;
    return seconds < LONGEST_PAUSE ? seconds : LONGEST_PAUSE;
}

/* Consumes [failure]. */
static status no_more_restarts(status failure, int tries) {
    status final = status_new(status_code(failure), "%s\n%d restart%s without a new checkpoint: no further restart",
                              status_message(failure), tries, text_plural((uint64_t)tries, "s"));
    status_free(failure);
    return final;
}

/* A restart needs all nodes and no request to stop. false: *failure is replaced by the failure that ends this launcher.
 */
static bool can_restart(const struct launch_start *start, status *failure) {
    launch_nodes_read(start->nodes);
    int lost = launch_nodes_lost(start->nodes), stopped = launch_nodes_stopped(start->nodes);
    status final = OK;
    if (start->stop >= STOP_REQUESTED)
        final =
            status_new(STATUS_STOPPED, "stopped on request between two starts; run the same command again to continue");
    else if (stopped >= 0)
        final = status_new(
            STATUS_STOPPED,
            "%s\nnode %d has stopped on request: this node stops, too; run the same command again to continue",
            status_message(*failure), stopped);
    else if (lost >= 0)
        final = status_new(status_code(*failure), "%s\nthe launcher of node %d %s: this node ends, too",
                           status_message(*failure), lost, launch_nodes_describe_loss(start->nodes, lost));
    if (!final) return true;
    status_free(*failure);
    *failure = final;
    return false;
}

/* Waits until the ranks of all nodes have succeeded. STATUS_PEER: a node restarts, and this one must, too. */
static status wait_for_nodes(struct launch_start *start) {
    int64_t newer = 0;
    status failure = launch_nodes_wait_done(start->nodes, start->signals, start->job->restart_count, &newer);
    if (status_code(failure) != STATUS_PEER) return failure;
    start->restart_count = newer;
    if (start->stop != STOP_NONE) can_restart(start, &failure);
    return failure;
}

static status run(struct launch_start *start) {
    int max_tries = start->job->config->max_restarts, tries = 0;
    for (int64_t previous = 0;; previous = start->checkpoint) {
        start->restart_count = -1;
        start->job->needs_link = launch_nodes_need_link(start->nodes);
        status failure = launch_once(start);
        if (!failure) failure = wait_for_nodes(start);
        if (!failure || max_tries == 0 || start->stop >= STOP_REQUESTED || !is_transient(failure)) return failure;
        if (!can_restart(start, &failure)) return failure;
        start->job->has_begun = start->has_begun;
        if (start->restart_count >= 0) { /* the store rejected these ranks because of their start */
            start->job->restart_count = (int)start->restart_count;
        } else {
            if (start->checkpoint > previous) tries = 0;
            if (tries++ == max_tries) return no_more_restarts(failure, max_tries);
            start->job->restart_count++;
        }
        double seconds = pause_before(tries);
        log_line(start->log, "%s", status_message(failure));
        log_line(start->log, "starting all ranks again in %g s (restart %d, %d of at most %d without a new checkpoint)",
                 seconds, start->job->restart_count, tries, max_tries);
        launch_nodes_send_restart(start->nodes, start->job->restart_count);
        launch_pause(start, seconds);
        if (!can_restart(start, &failure)) return failure;
        status_free(failure);
    }
}

/* Chooses the processors of the ranks, the same for every start. */
static status bind_ranks(struct launch_job *job, struct log *log) {
    const struct launch_config *c = job->config;
    struct text text = {0};
    if (!c->binds_cores) return OK;
    TRY(launch_split(c->nproc, &job->parts));
    launch_describe_parts(job->parts, c->nproc, c->node_rank * c->nproc, &text);
    log_line(log, "%s", text_string(&text));
    text_free(&text);
    return OK;
}

/* Reports the end of this node to nodes that do not get it otherwise, since their ranks may wait for it. A stop after
 * training has begun needs no report: all ranks have agreed to it. */
static void report_to_other_nodes(const struct launch_start *start, const sigset_t *requests, status failure) {
    const struct launch_job *job = start->job;
    bool is_stopped = status_code(failure) == STATUS_STOPPED;
    bool *informed = failure && start->nodes ? calloc((size_t)job->config->nnodes, sizeof *informed) : NULL;
    if (is_stopped) launch_nodes_send_stopped(start->nodes);
    bool is_needed = is_stopped ? !start->has_begun : start->has_own_failure;
    if (informed && is_needed && launch_nodes_need_report(start->nodes, informed)) {
        int stop = is_stopped ? -1 : signalfd(start->signals, requests, SFD_CLOEXEC | SFD_NONBLOCK);
        launch_report(job, informed, stop > 0 ? stop : 0, start->log, failure);
        if (stop > 0 && stop != start->signals) close(stop);
    }
    free(informed);
}

status launch_run(const struct launch_config *config, char *const argv[], struct log *log) {
    TRY(check_config(config));
    TRY(net_check_descriptors(DESCRIPTORS));
    struct launch_job job = {.config = config, .argv = argv, .alive = {-1, -1}};
    TRY(bind_ranks(&job, log));
    struct launch_start start = {
        .job = &job, .log = log, .grace = config->grace > 0 ? config->grace : DEFAULT_GRACE, .has_own_failure = true};
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGCHLD};
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        if (!signals_is_ignored(watched[i])) sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    start.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int error = errno; /* of signalfd; the other nodes are informed of it, too */
    status failure = config->nnodes > 1 ? launch_nodes_create(config->nnodes, config->node_rank, &start.nodes) : OK;
    if (!failure)
        failure =
            start.signals < 0 ? status_errno(STATUS_IO, error, "cannot start %d ranks", config->nproc) : run(&start);
    static const struct timespec no_wait = {0};
    sigset_t requests = set;
    sigdelset(&requests, SIGCHLD);
    report_to_other_nodes(&start, &requests, failure);
    while (sigtimedwait(&set, NULL, &no_wait) > 0) { /* discards signals that arrived after the end */
    }
    if (start.signals >= 0) close(start.signals);
    launch_nodes_destroy(start.nodes);
    free(job.parts);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failure) log_file_line(log, status_message(failure));
    return failure;
}
