/* Checks at the end of a schedule: what docs/reliability.md, docs/resume-and-faults.md, store.h and launch.h guarantee
 * for the fault that was injected. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "simulation.h"

/* Maximum times from the fault until all processes have ended. */
#define STOP_BOUND (12 * SECOND) /* a request to stop, with a save of a tenth of a second */
#define LOSS_BOUND (20 * SECOND) /* a killed or stopped rank: 8 s to detect it, 5 s to end */
#define PARTITION_BOUND (40 * SECOND)
#define REPORT_BOUND (80 * SECOND)   /* a node fails before it has joined: it tries to report that for a minute */
#define TIMEOUT_BOUND (210 * SECOND) /* dist.timeout, and then reports for a minute */

/* ---- results ---- */

static const struct process *launcher_of(int node) { return process_of_role(node); }

static const char *printed(const struct process *p) { return p->files[2] ? text_string(&p->files[2]->text) : ""; }

static int code_of(const struct process *p) { return WIFEXITED(p->wait_status) ? WEXITSTATUS(p->wait_status) : -1; }

static bool is_stop(int number) {
    return number == SIGTERM || number == SIGINT || number == SIGUSR1 || number == SIGHUP || number == SIGALRM;
}

static int64_t last_end(void) {
    int64_t last = 0;
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        if (!p->is_untrusted && p->ended_at > last) last = p->ended_at;
    }
    return last;
}

static bool is_finished(void) { return world.checkpoint == world.scenario.steps; }

static bool is_in(int code, const int *codes) {
    for (; *codes >= 0; codes++)
        if (*codes == code) return true;
    return false;
}

/* ---- checks of every schedule ---- */

static void check_codes(void) {
    static const int documented[] = {0, 64, 65, 69, 71, 74, 75, 76, -1};
    for (int node = 0; node < world.scenario.nodes; node++) {
        const struct process *p = launcher_of(node);
        int code = code_of(p);
        if (!p->has_ended || code < 0) continue;
        if (!is_in(code, documented)) violation("launcher %d ended with %d: %s", node, code, printed(p));
        if (code != 0 && !strstr(printed(p), "ddptrain: "))
            violation("launcher %d ended with %d without a message", node, code);
    }
}

/* A launcher waits for a rank that is stopped (SIGSTOP) and never continued. */
static bool is_stopped_node(int host) {
    for (int i = 0; i < world.process_count; i++)
        if (world.processes[i].is_stopped && world.processes[i].host == host) return true;
    return false;
}

static void check_ends(void) {
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        if (!p->exists || p->is_untrusted) continue;
        if (!p->has_ended && !is_stopped_node(p->host))
            violation("pid %d (%s %d) is still there at %.1f s%s", p->pid,
                      p->role < world.scenario.nodes ? "launcher" : "rank",
                      p->role < world.scenario.nodes ? p->role : p->role - world.scenario.nodes,
                      (double)world.now * 1e-9, world.is_deadlocked ? ": deadlock" : "");
        const struct process *parent = p->role >= world.scenario.nodes
                                           ? launcher_of((p->role - world.scenario.nodes) / world.scenario.nproc)
                                           : NULL;
        if (parent && parent->has_ended && p->has_ended && p->ended_at > parent->ended_at + 100 * MILLISECOND)
            violation("pid %d outlived its launcher by %.3f s", p->pid,
                      (double)(p->ended_at - parent->ended_at) * 1e-9);
    }
}

static void check_bound(const struct planned_fault *f, int64_t bound) {
    int64_t took = last_end() - f->injected_at;
    if (took > bound)
        violation("all processes ended %.1f s after the fault, expected at most %.0f s; launcher 0: %s",
                  (double)took * 1e-9, (double)bound * 1e-9, printed(launcher_of(0)));
}

static void expect_codes(const int *codes, const char *what) {
    for (int node = 0; node < world.scenario.nodes; node++) {
        const struct process *p = launcher_of(node);
        if (p->has_ended && !is_in(code_of(p), codes))
            violation("launcher %d ended with %d%s: %s", node, code_of(p), what, printed(p));
    }
}

