/* One array, which every function searches: a check of thousands of ranks takes microseconds and runs five times a
 * second. */
#include "dist/store/store_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/store/store_frame.h"

#define PAUSE 1.0 /* a longer gap between checks means that this process did not run */
#define STEPS 20
#define EVALUATING_SECONDS 60.0
#define LINK_MARGIN 0.5 /* the last acknowledgement may be later than the last heartbeat by this much */
#define MAX_LISTED 16

struct member {
    enum member_state state;
    enum status_code code;
    char process[STORE_MAX_PROCESS];
    char *reason;                  /* NULL: exited without reporting an error */
    struct activity_snapshot last; /* heartbeat */
    bool has_heartbeat, has_hung;
    double heartbeat_at, changed_at; /* time of the last heartbeat; of the last progress */
    double cpu_at_change;
};

struct members {
    int world_size, node_size, joined;
    int left; /* ranks in MEMBER_LEFT */
    struct members_limits limits;
    double checked_at, changed_at;
    int first_peer_loss, first_cause, cause; /* ranks; -1: none */
    double left_at;                          /* time of the first loss; 0: none */
    struct member items[];                   /* (world_size) */
};

struct members *members_create(int world_size, int node_size, struct members_limits limits, double now) {
    struct members *m = calloc(1, sizeof *m + (size_t)world_size * sizeof m->items[0]);
    if (!m) return NULL;
    m->world_size = world_size;
    m->node_size = node_size > 0 && world_size % node_size == 0 ? node_size : 0;
    m->limits = limits;
    if (m->limits.pace < 1) m->limits.pace = 1;
    m->checked_at = m->changed_at = now;
    m->first_peer_loss = m->first_cause = m->cause = -1;
    return m;
}

void members_destroy(struct members *m) {
    if (!m) return;
    for (int r = 0; r < m->world_size; r++) free(m->items[r].reason);
    free(m);
}

enum member_state members_state(const struct members *m, int rank) { return m->items[rank].state; }
const char *members_process(const struct members *m, int rank) { return m->items[rank].process; }
int members_joined(const struct members *m) { return m->joined; }
enum status_code members_code(const struct members *m, int rank) { return m->items[rank].code; }
bool members_hung(const struct members *m, int rank) { return m->items[rank].has_hung; }

/* ---- events ---- */

/* The rank with the highest priority is the root cause: 2: a failure with its reason, 1: a request to stop, 0: an end
 * without a report; -1: not a cause. */
static int cause_priority(const struct member *r) {
    if (r->state != MEMBER_FAILED) return -1;
    if (!r->reason) return 0;
    return r->code == STATUS_STOPPED ? 1 : 2;
}

static void update_cause(struct members *m, int rank) {
    int before = m->first_cause >= 0 ? cause_priority(&m->items[m->first_cause]) : -1;
    if (cause_priority(&m->items[rank]) > before) m->first_cause = rank;
}

void members_add_unjoined(struct members *m, int rank, const char *process, double now) {
    struct member *r = &m->items[rank];
    r->state = MEMBER_JOINED;
    r->heartbeat_at = r->changed_at = m->changed_at = now;
    snprintf(r->process, sizeof r->process, "%s", process);
}

void members_join(struct members *m, int rank, const char *process, double now) {
    members_add_unjoined(m, rank, process, now);
    m->joined++;
}

void members_heartbeat(struct members *m, int rank, const struct activity_snapshot *reading, double now) {
    struct member *r = &m->items[rank];
    r->heartbeat_at = now;
    if (!r->has_heartbeat || r->last.ticks != reading->ticks || r->last.step != reading->step) {
        r->changed_at = m->changed_at = now;
        r->cpu_at_change = reading->cpu;
    }
    r->last = *reading;
    r->has_heartbeat = true;
}

void members_leave(struct members *m, int rank, enum member_state state, enum status_code code, const char *reason,
                   double now) {
    struct member *r = &m->items[rank];
    if (r->state != MEMBER_JOINED) return;
    r->state = state;
    r->code = code;
    r->reason = reason ? strdup(reason) : NULL;
    m->changed_at = now;
    m->left += state == MEMBER_LEFT;
    if (state == MEMBER_LEFT) return;
    if (m->left_at == 0) m->left_at = now;
    if (state == MEMBER_LOST_PEER && m->first_peer_loss < 0) m->first_peer_loss = rank;
    update_cause(m, rank);
}

void members_exited(struct members *m, int rank, const char *reason, double now) {
    struct member *r = &m->items[rank];
    members_leave(m, rank, MEMBER_FAILED, STATUS_PEER, reason, now);
    if (r->state == MEMBER_FAILED && !r->reason) r->reason = strdup(reason);
    update_cause(m, rank);
}

