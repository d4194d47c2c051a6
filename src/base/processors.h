/* processors: how many this process may use, and how several on one host share them. */
#ifndef BASE_PROCESSORS_H
#define BASE_PROCESSORS_H

#include <sched.h>
#include <stdbool.h>

#include "base/text.h"

int processors_online(void);  /* of this machine, or of its cpuset */
int processors_in_mask(void); /* that taskset, srun --cpu-bind, mpirun or a container left to this process */
int processors_quota(void);   /* processors' worth of time of the control group, rounded up; 0: no limit */
/* The mask, and the control group's quota of processor time rounded up: a container of 2 processors on a machine of 64
 * has a mask of 64. At least 1. */
int processors_allowed(void);

/* How many threads process [own] of those of a host with masks (count) may run: each processor of its mask is shared by
 * those that have it, the quota (0: none) by all. At least 1. Pure. */
int processors_share(const cpu_set_t *masks, int count, int own, int quota);

/* Cuts [mask] into even parts (count): whole cores, all threads of a core to the same part, while there are as many
 * cores as parts; cores of a package beside each other. [folder]: where the kernel tells of them, CPU_FOLDER but in
 * tests. false: there are fewer processors than parts. */
#define CPU_FOLDER "/sys/devices/system/cpu"
bool processors_split(const cpu_set_t *mask, const char *folder, int count, cpu_set_t *parts);

/* Asks the kernel (Linux 6.12 and newer; others do nothing) for the shortest turns of a processor for this thread and
 * those that it starts: after a yield it comes back in 0.1 ms instead of up to 3, and when it wakes up it need not wait
 * until another's turn is over. Its share of the time stays the same. */
#define PROCESSORS_TURN_NANOSECONDS 100000
void processors_take_short_turns(void);
/* Of this thread, in nanoseconds; 0: the kernel does not tell. */
long processors_turn(void);

void processors_list(const cpu_set_t *set, struct text *out); /* adds "0-3,8" */

#endif