/* ---- checks after one fault ---- */

static void check_nothing(void) {
    static const int good[] = {0, -1};
    expect_codes(good, ", although nothing failed");
    if (!is_finished()) violation("the run is at step %lld of %d", (long long)world.checkpoint, world.scenario.steps);
}

/* Whether the target of [f] was killed by the signal, because it had not yet installed its handlers. */
static bool died_of(const struct planned_fault *f, int number) {
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        if (p->pid == f->injected_pid)
            return p->has_ended && WIFSIGNALED(p->wait_status) && WTERMSIG(p->wait_status) == number;
    }
    return false;
}

static bool is_launcher(const struct planned_fault *f) { return f->target < world.scenario.nodes; }

/* A node of which no rank has joined cannot be distinguished from one that is not yet started: if its launcher is
 * killed, or one of its ranks is stopped (SIGSTOP), the others wait for it until dist.timeout. */
static bool is_target_unknown(const struct planned_fault *f) { return world.scenario.nodes > 1 && !f->had_joined; }

static void check_stop(const struct planned_fault *f) {
    static const int stopped[] = {0, 75, -1}, lost[] = {0, 75, 69, -1};
    bool has_died = died_of(f, f->number);
    if (is_launcher(f) && has_died) return; /* before its handlers were installed */
    if (is_target_unknown(f)) {
        check_bound(f, TIMEOUT_BOUND);
        expect_codes(lost, " after a request to stop before all nodes had joined");
        return;
    }
    check_bound(f, STOP_BOUND);
    expect_codes(has_died ? lost : stopped, " after a request to stop");
}

/* Launchers that end with 69 print the number of the target. */
static void check_named(const struct planned_fault *f, const char *how) {
    char name[32], place[32], missing[32], silent[32];
    const struct scenario *s = &world.scenario;
    snprintf(name, sizeof name, "rank %d (", f->target - s->nodes);
    snprintf(place, sizeof place, "rank %d at ", f->target - s->nodes);
    snprintf(missing, sizeof missing, "rank %d of ", f->target - s->nodes);
    snprintf(silent, sizeof silent, "rank %d did ", f->target - s->nodes);
    for (int node = 0; node < s->nodes; node++) {
        const struct process *p = launcher_of(node);
        if (code_of(p) != 69) continue;
        const char *text = printed(p);
        if (!strstr(text, name) && !strstr(text, place) && !strstr(text, missing) && !strstr(text, silent))
            violation("launcher %d does not name %s...) that %s: %s", node, name, how, printed(p));
    }
}

static void check_kill(const struct planned_fault *f) {
    static const int lost[] = {69, -1}, again[] = {0, 69, -1};
    bool may_be_good = is_finished() || world.scenario.max_restarts > 0;
    int64_t bound = world.scenario.max_restarts ? PARTITION_BOUND : LOSS_BOUND;
    int64_t unknown = is_launcher(f) ? TIMEOUT_BOUND : REPORT_BOUND;
    check_bound(f, is_target_unknown(f) ? (1 + world.scenario.max_restarts) * unknown : bound);
    if (is_launcher(f)) return;
    expect_codes(may_be_good ? again : lost, " after a rank was killed");
    check_named(f, "was killed");
}

static void check_freeze(const struct planned_fault *f) {
    static const int lost[] = {69, -1}, again[] = {0, 69, -1}, good[] = {0, -1};
    if (f->duration != NEVER) {
        expect_codes(good, " although the process was continued in time");
        return;
    }
    check_bound(f, TIMEOUT_BOUND);
    expect_codes(is_finished() ? again : lost, " after a rank was stopped");
    /* rank 0 is continued by its launcher when that ends it, and reports that the others have left */
    if (f->target != role_of_rank(&world.scenario, 0)) check_named(f, "was stopped");
}

static bool is_transient(int error) { return error == EINTR || error == EAGAIN || error == ECONNABORTED; }

