/* machine: which processors and how much memory this process may use, as the machine, its control groups and its
 * affinity mask say. */
#pragma once

#include <sched.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* ---- processors ---- */

int processors_online(void);  /* online processors of this machine or of its cpuset */
int processors_in_mask(void); /* in the affinity mask (taskset, srun --cpu-bind, mpirun, containers) */
int processors_quota(void);   /* CPU quota of the control group in processors, rounded up; 0: no limit */
double processors_time(void); /* the same, not rounded; 0: no limit */
/* The minimum of mask and quota: a container with 2 processors on a machine of 64 has a mask of 64. At least 1. */
int processors_allowed(void);

/* The number of threads for process [own] of the processes of a host with the affinity masks [masks] (count). A
 * processor is shared equally by the processes that have it in their mask; the quota (0: none) by all. At least 1. */
int processors_share(const cpu_set_t *masks, int count, int own, int quota);

/* Splits [mask] into [parts] (count) of equal size. With at least as many cores as parts all hardware threads of a core
 * are in one part. Cores of one package are adjacent. [folder]: CPU_FOLDER, or a copy of it in tests. false: there are
 * fewer processors than parts. */
#define CPU_FOLDER "/sys/devices/system/cpu"
bool processors_split(const cpu_set_t *mask, const char *folder, int count, cpu_set_t *parts);

/* The model name of the processor, as /proc/cpuinfo has it, into [name] (size); false: it has none (ARM). */
bool processor_model(char *name, size_t size);

/* The cores whose hardware threads are in [mask]. [folder]: as above. */
int processors_cores(const cpu_set_t *mask, const char *folder);

/* Requests the shortest scheduler time slice for this thread and those that it starts (Linux 6.12 and newer; else no
 * effect). After a yield the thread runs again after 0.1 ms instead of up to 3 ms, and at wake-up it need not wait for
 * the end of another thread's slice. Its share of processor time stays the same. */
#define PROCESSORS_SLICE_NANOSECONDS 100000
void processors_shorten_slice(void);
/* The time slice of this thread in nanoseconds; 0: unknown. */
long processors_slice(void);

void processors_list(const cpu_set_t *set, struct text *out); /* adds "0-3,8" */

/* ---- control groups, version 1 and 2 ---- */

/* The root of the file system; tests have a folder with proc/self/cgroup and sys/fs/cgroup. */
#define CGROUP_ROOT ""

/* The maximum length of the path of a group, with its NUL. Longer paths are ignored. */
#define CGROUP_MAX_PATH 5000

/* Called with the folder of a group below sys/fs/cgroup, which need not exist; false: the last one. */
typedef bool cgroup_visitor(void *context, const char *folder, bool is_v2);

/* Visits the group of this process for [controller] ("memory") and its ancestors, leaf first, the root last. In a
 * container the paths of /proc/self/cgroup may not exist, but the root does. With both versions in use, each one is
 * visited so, in the order of /proc/self/cgroup. */
void cgroup_visit(const char *root, const char *controller, cgroup_visitor *visit, void *context);

/* ---- memory ---- */

/* The available bytes: the minimum of the machine's (MemAvailable) and of those below the limits of this process's
 * control group and its ancestors; both count the cache of files, which is freed when memory is needed, as available.
 * UINT64_MAX: unknown. */
uint64_t memory_available(void);
/* The number after [word] at the start of a line of the file [path], such as "MemTotal:" of /proc/meminfo; [word] "":
 * at the start of the file. false: there is none. */
bool machine_number(const char *path, const char *word, uint64_t *out);
/* Those of the groups alone; UINT64_MAX: no limit. [root]: as in cgroup_visit. */
uint64_t memory_available_in_groups(const char *root);

/* The processes and threads that the groups allow in addition to those in them now; UINT64_MAX: no limit. [root]: as in
 * cgroup_visit. */
uint64_t processes_available_in_groups(const char *root);

/* The largest resident set of this process so far, in bytes. */
uint64_t memory_peak(void);

/* ---- the stack ---- */

/* Matrix products have a buffer of up to 512 KiB on the stack, and a stack overflow would end the process with SIGSEGV,
 * without a message. */

#define STACK_MIN ((size_t)1 << 20)   /* maximum use of one call of a library function */
#define STACK_SPACE ((size_t)3 << 19) /* the same with arguments, environment and callers */

/* Call it first in main. STATUS_USAGE when the stack limit (ulimit -s) is below STACK_SPACE or the memory limit
 * (ulimit -v) leaves less. With a memory limit the stack grows to its full size now. */
status stack_check(void);
