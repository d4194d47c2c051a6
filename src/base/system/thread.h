/* thread: threads beside the main one, and workers: a fixed set of threads that share the items of one task at a time.
 * All signals are blocked in them, so that a stop request runs its handler in the main thread, and they have a name for
 * ps -L and debuggers. */
#pragma once

#include <pthread.h>
#include <stddef.h>

#include "base/status.h"

struct workers;

/* [count] workers, at least 1: the calling thread and count - 1 new ones named [name] (at most 15 characters). */
status workers_create(size_t count, const char *name, struct workers **out);
void workers_destroy(struct workers *workers); /* takes NULL */

/* Calls task(context, index, worker) once for each index below [count], on any worker (below the number of workers).
 * After a failure no further items are started; returns the failure with the lowest index. One call at a time. */
typedef status workers_task(void *context, size_t index, size_t worker);
status workers_run(struct workers *workers, size_t count, workers_task *task, void *context);

/* Runs [work](context) in a new thread, to be joined by the caller. [name]: at most 15 characters; [what] ("the thread
 * that saves") is for the message of the STATUS_IO failure, after which *thread is undefined. */
status thread_start(pthread_t *thread, const char *name, const char *what, void *(*work)(void *context), void *context);

/* When the calling thread, or one that it starts, wakes up, it does not take the processor of a thread that runs. */
void thread_stay_behind(void);
