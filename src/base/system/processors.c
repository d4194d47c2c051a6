/* Linux's affinity mask and the quotas of control groups. */
#include "base/system/processors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/cgroup.h"

int processors_online(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int processors_in_mask(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : processors_online();
}

/* Reads the first [count] numbers of a file; false when there are fewer ("max" is not a number). */
static bool read_numbers(const char *folder, const char *name, double *numbers, int count) {
    char path[CGROUP_MAX_PATH + 32], text[128] = "", *at = text;
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

/* The quota in processors; 0: no limit. */
static double quota_of_group(const char *folder, bool is_v2) {
    double numbers[2]; /* quota, period */
    bool is_read = is_v2 ? read_numbers(folder, "cpu.max", numbers, 2)
                         : read_numbers(folder, "cpu.cfs_quota_us", numbers, 1) &&
                               read_numbers(folder, "cpu.cfs_period_us", numbers + 1, 1);
    return is_read && numbers[0] > 0 && numbers[1] > 0 ? numbers[0] / numbers[1] : 0;
}

/* The smaller of two limits; 0: no limit. */
static double min_limit(double a, double b) { return a == 0 || (b > 0 && b < a) ? b : a; }

static bool visit(void *context, const char *folder, bool is_v2) {
    double *limit = context;
    *limit = min_limit(*limit, quota_of_group(folder, is_v2));
    return true;
}

int processors_quota(void) {
    double limit = 0;
    cgroup_visit(CGROUP_ROOT, "cpu", visit, &limit);
    return (int)limit + (limit > (int)limit);
}

int processors_allowed(void) {
    int limit = processors_quota(), mask = processors_in_mask();
    return limit > 0 && limit < mask ? limit : mask;
}

int processors_share(const cpu_set_t *masks, int count, int own, int quota) {
    double share = 1e-6; /* compensates rounding: 1/3 + 1/3 + 1/3 < 1 */
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int users = 0;
        if (!CPU_ISSET(cpu, &masks[own])) continue;
        for (int i = 0; i < count; i++) users += CPU_ISSET(cpu, &masks[i]) != 0;
        share += 1.0 / users;
    }
    int threads = (int)share;
    if (quota > 0 && quota / count < threads) threads = quota / count;
    return threads > 0 ? threads : 1;
}

/* ---- split ---- */

struct processor {
    int package, core, number; /* core: the smallest number of its threads */
};

static int topology(const char *folder, int cpu, const char *name, int otherwise) {
    char path[256];
    double number;
    snprintf(path, sizeof path, "%s/cpu%d/topology", folder, cpu);
    return read_numbers(path, name, &number, 1) && number >= 0 ? (int)number : otherwise;
}

static int compare_position(const void *a, const void *b) {
    const struct processor *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool is_same_core(const struct processor *a, const struct processor *b) {
    return a->package == b->package && a->core == b->core;
}

bool processors_split(const cpu_set_t *mask, const char *folder, int count, cpu_set_t *parts) {
    struct processor all[CPU_SETSIZE];
    int found = 0, cores = 0, core = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask))
            all[found++] = (struct processor){.package = topology(folder, cpu, "physical_package_id", 0),
                                              .core = topology(folder, cpu, "thread_siblings_list", cpu),
                                              .number = cpu};
    if (found < count) return false;
    qsort(all, (size_t)found, sizeof *all, compare_position);
    for (int i = 0; i < found; i++) cores += i == 0 || !is_same_core(&all[i], &all[i - 1]);
    for (int p = 0; p < count; p++) CPU_ZERO(&parts[p]);
    bool is_by_core = cores >= count;
    for (int i = 0, p = 0; i < found; i++) {
        core += i == 0 || !is_same_core(&all[i], &all[i - 1]);
        int at = is_by_core ? core : i, of = is_by_core ? cores : found;
        while (at >= (int)((long)of * (p + 1) / count)) p++;
        CPU_SET(all[i].number, &parts[p]);
    }
    return true;
}

/* The kernel's struct sched_attr in its first version; <linux/sched/types.h> and <sched.h> cannot both be included. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: for SCHED_OTHER the time slice */
};

static bool read_scheduling(struct scheduling *own) {
    *own = (struct scheduling){.size = sizeof *own};
    return syscall(SYS_sched_getattr, 0, own, sizeof *own, 0) == 0 && own->policy == SCHED_OTHER;
}

void processors_shorten_slice(void) {
    struct scheduling own;
    if (!read_scheduling(&own) || own.runtime <= PROCESSORS_SLICE_NANOSECONDS) return;
    own.size = sizeof own;
    own.runtime = PROCESSORS_SLICE_NANOSECONDS;
    syscall(SYS_sched_setattr, 0, &own, 0); /* a failure is ignored: it only costs time */
}

long processors_slice(void) {
    struct scheduling own;
    return read_scheduling(&own) ? (long)own.runtime : 0;
}

void processors_list(const cpu_set_t *set, struct text *out) {
    const char *between = "";
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int last = cpu;
        if (!CPU_ISSET(cpu, set)) continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
        text_printf(out, last > cpu ? "%s%d-%d" : "%s%d", between, cpu, last);
        between = ",";
        cpu = last;
    }
}
