/* Reads /proc/meminfo and the limits of control groups. */
#include "base/system/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/system/cgroup.h"

/* Reads the number after [word] at the start of a line; [word] "": at the start of the file. */
static bool read_number(const char *path, const char *word, uint64_t *out) {
    FILE *file = fopen(path, "re");
    char line[256];
    bool is_found = false;
    size_t length = strlen(word);
    while (file && !is_found && fgets(line, sizeof line, file)) {
        char *end, *number = line + length;
        if (strncmp(line, word, length) != 0) continue;
        *out = strtoull(number, &end, 10);
        is_found = end != number;
    }
    if (file) fclose(file);
    return is_found;
}

static uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The bytes of the cache of files that have not been used lately, which the kernel frees first; part of the used ones.
 */
static uint64_t cache_of_group(const char *folder, bool is_v2) {
    char path[CGROUP_MAX_PATH + 32];
    uint64_t bytes;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    return read_number(path, is_v2 ? "inactive_file " : "total_inactive_file ", &bytes) ? bytes : 0;
}

/* The bytes below the limit of the group [folder]. A group without a limit has "max" or a huge number. */
static uint64_t available_in_group(const char *folder, bool is_v2) {
    char path[CGROUP_MAX_PATH + 32];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!read_number(path, "", &limit)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!read_number(path, "", &used)) return UINT64_MAX;
    used -= min(used, cache_of_group(folder, is_v2));
    return used < limit ? limit - used : 0;
}

static bool visit(void *context, const char *folder, bool is_v2) {
    uint64_t *available = context;
    *available = min(*available, available_in_group(folder, is_v2));
    return true;
}

uint64_t memory_available_in_groups(const char *root) {
    uint64_t available = UINT64_MAX;
    cgroup_visit(root, "memory", visit, &available);
    return available;
}

uint64_t memory_available(void) {
    uint64_t kib;
    uint64_t machine = read_number("/proc/meminfo", "MemAvailable:", &kib) ? kib * 1024 : UINT64_MAX;
    return min(machine, memory_available_in_groups(CGROUP_ROOT));
}

/* ru_maxrss survives exec: it may be that of the program that has started this one. */
uint64_t memory_peak(void) {
    struct rusage usage;
    uint64_t kib;
    if (read_number("/proc/self/status", "VmHWM:", &kib)) return kib * 1024;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}
