/* Signals as in the kernel: each is pending at most once, blocked for each thread, and delivered when the main thread
 * enters or leaves a system call. Other threads of the product block all signals. */
#include <errno.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "simulation.h"
#include "wraps.h"

#define BIT(number) (1u << (number))
#define STOPS (BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU))

static uint32_t bits_of(const sigset_t *set) {
    uint32_t bits = 0;
    for (int i = 1; i < SIGNALS; i++)
        if (sigismember(set, i) == 1) bits |= BIT(i);
    return bits;
}

static void set_of(uint32_t bits, sigset_t *set) {
    sigemptyset(set);
    for (int i = 1; i < SIGNALS; i++)
        if (bits & BIT(i)) sigaddset(set, i);
}

static bool is_ignored_by_default(int number) {
    return number == SIGCHLD || number == SIGCONT || number == SIGURG || number == SIGWINCH;
}

static bool is_ignored(const struct process *p, int number) {
    bool is_default = p->actions[number].sa_handler == SIG_DFL;
    return p->actions[number].sa_handler == SIG_IGN || (is_default && is_ignored_by_default(number));
}

static void notify_parent(const struct process *p) {
    struct process *parent = process_find(p->ppid);
    if (parent && !parent->has_ended) signal_send(parent, SIGCHLD);
}

void signal_send(struct process *p, int number) {
    if (p->has_ended || number == 0) return;
    kernel_note("signal %d to pid %d", number, p->pid);
    kernel_hash((uint64_t)number << 8 ^ (uint64_t)p->pid);
    if (number == SIGKILL) {
        process_kill(p, SIGKILL);
        return;
    }
    if (number == SIGSTOP && p->forker) { /* it runs on the fiber of its parent, which would stop, too */
        p->stops_after_exec = true;
        return;
    }
    if (number == SIGSTOP) {
        p->is_stopped = true;
        notify_parent(p);
        if (world.current && world.current->process == p) fiber_yield();
        return;
    }
    if (number == SIGCONT) {
        if (p->is_stopped) notify_parent(p);
        p->is_stopped = p->stops_after_exec = false;
        p->pending &= ~STOPS;
    }
    bool is_blocked = p->main && p->main->mask & BIT(number);
    if (!is_blocked && is_ignored(p, number)) return;
    p->pending |= BIT(number);
}

static bool is_receiver(const struct fiber *f) {
    return f->process->main == f || (f->process->forker && f->process->forker->main == f);
}

bool signal_is_deliverable(const struct fiber *f) {
    return f->process && is_receiver(f) && (f->process->pending & ~f->mask) != 0;
}

static void run_handler(struct fiber *f, int number) {
    struct process *p = f->process;
    struct sigaction action = p->actions[number];
    uint32_t previous = f->mask;
    int error = errno;
    f->mask |= BIT(number) | bits_of(&action.sa_mask);
    kernel_note("handler of signal %d", number);
    action.sa_handler(number);
    f = world.current;
    f->mask = previous;
    errno = error;
}

bool signal_deliver(void) {
    bool has_run = false;
    struct fiber *f = world.current;
    while (signal_is_deliverable(f)) {
        struct process *p = f->process;
        uint32_t ready = p->pending & ~f->mask;
        int number = __builtin_ctz(ready);
        p->pending &= ~BIT(number);
        if (is_ignored(p, number)) continue;
        if (p->actions[number].sa_handler == SIG_DFL) {
            process_kill(p, number);
            fiber_end_if_dead();
        }
        run_handler(f, number);
        has_run = true;
    }
    return has_run;
}

/* ---- calls ---- */

int __wrap_kill(pid_t pid, int number) {
    CHECK_ERROR(SYS_OTHER, pid);
    int found = 0;
    for (int i = 0; i < world.process_count; i++) {
        struct process *p = &world.processes[i];
        bool is_target = p->exists && !p->is_reaped && (pid > 0 ? p->pid == pid : p->pgid == -pid);
        if (!is_target) continue;
        found++;
        signal_send(p, number);
    }
    fiber_end_if_dead();
    if (found) return 0;
    errno = ESRCH;
    return -1;
}

static int change_mask(int how, const sigset_t *set, sigset_t *old) {
    struct fiber *f = world.current;
    uint32_t previous = f->mask;
    if (set) {
        uint32_t bits = bits_of(set) & ~(BIT(SIGKILL) | BIT(SIGSTOP));
        f->mask = how == SIG_BLOCK ? previous | bits : how == SIG_UNBLOCK ? previous & ~bits : bits;
    }
    if (old) set_of(previous, old);
    signal_deliver();
    return 0;
}

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    CHECK_ERROR(SYS_OTHER, how);
    return change_mask(how, set, old);
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    kernel_enter(SYS_OTHER, how);
    return change_mask(how, set, old);
}

int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    CHECK_ERROR(SYS_OTHER, number);
    struct process *p = current_process();
    if (old) *old = p->actions[number];
    if (action) p->actions[number] = *action;
    return 0;
}

__sighandler_t __wrap_signal(int number, __sighandler_t handler) {
    struct sigaction old, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    __wrap_sigaction(number, &action, &old);
    return old.sa_handler;
}

int __wrap_sigaltstack(const stack_t *stack, stack_t *old) {
    (void)stack;
    (void)old;
    return 0;
}

int __wrap_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout) {
    (void)info;
    (void)timeout; /* 0 */
    CHECK_ERROR(SYS_OTHER, 0);
    struct process *p = current_process();
    uint32_t ready = p->pending & bits_of(set);
    if (!ready) {
        errno = EAGAIN;
        return -1;
    }
    int number = __builtin_ctz(ready);
    p->pending &= ~BIT(number);
    return number;
}

int __wrap_signalfd(int fd, const sigset_t *set, int flags) {
    CHECK_ERROR(SYS_SIGNALFD, 0);
    struct file *other = fd < 0 ? NULL : descriptor_file(fd);
    if (other) other->mask = bits_of(set);
    if (other) return fd;
    struct file *file = file_new(FILE_SIGNALS);
    file->mask = bits_of(set);
    file->is_nonblocking = (flags & SFD_NONBLOCK) != 0;
    return descriptor_new(file, (flags & SFD_CLOEXEC) != 0, 0);
}