/* ---- the cause ---- */

/* A failure with its reason is final; after other losses a report of the root cause may still arrive. */
static bool is_final(const struct members *m, double now) {
    if (m->left_at == 0) return false;
    if (m->first_cause >= 0 && cause_priority(&m->items[m->first_cause]) == 2) return true;
    if (now >= m->left_at + MEMBERS_COLLECT_SECONDS) return true;
    for (int r = 1; r < m->world_size; r++)
        if (m->items[r].state <= MEMBER_JOINED) return false;
    return true;
}

int members_cause(struct members *m, double now) {
    if (m->cause >= 0 || !is_final(m, now)) return m->cause;
    m->cause = m->first_cause >= 0 ? m->first_cause : m->first_peer_loss;
    return m->cause;
}

double members_cause_time(const struct members *m, double otherwise) {
    return m->cause < 0 && m->left_at > 0 ? m->left_at + MEMBERS_COLLECT_SECONDS : otherwise;
}

bool members_is_alone(const struct members *m, int rank) {
    return m->left - (m->items[rank].state == MEMBER_LEFT) == m->world_size - 1;
}

/* ---- unreachable and stopped ranks ---- */

const struct activity_snapshot *members_last(const struct members *m, int rank) { return &m->items[rank].last; }

/* false before the first step, also while the initial state is saved; `eval` and `predict` have no steps. */
static bool is_in_step(const struct activity_snapshot *r) {
    return r->step > 0 || (r->phase >= ACTIVITY_LOADING && r->phase <= ACTIVITY_LOGGING);
}

/* "in forward of step 8" */
static void add_phase(const struct activity_snapshot *r, const char *preposition, struct text *out) {
    if (r->phase == ACTIVITY_STARTING) {
        text_add(out, "before its first batch");
        return;
    }
    text_printf(out, "%s %s", preposition, activity_phase_name((int)r->phase));
    if (is_in_step(r)) text_printf(out, " of step %llu", (unsigned long long)r->step + 1);
}

void members_last_seen(const struct activity_snapshot *r, struct text *out) {
    text_add(out, "; last seen ");
    if (r->phase == ACTIVITY_STARTING && !*r->call) /* its first heartbeat */
        text_add(out, "when it joined the other ranks");
    else
        add_phase(r, "in", out);
    if (*r->call)
        text_printf(out, ", %s %s #%llu", r->is_in_collective ? "in" : "after", r->call, (unsigned long long)r->number);
}

static void mark_lost(struct members *m, int rank, struct text *reason, double now) {
    members_leave(m, rank, MEMBER_FAILED, STATUS_PEER, text_string(reason), now);
    m->items[rank].has_hung = true;
    text_free(reason);
}

static void check_silence(struct members *m, int rank, double now, double link_age) {
    struct member *r = &m->items[rank];
    double silence = now - r->heartbeat_at;
    struct text reason = {0};
    double silent = MEMBERS_SILENT_SECONDS * m->limits.pace;
    if (silence >= silent && link_age >= silent - LINK_MARGIN)
        text_printf(&reason,
                    " is unreachable: its host has not answered for %.1f s (the network failed, or the host is down)",
                    silence);
    else if (silence >= MEMBERS_STOPPED_SECONDS * m->limits.pace)
        text_printf(&reason, " hangs: its process has not run for %.1f s although its host answers (is it stopped?)",
                    silence);
    else
        return;
    members_last_seen(&r->last, &reason);
    mark_lost(m, rank, &reason, now);
}

/* ---- hanging ranks ---- */

static bool is_waiting(const struct member *r) { return r->state == MEMBER_JOINED && r->last.is_in_collective; }
static bool is_working(const struct member *r) { return r->state == MEMBER_JOINED && !r->last.is_in_collective; }

/* Seconds without any progress after which the job hangs; 0: never. */
static double hang_limit(const struct members *m, bool has_working) {
    double median = 0;
    bool is_evaluating = false;
    if (m->limits.hang <= 0) return 0;
    for (int i = 0; i < m->world_size; i++) {
        const struct member *r = &m->items[i];
        if (r->state != MEMBER_JOINED) continue;
        if (r->last.median_step > median) median = r->last.median_step;
        if (has_working && !is_working(r)) continue;
        if (activity_phase_is_slow((int)r->last.phase)) return m->limits.slow;
        is_evaluating = is_evaluating || r->last.phase == ACTIVITY_EVALUATING;
    }
    if (median <= 0) return m->limits.slow;
    double limit = STEPS * median > m->limits.hang ? STEPS * median : m->limits.hang;
    return is_evaluating && limit < EVALUATING_SECONDS ? EVALUATING_SECONDS : limit;
}

