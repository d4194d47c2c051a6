/* The limits of this machine, for tables that need one beside them: float32 multiply-adds from registers, and memory
 * bandwidth as STREAM's triad counts it. [threads] of each, all at once, the fastest piece of each, so that other
 * programs of the machine change little:  limits [threads]
 * Prints one JSON line: {"threads": 2, "gflops": 230.1, "gigabytes_per_second": 31.2}, of all threads together. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Of a register: longer vectors would be kept in memory. */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define CHAINS 12           /* enough to hide the latency of a multiply-add; with two more they fit into 16 registers */
#define ELEMENTS (8u << 20) /* of each of three arrays of a thread: far more than its cache */
#define SECONDS 0.5
#define MAX_THREADS 256

typedef float lanes __attribute__((vector_size(4 * LANES)));

struct work {
    pthread_t thread;
    pthread_barrier_t *start;
    float *a, *b, *c; /* (ELEMENTS) */
    double flops_per_second, bytes_per_second;
    lanes kept;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define ROUNDS 100000 /* of a piece of multiply_add: about 0.2 ms */

static void multiply_add(struct work *w) {
    lanes sum[CHAINS], x, y;
    for (int l = 0; l < LANES; l++) x[l] = 0.999f, y[l] = 0.001f;
    for (int i = 0; i < CHAINS; i++) sum[i] = x + (float)i;
    double first = now(), start = first, end, best = SECONDS;
    do {
        for (int n = 0; n < ROUNDS; n++)
            for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * x + y;
        end = now();
        if (end - start < best) best = end - start;
        start = end;
    } while (end - first < SECONDS);
    w->kept = sum[0];
    for (int i = 1; i < CHAINS; i++) w->kept += sum[i];
    w->flops_per_second = 2.0 * LANES * CHAINS * ROUNDS / best;
}

static void triad(struct work *w) {
    size_t rounds = 0;
    double first = now(), start = first, end, best = 10 * SECONDS;
    do {
        for (size_t i = 0; i < ELEMENTS; i++) w->a[i] = w->b[i] + 3.0f * w->c[i];
        rounds++;
        end = now();
        if (end - start < best) best = end - start;
        start = end;
    } while (end - first < SECONDS);
    w->kept[0] += w->a[rounds % ELEMENTS];
    w->bytes_per_second = 3.0 * sizeof(float) * ELEMENTS / best;
}

static void *measure(void *argument) {
    struct work *w = argument;
    for (size_t i = 0; i < ELEMENTS; i++) w->a[i] = 0, w->b[i] = 1, w->c[i] = (float)i;
    pthread_barrier_wait(w->start);
    multiply_add(w);
    pthread_barrier_wait(w->start);
    triad(w);
    return NULL;
}

int main(int argc, char **argv) {
    static struct work works[MAX_THREADS];
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "limits: 1 to %d threads\n", MAX_THREADS);
        return 64;
    }
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        struct work *w = &works[i];
        w->start = &start;
        float **arrays[] = {&w->a, &w->b, &w->c};
        for (int a = 0; a < 3; a++)
            if (!(*arrays[a] = aligned_alloc(64, ELEMENTS * sizeof(float)))) {
                fprintf(stderr, "limits: no memory\n");
                return 74;
            }
        if (pthread_create(&w->thread, NULL, measure, w)) {
            fprintf(stderr, "limits: no thread\n");
            return 74;
        }
    }
    double flops = 0, bytes = 0, kept = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(works[i].thread, NULL);
        flops += works[i].flops_per_second;
        bytes += works[i].bytes_per_second;
        kept += (double)works[i].kept[0];
        free(works[i].a), free(works[i].b), free(works[i].c);
    }
    pthread_barrier_destroy(&start);
    printf("{\"threads\": %d, \"gflops\": %.1f, \"gigabytes_per_second\": %.1f}\n", threads, flops * 1e-9,
           bytes * 1e-9);
    return kept == -1; /* the results are used */
}
