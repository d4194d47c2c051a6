/* The coordinator's side of a worker, which is a process or another rank. Both kinds of workers take the same commands
 * and send the same reports (worker.h, worker_connection.h). */
#include "sweep/workers/slot.h"

#include <math.h>
#include <signal.h>
#include <string.h>

bool slot_is_used(const struct worker_slot *slot) { return slot->pid || slot->connection; }

int slot_fd(const struct worker_slot *slot) {
    return slot->connection ? worker_connection_fd(slot->connection) : slot->pid ? slot->fd : -1;
}

status slot_send_job(struct worker_slot *slot, struct dataset_cache *cache) {
    if (!slot_is_used(slot)) TRY(worker_start(&slot->options, cache, &slot->pid, &slot->fd));
    slot->is_busy = true;
    if (slot->connection)
        worker_connection_send_command(slot->connection,
                                       &(struct worker_command){.type = COMMAND_JOB, .job = slot->job});
    else
        worker_send_job(slot->fd, &slot->job);
    return OK;
}

void slot_send_ahead(struct worker_slot *slot, const struct worker_job *job) {
    slot->ahead[(slot->ahead_first + slot->ahead_count++) % SLOT_MAX_AHEAD] = *job;
    worker_send_job(slot->fd, job);
}

void slot_end_job(struct worker_slot *slot, double seconds) {
    slot->seconds = slot->has_ended ? (3 * slot->seconds + seconds) / 4 : seconds;
    slot->has_ended = true;
    slot->is_busy = slot->ahead_count > 0;
    if (!slot->is_busy) return;
    slot->job = slot->ahead[slot->ahead_first];
    slot->ahead_first = (slot->ahead_first + 1) % SLOT_MAX_AHEAD;
    slot->ahead_count--;
}

int slot_list_ahead(const struct worker_slot *slot, int64_t runs[SLOT_MAX_AHEAD]) {
    for (int i = 0; i < slot->ahead_count; i++) runs[i] = slot->ahead[(slot->ahead_first + i) % SLOT_MAX_AHEAD].run;
    return slot->ahead_count;
}

int slot_wanted_ahead(const struct worker_slot *slot) {
    if (slot->connection || !slot->has_ended) return 0;
    return (int)fmin(SLOT_AHEAD_SECONDS / (slot->seconds + SLOT_JOB_SECONDS), SLOT_MAX_AHEAD);
}

void slot_answer(struct worker_slot *slot, bool must_stop) {
    if (slot->connection)
        worker_connection_send_command(slot->connection,
                                       &(struct worker_command){.type = COMMAND_ANSWER, .must_stop = must_stop});
    else
        worker_answer(slot->fd, must_stop);
}

void slot_stop(struct worker_slot *slot) {
    if (slot->connection)
        worker_connection_send_command(slot->connection, &(struct worker_command){.type = COMMAND_STOP});
    else if (slot->pid)
        kill(slot->pid, SIGTERM);
}

void slot_end_rank(struct worker_slot *slot, int code) {
    if (slot->connection)
        worker_connection_send_command(slot->connection, &(struct worker_command){.type = COMMAND_END, .code = code});
}

static void clear(struct worker_slot *slot) {
    struct dist_env env = slot->env;
    struct worker_options options = slot->options;
    bool is_remote = slot->is_remote;
    memset(slot, 0, sizeof *slot); /* the jobs are too large for the stack */
    slot->env = env;
    slot->options = options;
    slot->is_remote = is_remote;
}

void slot_end(struct worker_slot *slot, bool by_force) {
    worker_connection_close(slot->connection);
    if (slot->pid) worker_end(slot->pid, slot->fd, by_force, NULL);
    clear(slot);
}

static status receive_from_process(struct worker_slot *slot, struct worker_report *report, bool *is_lost,
                                   struct text *how) {
    bool got;
    TRY(worker_receive(slot->fd, report, &got));
    *is_lost = !got;
    if (!*is_lost) return OK;
    worker_end(slot->pid, slot->fd, false, how);
    clear(slot);
    return OK;
}

static void receive_from_rank(struct worker_slot *slot, struct worker_report *report, bool *got, bool *is_lost,
                              struct text *how) {
    status failure = worker_connection_receive_report(slot->connection, report, got);
    *is_lost = failure != OK;
    if (!*is_lost) return;
    text_printf(how, "on rank %d was lost (%s)", slot->rank, status_message(failure));
    status_free(failure);
    slot_end(slot, true);
}

status slot_receive(struct worker_slot *slot, struct worker_report *report, bool *got, bool *is_lost,
                    struct text *how) {
    *got = true;
    if (!slot->connection) return receive_from_process(slot, report, is_lost, how);
    receive_from_rank(slot, report, got, is_lost, how);
    return OK;
}
