/* processors: how many this process may use. */
#ifndef BASE_PROCESSORS_H
#define BASE_PROCESSORS_H

int processors_online(void);  /* of this machine, or of its cpuset */
int processors_in_mask(void); /* that taskset, srun --cpu-bind, mpirun or a container left to this process */
/* The mask, and the control group's quota of processor time rounded up: a container of 2 processors on a machine of 64
 * has a mask of 64. At least 1. */
int processors_allowed(void);

#endif
