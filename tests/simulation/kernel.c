/* The scheduler: runs a random one of the fibers that can run; if none can, advances the time to the next event. Every
 * system call calls kernel_enter, which injects faults. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "simulation.h"
#include "system.h"

struct world world;

/* ---- calls ---- */

static const struct {
    const char *name;
    int errors[8];
} calls[] = {
#define X(name, ...) {#name, {__VA_ARGS__}},
    CALLS_OF_THE_SYSTEM(X)
#undef X
};

const char *call_name(enum call call) { return calls[call].name; }

int call_error(enum call call, struct random *random) {
    int count = 0;
    while (count < 8 && calls[call].errors[count]) count++;
    return count ? calls[call].errors[random_below(random, count)] : 0;
}

/* ---- the trace ---- */

bool is_traced(void) { return world.is_traced; }

void kernel_hash(uint64_t value) { world.hash = (world.hash ^ value) * 0x100000001b3u; }

void kernel_note(const char *format, ...) {
    if (!world.is_traced) return;
    char line[1024];
    struct process *p = current_process();
    int length = snprintf(line, sizeof line, "%11.6f ", (double)world.now * 1e-9);
    if (p)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s%d pid %d %-6s ",
                           p->is_untrusted                  ? "untrusted "
                           : p->role < world.scenario.nodes ? "launcher "
                                                            : "rank ",
                           p->role < world.scenario.nodes ? p->role : p->role - world.scenario.nodes, p->pid,
                           world.current->name);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 2, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    if (__real_write(1, line, (size_t)length) < 0) return;
}

void violation(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    struct fiber *current = world.current;
    world.current = NULL; /* the memory of the text belongs to the simulation */
    text_printf(&world.violations, "  %s\n", line);
    world.current = current;
    kernel_note("VIOLATION %s", line);
}

/* ---- faults ---- */

static void set_injected(struct planned_fault *fault, struct process *target) {
    fault->is_injected = true;
    fault->injected_at = world.now;
    fault->had_joined = processes_have_joined();
    fault->had_stepped = world.has_stepped;
    fault->injected_pid = target ? target->pid : 0;
}

static void inject_signal(struct planned_fault *fault) {
    struct process *target = process_of_role(fault->target);
    if (!target || target->has_ended) {
        fault->kind = NO_FAULT; /* no such process */
        return;
    }
    set_injected(fault, target);
    kernel_note("FAULT signal %d to pid %d", fault->number, target->pid);
    fault->resumed_at = fault->number == SIGSTOP && fault->duration != NEVER ? world.now + fault->duration : NEVER;
    signal_send(target, fault->number); /* may not return */
}

static void signal_every_process(int number) {
    for (int i = 0; i < world.process_count; i++)
        if (world.processes[i].exists && !world.processes[i].has_ended) signal_send(&world.processes[i], number);
}

/* Every process is stopped and resumed at the same time. Sent by the scheduler: a process cannot stop itself first. */
static void inject_suspension(struct planned_fault *fault) {
    set_injected(fault, NULL);
    kernel_note("FAULT all processes are suspended for %g s", (double)fault->duration * 1e-9);
    fault->resumed_at = world.now + fault->duration;
    signal_every_process(SIGSTOP);
}

static void inject(struct planned_fault *fault) {
    if (fault->kind == FAULT_SIGNAL) {
        inject_signal(fault);
    } else if (fault->kind == FAULT_SUSPEND) {
        inject_suspension(fault);
    } else if (fault->kind == FAULT_PARTITION) {
        set_injected(fault, NULL);
        network_partition(world.now, fault->duration == NEVER ? NEVER : world.now + fault->duration);
        kernel_note("FAULT network partition for %g s", (double)fault->duration * 1e-9);
    } else if (fault->kind == FAULT_UNTRUSTED) {
        set_injected(fault, NULL);
        untrusted_start();
    }
}

