/* Threads of pthreads. The items of workers are taken one at a time from a counter, so that items of unequal length are
 * shared evenly. */
#include "base/system/thread.h"

#include <sched.h>
#include <stdlib.h>

#include "base/system/signals.h"

/* A new thread inherits the signal mask, so it has no moment in which a signal could reach it. */

status thread_start(pthread_t *thread, const char *name, const char *what, void *(*work)(void *context),
                    void *context) {
    sigset_t before;
    signals_block_all(&before);
    int error = pthread_create(thread, NULL, work, context);
    signals_restore(&before);
    if (error) return status_errno(STATUS_IO, error, "cannot start %s", what);
    pthread_setname_np(*thread, name);
    return OK;
}

void thread_stay_behind(void) {
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0}); /* a failure only costs time */
}

/* ---- workers ---- */

struct worker {
    struct workers *all;
    pthread_t thread;
    size_t number;
};

struct workers {
    struct worker *threads; /* (started) */
    size_t started;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    workers_task *task;
    void *context;
    size_t count, next; /* items; the next that is not taken */
    size_t round;       /* counts the calls of workers_run */
    size_t active;      /* threads that are in this round */
    size_t failed_at;   /* the lowest index that failed */
    status failure;
    bool is_stopping;
};

/* Takes items until none is left. The mutex is held, except during a task. */
static void take_items(struct workers *all, size_t worker) {
    while (all->next < all->count) {
        size_t index = all->next++;
        pthread_mutex_unlock(&all->mutex);
        status s = all->task(all->context, index, worker);
        pthread_mutex_lock(&all->mutex);
        if (s == OK) continue;
        all->next = all->count;
        bool is_first = all->failure == OK || index < all->failed_at;
        status_free(is_first ? all->failure : s);
        if (!is_first) continue;
        all->failure = s;
        all->failed_at = index;
    }
}

static void *work(void *context) {
    struct worker *worker = context;
    struct workers *all = worker->all;
    size_t round = 0;
    pthread_mutex_lock(&all->mutex);
    for (;;) {
        while (all->round == round && !all->is_stopping) pthread_cond_wait(&all->changed, &all->mutex);
        if (all->is_stopping) break;
        round = all->round;
        take_items(all, worker->number);
        all->active--;
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

status workers_create(size_t count, const char *name, struct workers **out) {
    *out = NULL;
    struct workers *all = calloc(1, sizeof *all);
    if (!all) return status_memory("threads");
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->changed, NULL);
    all->threads = calloc(count, sizeof *all->threads);
    status s = all->threads ? OK : status_memory("threads");
    while (s == OK && all->started + 1 < count) {
        struct worker *worker = &all->threads[all->started];
        *worker = (struct worker){.all = all, .number = all->started + 1};
        s = thread_start(&worker->thread, name, "a thread that reads rows", work, worker);
        all->started += s == OK;
    }
    if (s) workers_destroy(all);
    if (!s) *out = all;
    return s;
}

void workers_destroy(struct workers *workers) {
    if (!workers) return;
    pthread_mutex_lock(&workers->mutex);
    workers->is_stopping = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->mutex);
    for (size_t i = 0; i < workers->started; i++) pthread_join(workers->threads[i].thread, NULL);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->threads);
    free(workers);
}

status workers_run(struct workers *workers, size_t count, workers_task *task, void *context) {
    pthread_mutex_lock(&workers->mutex);
    workers->task = task;
    workers->context = context;
    workers->count = count;
    workers->next = 0;
    workers->active = workers->started;
    workers->round++;
    pthread_cond_broadcast(&workers->changed);
    take_items(workers, 0);
    while (workers->active > 0) pthread_cond_wait(&workers->changed, &workers->mutex);
    status s = workers->failure;
    workers->failure = OK;
    pthread_mutex_unlock(&workers->mutex);
    return s;
}
