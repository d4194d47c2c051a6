/* parallel: a loop over the threads of this process, of which there are OMP_NUM_THREADS, or as many as processors. They
 * are the threads of the OpenMP library with which oneDNN works, so that the two never compete for a processor; the
 * library is opened by the first loop that is large enough. Without it loops run on the caller's thread.
 *
 * A part must not depend on where the range was cut: then a result has the same bits on any number of threads. */
#ifndef DEVICE_CPU_PARALLEL_H
#define DEVICE_CPU_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

/* Does [first, last) of a loop. */
typedef void parallel_part(void *context, size_t first, size_t last);

/* Runs [part] over [0, count), cut into at most one range per thread, each of at least [least] (> 0) items; returns
 * when all are done. Choose [least] so that a range takes 20 us or more: below, threads cost more than they save. */
void parallel_for(size_t count, size_t least, parallel_part *part, void *context);

/* Whether the user, or the launcher, has said how many: OMP_NUM_THREADS. */
bool parallel_is_given(void);

/* At most [threads] >= 1 from now on. From the main thread, and not while a loop runs. */
void parallel_limit(int threads);

/* The most ranges of a loop; opens the library. */
size_t parallel_threads(void);

/* For an element-wise pass over memory: [least] in floats. */
#define PARALLEL_FLOATS ((size_t)1 << 15)

/* [least] for items that are [floats] floats each. */
static inline size_t parallel_items(size_t floats) {
    return floats > 0 && floats < PARALLEL_FLOATS ? PARALLEL_FLOATS / floats : 1;
}

#endif
