/* Calls OpenMP's library by the functions that GCC's compiled loops call (its stable interface), so that the program
 * starts without loading it. The handle is process-wide on purpose, as is a shared library. */
#include "device/cpu/parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHOSEN_VARIABLE "DDPTRAIN_THREADS" /* set by parallel_limit to the value it wrote to OMP_NUM_THREADS */

#define SPINS "1000" /* PAUSE instructions; of 300 to 10,000 the fewest that are as fast on idle processors */

static struct {
    void (*run)(void (*function)(void *), void *context, unsigned threads, unsigned flags); /* NULL: not available */
    int (*number)(void), (*count)(void); /* of the calling thread; of threads in this loop */
    size_t threads;
} openmp;

static void open_library(void) {
    openmp.threads = 1;
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    int (*max)(void) = (int (*)(void))dlsym(library, "omp_get_max_threads");
    void (*run)(void (*)(void *), void *, unsigned, unsigned) =
        (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(library, "GOMP_parallel");
    openmp.number = (int (*)(void))dlsym(library, "omp_get_thread_num");
    openmp.count = (int (*)(void))dlsym(library, "omp_get_num_threads");
    if (!max || !run || !openmp.number || !openmp.count || max() < 2) return;
    openmp.threads = (size_t)max();
    openmp.run = run;
}

bool parallel_is_given(void) {
    const char *given = getenv("OMP_NUM_THREADS"), *chosen = getenv(CHOSEN_VARIABLE);
    return given && *given && !(chosen && strcmp(chosen, given) == 0);
}

void parallel_limit_spinning(void) {
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", SPINS, 0);
}

/* A library already loaded by oneDNN has read the variable before. */
void parallel_limit(int threads) {
    char number[16];
    snprintf(number, sizeof number, "%d", threads);
    setenv("OMP_NUM_THREADS", number, 1);
    setenv(CHOSEN_VARIABLE, number, 1);
    void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void (*set)(int) = library ? (void (*)(int))dlsym(library, "omp_set_num_threads") : NULL;
    if (set) set(threads);
    if (library) dlclose(library);
    if (openmp.threads > (size_t)threads) openmp.threads = (size_t)threads; /* 0: not known yet */
}

struct loop {
    size_t count, parts;
    parallel_part *part;
    void *context;
    atomic_int started, ended; /* the same as OpenMP's barriers, in a form that ThreadSanitizer understands */
};

/* One thread: its part, and those of threads that the library did not provide. */
static void work(void *context) {
    struct loop *l = context;
    (void)atomic_load_explicit(&l->started, memory_order_acquire);
    size_t threads = (size_t)openmp.count();
    for (size_t i = (size_t)openmp.number(); i < l->parts; i += threads)
        l->part(l->context, l->count * i / l->parts, l->count * (i + 1) / l->parts);
    atomic_fetch_add_explicit(&l->ended, 1, memory_order_release);
}

size_t parallel_threads(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return openmp.threads;
}

static _Thread_local bool is_alone;

void parallel_leave(void) { is_alone = true; }

void parallel_for(size_t count, size_t min, parallel_part *part, void *context) {
    size_t parts = is_alone ? 1 : count / min;
    if (parts > 1 && parts > parallel_threads()) parts = parallel_threads();
    if (parts <= 1) {
        if (count > 0) part(context, 0, count);
        return;
    }
    struct loop l = {.count = count, .parts = parts, .part = part, .context = context};
    atomic_store_explicit(&l.started, 1, memory_order_release);
    openmp.run(work, &l, (unsigned)parts, 0);
    (void)atomic_load_explicit(&l.ended, memory_order_acquire);
}
