/* The scenario of a seed: the number of nodes and ranks, the network, and the faults: which, at which system call of
 * which process. */
#include <string.h>

#include "simulation.h"

static const int stop_signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGALRM};

/* ---- kinds ---- */

static int draw_role(const struct scenario *s, struct random *r) { return random_below(r, scenario_roles(s)); }

static int draw_rank_role(const struct scenario *s, struct random *r) {
    return role_of_rank(s, random_below(r, s->nodes * s->nproc));
}

/* The start of a rank makes about 500 calls, a whole run about 2000. */
static int64_t draw_call(struct random *r) { return 1 + random_below(r, random_below(r, 2) ? 600 : 2500); }

static struct planned_fault *add(struct scenario *s, enum planned_fault_kind kind, int watched, int64_t at_call) {
    struct planned_fault *f = &s->faults[s->fault_count++];
    *f = (struct planned_fault){.kind = kind,
                                .watched = watched,
                                .at_call = at_call,
                                .target = watched,
                                .duration = NEVER,
                                .resumed_at = NEVER};
    return f;
}

static void plan_stop(struct scenario *s, struct random *r) {
    struct planned_fault *f = add(s, FAULT_SIGNAL, draw_role(s, r), draw_call(r));
    f->target = random_below(r, 4) ? f->watched : draw_role(s, r);
    f->number = stop_signals[random_below(r, 5)];
}

static void plan_kill(struct scenario *s, struct random *r) {
    struct planned_fault *f = add(s, FAULT_SIGNAL, draw_role(s, r), draw_call(r));
    f->target = random_below(r, 4) ? f->watched : draw_role(s, r);
    f->number = SIGKILL;
}

static void plan_freeze(struct scenario *s, struct random *r) {
    struct planned_fault *f = add(s, FAULT_SIGNAL, draw_role(s, r), draw_call(r));
    f->number = SIGSTOP;
    bool is_permanent = f->target >= s->nodes && random_below(r, 2);
    f->duration = is_permanent ? NEVER : random_below(r, 2500) * MILLISECOND;
}

static void plan_errno(struct scenario *s, struct random *r) { add(s, FAULT_ERRNO, draw_role(s, r), draw_call(r)); }

static void plan_limit(struct scenario *s, struct random *r) {
    s->nodes = 1;
    s->limit = 5 + random_below(r, 22);
}

static void plan_untrusted(struct scenario *s, struct random *r) {
    int count = 1 + random_below(r, MAX_FAULTS);
    for (int i = 0; i < count; i++) add(s, FAULT_UNTRUSTED, draw_role(s, r), draw_call(r));
}

static void plan_short_partition(struct scenario *s, struct random *r) {
    s->nodes = 2;
    struct planned_fault *f = add(s, FAULT_PARTITION, draw_rank_role(s, r), draw_call(r));
    f->duration = (int64_t)random_below(r, 2900) * MILLISECOND;
}

static void plan_partition(struct scenario *s, struct random *r) {
    s->nodes = 2;
    struct planned_fault *f = add(s, FAULT_PARTITION, draw_rank_role(s, r), draw_call(r));
    f->duration = random_below(r, 2) ? NEVER : (int64_t)random_below(r, 20000) * MILLISECOND;
}

/* At a time: the process that makes a call could not be stopped by it before the others. */
static void plan_suspend(struct scenario *s, struct random *r) {
    struct planned_fault *f = add(s, FAULT_SUSPEND, 0, 0);
    f->at = (int64_t)(1 + random_below(r, 1000)) * MILLISECOND;
    f->duration = (int64_t)(1 + random_below(r, 60)) * SECOND;
}

/* Seeds of other kinds stay what they are: those of CMakeLists.txt have found bugs. */
static void plan_nothing(struct scenario *s, struct random *r) {
    if (random_below(r, 3) == 0) return;
    s->name = "suspend";
    plan_suspend(s, r);
}

static void plan_restart(struct scenario *s, struct random *r) {
    s->max_restarts = 2;
    struct planned_fault *f = add(s, FAULT_SIGNAL, draw_rank_role(s, r), draw_call(r));
    f->number = SIGKILL;
}

static void plan_data(struct scenario *s, struct random *r) { s->data_failure = random_below(r, s->nodes * s->nproc); }

