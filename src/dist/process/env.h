/* env: who am I among the ranks? Reads what torchrun, srun, Open MPI, MPICH or our own launcher put into the
 * environment, so that the same command line works under each of them. PyTorch's variables (RANK, WORLD_SIZE,
 * LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) are honoured as they are. */
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
    LAUNCHER_MPICH
};

struct dist_env {
    enum dist_launcher launcher; /* who started this process; LAUNCHER_NONE: the user: not (yet) one of several ranks */
    int rank, world_size;        /* 0, 1 for LAUNCHER_NONE */
    int local_rank, local_world_size; /* on this host */
    char master_addr[256];
    int master_port;  /* of the store; 0: none needed (world_size 1) */
    char job_id[128]; /* separates two jobs that meet on one port */
    int incarnation;  /* 0, 1, ...: how often the launcher has restarted the ranks; an older rank never joins */
    double ends_at;   /* when Slurm will end the job, in seconds since 1970; 0: not known */
    bool has_begun;   /* an earlier start of this job has opened the run folder: go on, also with --fresh */
};

/* Fills *out. Contradictory or half-set variables (RANK without WORLD_SIZE, RANK >= WORLD_SIZE, a port that is no
 * number) are STATUS_USAGE with the variable's name and value. */
status dist_env_detect(struct dist_env *out);

/* This process among those of its host, for choosing a GPU. */
struct gpus_process dist_env_place(const struct dist_env *env);

/* A port for a job whose launcher gave none: the same on all its ranks, outside the ephemeral range. Pure. */
int derived_port(const char *job_id);

/* "torchrun", "srun", ...: for messages. */
const char *dist_launcher_name(enum dist_launcher launcher);

#endif
