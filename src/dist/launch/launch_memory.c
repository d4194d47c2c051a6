/* Whether ranks ran out of memory: the counter of the kernel's out-of-memory killer and the memory limit, of the
 * control group, else of the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/machine.h"
#include "dist/launch/launch_internal.h"

#define GIB 1073741824.0

/* The number after [key] in a file of lines "key number"; [key] "": at the start of a line. -1: none. */
static double number_after(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    double number = -1;
    size_t length = strlen(key);
    while (number < 0 && fgets(line, sizeof line, file)) {
        char *end;
        if (strncmp(line, key, length) != 0) continue;
        double value = strtod(line + length, &end);
        if (end != line + length) number = value;
    }
    fclose(file);
    return number;
}

struct search {
    const char *v2, *v1, *key; /* the files of the versions, the key in them */
    double max;                /* numbers above it mean "no limit" */
    double number;             /* -1: not found yet */
};

static bool visit(void *context, const char *folder, bool is_v2) {
    struct search *search = context;
    char path[CGROUP_MAX_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? search->v2 : search->v1);
    double number = number_after(path, search->key);
    if (number <= search->max) search->number = number;
    return search->number < 0;
}

/* The number of [key] in the file [v2] or [v1] of this process's control group, or of the nearest ancestor that has one
 * of at most [max]. -1: none. */
static double group_number(const char *v2, const char *v1, const char *key, double max) {
    struct search search = {.v2 = v2, .v1 = v1, .key = key, .max = max, .number = -1};
    cgroup_visit(CGROUP_ROOT, "memory", visit, &search);
    return search.number;
}

long launch_oom_kills(void) {
    double kills = group_number("memory.events", "memory.oom_control", "oom_kill ", 1e18);
    return (long)(kills >= 0 ? kills : number_after("/proc/vmstat", "oom_kill "));
}

double launch_memory_limit(void) {
    double limit = group_number("memory.max", "memory.limit_in_bytes", "", 1e15);
    if (limit > 0) return limit / GIB;
    double machine = number_after("/proc/meminfo", "MemTotal:");
    return machine > 0 ? machine * 1024 / GIB : 0;
}
