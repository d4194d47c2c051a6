/* Processes: fork, exec, wait, exit, and their effects on descriptors, environment and parent-death signals. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simulation.h"
#include "system.h"
#include "wraps.h"

/* ---- standard streams: one pair for each slot of the table, never closed ---- */

static ssize_t write_stream(void *cookie, const char *bytes, size_t size) {
    ssize_t done = __wrap_write((int)(intptr_t)cookie, bytes, size);
    return done < 0 ? 0 : done;
}

static void open_streams(struct process *p) {
    cookie_io_functions_t functions = {.write = write_stream};
    if (!p->out) p->out = fopencookie((void *)(intptr_t)1, "w", functions);
    if (!p->err) p->err = fopencookie((void *)(intptr_t)2, "w", functions);
    FILE *both[] = {p->out, p->err};
    for (int i = 0; i < 2; i++) {
        setvbuf(both[i], NULL, _IONBF, 0);
        clearerr(both[i]);
    }
}

/* ---- the table ---- */

struct process *process_new(int ppid, int host) {
    if (world.process_count == MAX_PROCESSES) abort(); /* MAX_PROCESSES is too small */
    struct process *p = &world.processes[world.process_count++];
    FILE *out = p->out, *err = p->err;
    *p = (struct process){.pid = world.next_pid++,
                          .ppid = ppid,
                          .host = host,
                          .exists = true,
                          .rank = -1,
                          .nofile = MAX_FILES,
                          .alarm_at = NEVER,
                          .program = program_initial,
                          .out = out,
                          .err = err};
    p->pgid = p->pid;
    open_streams(p);
    return p;
}

struct process *process_find(int pid) {
    for (int i = 0; i < world.process_count; i++)
        if (world.processes[i].exists && !world.processes[i].is_reaped && world.processes[i].pid == pid)
            return &world.processes[i];
    return NULL;
}

struct process *process_of_role(int role) {
    for (int i = world.process_count; i-- > 0;)
        if (world.processes[i].exists && !world.processes[i].is_untrusted && world.processes[i].role == role)
            return &world.processes[i];
    return NULL;
}

bool processes_have_joined(void) {
    bool has[MAX_HOSTS] = {false};
    for (int i = 0; i < world.process_count; i++)
        if (world.processes[i].has_joined) has[world.processes[i].host] = true;
    for (int node = 0; node < world.scenario.nodes; node++)
        if (!has[node]) return false;
    return true;
}

static void set_limit(struct process *p) {
    const struct scenario *s = &world.scenario;
    if (s->limit > 0 && p->role < s->nodes) p->nofile = s->limit;
}

static void run_program(struct fiber *self) {
    struct process *p = self->process;
    process_exit(program_main(p->argc, p->argv));
}

static void copy_arguments(struct process *p, int argc, char *const argv[]) {
    for (int i = 0; i < argc; i++) p->argv[i] = real_strdup(argv[i]);
    p->argc = argc;
    p->argv[argc] = NULL;
}

void process_start(struct process *p, int argc, char *const argv[]) {
    copy_arguments(p, argc, argv);
    set_limit(p);
    for (int i = 0; i < 3; i++) {
        p->files[i] = file_new(FILE_SINK);
        p->inherited[i] = true;
    }
    p->has_execed = true;
    p->main = fiber_new(p, "main", run_program);
}

/* ---- the end ---- */

static void check_leaks(const struct process *p) {
    for (int i = 0; i < MAX_FILES; i++)
        if (p->files[i] && !p->inherited[i])
            violation("pid %d (role %d) ended with descriptor %d open", p->pid, p->role, i);
}

static void release(struct process *p) {
    for (int i = 0; i < MAX_FILES; i++) {
        if (p->files[i] && (i > 2 || p->role >= world.scenario.nodes)) file_release(p->files[i]);
        if (i > 2 || p->role >= world.scenario.nodes) p->files[i] = NULL;
    }
    for (int i = 0; i < 64; i++) {
        real_free(p->environment[i]);
        p->environment[i] = NULL;
    }
    for (int i = 0; i < p->argc; i++) real_free(p->argv[i]);
    p->argc = 0;
    memory_free_all(p);
}

static void orphan_children(const struct process *parent) {
    for (int i = 0; i < world.process_count; i++) {
        struct process *p = &world.processes[i];
        if (!p->exists || p->ppid != parent->pid || p == parent) continue;
        p->ppid = 1;
        if (p->has_ended) p->is_reaped = true;
        if (!p->has_ended && p->death_signal) signal_send(p, p->death_signal);
    }
}

