/* One array, walked by every question: a check of thousands of ranks takes microseconds and comes five times a
 * second. */
#include "dist/store/store_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/store/store_frame.h"

#define PAUSE 1.0 /* a longer gap between checks means that this process did not run */
#define STEPS 20
#define EVALUATING_SECONDS 60.0
#define LINK_MARGIN 0.5 /* an acknowledgement may be younger than the last pulse by this much */
#define MAX_LISTED 16

struct member {
    enum member_state state;
    enum status_code code;
    char who[STORE_MAX_WHO];
    char *fate; /* NULL: exited without reporting an error */
    struct pulse_reading last;
    bool has_beat, stood_still;
    double heard_at, changed_at;
    double cpu_at_change;
};

struct members {
    int world_size, node_size, joined;
    struct members_limits limits;
    double checked_at, changed_at;
    int first_peer_loss, first_cause, cause; /* ranks; -1: none */
    double left_at;                          /* of the first departure; 0: none */
    struct member items[];                   /* (world_size) */
};

struct members *members_create(int world_size, int node_size, struct members_limits limits, double now) {
    struct members *m = calloc(1, sizeof *m + (size_t)world_size * sizeof m->items[0]);
    if (!m) return NULL;
    m->world_size = world_size;
    m->node_size = node_size > 0 && world_size % node_size == 0 ? node_size : 0;
    m->limits = limits;
    m->checked_at = m->changed_at = now;
    m->first_peer_loss = m->first_cause = m->cause = -1;
    return m;
}

void members_destroy(struct members *m) {
    if (!m) return;
    for (int r = 0; r < m->world_size; r++) free(m->items[r].fate);
    free(m);
}

enum member_state members_state(const struct members *m, int rank) { return m->items[rank].state; }
const char *members_who(const struct members *m, int rank) { return m->items[rank].who; }
int members_joined(const struct members *m) { return m->joined; }
enum status_code members_code(const struct members *m, int rank) { return m->items[rank].code; }
bool members_stood_still(const struct members *m, int rank) { return m->items[rank].stood_still; }

/* ---- what happens ---- */

/* How well the end of a rank explains the ends of others: a failure with its reason is better than a request to stop,
 * and that is better than an end without a report. */
static int explanation(const struct member *r) {
    if (r->state != LEFT_AS_CAUSE) return -1;
    if (!r->fate) return 0;
    return r->code == STATUS_STOPPED ? 1 : 2;
}

static void consider_cause(struct members *m, int rank) {
    int before = m->first_cause >= 0 ? explanation(&m->items[m->first_cause]) : -1;
    if (explanation(&m->items[rank]) > before) m->first_cause = rank;
}

void members_introduce(struct members *m, int rank, const char *who, double now) {
    struct member *r = &m->items[rank];
    r->state = IS_HERE;
    r->heard_at = r->changed_at = m->changed_at = now;
    snprintf(r->who, sizeof r->who, "%s", who);
}

void members_join(struct members *m, int rank, const char *who, double now) {
    members_introduce(m, rank, who, now);
    m->joined++;
}

void members_beat(struct members *m, int rank, const struct pulse_reading *reading, double now) {
    struct member *r = &m->items[rank];
    r->heard_at = now;
    if (!r->has_beat || r->last.ticks != reading->ticks || r->last.step != reading->step) {
        r->changed_at = m->changed_at = now;
        r->cpu_at_change = reading->cpu;
    }
    r->last = *reading;
    r->has_beat = true;
}

void members_leave(struct members *m, int rank, enum member_state how, enum status_code code, const char *fate,
                   double now) {
    struct member *r = &m->items[rank];
    if (r->state != IS_HERE) return;
    r->state = how;
    r->code = code;
    r->fate = fate ? strdup(fate) : NULL;
    m->changed_at = now;
    if (how == LEFT_IN_PEACE) return;
    if (m->left_at == 0) m->left_at = now;
    if (how == LEFT_AFTER_PEER && m->first_peer_loss < 0) m->first_peer_loss = rank;
    consider_cause(m, rank);
}

