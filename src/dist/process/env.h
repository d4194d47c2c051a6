/* env: the rank of this process and the addresses of its job. Reads the environment variables of torchrun, srun, Open
 * MPI, MPICH and others or of ddptrain's own launcher, so that the same command line works under each of them.
 * PyTorch's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) have the same meaning
 * as there; WORLD_SIZE alone completes the variables of a launcher that does not set the number of ranks. */
#ifndef DIST_ENV_H
#define DIST_ENV_H

#include <stdbool.h>

#include "base/status.h"
#include "device/gpus.h"

enum dist_launcher {
    LAUNCHER_NONE,
    LAUNCHER_OWN, /* dist/launch/launch.h */
    LAUNCHER_TORCHRUN,
    LAUNCHER_ENVIRONMENT, /* RANK and WORLD_SIZE set by hand or by a script */
    LAUNCHER_SLURM,       /* a job step of srun with more than one task; not the batch script itself */
    LAUNCHER_OPENMPI,
    LAUNCHER_FLUX,
    LAUNCHER_MVAPICH2,
    LAUNCHER_MPICH, /* and Intel MPI, and PALS with Cray's PMI */
    LAUNCHER_PALS,
    LAUNCHER_PMIX
};

struct dist_env {
    enum dist_launcher launcher;      /* LAUNCHER_NONE: started by the user, not as one of several ranks */
    int rank, world_size;             /* 0, 1 for LAUNCHER_NONE */
    int local_rank, local_world_size; /* on this host */
    char master_addr[256];
    int master_port;   /* of the store; 0: none needed (world_size 1) */
    char job_id[128];  /* distinguishes jobs that use the same port */
    int restart_count; /* restarts of the ranks so far; the store rejects ranks of another start */
    double ends_at;    /* end of the Slurm allocation, in seconds since 1970; 0: not known */
    bool has_begun;    /* an earlier start of this job has opened the run folder: resume, even with --fresh */
};

/* Fills *out. Contradictory or incomplete variables (RANK without WORLD_SIZE, RANK >= WORLD_SIZE, a rank of any
 * launcher whose number of ranks is not known, a port that is not a number) are STATUS_USAGE with the variable's name
 * and value. */
status dist_env_detect(struct dist_env *out);

/* The local rank and local world size of this process, for choosing a GPU. */
struct gpus_process dist_env_gpus(const struct dist_env *env);

/* Pure: a port computed from the job id, for launchers that set none: equal on all ranks, outside the ephemeral
 * range. */
int dist_env_derive_port(const char *job_id);

/* "torchrun", "srun", ...: for messages. */
const char *dist_launcher_name(enum dist_launcher launcher);

#endif