static bool is_out_of_resources(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EACCES ||
           error == ENOENT;
}

static void expect_code(int node, const int *codes, const char *what) {
    const struct process *p = launcher_of(node);
    if (p->has_ended && !is_in(code_of(p), codes))
        violation("launcher %d ended with %d%s: %s", node, code_of(p), what, printed(p));
}

static int node_of_role(int role) {
    return role < world.scenario.nodes ? role : (role - world.scenario.nodes) / world.scenario.nproc;
}

/* For other nodes a lack of resources is a lost rank. */
static void check_errno(const struct planned_fault *f) {
    static const int good[] = {0, -1}, shortage[] = {0, 74, -1}, connection[] = {0, 64, 69, -1},
                     elsewhere[] = {0, 69, 74, -1};
    enum call in = f->injected_in;
    bool is_of_connection = in == SYS_SEND || in == SYS_RECV || in == SYS_CONNECT || in == SYS_BIND || in == SYS_POLL;
    bool is_shortage =
        (is_out_of_resources(f->injected_errno) && !is_of_connection) || in == SYS_FORK || in == SYS_THREAD;
    bool is_retried = is_transient(f->injected_errno) && !is_shortage;
    for (int node = 0; node < world.scenario.nodes; node++) {
        if (is_retried)
            expect_code(node, good, " after a transient error");
        else if (is_shortage && node == node_of_role(f->watched))
            expect_code(node, shortage, " after a lack of descriptors or memory");
        else
            expect_code(node, is_shortage ? elsewhere : connection, " after a failed call");
    }
    check_bound(f, is_target_unknown(f) ? REPORT_BOUND : PARTITION_BOUND);
}

static void check_partition(const struct planned_fault *f) {
    static const int good[] = {0, -1}, lost[] = {0, 69, -1};
    bool is_shortage = f->duration < 2900 * MILLISECOND;
    expect_codes(is_shortage ? good : lost,
                 is_shortage ? " although the network was back in time" : " after a network partition");
    if (!is_shortage) check_bound(f, TIMEOUT_BOUND);
}

/* Connecting has deadlines, which may pass while no process runs. */
static void check_suspension(const struct planned_fault *f) {
    static const int codes[] = {0, 69, -1};
    if (f->had_stepped)
        check_nothing();
    else
        expect_codes(codes, " after a suspension before the first step");
}

static void check_limit(void) {
    static const int codes[] = {0, 74, -1};
    expect_codes(codes, " with too few descriptors");
    if (last_end() > 60 * SECOND) violation("%.1f s until the end with too few descriptors", (double)last_end() * 1e-9);
}

static void check_data(void) {
    static const int codes[] = {65, -1};
    expect_codes(codes, " although the data of a rank is missing");
    if (last_end() > REPORT_BOUND) violation("%.1f s until the end without data", (double)last_end() * 1e-9);
}

static void check_one(const struct planned_fault *f) {
    if (!f->is_injected || f->kind == FAULT_UNTRUSTED)
        check_nothing();
    else if (f->kind == FAULT_SUSPEND)
        check_suspension(f);
    else if (f->kind == FAULT_SIGNAL && is_stop(f->number))
        check_stop(f);
    else if (f->kind == FAULT_SIGNAL && f->number == SIGKILL)
        check_kill(f);
    else if (f->kind == FAULT_SIGNAL)
        check_freeze(f);
    else if (f->kind == FAULT_ERRNO)
        check_errno(f);
    else if (f->kind == FAULT_PARTITION)
        check_partition(f);
}

void outcome_check(void) {
    const struct scenario *s = &world.scenario;
    check_ends();
    check_codes();
    if (world.violations.length || world.is_late || world.is_deadlocked) return;
    if (s->limit)
        check_limit();
    else if (s->data_failure >= 0)
        check_data();
    else if (s->fault_count == 0)
        check_nothing();
    else if (s->fault_count == 1 || s->faults[0].kind == FAULT_UNTRUSTED)
        check_one(&s->faults[0]);
}