static void describe_hang(const struct members *m, const struct member *r, int waiting, const struct member *waiter,
                          double now, struct text *reason) {
    text_add(reason, " hangs ");
    add_phase(&r->last, is_working(r) ? "in" : "after", reason);
    if (*r->last.call)
        text_printf(reason, ", %s %s #%llu", is_working(r) ? "after" : "in", r->last.call,
                    (unsigned long long)r->last.number);
    text_printf(reason, ": no rank has made progress for %.1f s while %d of %d wait in %s #%llu", now - m->changed_at,
                waiting, m->world_size, waiter->last.call, (unsigned long long)waiter->last.number);
    text_printf(reason, "; it has used %.1f s of processor time since then", r->last.cpu - r->cpu_at_change);
}

/* Of two hanging ranks: whether [a] is in an earlier step or collective, else has hung for longer. */
static bool is_behind(const struct member *a, const struct member *b) {
    bool is_comparable = strcmp(a->last.call, b->last.call) == 0;
    if (a->last.step != b->last.step) return a->last.step < b->last.step;
    if (is_comparable && a->last.number != b->last.number) return a->last.number < b->last.number;
    return a->changed_at < b->changed_at;
}

static void check_hang(struct members *m, double now) {
    int waiting = 0, working = 0, oldest = -1;
    const struct member *waiter = NULL;
    for (int i = 0; i < m->world_size; i++) {
        const struct member *r = &m->items[i];
        working += is_working(r);
        if (!is_waiting(r)) continue;
        waiting++;
        waiter = r;
    }
    double limit = waiting ? hang_limit(m, working > 0) : 0;
    if (limit <= 0 || now - m->changed_at < limit) return;
    for (int i = 0; i < m->world_size; i++) { /* the one that does not wait in a collective and is behind the others */
        const struct member *r = &m->items[i];
        bool is_candidate = working ? is_working(r) : is_waiting(r);
        if (is_candidate && (oldest < 0 || is_behind(r, &m->items[oldest]))) oldest = i;
    }
    struct text reason = {0};
    describe_hang(m, &m->items[oldest], waiting, waiter, now, &reason);
    mark_lost(m, oldest, &reason, now);
}

void members_check(struct members *m, double now, double (*link_age)(void *data, int rank), void *data) {
    double gap = now - m->checked_at;
    m->checked_at = now;
    if (gap > PAUSE) { /* heartbeats could not be read meanwhile */
        m->changed_at += gap;
        for (int r = 0; r < m->world_size; r++) m->items[r].heartbeat_at += gap;
        return;
    }
    if (m->left_at > 0) return; /* ranks that wait now wait because of that loss */
    double silent = MEMBERS_SILENT_SECONDS * m->limits.pace;
    for (int r = 0; r < m->world_size; r++)
        if (m->items[r].state == MEMBER_JOINED && now - m->items[r].heartbeat_at >= silent)
            check_silence(m, r, now, link_age(data, r));
    check_hang(m, now);
}

/* ---- messages ---- */

void members_describe(const struct members *m, int rank, struct text *out) {
    const struct member *r = &m->items[rank];
    text_printf(out, "rank %d (%s)", rank, r->process);
    text_add(out, r->reason ? r->reason : r->state == MEMBER_LEFT ? " left" : " exited without reporting an error");
    if (!r->reason && r->state == MEMBER_FAILED && r->has_heartbeat) members_last_seen(&r->last, out);
}

static int missing_count(const struct members *m) {
    int missing = 0;
    for (int r = 0; r < m->world_size; r++) missing += m->items[r].state == MEMBER_ABSENT;
    return missing;
}

static void list_missing(const struct members *m, bool has_nodes, struct text *out) {
    int missing = missing_count(m), shown = 0;
    for (int r = 0; r < m->world_size && shown < MAX_LISTED; r++) {
        if (m->items[r].state != MEMBER_ABSENT) continue;
        text_printf(out, "%s%d", shown++ ? ", " : "", r);
        if (has_nodes) text_printf(out, " (node %d)", r / m->node_size);
    }
    if (missing > shown) text_printf(out, " and %d more", missing - shown);
}

void members_missing(const struct members *m, struct text *out) {
    text_add(out, missing_count(m) == 1 ? "rank " : "ranks ");
    list_missing(m, false, out);
}

void members_missing_by_node(const struct members *m, struct text *out) {
    text_printf(out, "%d of %d ranks: ", missing_count(m), m->world_size);
    list_missing(m, m->node_size > 0 && m->node_size < m->world_size, out);
}
