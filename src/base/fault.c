/* The fault is one static struct, set once from the environment or by a test. The count is atomic, because the saver
 * and the trainer write at the same time. */
#include "base/fault.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool is_enabled = true; /* true until the environment was read */
static _Atomic int64_t calls;
static struct fault current;
static double clock_factor = 1;

#define BIT(kind) (1u << (kind))
#define SPACE BIT(FAULT_ENOSPC)
#define DEVICE BIT(FAULT_EIO)
#define SIGNAL BIT(FAULT_EINTR)

/* The faults that each call can have. FAULT_KILL and FAULT_SLOW apply to all. */
static const unsigned possible_faults[CALLS] = {
    [CALL_OPEN] = DEVICE | SIGNAL,
    [CALL_CREATE] = SPACE | DEVICE | SIGNAL,
    [CALL_READ] = DEVICE | SIGNAL | BIT(FAULT_SHORT),
    [CALL_WRITE] = SPACE | DEVICE | SIGNAL | BIT(FAULT_SHORT),
    [CALL_SYNC] = SPACE | DEVICE | SIGNAL,
    [CALL_RESERVE] = SPACE | DEVICE | SIGNAL,
    [CALL_TRUNCATE] = DEVICE | SIGNAL,
    [CALL_RENAME] = SPACE | DEVICE,
    [CALL_REMOVE] = DEVICE,
    [CALL_CLOSE] = SPACE | DEVICE | SIGNAL, /* network file systems report late */
    [CALL_STAT] = DEVICE,
    [CALL_MKDIR] = SPACE | DEVICE,
    [CALL_LIST] = DEVICE,
    [CALL_LOCK] = DEVICE | SIGNAL,
};

static const char *const kind_names[] = {
    [FAULT_ENOSPC] = "enospc", [FAULT_EIO] = "eio",   [FAULT_EINTR] = "eintr",
    [FAULT_SHORT] = "short",   [FAULT_KILL] = "kill", [FAULT_SLOW] = "slow",
};

/* "<n>:<kind>[:once|ever]" */
static bool parse(const char *text, struct fault *fault) {
    char *end;
    long long at = strtoll(text, &end, 10);
    if (end == text || *end != ':' || at < 1) return false;
    const char *kind = end + 1;
    size_t length = strcspn(kind, ":");
    for (int k = FAULT_ENOSPC; k <= FAULT_SLOW; k++) {
        if (strlen(kind_names[k]) != length || strncmp(kind, kind_names[k], length) != 0) continue;
        const char *how = kind + length;
        bool is_permanent = strcmp(how, ":ever") == 0;
        if (*how && !is_permanent && strcmp(how, ":once") != 0) return false;
        *fault = (struct fault){.kind = (enum fault_kind)k, .at = at, .is_permanent = is_permanent};
        return true;
    }
    return false;
}

static void read_clock(void) {
    const char *text = getenv("DDPTRAIN_FAULT_CLOCK");
    char *end;
    if (!text || !*text) return;
    clock_factor = strtod(text, &end);
    if (*end || !(clock_factor > 0 && clock_factor < INFINITY)) clock_factor = 0;
}

static void read_environment(void) {
    read_clock();
    const char *text = getenv("DDPTRAIN_FAULT");
    if (!text || !*text) {
        atomic_store(&is_enabled, false);
        return;
    }
    if (!parse(text, &current)) current = (struct fault){.kind = FAULT_EINVAL, .at = 1, .is_permanent = true};
    const char *filter = getenv("DDPTRAIN_FAULT_FILTER");
    if (filter && *filter) current.filter = filter;
}

double fault_clock(void) {
    pthread_once(&once, read_environment);
    return clock_factor;
}

bool fault_is_readable(void) {
    pthread_once(&once, read_environment);
    return current.kind != FAULT_EINVAL;
}

void fault_set(const struct fault *fault) {
    pthread_once(&once, read_environment); /* else a later read would overwrite [fault] */
    current = fault ? *fault : (struct fault){.kind = FAULT_NONE};
    atomic_store(&calls, 0);
    atomic_store(&is_enabled, fault != NULL);
}

static const char *const flip_parts[] = {[FLIP_STATE] = "",
                                         [FLIP_WEIGHTS] = ":weights",
                                         [FLIP_ACTIVATIONS] = ":activations",
                                         [FLIP_GRADIENTS] = ":gradients"};

bool fault_flip_read(struct fault_flip *flip) {
    const char *text = getenv("DDPTRAIN_FAULT_FLIP");
    char *end;
    *flip = (struct fault_flip){0};
    if (!text || !*text) return true;
    flip->rank = (int)strtol(text, &end, 10);
    if (*end != ':') return false;
    flip->step = strtoll(end + 1, &end, 10);
    if (*end != ':') return false;
    flip->bit = strtoull(end + 1, &end, 10);
    for (int part = FLIP_STATE; part <= FLIP_GRADIENTS && !flip->is_set; part++) {
        flip->is_set = strcmp(end, flip_parts[part]) == 0;
        flip->part = (enum fault_flip_part)part;
    }
    return flip->is_set;
}

void fault_delay(int rank) {
    const char *text = getenv("DDPTRAIN_FAULT_LATE");
    char *end = NULL;
    if (text && *text && strtol(text, &end, 10) == rank && *end == ':') clock_sleep(strtod(end + 1, NULL));
}

int64_t fault_calls(void) { return atomic_load(&calls); }

void fault_kill(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause(); /* until the signal is delivered */
}

/* Whether [path] contains the filter. In a path through a descriptor ("/proc/self/fd/7/x") the descriptor is replaced
 * with the path of its folder. */
static bool passes_filter(const char *path) {
    static const char prefix[] = "/proc/self/fd/";
    char link[32], name[PATH_MAX];
    if (!current.filter || strstr(path, current.filter)) return true;
    if (strncmp(path, prefix, sizeof prefix - 1) != 0) return false;
    size_t length = sizeof prefix - 1 + strspn(path + sizeof prefix - 1, "0123456789");
    if (length >= sizeof link) return false;
    memcpy(link, path, length);
    link[length] = 0;
    size_t rest = strlen(path + length) + 1;
    ssize_t got = readlink(link, name, sizeof name);
    if (got < 0 || (size_t)got + rest > sizeof name) return false;
    memcpy(name + got, path + length, rest);
    return strstr(name, current.filter) != NULL;
}

enum fault_kind fault_next(enum fault_call call, const char *path) {
    if (!atomic_load_explicit(&is_enabled, memory_order_relaxed)) return FAULT_NONE;
    pthread_once(&once, read_environment);
    if (!atomic_load(&is_enabled)) return FAULT_NONE;
    if (current.kind == FAULT_EINVAL) return FAULT_EINVAL;
    if (!passes_filter(path)) return FAULT_NONE;
    int64_t number = atomic_fetch_add(&calls, 1) + 1;
    if (current.watch) current.watch(current.context, call, path);
    bool is_due = current.at > 0 && (number == current.at || (current.is_permanent && number > current.at));
    if (!is_due) return FAULT_NONE;
    if (current.kind == FAULT_KILL && call != CALL_WRITE) fault_kill();
    if (current.kind == FAULT_SLOW) clock_sleep(FAULT_SLOW_SECONDS);
    return current.kind == FAULT_KILL || (possible_faults[call] & BIT(current.kind)) ? current.kind : FAULT_NONE;
}
