/* A rank other than 0: passes jobs to a worker process of its own and reports back. The worker may die; the rank then
 * starts another one. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "sweep/sweep.h"
#include "sweep/workers/dataset_cache.h"
#include "sweep/workers/worker_connection.h"

struct server {
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

static status handle_command(struct server *s, const struct worker_command *message) {
    switch (message->type) {
    case COMMAND_JOB:
        if (!s->pid) TRY(worker_start(&s->worker, s->cache, &s->pid, &s->fd));
        s->is_busy = true;
        s->run = message->job.run;
        worker_send_job(s->fd, &message->job);
        break;
    case COMMAND_ANSWER:
        if (s->pid) worker_answer(s->fd, message->must_stop); /* else it has ended since it asked */
        break;
    case COMMAND_STOP:
        if (s->pid) kill(s->pid, SIGTERM);
        break;
    case COMMAND_REFUSE:
        return status_new(
            STATUS_USAGE,
            "rank %d: another process takes part in this sweep as rank %d; start each rank once, with its "
            "own RANK",
            s->options->env->rank, s->options->env->rank);
    default:
        s->has_ended = true;
        s->code = message->code;
    }
    return OK;
}

static status receive_command(struct server *s) {
    struct worker_command message;
    bool got;
    status failure = worker_connection_receive_command(s->connection, &message, &got);
    if (failure) {
        status_free(failure);
        return status_new(STATUS_PEER, "rank 0, the coordinator of the sweep, was lost; run the same command again to "
                                       "continue");
    }
    return got ? handle_command(s, &message) : OK;
}

static status pass_report(struct server *s) {
    struct worker_report report;
    bool got;
    TRY(worker_receive(s->fd, &report, &got));
    if (!got) {
        struct text how = {0};
        worker_end(s->pid, s->fd, false, &how);
        s->pid = 0;
        memset(&report, 0, sizeof report);
        report.event = WORKER_LOST;
        report.run = s->run;
        strncpy(report.message, text_string(&how), sizeof report.message - 1);
        text_free(&how);
    }
    if (got && report.event == WORKER_STOPPED) { /* it takes no more jobs */
        worker_end(s->pid, s->fd, false, NULL);
        s->pid = 0;
    }
    if (report.event == WORKER_LOST && !s->is_busy) return OK; /* the next job starts another one */
    s->is_busy = report.event == WORKER_EPOCH;
    worker_connection_send_report(s->connection, &report); /* a lost coordinator is detected by the next receive */
    return OK;
}

/* A request to stop this rank alone: its worker saves, the rank ends, and the coordinator gives the run to another. */
static void check_stop_request(struct server *s) {
    if (s->is_stopping || !s->options->stop || !*s->options->stop) return;
    s->is_stopping = true;
    if (s->pid && s->is_busy) kill(s->pid, SIGTERM);
    if (s->pid && !s->is_busy) {
        worker_end(s->pid, s->fd, false, NULL);
        s->pid = 0;
    }
}

static status serve(struct server *s) {
    while (!s->has_ended && (!s->is_stopping || s->pid)) {
        struct pollfd fds[] = {{.fd = worker_connection_fd(s->connection), .events = POLLIN},
                               {.fd = s->pid ? s->fd : -1, .events = POLLIN}};
        int ready = poll(fds, 2, 100);
        if (ready < 0 && errno != EINTR) return status_errno(STATUS_IO, errno, "cannot wait for the coordinator");
        check_stop_request(s);
        if (ready > 0 && fds[1].revents && s->pid) TRY(pass_report(s));
        if (ready > 0 && fds[0].revents) TRY(receive_command(s));
    }
    return OK;
}

status sweep_serve(const struct sweep_file *file, const struct sweep_options *options, double timeout) {
    struct server s = {.file = file, .options = options, .env = *options->env};
    struct text what = {0};
    s.env.rank = 0;
    s.env.world_size = 1;
    s.worker = worker_options(file, options, &s.env);
    sweep_write_all(file, &what);
    status failure = worker_connect(options->env, text_string(&what), timeout, options->stop, &s.connection);
    s.cache = dataset_cache_create();
    if (!failure) failure = serve(&s);
    if (s.pid) worker_end(s.pid, s.fd, failure != OK, NULL);
    dataset_cache_destroy(s.cache);
    worker_connection_close(s.connection);
    text_free(&what);
    if (failure || (s.code != STATUS_STOPPED && s.has_ended)) return failure;
    return status_new(STATUS_STOPPED, "stopped on request");
}
