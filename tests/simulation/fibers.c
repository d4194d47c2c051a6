/* Fibers with stacks of their own, switched by setjmp and longjmp, which make no system call. A fork runs the child on
 * the stack of its parent, as vfork does; but the parent's stack is copied before and restored afterwards, so writes of
 * one are not visible to the other. */
#undef _FORTIFY_SOURCE /* its longjmp aborts when the target is another stack */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "simulation.h"
#include "system.h"

#define STACK_SIZE ((size_t)512 << 10)
#define MARGIN 4096 /* below the frame that forks: for the functions that it calls to yield */

static jmp_buf scheduler;
static char *free_stacks[MAX_FIBERS];
static int free_stack_count;
static struct fiber *starting;

static char *stack_new(void) {
    if (free_stack_count > 0) return free_stacks[--free_stack_count];
    char *stack =
        real_mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) abort();
    mprotect(stack, 4096, PROT_NONE); /* guard page */
    return stack;
}

struct fiber *fiber_new(struct process *process, const char *name, void (*entry)(struct fiber *self)) {
    for (int i = 0; i < MAX_FIBERS; i++) {
        struct fiber *f = &world.fibers[i];
        if (f->state != FIBER_UNUSED) continue;
        if (i >= world.fiber_count) world.fiber_count = i + 1;
        *f = (struct fiber){.number = i, .state = FIBER_READY, .process = process, .entry = entry, .wake_at = NEVER};
        snprintf(f->name, sizeof f->name, "%s", name);
        f->stack = stack_new();
        return f;
    }
    abort(); /* MAX_FIBERS is too small */
}

void fiber_free(struct fiber *f) {
    if (f->state == FIBER_UNUSED) return;
    if (f->stack) free_stacks[free_stack_count++] = f->stack;
    real_free(f->fork_stack);
    f->stack = f->fork_stack = NULL;
    f->state = FIBER_UNUSED;
}

static void begin(void) {
    struct fiber *f = starting;
    f->entry(f);
    fiber_end();
}

static void enter(struct fiber *f) {
    if (f->is_started) _longjmp(f->context, 1);
    ucontext_t fresh;
    f->is_started = true;
    starting = f;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = f->stack + 4096;
    fresh.uc_stack.ss_size = STACK_SIZE - 4096;
    fresh.uc_link = NULL;
    makecontext(&fresh, begin, 0);
    setcontext(&fresh);
    abort();
}

/* Saves the stack of the parent at the fork. */
static void save_parent(struct fiber *f) {
    char *top = f->stack + STACK_SIZE;
    f->fork_stack_size = (size_t)(top - f->fork_stack_at);
    f->fork_stack = real_malloc(f->fork_stack_size);
    if (!f->fork_stack) abort();
    memcpy(f->fork_stack, f->fork_stack_at, f->fork_stack_size);
    memcpy(f->fork_context, f->context, sizeof f->context);
    f->wants_fork = false;
    f->fork_mask = f->mask;
}

void fiber_restore_parent(struct fiber *f) {
    memcpy(f->fork_stack_at, f->fork_stack, f->fork_stack_size);
    memcpy(f->context, f->fork_context, sizeof f->context);
    real_free(f->fork_stack);
    f->fork_stack = NULL;
    f->wants_parent = false;
    f->mask = f->fork_mask;
    f->process = f->forked_by;
    f->forked_by = NULL;
}

static void use_streams(struct process *p) {
    stdout = p->out;
    stderr = p->err;
}

/* Runs the current fiber; returns when it yields. */
static void run_current(void) {
    if (_setjmp(scheduler) == 0) enter(world.current);
}

void fiber_resume(struct fiber *f) {
    FILE *out, *err;
    out = stdout;
    err = stderr;
    world.current = f;
    use_streams(f->process);
    program_load(&f->process->program);
    errno = f->saved_errno;
    run_current();
    f->saved_errno = errno;
    if (f->process) program_save(&f->process->program);
    world.current = NULL;
    stdout = out;
    stderr = err;
    if (f->state == FIBER_ENDED) fiber_free(f);
    if (f->wants_parent) fiber_restore_parent(f);
    if (f->wants_fork) {
        struct process *child = f->forked_by;
        f->forked_by = f->process;
        child->program = f->process->program;
        save_parent(f);
        f->process = child;
    }
}

void fiber_yield(void) {
    struct fiber *f = world.current;
    if (_setjmp(f->context) == 0) _longjmp(scheduler, 1);
}

void fiber_end(void) {
    world.current->state = FIBER_ENDED;
    _longjmp(scheduler, 1);
}

void fiber_end_if_dead(void) {
    struct fiber *f = world.current;
    if (f->must_end) fiber_end();
    if (!f->must_return) return;
    f->must_return = false;
    fiber_return_to_parent(f->fork_result, 0);
}

int fiber_fork(struct process *child) {
    struct fiber *f = world.current;
    f->wants_fork = true;
    f->forked_by = child; /* until the scheduler exchanges them */
    f->fork_result = 0;
    f->fork_errno = 0;
    f->fork_stack_at = (char *)__builtin_frame_address(0) - MARGIN;
    fiber_yield(); /* returns in the child and then in the parent */
    f = world.current;
    errno = f->fork_errno;
    return f->fork_result;
}

void fiber_return_to_parent(int result, int error) {
    struct fiber *f = world.current;
    f->fork_result = result;
    f->fork_errno = error;
    f->wants_parent = true;
    f->state = FIBER_READY;
    _longjmp(scheduler, 1);
}