void members_died(struct members *m, int rank, const char *fate, double now) {
    struct member *r = &m->items[rank];
    members_leave(m, rank, LEFT_AS_CAUSE, STATUS_PEER, fate, now);
    if (r->state == LEFT_AS_CAUSE && !r->fate) r->fate = strdup(fate);
    consider_cause(m, rank);
}

/* ---- the cause ---- */

/* A failure with its reason explains itself; for others a better explanation may come. */
static bool is_final(const struct members *m, double now) {
    if (m->left_at == 0) return false;
    if (m->first_cause >= 0 && explanation(&m->items[m->first_cause]) == 2) return true;
    if (now >= m->left_at + MEMBERS_COLLECT) return true;
    for (int r = 1; r < m->world_size; r++)
        if (m->items[r].state <= IS_HERE) return false;
    return true;
}

int members_cause(struct members *m, double now) {
    if (m->cause >= 0 || !is_final(m, now)) return m->cause;
    m->cause = m->first_cause >= 0 ? m->first_cause : m->first_peer_loss;
    return m->cause;
}

double members_cause_time(const struct members *m, double otherwise) {
    return m->cause < 0 && m->left_at > 0 ? m->left_at + MEMBERS_COLLECT : otherwise;
}

bool members_is_alone(const struct members *m, int rank) {
    for (int r = 0; r < m->world_size; r++)
        if (r != rank && m->items[r].state != LEFT_IN_PEACE) return false;
    return true;
}

/* ---- silence ---- */

const struct pulse_reading *members_last(const struct members *m, int rank) { return &m->items[rank].last; }

/* Before the first step there is a state to save; `eval` and `predict` have no steps at all. */
static bool is_in_step(const struct pulse_reading *r) {
    return r->step > 0 || (r->phase >= PULSE_LOADING && r->phase <= PULSE_LOGGING);
}

static void add_phase(const struct pulse_reading *r, struct text *out) {
    text_add(out, pulse_phase_name((int)r->phase));
    if (is_in_step(r)) text_printf(out, " of step %llu", (unsigned long long)r->step + 1);
}

void members_last_seen(const struct pulse_reading *r, struct text *out) {
    text_printf(out, "; last seen %s", r->phase == PULSE_STARTING ? "" : "in ");
    add_phase(r, out);
    if (*r->call)
        text_printf(out, ", %s %s #%llu", r->is_in_collective ? "in" : "after", r->call, (unsigned long long)r->number);
}

static void lose(struct members *m, int rank, struct text *fate, double now) {
    members_leave(m, rank, LEFT_AS_CAUSE, STATUS_PEER, text_string(fate), now);
    m->items[rank].stood_still = true;
    text_free(fate);
}

static void check_silence(struct members *m, int rank, double now, double link_age) {
    struct member *r = &m->items[rank];
    double silence = now - r->heard_at;
    struct text fate = {0};
    if (silence >= MEMBERS_SILENT && link_age >= MEMBERS_SILENT - LINK_MARGIN)
        text_printf(&fate, " is out of reach: its host has not answered for %.1f s (a cut link, or the host is down)",
                    silence);
    else if (silence >= MEMBERS_STOPPED)
        text_printf(&fate, " hangs: its process has not run for %.1f s although its host answers (is it stopped?)",
                    silence);
    else
        return;
    members_last_seen(&r->last, &fate);
    lose(m, rank, &fate, now);
}

/* ---- hanging ---- */

static bool is_waiting(const struct member *r) { return r->state == IS_HERE && r->last.is_in_collective; }
static bool is_working(const struct member *r) { return r->state == IS_HERE && !r->last.is_in_collective; }

