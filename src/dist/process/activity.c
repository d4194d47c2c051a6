/* Relaxed atomics: a reader may see a phase with the previous step; the next read is correct. A reader in another
 * process checks all values, because the writer may have corrupted its memory. */
#include "dist/process/activity.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STEPS 31 /* the last durations, for the median */

struct lane {
    atomic_uint_fast64_t entered, left;
    _Atomic(uint64_t) name[ACTIVITY_CALL_NAME / 8];
};

/* The part that two processes may map. */
struct activity_memory {
    atomic_int phase, newest_lane;
    atomic_int_fast64_t step, saved;
    atomic_uint_fast64_t ticks;
    struct lane lanes[ACTIVITY_LANES];
    _Atomic(float) seconds[STEPS]; /* 0: none yet */
};

struct activity {
    struct activity_memory *memory;
    bool is_mapped;
    const char *calls[ACTIVITY_LANES]; /* the last of each lane, to detect a change of the name */
    struct activity_memory own;        /* used unless is_mapped */
};

static const struct {
    const char *text;
    bool is_slow;
} phases[] = {
#define X(name, text, is_slow) {text, is_slow},
    ACTIVITY_PHASES(X)
#undef X
};

const char *activity_phase_name(int phase) {
    return phase >= 0 && phase < ACTIVITY_PHASE_COUNT ? phases[phase].text : "?";
}

bool activity_phase_is_slow(int phase) { return phase < 0 || phase >= ACTIVITY_PHASE_COUNT || phases[phase].is_slow; }

struct activity *activity_create(void) {
    struct activity *activity = calloc(1, sizeof *activity);
    if (activity) activity->memory = &activity->own;
    return activity;
}

int activity_file(void) {
    int file = memfd_create("ddptrain-activity", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(struct activity_memory)) == 0) return file;
    close(file);
    return -1;
}

struct activity *activity_map(int file) {
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0 || info.st_size != sizeof(struct activity_memory)) return NULL;
    struct activity *activity = activity_create();
    void *memory =
        activity ? mmap(NULL, sizeof *activity->memory, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(activity);
        return NULL;
    }
    activity->memory = memory;
    activity->is_mapped = true;
    return activity;
}

void activity_destroy(struct activity *activity) {
    if (activity && activity->is_mapped) munmap(activity->memory, sizeof *activity->memory);
    free(activity);
}

static void tick(struct activity *p) { atomic_fetch_add_explicit(&p->memory->ticks, 1, memory_order_relaxed); }

void activity_phase(struct activity *p, enum activity_phase phase) {
    if (!p) return;
    atomic_store_explicit(&p->memory->phase, (int)phase, memory_order_relaxed);
    tick(p);
}

void activity_step(struct activity *p, int64_t step, double seconds) {
    if (!p) return;
    atomic_store_explicit(&p->memory->step, step, memory_order_relaxed);
    atomic_store_explicit(&p->memory->seconds[(uint64_t)step % STEPS], (float)seconds, memory_order_relaxed);
    tick(p);
}

void activity_saved(struct activity *p, int64_t step) {
    if (p) atomic_store_explicit(&p->memory->saved, step, memory_order_relaxed);
}

/* Copies the name: its address means nothing in another process. */
static void write_name(struct lane *lane, const char *call) {
    uint64_t words[ACTIVITY_CALL_NAME / 8] = {0};
    size_t length = strnlen(call, ACTIVITY_CALL_NAME - 1);
    memcpy(words, call, length);
    for (size_t i = 0; i < ACTIVITY_CALL_NAME / 8; i++)
        atomic_store_explicit(&lane->name[i], words[i], memory_order_relaxed);
}

void activity_enter(struct activity *p, int lane, const char *call) {
    if (!p || lane < 0 || lane >= ACTIVITY_LANES) return;
    if (p->calls[lane] != call) write_name(&p->memory->lanes[lane], call);
    p->calls[lane] = call;
    atomic_store_explicit(&p->memory->newest_lane, lane, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->memory->lanes[lane].entered, 1, memory_order_relaxed);
    tick(p);
}

void activity_leave(struct activity *p, int lane) {
    if (!p || lane < 0 || lane >= ACTIVITY_LANES) return;
    atomic_fetch_add_explicit(&p->memory->lanes[lane].left, 1, memory_order_relaxed);
    tick(p);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(const struct activity_memory *p) {
    float seconds[STEPS];
    size_t count = 0;
    for (size_t i = 0; i < STEPS; i++) {
        float s = atomic_load_explicit(&p->seconds[i], memory_order_relaxed);
        if (s > 0) seconds[count++] = s;
    }
    qsort(seconds, count, sizeof *seconds, by_size);
    return count ? (double)seconds[count / 2] : 0;
}

static void read_call(const struct lane *lane, char call[ACTIVITY_CALL_NAME]) {
    for (size_t i = 0; i < ACTIVITY_CALL_NAME / 8; i++) {
        uint64_t word = atomic_load_explicit(&lane->name[i], memory_order_relaxed);
        memcpy(call + 8 * i, &word, sizeof word);
    }
    call[ACTIVITY_CALL_NAME - 1] = 0;
    for (char *c = call; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

void activity_read(const struct activity *activity, struct activity_snapshot *r) {
    const struct activity_memory *p = activity->memory;
    struct timespec cpu = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    *r = (struct activity_snapshot){.phase = (enum activity_phase)atomic_load_explicit(&p->phase, memory_order_relaxed),
                                    .step = atomic_load_explicit(&p->step, memory_order_relaxed) & INT64_MAX,
                                    .saved = atomic_load_explicit(&p->saved, memory_order_relaxed) & INT64_MAX,
                                    .ticks = atomic_load_explicit(&p->ticks, memory_order_relaxed),
                                    .median_step = median(p),
                                    .cpu = (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9};
    int newest = atomic_load_explicit(&p->newest_lane, memory_order_relaxed);
    if (newest < 0 || newest >= ACTIVITY_LANES) newest = 0;
    for (int i = 0; i < ACTIVITY_LANES; i++) { /* a collective in progress is reported rather than a completed one */
        const struct lane *lane = &p->lanes[i];
        uint64_t left = atomic_load_explicit(&lane->left, memory_order_relaxed);
        uint64_t entered = atomic_load_explicit(&lane->entered, memory_order_relaxed);
        if (entered <= left) continue;
        newest = r->is_in_collective ? newest : i;
        r->is_in_collective = true;
    }
    r->number = atomic_load_explicit(&p->lanes[newest].entered, memory_order_relaxed);
    read_call(&p->lanes[newest], r->call);
}