static void end_process(struct process *p, int wait_status) {
    p->has_ended = true;
    p->wait_status = wait_status;
    p->ended_at = world.now;
    p->is_stopped = false;
    kernel_hash((uint64_t)wait_status << 32 ^ (uint64_t)p->pid);
    kernel_note("pid %d ends: %s %d", p->pid, WIFSIGNALED(wait_status) ? "signal" : "code",
                WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
    orphan_children(p);
    release(p);
    struct process *parent = process_find(p->ppid);
    if (parent && !parent->has_ended)
        signal_send(parent, SIGCHLD);
    else
        p->is_reaped = true;
}

/* A child ends before exec: its fiber continues as the parent. */
static void end_forked(struct process *p, int wait_status) {
    struct process *parent = p->forker;
    struct fiber *f = parent->main;
    p->forker = NULL;
    end_process(p, wait_status);
    f->fork_result = p->pid;
    f->fork_errno = 0;
    if (f == world.current) {
        f->must_return = true;
        return;
    }
    f->state = FIBER_READY;
    fiber_restore_parent(f);
}

void process_kill(struct process *p, int wait_status) {
    if (p->has_ended) return;
    if (p->forker) {
        end_forked(p, wait_status);
        return;
    }
    for (int i = 0; i < world.process_count; i++) /* a child that runs on its fiber */
        if (world.processes[i].forker == p && !world.processes[i].has_ended) {
            struct process *child = &world.processes[i];
            child->forker = NULL;
            end_process(child, SIGKILL);
        }
    bool is_own = world.current && (world.current->process == p || world.current->forked_by == p);
    for (int i = 0; i < MAX_FIBERS; i++) {
        struct fiber *f = &world.fibers[i];
        bool is_of_process = f->state != FIBER_UNUSED && (f->process == p || f->forked_by == p);
        if (is_of_process && f != world.current) fiber_free(f);
    }
    if (is_own) world.current->must_end = true;
    end_process(p, wait_status);
}

void process_exit(int code) {
    struct process *p = current_process();
    if (p->has_execed && !p->is_untrusted) check_leaks(p);
    process_kill(p, (code & 255) << 8);
    fiber_end_if_dead();
    abort();
}

void __wrap__exit(int code) {
    struct process *p = current_process();
    kernel_enter(SYS_OTHER, code);
    process_kill(p, (code & 255) << 8);
    fiber_end_if_dead();
    abort();
}

void __wrap__Exit(int code) { __wrap__exit(code); }

/* ---- fork and exec ---- */

static void copy_environment(const struct process *from, struct process *to) {
    for (int i = 0; i < 64; i++) to->environment[i] = from->environment[i] ? real_strdup(from->environment[i]) : NULL;
}

static void copy_files(const struct process *from, struct process *to) {
    for (int i = 0; i < MAX_FILES; i++) {
        to->files[i] = from->files[i];
        to->cloexec[i] = from->cloexec[i];
        if (to->files[i]) to->files[i]->references++;
    }
}

/* The role of the next child: the ranks of a node are forked in order. */
static int next_role(const struct process *launcher) {
    int count = 0;
    for (int i = 0; i < world.process_count; i++) {
        const struct process *p = &world.processes[i];
        count += p->exists && !p->is_untrusted && p->role >= world.scenario.nodes &&
                 (p->role - world.scenario.nodes) / world.scenario.nproc == launcher->role;
    }
    return role_of_rank(&world.scenario, launcher->role * world.scenario.nproc + count % world.scenario.nproc);
}

pid_t __wrap_fork(void) {
    CHECK_ERROR(SYS_FORK, 0);
    struct process *parent = current_process();
    int role = next_role(parent);
    struct process *child = process_new(parent->pid, parent->host);
    child->pgid = parent->pgid;
    child->role = role;
    child->rank = role - world.scenario.nodes;
    child->nofile = parent->nofile;
    memcpy(child->actions, parent->actions, sizeof child->actions);
    copy_environment(parent, child);
    copy_files(parent, child);
    child->forker = parent;
    child->main = world.current;
    return fiber_fork(child);
}

static void drop_on_exec(struct process *p) {
    for (int i = 0; i < MAX_FILES; i++) {
        if (p->files[i] && p->cloexec[i]) {
            file_release(p->files[i]);
            p->files[i] = NULL;
        }
        p->inherited[i] = p->files[i] != NULL;
    }
    for (int i = 0; i < SIGNALS; i++)
        if (p->actions[i].sa_handler != SIG_IGN) p->actions[i] = (struct sigaction){.sa_handler = SIG_DFL};
    memory_free_all(p);
}

int __wrap_execv(const char *path, char *const argv[]) {
    (void)path;
    CHECK_ERROR(SYS_EXEC, 0);
    struct process *p = current_process();
    uint32_t mask = world.current->mask;
    int argc = 0;
    while (argv[argc]) argc++;
    copy_arguments(p, argc, argv);
    drop_on_exec(p);
    p->forker = NULL;
    p->has_execed = true;
    p->is_stopped = p->stops_after_exec;
    program_load(&program_initial); /* saved when this fiber yields */
    p->main = fiber_new(p, "main", run_program);
    p->main->mask = mask;
    fiber_return_to_parent(p->pid, 0);
}

/* ---- waiting ---- */

int __wrap_waitid(int type, unsigned id, siginfo_t *info, int options) {
    (void)type;
    (void)options; /* WEXITED | WNOHANG | WNOWAIT: never interrupted */
    CHECK_ERROR(SYS_OTHER, (int)id);
    struct process *p = process_find((int)id);
    if (!p || p->ppid != current_process()->pid) {
        errno = ECHILD;
        return -1;
    }
    memset(info, 0, sizeof *info);
    if (p->has_ended) info->si_pid = p->pid;
    return 0;
}

static bool has_ended(void *data) { return ((struct process *)data)->has_ended; }

pid_t __wrap_wait4(pid_t pid, int *wait_status, int options, struct rusage *usage) {
    CHECK_ERROR(SYS_WAIT, pid);
    struct process *p = process_find(pid);
    if (!p || p->ppid != current_process()->pid) {
        errno = ECHILD;
        return -1;
    }
    if (!p->has_ended && (options & WNOHANG)) return 0;
    if (kernel_wait(has_ended, p, NEVER, true) == WOKE_SIGNAL) {
        errno = EINTR;
        return -1;
    }
    *wait_status = p->wait_status;
    memset(usage, 0, sizeof *usage);
    usage->ru_maxrss = 12345;
    p->is_reaped = true;
    return pid;
}

/* ---- identity ---- */

pid_t __wrap_getpid(void) { return current_process()->pid; }

pid_t __wrap_getppid(void) { return current_process()->ppid; }

int __wrap_setpgid(pid_t pid, pid_t group) {
    CHECK_ERROR(SYS_OTHER, pid);
    struct process *p = pid ? process_find(pid) : current_process();
    if (!p || p->has_ended || (p->has_execed && p != current_process())) {
        errno = p ? EACCES : ESRCH;
        return -1;
    }
    p->pgid = group ? group : p->pid;
    return 0;
}

int __wrap_prctl(int option, unsigned long value) {
    CHECK_ERROR(SYS_OTHER, option);
    if (option == PR_SET_PDEATHSIG) current_process()->death_signal = (int)value;
    return 0;
}

unsigned __wrap_alarm(unsigned seconds) {
    current_process()->alarm_at = world.now + seconds * SECOND;
    return 0;
}

/* ---- environment ---- */

const char *process_get(const struct process *p, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < 64; i++)
        if (p->environment[i] && strncmp(p->environment[i], name, length) == 0 && p->environment[i][length] == '=')
            return p->environment[i] + length + 1;
    return NULL;
}

