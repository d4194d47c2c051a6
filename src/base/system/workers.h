/* workers: a fixed set of threads that share the items of one task at a time. */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

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

#endif
