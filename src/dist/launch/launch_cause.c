/* Which rank's end explains the others'. Order of preference: an own failure (the earliest), a death by a signal that
 * was not ours, a rank that only lost a peer. What a rank did after we told it to stop counts only when it says so
 * itself. */
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

static bool was_killed(const struct launched_rank *r) { return r->is_over && WIFSIGNALED(r->wait_status); }

/* Killed by one of the signals that we use, after we used it, without a report of its own. */
static bool was_killed_by_us(const struct launched_rank *r) {
    return was_killed(r) && r->was_ended_by_us && !r->has_report &&
           (WTERMSIG(r->wait_status) == SIGKILL || WTERMSIG(r->wait_status) == SIGTERM);
}

/* Until it has joined the others it has done nothing. */
static bool is_starting(const struct launched_rank *r) {
    struct pulse_reading reading;
    if (!r->pulse) return false;
    pulse_read(r->pulse, &reading);
    return reading.phase == PULSE_STARTING && reading.step == 0;
}

/* By somebody else's SIGTERM, before the program handled it. */
static bool was_stopped_at_once(const struct launched_rank *r) {
    return was_killed(r) && WTERMSIG(r->wait_status) == SIGTERM && !r->was_ended_by_us && !r->has_report &&
           is_starting(r);
}

static int code_of(const struct launched_rank *r) {
    if (r->has_report && r->code != STATUS_OK) return r->code;
    if (!r->is_over) return STATUS_OK;
    if (was_stopped_at_once(r)) return STATUS_STOPPED;
    if (was_killed(r)) return STATUS_PEER;
    int code = WEXITSTATUS(r->wait_status);
    return is_known_code(code) ? code : STATUS_BUG;
}

bool launch_has_failed(const struct launched_rank *r) {
    int code = code_of(r);
    return code != STATUS_OK && code != STATUS_STOPPED;
}

bool launch_left_early(const struct launched_rank *r) {
    return r->is_over && code_of(r) == STATUS_STOPPED && (!r->has_report || is_starting(r));
}

bool launch_lost_peer(const struct launched_rank *r) {
    if (was_killed_by_us(r)) return true;
    return code_of(r) == STATUS_PEER && !(was_killed(r) && !r->has_report);
}

static void add_memory(const struct launched_rank *r, const struct launch_memory *memory, struct text *out) {
    text_add(out, "; probably out of memory: ");
    if (memory->limit_gib > 0) text_printf(out, "limit %.1f GiB, ", memory->limit_gib);
    text_printf(out, "peak of this rank %.1f GiB", (double)r->peak_kib / (1 << 20));
}

/* As it was when the rank ended: both look at the same memory. */
static void add_last_seen(const struct launched_rank *r, struct text *out) {
    struct pulse_reading reading;
    if (!r->pulse) return;
    pulse_read(r->pulse, &reading);
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
        text_printf(out, " ended with exit code %d and gave no reason", WEXITSTATUS(r->wait_status));
    }
    add_last_seen(r, out);
}

/* ": <sentence>" or how it ended. */
static void describe(const struct launched_rank *r, const struct launch_circumstances *around, struct text *out) {
    text_printf(out, "rank %d (host %s, pid %ld)", r->rank, around->host, (long)r->pid);
    if (r->has_report && r->code != STATUS_OK)
        text_printf(out, ": %s", r->sentence);
    else
        launch_describe_end(r, &around->memory, out);
}

static const struct launched_rank *first_failure(const struct launched_rank *ranks, int count) {
    const struct launched_rank *best = NULL;
    for (int i = 0; i < count; i++) {
        const struct launched_rank *r = &ranks[i];
        if (!launch_has_failed(r) || was_killed_by_us(r)) continue;
        bool is_better = !best || (launch_lost_peer(best) && !launch_lost_peer(r)) ||
                         (launch_lost_peer(best) == launch_lost_peer(r) && r->order < best->order);
        if (is_better) best = r;
    }
    return best;
}

static const struct launched_rank *first_killed_by_us(const struct launched_rank *ranks, int count) {
    for (int i = 0; i < count; i++)
        if (was_killed_by_us(&ranks[i])) return &ranks[i];
    return NULL;
}

/* Stopped while starting: some left before others knew, who then miss them; nothing was lost. */
static bool is_stopped_start(const struct launched_rank *ranks, int count, const struct launched_rank *cause,
                             enum launch_stop stop) {
    bool was_stopped = stop == STOP_ELSEWHERE;
    for (int i = 0; i < count && stop != STOP_NONE; i++)
        was_stopped = was_stopped || code_of(&ranks[i]) == STATUS_STOPPED;
    return was_stopped && WIFEXITED(cause->wait_status) && code_of(cause) == STATUS_PEER;
}

static status did_not_stop(const struct launched_rank *killed, const struct launch_circumstances *around) {
    struct text last = {0};
    add_last_seen(killed, &last);
    status failure = status_new(STATUS_PEER, "rank %d (host %s, pid %ld) did not stop within %g s and was killed%s",
                                killed->rank, around->host, (long)killed->pid, around->grace, text_string(&last));
    text_free(&last);
    return failure;
}

/* What nobody but us has ended: no failure, or the last resort. */
static status result_of_ladder(const struct launched_rank *ranks, int count,
                               const struct launch_circumstances *around) {
    const struct launched_rank *killed = first_killed_by_us(ranks, count);
    if (killed && around->stop == STOP_AT_ONCE)
        return status_new(STATUS_PEER, "ended at once by a second signal%s",
                          around->saves ? ": what was done since the last checkpoint is lost" : "");
    if (killed && WTERMSIG(killed->wait_status) == SIGTERM) /* it had not yet begun to listen */
        return status_new(STATUS_STOPPED, "stopped on request%s",
                          around->saves ? " before training began; nothing was to be saved" : "");
    if (killed) return did_not_stop(killed, around);
    for (int i = 0; i < count; i++)
        if (code_of(&ranks[i]) == STATUS_STOPPED)
            return status_new(STATUS_STOPPED, "%s",
                              ranks[i].has_report && *ranks[i].sentence ? ranks[i].sentence
                              : around->saves && is_starting(&ranks[i])
                                  ? "stopped on request before training began; nothing was to be saved"
                              : around->saves ? "stopped on request; run the same command again to continue"
                                              : "stopped on request");
    for (int i = 0; i < count && around->stop == STOP_ELSEWHERE; i++)
        if (launch_has_failed(&ranks[i])) return status_new(STATUS_STOPPED, "stopped on request on another node");
    return OK;
}

status launch_result(const struct launched_rank *ranks, int count, const struct launch_circumstances *around) {
    const struct launched_rank *cause = first_failure(ranks, count);
    if (cause && is_stopped_start(ranks, count, cause, around->stop)) cause = NULL;
    /* a rank hung, and we ended the others before they could notice */
    if (!cause && around->stop == STOP_NONE && around->news.is_known)
        return status_new((enum status_code)around->news.code, "%s", around->news.sentence);
    if (!cause) return result_of_ladder(ranks, count, around);
    /* the store knows what happened on other nodes, and which rank hung until we ended it */
    if (launch_lost_peer(cause) && around->news.is_known)
        return status_new((enum status_code)around->news.code, "%s", around->news.sentence);
    struct text sentence = {0};
    describe(cause, around, &sentence);
    status failure = status_new(code_of(cause), "%s", sentence.data);
    text_free(&sentence);
    return failure;
}
