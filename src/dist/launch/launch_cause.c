/* Finds the rank whose end caused the ends of the others. Order of preference: a failure of its own (the earliest), a
 * death by a signal that the launcher did not send, a rank that only lost a peer. The end of a rank after a signal of
 * the launcher counts only if the rank has reported a failure. */
#include <string.h>
#include <sys/wait.h>

#include "dist/launch/launch_internal.h"
#include "dist/store/store_members.h"

static bool is_known_code(int code) {
    static const int codes[] = {
#define X(name, number, text) number,
        STATUS_CODES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return true;
    return false;
}

static bool was_killed(const struct launched_rank *r) { return r->has_ended && WIFSIGNALED(r->wait_status); }

/* Killed by SIGKILL or SIGTERM after the launcher sent one, without a report of its own. */
static bool was_killed_by_launcher(const struct launched_rank *r) {
    return was_killed(r) && r->was_signalled && !r->has_report &&
           (WTERMSIG(r->wait_status) == SIGKILL || WTERMSIG(r->wait_status) == SIGTERM);
}

/* Has not yet joined the other ranks, so has done no training. */
static bool is_starting(const struct launched_rank *r) {
    struct activity_snapshot reading;
    if (!r->activity) return false;
    activity_read(r->activity, &reading);
    return reading.phase == ACTIVITY_STARTING && reading.step == 0;
}

/* Killed by a SIGTERM from another process before the rank had installed its handler. */
static bool was_stopped_at_start(const struct launched_rank *r) {
    return was_killed(r) && WTERMSIG(r->wait_status) == SIGTERM && !r->was_signalled && !r->has_report &&
           is_starting(r);
}

static int code_of(const struct launched_rank *r) {
    if (r->has_report && r->code != STATUS_OK) return r->code;
    if (!r->has_ended) return STATUS_OK;
    if (was_stopped_at_start(r)) return STATUS_STOPPED;
    if (was_killed(r)) return STATUS_PEER;
    int code = WEXITSTATUS(r->wait_status);
    return is_known_code(code) ? code : STATUS_BUG;
}

bool launch_has_failed(const struct launched_rank *r) {
    int code = code_of(r);
    return code != STATUS_OK && code != STATUS_STOPPED;
}

bool launch_stopped_early(const struct launched_rank *r) {
    return r->has_ended && code_of(r) == STATUS_STOPPED && (!r->has_report || is_starting(r));
}

bool launch_lost_peer(const struct launched_rank *r) {
    if (was_killed_by_launcher(r)) return true;
    return code_of(r) == STATUS_PEER && !(was_killed(r) && !r->has_report);
}

static void add_memory(const struct launched_rank *r, const struct launch_memory *memory, struct text *out) {
    text_add(out, "; probably out of memory: ");
    if (memory->limit_gib > 0) text_printf(out, "limit %.1f GiB, ", memory->limit_gib);
    text_printf(out, "peak of this rank %.1f GiB", (double)r->peak_kib / (1 << 20));
}

/* The activity record is memory that launcher and rank share, so it shows the last activity of a rank that has ended.
 */
static void add_last_seen(const struct launched_rank *r, struct text *out) {
    struct activity_snapshot reading;
    if (!r->activity) return;
    activity_read(r->activity, &reading);
    members_last_seen(&reading, out);
}

void launch_describe_end(const struct launched_rank *r, const struct launch_memory *memory, struct text *out) {
    if (r->has_report && r->code != STATUS_OK) return;
    if (was_killed(r)) {
        int number = WTERMSIG(r->wait_status);
        const char *name = sigabbrev_np(number);
        if (name)
            text_printf(out, " was killed by SIG%s", name);
        else
            text_printf(out, " was killed by signal %d", number);
        if (number == SIGKILL && memory->has_oom) add_memory(r, memory, out);
    } else {
        text_printf(out, " ended with exit code %d without reporting an error", WEXITSTATUS(r->wait_status));
    }
    add_last_seen(r, out);
}

/* "rank 1 (host n1, pid 71): <its message>", or how it ended. */
static void describe(const struct launched_rank *r, const struct launch_context *context, struct text *out) {
    text_printf(out, "rank %d (host %s, pid %ld)", r->rank, context->host, (long)r->pid);
    if (r->has_report && r->code != STATUS_OK)
        text_printf(out, ": %s", r->text);
    else
        launch_describe_end(r, &context->memory, out);
}

static const struct launched_rank *first_failure(const struct launched_rank *ranks, int count) {
    const struct launched_rank *best = NULL;
    for (int i = 0; i < count; i++) {
        const struct launched_rank *r = &ranks[i];
        if (!launch_has_failed(r) || was_killed_by_launcher(r)) continue;
        bool is_better = !best || (launch_lost_peer(best) && !launch_lost_peer(r)) ||
                         (launch_lost_peer(best) == launch_lost_peer(r) && r->order < best->order);
        if (is_better) best = r;
    }
    return best;
}

static const struct launched_rank *first_killed_by_launcher(const struct launched_rank *ranks, int count) {
    for (int i = 0; i < count; i++)
        if (was_killed_by_launcher(&ranks[i])) return &ranks[i];
    return NULL;
}

/* All ranks were stopped while starting: a rank that left before the others got the request makes them fail with
 * STATUS_PEER, which is not the cause. */
static bool is_stopped_start(const struct launched_rank *ranks, int count, const struct launched_rank *cause,
                             enum launch_stop stop) {
    bool was_stopped = stop == STOP_ELSEWHERE;
    for (int i = 0; i < count && stop != STOP_NONE; i++)
        was_stopped = was_stopped || code_of(&ranks[i]) == STATUS_STOPPED;
    return was_stopped && WIFEXITED(cause->wait_status) && code_of(cause) == STATUS_PEER;
}

static status did_not_stop(const struct launched_rank *killed, const struct launch_context *context) {
    struct text last = {0};
    add_last_seen(killed, &last);
    status failure = status_new(STATUS_PEER, "rank %d (host %s, pid %ld) did not stop within %g s and was killed%s",
                                killed->rank, context->host, (long)killed->pid, context->grace, text_string(&last));
    text_free(&last);
    return failure;
}

/* The result if no rank failed by itself: success, a stop, or a rank that the launcher had to kill. */
static status result_of_shutdown(const struct launched_rank *ranks, int count, const struct launch_context *context) {
    const struct launched_rank *killed = first_killed_by_launcher(ranks, count);
    if (killed && context->stop == STOP_NOW)
        return status_new(STATUS_PEER, "ended at once by a second signal%s",
                          context->saves ? ": what was done since the last checkpoint is lost" : "");
    if (killed && WTERMSIG(killed->wait_status) == SIGTERM) /* it had not yet installed its handler */
        return status_new(STATUS_STOPPED, "%s", context->saves ? STOPPED_BEFORE_TRAINING : STOPPED_ON_REQUEST);
    if (killed) return did_not_stop(killed, context);
    for (int i = 0; i < count; i++)
        if (code_of(&ranks[i]) == STATUS_STOPPED)
            return status_new(STATUS_STOPPED, "%s",
                              ranks[i].has_report && *ranks[i].text      ? ranks[i].text
                              : context->saves && is_starting(&ranks[i]) ? STOPPED_BEFORE_TRAINING
                              : context->saves ? "stopped on request; run the same command again to continue"
                                               : STOPPED_ON_REQUEST);
    for (int i = 0; i < count && context->stop == STOP_ELSEWHERE; i++)
        if (launch_has_failed(&ranks[i])) return status_new(STATUS_STOPPED, "stopped on request on another node");
    return OK;
}

status launch_result(const struct launched_rank *ranks, int count, const struct launch_context *context) {
    const struct launched_rank *cause = first_failure(ranks, count);
    if (cause && is_stopped_start(ranks, count, cause, context->stop)) cause = NULL;
    /* a rank hung, and the launcher ended the others before they detected it */
    if (!cause && context->stop == STOP_NONE && context->job_failure.is_known)
        return status_new((enum status_code)context->job_failure.code, "%s", context->job_failure.text);
    if (!cause) return result_of_shutdown(ranks, count, context);
    /* the store has reports of other nodes, and of a rank that hung until the launcher killed it */
    if (launch_lost_peer(cause) && context->job_failure.is_known)
        return status_new((enum status_code)context->job_failure.code, "%s", context->job_failure.text);
    struct text text = {0};
    describe(cause, context, &text);
    status failure = status_new(code_of(cause), "%s", text.data);
    text_free(&text);
    return failure;
}
