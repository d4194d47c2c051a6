/* Relaxed atomics: a reader may see a phase with the previous step; the next read is correct. A reader in another
 * process checks all values, because the writer may have corrupted its memory. */
#include "dist/process/pulse.h"

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
    _Atomic(uint64_t) name[PULSE_CALL_NAME / 8];
};

/* The part that two processes may map. */
struct pulse_memory {
    atomic_int phase, newest_lane;
    atomic_int_fast64_t step, saved;
    atomic_uint_fast64_t ticks;
    struct lane lanes[PULSE_LANES];
    _Atomic(float) seconds[STEPS]; /* 0: none yet */
};

struct pulse {
    struct pulse_memory *memory;
    bool is_mapped;
    const char *calls[PULSE_LANES]; /* the last of each lane, to detect a change of the name */
    struct pulse_memory own;        /* used unless is_mapped */
};

static const struct {
    const char *text;
    bool is_slow;
} phases[] = {
#define X(name, text, is_slow) {text, is_slow},
    PULSE_PHASES(X)
#undef X
};

const char *pulse_phase_name(int phase) { return phase >= 0 && phase < PULSE_PHASE_COUNT ? phases[phase].text : "?"; }

bool pulse_phase_is_slow(int phase) { return phase < 0 || phase >= PULSE_PHASE_COUNT || phases[phase].is_slow; }

struct pulse *pulse_create(void) {
    struct pulse *pulse = calloc(1, sizeof *pulse);
    if (pulse) pulse->memory = &pulse->own;
    return pulse;
}

int pulse_file(void) {
    int file = memfd_create("ddptrain-pulse", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(struct pulse_memory)) == 0) return file;
    close(file);
    return -1;
}

struct pulse *pulse_map(int file) {
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0 || info.st_size != sizeof(struct pulse_memory)) return NULL;
    struct pulse *pulse = pulse_create();
    void *memory = pulse ? mmap(NULL, sizeof *pulse->memory, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(pulse);
        return NULL;
    }
    pulse->memory = memory;
    pulse->is_mapped = true;
    return pulse;
}

void pulse_destroy(struct pulse *pulse) {
    if (pulse && pulse->is_mapped) munmap(pulse->memory, sizeof *pulse->memory);
    free(pulse);
}

static void tick(struct pulse *p) { atomic_fetch_add_explicit(&p->memory->ticks, 1, memory_order_relaxed); }

void pulse_phase(struct pulse *p, enum pulse_phase phase) {
    if (!p) return;
    atomic_store_explicit(&p->memory->phase, (int)phase, memory_order_relaxed);
    tick(p);
}

void pulse_step(struct pulse *p, int64_t step, double seconds) {
    if (!p) return;
    atomic_store_explicit(&p->memory->step, step, memory_order_relaxed);
    atomic_store_explicit(&p->memory->seconds[(uint64_t)step % STEPS], (float)seconds, memory_order_relaxed);
    tick(p);
}

void pulse_saved(struct pulse *p, int64_t step) {
    if (p) atomic_store_explicit(&p->memory->saved, step, memory_order_relaxed);
}

/* Copies the name: its address means nothing in another process. */
static void write_name(struct lane *lane, const char *call) {
    uint64_t words[PULSE_CALL_NAME / 8] = {0};
    size_t length = strnlen(call, PULSE_CALL_NAME - 1);
    memcpy(words, call, length);
    for (size_t i = 0; i < PULSE_CALL_NAME / 8; i++)
        atomic_store_explicit(&lane->name[i], words[i], memory_order_relaxed);
}

void pulse_enter(struct pulse *p, int lane, const char *call) {
    if (!p || lane < 0 || lane >= PULSE_LANES) return;
    if (p->calls[lane] != call) write_name(&p->memory->lanes[lane], call);
    p->calls[lane] = call;
    atomic_store_explicit(&p->memory->newest_lane, lane, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->memory->lanes[lane].entered, 1, memory_order_relaxed);
    tick(p);
}

void pulse_leave(struct pulse *p, int lane) {
    if (!p || lane < 0 || lane >= PULSE_LANES) return;
    atomic_fetch_add_explicit(&p->memory->lanes[lane].left, 1, memory_order_relaxed);
    tick(p);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(const struct pulse_memory *p) {
    float seconds[STEPS];
    size_t count = 0;
    for (size_t i = 0; i < STEPS; i++) {
        float s = atomic_load_explicit(&p->seconds[i], memory_order_relaxed);
        if (s > 0) seconds[count++] = s;
    }
    qsort(seconds, count, sizeof *seconds, by_size);
    return count ? (double)seconds[count / 2] : 0;
}

static void read_call(const struct lane *lane, char call[PULSE_CALL_NAME]) {
    for (size_t i = 0; i < PULSE_CALL_NAME / 8; i++) {
        uint64_t word = atomic_load_explicit(&lane->name[i], memory_order_relaxed);
        memcpy(call + 8 * i, &word, sizeof word);
    }
    call[PULSE_CALL_NAME - 1] = 0;
    for (char *c = call; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

void pulse_read(const struct pulse *pulse, struct pulse_reading *r) {
    const struct pulse_memory *p = pulse->memory;
    struct timespec cpu = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    *r = (struct pulse_reading){.phase = (enum pulse_phase)atomic_load_explicit(&p->phase, memory_order_relaxed),
                                .step = atomic_load_explicit(&p->step, memory_order_relaxed) & INT64_MAX,
                                .saved = atomic_load_explicit(&p->saved, memory_order_relaxed) & INT64_MAX,
                                .ticks = atomic_load_explicit(&p->ticks, memory_order_relaxed),
                                .median_step = median(p),
                                .cpu = (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9};
    int newest = atomic_load_explicit(&p->newest_lane, memory_order_relaxed);
    if (newest < 0 || newest >= PULSE_LANES) newest = 0;
    for (int i = 0; i < PULSE_LANES; i++) { /* a collective in progress is reported rather than a completed one */
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
