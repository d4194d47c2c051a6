/* env_slurm: Slurm's compact lists of hosts and of counts. Pure. */
#ifndef DIST_ENV_SLURM_H
#define DIST_ENV_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* host (size): host number [index], from 0, of a Slurm node list such as "n[1-2,05],m7". false: not a node list, or a
 * shorter one. */
bool slurm_host(const char *list, int index, char *host, size_t size);
/* The number of hosts; 0: not a node list. */
int slurm_host_count(const char *list);
/* Number [index], from 0, of a Slurm list of counts such as "2(x3),1"; 0: there is none. */
int slurm_count(const char *list, int index);

#endif
