/* Reads /proc/meminfo and /sys/fs/cgroup. In a container the group's path may not exist below /sys/fs/cgroup, so the
 * root is read too. */
#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

/* The bytes below the limit of the group [folder]. A group without a limit has "max" or a huge number. */
static uint64_t available_in_group(const char *folder, bool is_v2) {
    char path[1300];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!read_number(path, "", &limit)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!read_number(path, "", &used)) return UINT64_MAX;
    return used < limit ? limit - used : 0;
}

static uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* /proc/self/cgroup has lines "0::/path" (version 2) and "4:memory:/path" (version 1). */
static uint64_t available_in_groups(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024], folder[1200];
    uint64_t available = UINT64_MAX;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool is_v2 = strncmp(line, "0::", 3) == 0;
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || (!is_v2 && strncmp(first, ":memory:", 8) != 0)) continue;
        const char *root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        snprintf(folder, sizeof folder, "%s%s", root, second + 1);
        available = min(available, min(available_in_group(folder, is_v2), available_in_group(root, is_v2)));
    }
    if (file) fclose(file);
    return available;
}

uint64_t memory_available(void) {
    uint64_t kib;
    uint64_t machine = read_number("/proc/meminfo", "MemAvailable:", &kib) ? kib * 1024 : UINT64_MAX;
    return min(machine, available_in_groups());
}

uint64_t memory_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}
