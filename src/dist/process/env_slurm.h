/* env_slurm: Slurm's compact lists of hosts and of counts. Pure. */
#ifndef DIST_ENV_SLURM_H
#define DIST_ENV_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th (from 0) host of a Slurm node list such as "n[1-2,05],m7", and the number of hosts. false:
 * not a node list, or shorter. */
bool slurm_host(const char *list, int index, char *host, size_t size);
int slurm_host_count(const char *list);
/* The n-th number of a Slurm list of counts such as "2(x3),1"; 0 when there is none. */
int slurm_count(const char *list, int index);

#endif
