/* Threads are fibers of their process. A mutex is an int inside the product's pthread_mutex_t. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "simulation.h"
#include "wraps.h"

static void run_thread(struct fiber *self) { self->result = self->start(self->argument); }

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *argument),
                          void *argument) {
    (void)attributes;
    int error = kernel_enter(SYS_THREAD, 0);
    if (error) return error;
    struct fiber *f = fiber_new(current_process(), "thread", run_thread);
    f->start = start;
    f->argument = argument;
    f->mask = world.current->mask;
    *thread = (pthread_t)f->number + 1;
    return 0;
}

static bool has_ended(void *data) {
    const struct fiber *f = data;
    return f->state == FIBER_UNUSED || f->state == FIBER_ENDED;
}

/* The product joins each thread once, and its number is not used again before that. */
int __wrap_pthread_join(pthread_t thread, void **result) {
    kernel_enter(SYS_OTHER, (int)thread);
    if (kernel_wait(has_ended, &world.fibers[thread - 1], NEVER, false) != WOKE_READY) return EINVAL;
    if (result) *result = NULL;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name) {
    if (strcmp(name, "heartbeat") == 0) current_process()->has_joined = true;
    snprintf(world.fibers[thread - 1].name, sizeof world.fibers[0].name, "%s", name);
    return 0;
}

struct mutex {
    int is_locked;
};

static bool is_free(void *data) { return !((struct mutex *)data)->is_locked; }

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    (void)attributes;
    memset(mutex, 0, sizeof *mutex);
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    struct mutex *m = (void *)mutex;
    if (!world.current) return 0;
    kernel_enter(SYS_LOCK, 0);
    while (m->is_locked) kernel_wait(is_free, m, NEVER, false);
    m->is_locked = 1;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    ((struct mutex *)(void *)mutex)->is_locked = 0;
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}
