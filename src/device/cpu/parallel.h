/* parallel: a loop over the threads of this process: OMP_NUM_THREADS, or as many as processors. They are the threads
 * of the OpenMP library that oneDNN uses, so that the two never compete for a processor. The first loop that is large
 * enough loads the library; without it loops run on the caller's thread.
 *
 * The result of a part must not depend on where the range was split: then it has the same bits on any number of
 * threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Computes [first, last) of a loop. */
typedef void parallel_part(void *context, size_t first, size_t last);

/* Runs [part] over [0, count), split into at most one range per thread, each of at least [min] (> 0) items; returns
 * when all are complete. Choose [min] so that a range takes 20 us or more: below that, threads cost more than they
 * save. */
void parallel_for(size_t count, size_t min, parallel_part *part, void *context);

/* Loops of the calling thread run on it alone from now on: for a thread beside the one that trains, whose loops would
 * start as many threads again. */
void parallel_leave(void);

/* Whether the user or the launcher has set the number: OMP_NUM_THREADS. */
bool parallel_is_given(void);

/* Uses at most [threads] >= 1 from now on. Call it from the main thread, and not while a loop runs. */
void parallel_limit(int threads);

/* Lets waiting threads spin for some 40 us before they sleep: OpenMP's default of milliseconds takes the processors
 * from the threads that are waited for when other programs run. Unless the user has set GOMP_SPINCOUNT or
 * OMP_WAIT_POLICY. Call it before another thread exists and before the first loop: the library reads the environment
 * when it is loaded.
 */
void parallel_limit_spinning(void);

/* Maximum ranges of a loop; loads the library. */
size_t parallel_threads(void);

/* For an element-wise pass over memory: [min] in floats. */
#define PARALLEL_FLOATS ((size_t)1 << 15)

/* [min] for items that are [floats] floats each. */
static inline size_t parallel_items(size_t floats) {
    return floats > 0 && floats < PARALLEL_FLOATS ? PARALLEL_FLOATS / floats : 1;
}
