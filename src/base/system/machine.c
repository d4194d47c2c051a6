/* What Linux says in /proc, in the files of control groups and in the affinity mask. A container changes the last two
 * only. */
#include "base/system/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- control groups ---- */

/* /proc/self/cgroup has lines "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1). The groups of version 1 are
 * in a folder for each controller. */

/* Whether the list [names] (length), separated by commas, has [name]. */
static bool has_name(const char *names, size_t length, const char *name) {
    for (const char *at = names, *end = names + length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == strlen(name) && strncmp(at, name, word) == 0) return true;
        at += word + 1;
    }
    return false;
}

/* Visits the group [path] below [top] and its ancestors; false: the visitor has ended it. */
static bool visit_group(const char *top, const char *path, bool is_v2, cgroup_visitor *visit, void *context) {
    char folder[CGROUP_MAX_PATH];
    size_t root = strlen(top);
    int length = snprintf(folder, sizeof folder, "%s%s", top, path);
    if (*path != '/' || length < 0 || (size_t)length >= sizeof folder) return true;
    while ((size_t)length > root && folder[length - 1] == '/') folder[--length] = 0;
    for (;;) {
        if (!visit(context, folder, is_v2)) return false;
        if (strlen(folder) == root) return true;
        *strrchr(folder + root, '/') = 0;
    }
}

void cgroup_visit(const char *root, const char *controller, cgroup_visitor *visit, void *context) {
    char line[CGROUP_MAX_PATH], top[CGROUP_MAX_PATH];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    bool goes_on = true;
    while (file && goes_on && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool is_v2 = strncmp(line, "0::", 3) == 0;
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || (!is_v2 && !has_name(first + 1, (size_t)(second - first - 1), controller))) continue;
        snprintf(top, sizeof top, "%s/sys/fs/cgroup%s%s", root, is_v2 ? "" : "/", is_v2 ? "" : controller);
        goes_on = visit_group(top, second + 1, is_v2, visit, context);
    }
    if (file) fclose(file);
}

/* ---- memory ---- */

bool machine_number(const char *path, const char *word, uint64_t *out) {
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
    return machine_number(path, is_v2 ? "inactive_file " : "total_inactive_file ", &bytes) ? bytes : 0;
}

/* The bytes below the limit of the group [folder]. A group without a limit has "max" or a huge number. */
static uint64_t available_in_group(const char *folder, bool is_v2) {
    char path[CGROUP_MAX_PATH + 32];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!machine_number(path, "", &limit)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, is_v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!machine_number(path, "", &used)) return UINT64_MAX;
    used -= min(used, cache_of_group(folder, is_v2));
    return used < limit ? limit - used : 0;
}

static bool add_available(void *context, const char *folder, bool is_v2) {
    uint64_t *available = context;
    *available = min(*available, available_in_group(folder, is_v2));
    return true;
}

uint64_t memory_available_in_groups(const char *root) {
    uint64_t available = UINT64_MAX;
    cgroup_visit(root, "memory", add_available, &available);
    return available;
}

static bool add_processes(void *context, const char *folder, bool is_v2) {
    uint64_t *available = context, limit, used;
    char path[CGROUP_MAX_PATH + 32];
    (void)is_v2;
    snprintf(path, sizeof path, "%s/pids.max", folder);
    if (!machine_number(path, "", &limit)) return true;
    snprintf(path, sizeof path, "%s/pids.current", folder);
    if (machine_number(path, "", &used)) *available = min(*available, used < limit ? limit - used : 0);
    return true;
}

uint64_t processes_available_in_groups(const char *root) {
    uint64_t available = UINT64_MAX;
    cgroup_visit(root, "pids", add_processes, &available);
    return available;
}

uint64_t memory_available(void) {
    uint64_t kib;
    uint64_t machine = machine_number("/proc/meminfo", "MemAvailable:", &kib) ? kib * 1024 : UINT64_MAX;
    return min(machine, memory_available_in_groups(CGROUP_ROOT));
}

