/* memory: how much memory is available, and how much was used. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

/* The available bytes: the minimum of the machine's (MemAvailable) and of those below the limits of this process's
 * control group and its ancestors; both count the cache of files, which is freed when memory is needed, as available.
 * UINT64_MAX: unknown. */
uint64_t memory_available(void);
/* Those of the groups alone; UINT64_MAX: no limit. [root]: as in cgroup_visit. */
uint64_t memory_available_in_groups(const char *root);

/* The largest resident set of this process so far, in bytes. */
uint64_t memory_peak(void);

#endif
