/* gpus: how many GPUs there are, and which GPU a process uses: one process, one GPU. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* 1: several processes may share a GPU. For tests only; it is slow. */
#define GPUS_SHARE_VARIABLE "DDPTRAIN_SHARE_GPUS"

/* A process and its position on its host. */
struct gpus_process {
    int local_rank, local_size;
    bool is_launched; /* by a launcher, such as Slurm, that may restrict each process to its own GPU */
};

/* Number of usable GPUs, 1 or more, counted in a child process, because the driver starts threads. STATUS_USAGE with
 * what is missing. */
status gpus_count(int *gpus);

/* Index of the process's GPU: its local rank, or the only GPU that the launcher allows. STATUS_USAGE if there are
 * more processes than GPUs. */
status gpus_choose(const struct gpus_process *process, int *gpu);

/* For `auto`: whether there is a GPU for each process, or, with local_size 0, at least one; *gpus: how many. If not,
 * [why] gets a clause with what is missing. Without a launcher, GPUs are counted as in gpus_count. */
bool gpus_available(const struct gpus_process *process, int *gpus, struct text *why);

/* Whether a user would expect a GPU to be used: NVIDIA's driver is installed, and CUDA_VISIBLE_DEVICES does not hide
 * all GPUs. */
bool gpus_are_expected(void);

/* False: this process can use no GPU of NVIDIA: the kernel has neither its driver nor a device of NVIDIA on the PCI
 * bus, and no folder of libraries has its library. [root]: "", or a folder with proc, dev and etc in tests. */
bool gpus_may_exist(const char *root);

/* What of NVIDIA's driver this machine has. */
struct gpus_driver {
    bool has_device;    /* a GPU on the PCI bus */
    char kernel[32];    /* version of the kernel's driver; "": it is not loaded */
    bool has_library;   /* libcuda.so.1 can be opened */
    char library[4096]; /* its path; "": not known */
    char version[32];   /* its version, by the name of its file; "": not known */
};
void gpus_find_driver(struct gpus_driver *out);

/* Text that identifies a GPU among all GPUs of its host. */
status gpus_identity(int gpu, char text[128]);