/* ru_maxrss survives exec: it may be that of the program that has started this one. */
uint64_t memory_peak(void) {
    struct rusage usage;
    uint64_t kib;
    if (machine_number("/proc/self/status", "VmHWM:", &kib)) return kib * 1024;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* ---- processors ---- */

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

static bool add_quota(void *context, const char *folder, bool is_v2) {
    double *limit = context;
    *limit = min_limit(*limit, quota_of_group(folder, is_v2));
    return true;
}

double processors_time(void) {
    double limit = 0;
    cgroup_visit(CGROUP_ROOT, "cpu", add_quota, &limit);
    return limit;
}

int processors_quota(void) {
    double limit = processors_time();
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

/* ---- split into parts ---- */

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

/* The processors of [mask], sorted by position; their number. *cores: of how many cores. */
static int sort_processors(const cpu_set_t *mask, const char *folder, struct processor all[CPU_SETSIZE], int *cores) {
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask))
            all[found++] = (struct processor){.package = topology(folder, cpu, "physical_package_id", 0),
                                              .core = topology(folder, cpu, "thread_siblings_list", cpu),
                                              .number = cpu};
    qsort(all, (size_t)found, sizeof *all, compare_position);
    *cores = 0;
    for (int i = 0; i < found; i++) *cores += i == 0 || !is_same_core(&all[i], &all[i - 1]);
    return found;
}

int processors_cores(const cpu_set_t *mask, const char *folder) {
    struct processor all[CPU_SETSIZE];
    int cores;
    sort_processors(mask, folder, all, &cores);
    return cores;
}

bool processors_split(const cpu_set_t *mask, const char *folder, int count, cpu_set_t *parts) {
    struct processor all[CPU_SETSIZE];
    int cores, core = -1, found = sort_processors(mask, folder, all, &cores);
    if (found < count) return false;
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

bool processor_model(char *name, size_t size) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool is_found = false;
    while (file && !is_found && fgets(line, sizeof line, file)) {
        const char *value = strstr(line, ": ");
        is_found = value && strncmp(line, "model name", strlen("model name")) == 0;
        line[strcspn(line, "\n")] = 0;
        if (is_found) snprintf(name, size, "%s", value + 2);
    }
    if (file) fclose(file);
    return is_found;
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

/* ---- the stack ---- */

/* A stack grows page by page when it is touched, and counts towards RLIMIT_AS then. */

#define PAGE 4096

/* Whether twice STACK_MIN can be mapped: the stack, and as much again for the libraries' first allocations. */
static bool has_memory(void) {
    void *probe = mmap(NULL, 2 * STACK_MIN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return probe != MAP_FAILED && munmap(probe, 2 * STACK_MIN) == 0;
}

/* Touches every page, from the highest address to the lowest. */
static __attribute__((noinline)) void grow(void) {
    volatile size_t size = STACK_MIN; /* volatile: -Wframe-larger-than must not see a constant */
    volatile char *bytes = __builtin_alloca(size);
    for (size_t i = size; i >= PAGE; i -= PAGE) bytes[i - PAGE] = 0;
}

status stack_check(void) {
    struct rlimit stack, memory;
    bool has_limits = getrlimit(RLIMIT_STACK, &stack) == 0 && getrlimit(RLIMIT_AS, &memory) == 0;
    if (has_limits && stack.rlim_cur < STACK_SPACE)
        return status_usage("the stack limit is %llu KiB, at least %zu KiB are needed; raise it with ulimit -s",
                            (unsigned long long)stack.rlim_cur >> 10, STACK_SPACE >> 10);
    if (!has_limits || memory.rlim_cur == RLIM_INFINITY) return OK;
    if (!has_memory())
        return status_new(STATUS_MEMORY,
                          "the memory limit, %llu KiB, is too low for the stack; raise it with ulimit -v",
                          (unsigned long long)memory.rlim_cur >> 10);
    grow();
    return OK;
}