/* Two faults: the second one may be injected while the first is handled. */
static void plan_two(struct scenario *s, struct random *r) {
    static void (*const plans[])(struct scenario * s, struct random * r) = {plan_stop, plan_kill, plan_errno,
                                                                            plan_freeze};
    plans[random_below(r, 4)](s, r);
    plans[random_below(r, 4)](s, r);
}

static const struct {
    const char *name;
    int share;
    void (*plan)(struct scenario *s, struct random *r);
} kinds[] = {{"nothing", 1, plan_nothing},     {"stop", 6, plan_stop},
             {"kill", 4, plan_kill},           {"freeze", 2, plan_freeze},
             {"errno", 6, plan_errno},         {"limit", 1, plan_limit},
             {"untrusted", 1, plan_untrusted}, {"short partition", 2, plan_short_partition},
             {"partition", 1, plan_partition}, {"restart", 2, plan_restart},
             {"data", 1, plan_data},           {"two", 3, plan_two},
             {"suspend", 0, plan_suspend}};
#define KINDS (sizeof kinds / sizeof *kinds)

void scenario_draw(uint64_t seed, struct scenario *s) {
    struct random r = {seed};
    int total = 0;
    size_t kind = 0;
    static const int preemptions[] = {2, 4, 10, 50};
    *s = (struct scenario){.seed = seed,
                           .nodes = 1 + random_below(&r, 2),
                           .nproc = 1 + random_below(&r, 3),
                           .steps = 2 + random_below(&r, 12),
                           .save_every = 1 + random_below(&r, 6),
                           .data_failure = -1,
                           .preemption = preemptions[random_below(&r, 4)],
                           .delay = (int64_t)(1 + random_below(&r, 50)) * MILLISECOND,
                           .cost = (random_below(&r, 4) ? 20 : 500) * MICROSECOND,
                           .has_shorts = random_below(&r, 2)};
    if (s->nodes == 1 && s->nproc == 1) s->nproc = 2;
    for (size_t i = 0; i < KINDS; i++) total += kinds[i].share;
    for (int left = random_below(&r, total); left >= kinds[kind].share; kind++) left -= kinds[kind].share;
    s->name = kinds[kind].name;
    kinds[kind].plan(s, &r);
}

/* ---- messages ---- */

static void describe_role(const struct scenario *s, int role, struct text *out) {
    if (role < s->nodes)
        text_printf(out, "launcher %d", role);
    else
        text_printf(out, "rank %d", role - s->nodes);
}

static void describe_fault(const struct scenario *s, const struct planned_fault *f, struct text *out) {
    if (f->kind == FAULT_SIGNAL) {
        text_printf(out, ", SIG%s to ", sigabbrev_np(f->number));
        describe_role(s, f->target, out);
        if (f->duration != NEVER) text_printf(out, " for %g s", (double)f->duration * 1e-9);
    } else if (f->kind == FAULT_PARTITION) {
        text_printf(out, ", partition for %g s", f->duration == NEVER ? -1 : (double)f->duration * 1e-9);
    } else {
        text_add(out, f->kind == FAULT_ERRNO       ? ", errno"
                      : f->kind == FAULT_UNTRUSTED ? ", untrusted client"
                      : f->kind == FAULT_SUSPEND   ? ", all suspended"
                                                   : ", no process");
    }
    text_printf(out, " at call %lld of ", (long long)f->at_call);
    describe_role(s, f->watched, out);
    if (f->is_injected && f->kind == FAULT_ERRNO)
        text_printf(out, " (%s: %s)", call_name(f->injected_in), strerror(f->injected_errno));
    if (!f->is_injected) text_add(out, " (never reached)");
}

void scenario_describe(const struct scenario *s, struct text *out) {
    text_printf(out, "%s: %d node%s of %d rank%s, %d steps", s->name, s->nodes, s->nodes == 1 ? "" : "s", s->nproc,
                s->nproc == 1 ? "" : "s", s->steps);
    if (s->limit) text_printf(out, ", ulimit -n %d", s->limit);
    if (s->max_restarts) text_printf(out, ", %d restarts", s->max_restarts);
    if (s->data_failure >= 0) text_printf(out, ", no data on rank %d", s->data_failure);
    for (int i = 0; i < s->fault_count; i++) describe_fault(s, &s->faults[i], out);
}