/* The errno of the fault that is injected in this call; 0: none. */
static int inject_in_call(struct process *p, enum call call) {
    for (int i = 0; i < world.scenario.fault_count; i++) {
        struct planned_fault *fault = &world.scenario.faults[i];
        if (fault->is_injected || fault->at_call == 0 || p->role != fault->watched || p->calls < fault->at_call)
            continue;
        if (fault->kind != FAULT_ERRNO) {
            inject(fault);
            continue;
        }
        int error = p->is_faultless ? 0 : call_error(call, &world.random);
        if (!error) continue;
        set_injected(fault, p);
        fault->injected_in = call;
        fault->injected_errno = error;
        kernel_note("FAULT %s: %s", call_name(call), strerror(error));
        return error;
    }
    return 0;
}

static void inject_by_time(void) {
    for (int i = 0; i < world.scenario.fault_count; i++) {
        struct planned_fault *fault = &world.scenario.faults[i];
        if (!fault->is_injected && fault->at_call == 0 && fault->kind != NO_FAULT && world.now >= fault->at)
            inject(fault);
        if (fault->is_injected && fault->kind == FAULT_SUSPEND && fault->resumed_at <= world.now) {
            fault->resumed_at = NEVER;
            signal_every_process(SIGCONT);
        }
        if (fault->is_injected && fault->kind == FAULT_SIGNAL && fault->resumed_at <= world.now) {
            struct process *target = process_find(fault->injected_pid);
            fault->resumed_at = NEVER;
            if (target) signal_send(target, SIGCONT);
        }
    }
}

static int64_t next_fault(void) {
    int64_t next = NEVER;
    for (int i = 0; i < world.scenario.fault_count; i++) {
        const struct planned_fault *fault = &world.scenario.faults[i];
        bool waits = !fault->is_injected && fault->at_call == 0 && fault->kind != NO_FAULT;
        int64_t at = waits ? fault->at : fault->is_injected ? fault->resumed_at : NEVER;
        if (at < next) next = at;
    }
    return next;
}

/* ---- system calls ---- */

int kernel_enter(enum call call, int fd) {
    struct process *p = world.current->process;
    world.calls++;
    p->calls++;

    world.now += 200 + random_below(&world.random, world.scenario.cost);
    kernel_hash((uint64_t)world.now ^ (uint64_t)p->pid << 40 ^ (uint64_t)call << 56 ^ (uint64_t)fd);
    if (world.is_traced && call != SYS_LOCK && call != SYS_MALLOC) kernel_note("%s %d", call_name(call), fd);
    int error = p->is_untrusted ? 0 : inject_in_call(p, call);
    fiber_end_if_dead();
    if (random_below(&world.random, world.scenario.preemption) == 0) fiber_yield();
    signal_deliver();
    return error;
}

enum wake kernel_wait(bool (*is_ready)(void *data), void *data, int64_t until, bool takes_signals) {
    for (;;) {
        struct fiber *f = world.current;
        if (signal_deliver() && takes_signals) return WOKE_SIGNAL;
        if (is_ready && is_ready(data)) return WOKE_READY;
        if (world.now >= until) return WOKE_TIMEOUT;
        f->is_ready = is_ready;
        f->data = data;
        f->wake_at = until;
        f->takes_signals = takes_signals;
        f->state = FIBER_BLOCKED;
        fiber_yield();
        world.current->state = FIBER_READY;
        world.current->wake_at = NEVER;
    }
}

/* ---- the loop ---- */

static bool can_run(const struct fiber *f) {
    if (f->state == FIBER_UNUSED || !f->process || f->process->is_stopped) return false;
    if (f->state == FIBER_READY) return true;
    return f->state == FIBER_BLOCKED &&
           (world.now >= f->wake_at || signal_is_deliverable(f) || (f->is_ready && f->is_ready(f->data)));
}

static void send_alarms(void) {
    for (int i = 0; i < world.process_count; i++) {
        struct process *p = &world.processes[i];
        if (!p->exists || p->has_ended || p->alarm_at > world.now) continue;
        p->alarm_at = NEVER;
        signal_send(p, SIGALRM);
    }
}