/* Seconds without any progress after which the job hangs; 0: never. */
static double hang_limit(const struct members *m, bool has_working) {
    double median = 0;
    bool is_evaluating = false;
    if (m->limits.hang <= 0) return 0;
    for (int i = 0; i < m->world_size; i++) {
        const struct member *r = &m->items[i];
        if (r->state != IS_HERE) continue;
        if (r->last.median_step > median) median = r->last.median_step;
        if (has_working && !is_working(r)) continue;
        if (pulse_phase_is_slow((int)r->last.phase)) return m->limits.slow;
        is_evaluating = is_evaluating || r->last.phase == PULSE_EVALUATING;
    }
    if (median <= 0) return m->limits.slow;
    double limit = STEPS * median > m->limits.hang ? STEPS * median : m->limits.hang;
    return is_evaluating && limit < EVALUATING_SECONDS ? EVALUATING_SECONDS : limit;
}

static void describe_hang(const struct members *m, const struct member *r, int waiting, const struct member *waiter,
                          double now, struct text *fate) {
    text_printf(fate, " hangs %s", is_working(r) ? "in " : "after ");
    add_phase(&r->last, fate);
    if (*r->last.call)
        text_printf(fate, ", %s %s #%llu", is_working(r) ? "after" : "in", r->last.call,
                    (unsigned long long)r->last.number);
    text_printf(fate, ": no rank has moved for %.1f s while %d of %d wait in %s #%llu", now - m->changed_at, waiting,
                m->world_size, waiter->last.call, (unsigned long long)waiter->last.number);
    text_printf(fate, "; it used %.1f s of processor time meanwhile", r->last.cpu - r->cpu_at_change);
}

/* Of two ranks that stand still: in an earlier step or collective, else for longer. */
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
    for (int i = 0; i < m->world_size; i++) { /* who waits for nobody, and for longest */
        const struct member *r = &m->items[i];
        bool is_candidate = working ? is_working(r) : is_waiting(r);
        if (is_candidate && (oldest < 0 || is_behind(r, &m->items[oldest]))) oldest = i;
    }
    struct text fate = {0};
    describe_hang(m, &m->items[oldest], waiting, waiter, now, &fate);
    lose(m, oldest, &fate, now);
}

void members_check(struct members *m, double now, double (*link_age)(void *data, int rank), void *data) {
    double gap = now - m->checked_at;
    m->checked_at = now;
    if (gap > PAUSE) { /* nobody could be heard meanwhile */
        m->changed_at += gap;
        for (int r = 0; r < m->world_size; r++) m->items[r].heard_at += gap;
        return;
    }
    if (m->left_at > 0) return; /* what stands still now has its reason */
    for (int r = 0; r < m->world_size; r++)
        if (m->items[r].state == IS_HERE && now - m->items[r].heard_at >= MEMBERS_SILENT)
            check_silence(m, r, now, link_age(data, r));
    check_hang(m, now);
}

/* ---- words ---- */

void members_describe(const struct members *m, int rank, struct text *out) {
    const struct member *r = &m->items[rank];
    text_printf(out, "rank %d (%s)", rank, r->who);
    text_add(out, r->fate ? r->fate : r->state == LEFT_IN_PEACE ? " left" : " exited without reporting an error");
    if (!r->fate && r->state == LEFT_AS_CAUSE && r->has_beat) members_last_seen(&r->last, out);
}

static int missing_count(const struct members *m) {
    int missing = 0;
    for (int r = 0; r < m->world_size; r++) missing += m->items[r].state == IS_ABSENT;
    return missing;
}

static void list_missing(const struct members *m, bool has_nodes, struct text *out) {
    int missing = missing_count(m), shown = 0;
    for (int r = 0; r < m->world_size && shown < MAX_LISTED; r++) {
        if (m->items[r].state != IS_ABSENT) continue;
        text_printf(out, "%s%d", shown++ ? ", " : "", r);
        if (has_nodes) text_printf(out, " (node %d)", r / m->node_size);
    }
    if (missing > shown) text_printf(out, " and %d more", missing - shown);
}

void members_missing(const struct members *m, struct text *out) {
    text_add(out, missing_count(m) == 1 ? "rank " : "ranks ");
    list_missing(m, false, out);
}

void members_awaited(const struct members *m, struct text *out) {
    text_printf(out, "%d of %d ranks: ", missing_count(m), m->world_size);
    list_missing(m, m->node_size > 0 && m->node_size < m->world_size, out);
}
