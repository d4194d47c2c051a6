/* env: the rank of this process and the addresses of its job. Reads the environment variables of torchrun, srun, Open
 * MPI, MPICH and others or of ddptrain's own launcher, so that the same command line works under each of them.
 * PyTorch's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) have the same meaning
 * as there; WORLD_SIZE alone completes the variables of a launcher that does not set the number of ranks. */
#pragma once

#include "base/log.h"
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
    LAUNCHER_JSM, /* jsrun of LSF */
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
    double ends_at;    /* end of the allocation, in seconds since 1970; 0: not known */
    bool has_begun;    /* an earlier start of this job has opened the run folder: resume, even with --fresh */
};

/* Fills *out. Contradictory or incomplete variables (RANK without WORLD_SIZE, RANK >= WORLD_SIZE, a rank of any
 * launcher whose number of ranks is not known, a port that is not a number) are STATUS_USAGE with the variable's name
 * and value. */
status dist_env_detect(struct dist_env *out);

/* Whether [assignment], "RANK=3", is of a variable by which a launcher makes a process a rank. */
bool dist_env_is_of_launcher(const char *assignment);

/* The local rank and local world size of this process, for choosing a GPU. */
struct gpus_process dist_env_gpus(const struct dist_env *env);

/* Pure: whether [host] is a loopback address for every host: "localhost", "127.0.0.1", "::1". */
bool dist_env_is_loopback_name(const char *host);

/* Pure: a port computed from the job id, for launchers that set none: equal on all ranks, outside the ephemeral
 * range. */
int dist_env_derive_port(const char *job_id);

/* "torchrun", "srun", ...: for messages. */
const char *dist_launcher_name(enum dist_launcher launcher);

/* ---- Slurm's compact lists of hosts and of counts; pure ---- */

/* host (size): host number [index], from 0, of a Slurm node list such as "n[1-2,05],m7". false: not a node list, or a
 * shorter one. */
bool slurm_host(const char *list, int index, char *host, size_t size);
/* The number of hosts; 0: not a node list. */
int slurm_host_count(const char *list);
/* Number [index], from 0, of a Slurm list of counts such as "2(x3),1"; 0: there is none. */
int slurm_count(const char *list, int index);

/* ---- names of environment variables that the processes of a job read ---- */

/* Set by the launcher for its ranks. */
#define LAUNCHER_VARIABLE "DDPTRAIN_LAUNCHER"   /* the launcher's pid: a rank's parent has it, a grandchild's has not */
#define JOB_VARIABLE "DDPTRAIN_JOB_ID"          /* the same on all nodes of the job */
#define STORE_FD_VARIABLE "DDPTRAIN_STORE_FD"   /* rank 0: a listening socket for the store */
#define SECRET_FD_VARIABLE "DDPTRAIN_SECRET_FD" /* a file with the job's secret */
#define REPORT_FD_VARIABLE "DDPTRAIN_REPORT_FD" /* a socket to the launcher, for launcher_send */
#define EXITS_FD_VARIABLE "DDPTRAIN_EXITS_FD"   /* a socket on which the launcher reports how other ranks ended */
#define ACTIVITY_FD_VARIABLE "DDPTRAIN_ACTIVITY_FD"   /* a memfd for the activity record, which the launcher reads */
#define LINK_VARIABLE "DDPTRAIN_LINK"                 /* 1: this rank must create a link to the launcher of node 0 */
#define RESTART_COUNT_VARIABLE "DDPTRAIN_INCARNATION" /* restarts of the ranks so far */
#define BEGUN_VARIABLE "DDPTRAIN_BEGUN"               /* 1: an earlier start has opened the run folder */
#define END_VARIABLE "DDPTRAIN_END_TIME"              /* set by job scripts: when the allocation ends */
#define SECRET_VARIABLE "DDPTRAIN_SECRET"             /* set by the user across nodes */
#define INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"       /* as PyTorch: overrides the network interface */

/* ---- the secret and the listening socket, from the launcher or the environment ---- */

/* The secret: from the launcher's file, else from the variable DDPTRAIN_SECRET (STATUS_USAGE: too short), else derived
 * from the job id, which others can guess. */
status dist_env_secret(const struct dist_env *env, uint8_t secret[32]);
bool dist_env_secret_is_guessable(const struct dist_env *env);
/* A warning for rank 0 of several hosts with such a secret. */
extern const char *const dist_env_secret_warning;

/* Rank 0: *fd is the launcher's listening socket, else a new one on master_addr:master_port. */
status dist_env_listener(const struct dist_env *env, int *fd);
