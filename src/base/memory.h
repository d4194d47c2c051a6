/* memory: how much the processes started here may still take. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

/* Bytes that are free on this machine (MemAvailable), or in this process's control group if its limit leaves less.
 * UINT64_MAX: unknown. */
uint64_t memory_available(void);

#endif