void process_set(struct process *p, const char *name, const char *value) {
    const char *old = process_get(p, name);
    size_t size = strlen(name) + strlen(value) + 2;
    for (int i = 0; i < 64; i++) {
        if (old ? !p->environment[i] || p->environment[i] + strlen(name) + 1 != old : p->environment[i] != NULL)
            continue;
        char *entry = real_malloc(size);
        snprintf(entry, size, "%s=%s", name, value);
        real_free(p->environment[i]);
        p->environment[i] = entry;
        return;
    }
    abort();
}

char *__wrap_getenv(const char *name) {
    if (!world.current) return __real_getenv(name);
    return (char *)process_get(current_process(), name);
}

int __wrap_setenv(const char *name, const char *value, int replaces) {
    struct process *p = current_process();
    if (!replaces && process_get(p, name)) return 0;
    process_set(p, name, value);
    if (strcmp(name, "RANK") == 0) {
        p->rank = atoi(value);
        p->role = role_of_rank(&world.scenario, p->rank);
    }
    if (strcmp(name, "DDPTRAIN_INCARNATION") == 0) p->restart_count = atoi(value);
    return 0;
}

int __wrap_unsetenv(const char *name) {
    struct process *p = current_process();
    const char *old = process_get(p, name);
    for (int i = 0; old && i < 64; i++) {
        if (!p->environment[i] || p->environment[i] + strlen(name) + 1 != old) continue;
        real_free(p->environment[i]);
        p->environment[i] = NULL;
        break;
    }
    return 0;
}
