/* Whether ranks ran out of memory: the counter of the kernel's out-of-memory killer and the memory limit, of the
 * control group (version 1 or 2), else of the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The number of [key] in the file [v2] or [v1] of this process's control group, or of the nearest parent group that has
 * one. /proc/self/cgroup has lines "0::/path" (version 2) and "4:memory:/path" (version 1); in a container the paths
 * may not exist, so the root group is tried, too. Numbers above [max] mean "no limit". -1: none. */
static double group_number(const char *v2, const char *v1, const char *key, double max) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) return -1;
    char line[1024], path[1300];
    double number = -1;
    while (number < 0 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *first = strchr(line, ':'), *group = first ? strchr(first + 1, ':') : NULL;
        bool is_v2 = strncmp(line, "0::", 3) == 0;
        if (!group || (!is_v2 && strncmp(first, ":memory:", 8) != 0)) continue;
        const char *root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        group++; /* "/a/b", then "/a", then "" */
        for (bool is_root = false; number < 0 && !is_root;) {
            snprintf(path, sizeof path, "%s%s/%s", root, group, is_v2 ? v2 : v1);
            number = number_after(path, key);
            if (number > max) number = -1;
            char *slash = strrchr(group, '/');
            is_root = slash == NULL;
            if (slash) *slash = 0;
        }
    }
    fclose(file);
    return number;
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