static int64_t next_event(void) {
    int64_t next = next_fault(), arrives = network_next();
    if (arrives < next) next = arrives;
    for (int i = 0; i < world.fiber_count; i++) {
        const struct fiber *f = &world.fibers[i];
        bool waits = f->state == FIBER_BLOCKED && !f->process->is_stopped;
        if (waits && f->wake_at < next) next = f->wake_at;
    }
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        if (p->exists && !p->has_ended && p->alarm_at < next) next = p->alarm_at;
    }
    return next;
}

static bool is_any_alive(void) {
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        if (p->exists && !p->has_ended && !p->is_untrusted) return true;
    }
    return false;
}

static struct fiber *random_runnable(void) {
    struct fiber *runnable[MAX_FIBERS];
    int count = 0;
    for (int i = 0; i < world.fiber_count; i++)
        if (can_run(&world.fibers[i])) runnable[count++] = &world.fibers[i];
    return count ? runnable[random_below(&world.random, count)] : NULL;
}

static void run_all(void) {
    while (is_any_alive()) {
        inject_by_time();
        send_alarms();
        struct fiber *f = random_runnable();
        if (f) {
            fiber_resume(f);
            continue;
        }
        int64_t next = next_event();
        if (next == NEVER && is_any_alive()) {
            world.is_deadlocked = true;
            return;
        }
        if (next > world.bound) {
            world.is_late = true;
            return;
        }
        if (next != NEVER && next > world.now) world.now = next;
    }
}

static void start_launchers(void) {
    const struct scenario *s = &world.scenario;
    for (int node = 0; node < s->nodes; node++) {
        struct process *p = process_new(1, node);
        char nproc[16], nodes[16], number[16], restarts[16];
        p->role = node;
        snprintf(nproc, sizeof nproc, "%d", s->nproc);
        snprintf(nodes, sizeof nodes, "%d", s->nodes);
        snprintf(number, sizeof number, "%d", node);
        snprintf(restarts, sizeof restarts, "%d", s->max_restarts);
        char *const several[] = {"ddptrain",      "job.yaml", "--nproc",       nproc,         "--max-restarts",
                                 restarts,        "--nnodes", nodes,           "--node-rank", number,
                                 "--master-addr", "host0",    "--master-port", "29500",       "--no-progress"};
        process_start(p, s->nodes > 1 ? 15 : 6, several);
    }
}

static void clear(void) {
    for (int i = 0; i < world.process_count; i++)
        if (world.processes[i].exists && !world.processes[i].has_ended) process_kill(&world.processes[i], SIGKILL);
    for (int i = 0; i < MAX_FIBERS; i++) fiber_free(&world.fibers[i]);
    for (int i = 0; i < world.process_count; i++) /* outcome_check needed the output of launchers */
        for (int fd = 0; fd < 3; fd++)
            if (world.processes[i].files[fd]) file_release(world.processes[i].files[fd]);
    network_reset();
}

void schedule_run(const struct scenario *scenario, bool is_traced) {
    FILE *outs[MAX_PROCESSES], *errs[MAX_PROCESSES];
    text_free(&world.violations);
    for (int i = 0; i < MAX_PROCESSES; i++) {
        outs[i] = world.processes[i].out;
        errs[i] = world.processes[i].err;
    }
    world = (struct world){.scenario = *scenario,
                           .random = {scenario->seed * 0x9e3779b97f4a7c15u + 12345},
                           .next_pid = 100,
                           .next_port = 40000,
                           .partition_from = NEVER,
                           .partition_until = NEVER,
                           .hash = 0xcbf29ce484222325u,
                           .is_traced = is_traced,
                           .bound = 400 * SECOND};
    for (int i = 0; i < MAX_PROCESSES; i++) {
        world.processes[i].out = outs[i];
        world.processes[i].err = errs[i];
    }
    start_launchers();
    run_all();
    outcome_check();
    clear();
}
