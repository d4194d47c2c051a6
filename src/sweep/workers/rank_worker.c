/* A rank other than 0: passes jobs to a worker process of its own and reports back. The worker may die; the rank then
 * starts another one. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/scoped.h"
#include "base/stop.h"
#include "sweep/sweep.h"
#include "sweep/workers/dataset_cache.h"
#include "sweep/workers/worker_connection.h"

struct rank_worker {
    const struct sweep_file *file;
    const struct sweep_options *options;
    struct worker_options worker;
    struct dist_env env; /* of the worker's runs */
    struct dataset_cache *cache;
    struct worker_connection *connection;
    pid_t pid; /* 0: no worker */
    int fd;
    bool is_busy; /* the worker has a job: run [run] */
    int64_t run;
    bool has_ended, is_stopping;
    int code; /* of the sweep */
};

static status handle_command(struct rank_worker *w, const struct worker_command *message) {
    switch (message->type) {
    case COMMAND_JOB:
        if (!w->pid) TRY(worker_start(&w->worker, w->cache, &w->pid, &w->fd));
        w->is_busy = true;
        w->run = message->job.run;
        worker_send_job(w->fd, &message->job);
        break;
    case COMMAND_ANSWER:
        if (w->pid) worker_answer(w->fd, message->must_stop); /* else it has ended since it asked */
        break;
    case COMMAND_STOP:
        if (w->pid) kill(w->pid, SIGTERM);
        break;
    case COMMAND_REJECT:
        return status_new(
            STATUS_USAGE,
            "rank %d: another process takes part in this sweep as rank %d; start each rank once, with its own RANK",
            w->options->env->rank, w->options->env->rank);
    default:
        w->has_ended = true;
        w->code = message->code;
    }
    return OK;
}

static status receive_command(struct rank_worker *w) {
    struct worker_command message;
    bool got;
    status failure = worker_connection_receive_command(w->connection, &message, &got);
    if (failure) {
        status_free(failure);
        return status_new(STATUS_PEER, "rank 0, the coordinator of the sweep, was lost; run the same command again to "
                                       "continue");
    }
    return got ? handle_command(w, &message) : OK;
}

static status pass_report(struct rank_worker *w) {
    struct worker_report report = {0};
    bool got;
    TRY(worker_receive(w->fd, &report, &got));
    if (!got) {
        SCOPED_TEXT how = {0};
        worker_end(w->pid, w->fd, false, &how);
        w->pid = 0;
        memset(&report, 0, sizeof report);
        report.event = WORKER_LOST;
        report.run = w->run;
        strncpy(report.message, text_string(&how), sizeof report.message - 1);
    }
    if (got && report.event == WORKER_STOPPED) { /* it takes no more jobs */
        worker_end(w->pid, w->fd, false, NULL);
        w->pid = 0;
    }
    if (report.event == WORKER_LOST && !w->is_busy) return OK; /* the next job starts another one */
    w->is_busy = report.event == WORKER_EPOCH;
    worker_connection_send_report(w->connection, &report); /* a lost coordinator is detected by the next receive */
    return OK;
}

/* A request to stop this rank alone: its worker saves, the rank ends, and the coordinator gives the run to another. */
static void check_stop_request(struct rank_worker *w) {
    if (w->is_stopping || !stop_is_requested()) return;
    w->is_stopping = true;
    if (w->pid && w->is_busy) kill(w->pid, SIGTERM);
    if (w->pid && !w->is_busy) {
        worker_end(w->pid, w->fd, false, NULL);
        w->pid = 0;
    }
}

static status run_worker(struct rank_worker *w) {
    while (!w->has_ended && (!w->is_stopping || w->pid)) {
        struct pollfd fds[] = {{.fd = worker_connection_fd(w->connection), .events = POLLIN},
                               {.fd = w->pid ? w->fd : -1, .events = POLLIN}};
        int ready = poll(fds, 2, 100);
        if (ready < 0 && errno != EINTR) return status_errno(STATUS_IO, errno, "cannot wait for the coordinator");
        check_stop_request(w);
        if (ready > 0 && fds[1].revents && w->pid) TRY(pass_report(w));
        if (ready > 0 && fds[0].revents) TRY(receive_command(w));
    }
    return OK;
}

status sweep_run_worker(const struct sweep_file *file, const struct sweep_options *options, double timeout) {
    struct rank_worker w = {.file = file, .options = options, .env = *options->env};
    struct text what = {0};
    w.env.rank = 0;
    w.env.world_size = 1;
    w.worker = worker_options(file, options, &w.env);
    sweep_write_all(file, &what);
    status failure = worker_connect(options->env, text_string(&what), timeout, &w.connection);
    w.cache = dataset_cache_create();
    if (!failure) failure = run_worker(&w);
    if (w.pid) worker_end(w.pid, w.fd, failure != OK, NULL);
    dataset_cache_destroy(w.cache);
    worker_connection_close(w.connection);
    text_free(&what);
    if (failure || (w.code != STATUS_STOPPED && w.has_ended)) return failure;
    return status_new(STATUS_STOPPED, "stopped on request");
}
