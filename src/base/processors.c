/* Linux's affinity mask and the files of its control groups, version 1 and 2. A container may show another root than
 * the group's path says, so the root is tried, too. */
#include "base/processors.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int processors_online(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int processors_in_mask(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : processors_online();
}

/* The first [count] numbers in a file; "max" is none. */
static bool read_numbers(const char *folder, const char *name, double *numbers, int count) {
    char path[1300], text[128] = "", *at = text;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(text, sizeof text, file);
    if (file) fclose(file);
    for (int i = 0; i < count && is_read; i++) {
        char *end;
        numbers[i] = strtod(at, &end);
        is_read = end != at;
        at = end;
    }
    return is_read;
}

/* Processors' worth of time; 0: no limit. */
static double quota_of_group(const char *folder, bool is_v2) {
    double numbers[2]; /* quota, period */
    bool is_read = is_v2 ? read_numbers(folder, "cpu.max", numbers, 2)
                         : read_numbers(folder, "cpu.cfs_quota_us", numbers, 1) &&
                               read_numbers(folder, "cpu.cfs_period_us", numbers + 1, 1);
    return is_read && numbers[0] > 0 && numbers[1] > 0 ? numbers[0] / numbers[1] : 0;
}

static double least(double a, double b) { return a == 0 || (b > 0 && b < a) ? b : a; }

static bool is_cpu_line(const char *controllers, size_t length) {
    for (const char *at = controllers, *end = controllers + length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == 3 && strncmp(at, "cpu", 3) == 0) return true;
        at += word + 1;
    }
    return false;
}

/* Lines "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1) */
static double quota(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024], folder[1200];
    double limit = 0;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool is_v2 = strncmp(line, "0::", 3) == 0;
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || (!is_v2 && !is_cpu_line(first + 1, (size_t)(second - first - 1)))) continue;
        const char *root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        size_t length = strlen(root);
        snprintf(folder, sizeof folder, "%s%s", root, second + 1);
        for (char *end; (end = strrchr(folder, '/')) && end >= folder + length;
             *end = 0) /* the group and those around it */
            limit = least(limit, quota_of_group(folder, is_v2));
        limit = least(limit, quota_of_group(root, is_v2));
    }
    if (file) fclose(file);
    return limit;
}

int processors_allowed(void) {
    double limit = quota();
    int mask = processors_in_mask(), rounded = (int)limit + (limit > (int)limit);
    return limit > 0 && rounded < mask ? rounded : mask;
}
