/* gpus: how many GPUs there are, and which of them a process takes: one process, one GPU. */
#ifndef DEVICE_GPUS_H
#define DEVICE_GPUS_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"

/* 1: several processes may share a GPU. For tests; it is slow. */
#define GPUS_SHARE_VARIABLE "DDPTRAIN_SHARE_GPUS"

/* A process among those of its host. */
struct gpus_place {
    int local_rank, local_size;
    bool is_launched; /* by a launcher that may show each process a GPU of its own, as Slurm does */
};

/* GPUs that may be used, 1 or more, asked by a process that ends afterwards: the driver starts threads. STATUS_USAGE:
 * what is missing. */
status gpus_count(int *gpus);

/* The number of the process's GPU: its local rank, or the only one that a launcher shows it. More processes than GPUs:
 * STATUS_USAGE. */
status gpus_choose(const struct gpus_place *place, int *gpu);

/* For `auto`: whether there is a GPU for each process, or, with place->local_size 0, any; *gpus: how many. If not,
 * [why] gets a clause about what is missing. A process that no launcher started asks as gpus_count does. */
bool gpus_offered(const struct gpus_place *place, int *gpus, struct text *why);

/* Whether somebody may wonder why no GPU is used: NVIDIA's driver is there, and CUDA_VISIBLE_DEVICES does not hide all.
 */
bool gpus_are_expected(void);

/* What distinguishes a GPU from all others of its host, in words for people. */
status gpus_identity(int gpu, char text[128]);

#endif
