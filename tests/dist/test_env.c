/* A table of environments, as launchers set them, and the result of dist_env_detect for each. ctest-labels: unit */
#include "dist/process/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_main.h"
#include "files.h"

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "DDPTRAIN_LAUNCHER",
                                    "DDPTRAIN_JOB_ID",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_NTASKS_PER_NODE",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_JOB_ID",
                                    "SLURM_JOBID",
                                    "SLURM_RESTART_COUNT",
                                    "SLURM_JOB_END_TIME",
                                    END_VARIABLE,
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "PMIX_NAMESPACE",
                                    "PMIX_RANK",
                                    "FLUX_TASK_RANK",
                                    "FLUX_JOB_SIZE",
                                    "FLUX_TASK_LOCAL_ID",
                                    "FLUX_JOB_NNODES",
                                    "FLUX_JOB_ID",
                                    "MV2_COMM_WORLD_RANK",
                                    "MV2_COMM_WORLD_SIZE",
                                    "MV2_COMM_WORLD_LOCAL_RANK",
                                    "MV2_COMM_WORLD_LOCAL_SIZE",
                                    "MPIRUN_ID",
                                    "PALS_RANKID",
                                    "PALS_NODEID",
                                    "PALS_LOCAL_RANKID",
                                    "PALS_LOCAL_SIZE",
                                    "PALS_APID",
                                    "PMI_RANK",
                                    "PMI_ID",
                                    "PMI_SIZE",
                                    "PMI_LOCAL_RANK",
                                    "PMI_LOCAL_SIZE",
                                    "I_MPI_HYDRA_UUID",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "PBS_NODEFILE",
                                    "LSB_DJOB_RANKFILE",
                                    "PE_HOSTFILE",
                                    "JSM_NAMESPACE_RANK",
                                    "JSM_NAMESPACE_SIZE",
                                    "JSM_NAMESPACE_LOCAL_RANK",
                                    "JSM_NAMESPACE_LOCAL_SIZE",
                                    "LSB_JOBID"};

/* Sets exactly the variables of "A=1 B=2". PARENT stands for the parent's pid. */
static void set_environment(const char *assignments) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) unsetenv(known[i]);
    char copy[2048], *save = NULL;
    snprintf(copy, sizeof copy, "%s", assignments);
    for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(name, '='), parent[32];
        ck_assert_ptr_nonnull(equals);
        *equals = 0;
        snprintf(parent, sizeof parent, "%ld", (long)getppid());
        setenv(name, strcmp(equals + 1, "PARENT") == 0 ? parent : equals + 1, 1);
    }
}

/* What the launchers set, as their sources and users' logs show it: mpirun_rsh of MVAPICH2, mpiexec of PALS, with --pmi
 * cray, pmix and none, and Slurm's plugins for Cray's PMI and for PMIx. */
#define MVAPICH2                                                                                                       \
    "PMI_ID=3 PMI_PORT=n1:4001 MPIRUN_ID=812 MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_NODE_ID=1 "
#define PALS "PALS_RANKID=3 PALS_NODEID=1 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 PALS_APID=5f01 PALS_DEPTH=1 "
#define CRAY_PMI "PMI_RANK=3 PMI_SIZE=4 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2 PMI_UNIVERSE_SIZE=4 "
#define PMIX "PMIX_RANK=3 PMIX_SECURITY_MODE=native PMIX_HOSTNAME=n2 PMIX_NAMESPACE="
#define JSM "JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=1 LSB_JOBID=91 PMIX_RANK=3 "
#define FLUX "FLUX_TASK_RANK=3 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_ID=f2YP "

#define SLURM2                                                                                                         \
    "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=2(x2) SLURM_STEP_ID=0 "         \
    "SLURM_JOB_ID=77 SLURM_STEP_NODELIST="

static const struct {
    const char *environment;
    enum dist_launcher launcher;
    int rank, world, local_rank, local_world;
    const char *master; /* "host:port"; a port of 0 stands for a derived one */
    const char *job;    /* id/restart count, or id; NULL: any */
} good[] = {
    {"", LAUNCHER_NONE, 0, 1, 0, 1, ":", ""},
    {"MASTER_ADDR=n1 MASTER_PORT=1", LAUNCHER_NONE, 0, 1, 0, 1, ":", NULL},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
     "DDPTRAIN_LAUNCHER=PARENT DDPTRAIN_JOB_ID=j1 DDPTRAIN_INCARNATION=3 DDPTRAIN_BEGUN=1",
     LAUNCHER_OWN, 1, 2, 1, 2, "127.0.0.1:29500", "j1/3"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 DDPTRAIN_LAUNCHER=1234567", LAUNCHER_ENVIRONMENT, 1,
     2, 1, 2, "127.0.0.1:29500", "port-29500"},
    {"RANK=0 WORLD_SIZE=1", LAUNCHER_ENVIRONMENT, 0, 1, 0, 1, ":", NULL},
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500", LAUNCHER_ENVIRONMENT, 3, 4, 0, 1, "n1:29500", NULL},
    {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29500", LAUNCHER_ENVIRONMENT, 3, 4, 1, 2, "n1:29500",
     NULL},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none",
     LAUNCHER_TORCHRUN, 5, 8, 1, 4, "n1:29500", "none/0"},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x "
     "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=2",
     LAUNCHER_TORCHRUN, 5, 8, 1, 4, "n1:29501", "x/2"},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x "
     "TORCHELASTIC_USE_AGENT_STORE=False",
     LAUNCHER_TORCHRUN, 5, 8, 1, 4, "n1:29500", NULL},
    {SLURM2 "n[1-2,5],m7", LAUNCHER_SLURM, 3, 4, 1, 2, "n1:0", "slurm-77.0/0"},
    {SLURM2 "n7 SLURM_RESTART_COUNT=1", LAUNCHER_SLURM, 3, 4, 1, 4, "127.0.0.1:0", "slurm-77.0/1"},
    {SLURM2 "n[01-02] MASTER_ADDR=head MASTER_PORT=4000", LAUNCHER_SLURM, 3, 4, 1, 2, "head:4000", NULL},
    {SLURM2 "n[01-02]-ib MASTER_PORT=4000", LAUNCHER_SLURM, 3, 4, 1, 2, "n01-ib:4000", NULL},
    {SLURM2 "n7", LAUNCHER_SLURM, 3, 4, 1, 4, "127.0.0.1:0", NULL},
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=77 "
     "SLURM_NODELIST=n[1-2]",
     LAUNCHER_SLURM, 3, 4, 1, 2, "n1:0", NULL},
    {"SLURM_PROCID=3 SLURM_STEP_ID=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1", LAUNCHER_SLURM, 3, 4, 0, 1, "127.0.0.1:0",
     NULL},
    {"SLURM_PROCID=0 SLURM_STEP_ID=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1", LAUNCHER_SLURM, 0, 4, 0, 1, "127.0.0.1:0",
     NULL},
    {SLURM2 "n7 SLURM_STEP_NUM_TASKS=5", LAUNCHER_SLURM, 3, 5, 1, 5, "127.0.0.1:0", NULL},
    /* the batch script, an interactive shell of one task, a job without a step */
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=batch SLURM_NODELIST=n[1-2]", LAUNCHER_NONE, 0, 1, 0,
     1, ":", NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NODELIST=n1", LAUNCHER_NONE, 0, 1, 0, 1, ":",
     NULL},
    {"SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_NODELIST=n1", LAUNCHER_NONE, 0, 1, 0, 1, ":", NULL},
    /* torchrun inside a Slurm step */
    {SLURM2 "n[1-2] RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 "
            "TORCHELASTIC_RUN_ID=r",
     LAUNCHER_TORCHRUN, 0, 2, 0, 2, "localhost:29500", NULL},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "OMPI_MCA_ess_base_jobid=99",
     LAUNCHER_OPENMPI, 1, 2, 1, 2, "127.0.0.1:0", "Open MPI 99"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
     "MASTER_ADDR=n1 MASTER_PORT=5000",
     LAUNCHER_OPENMPI, 1, 2, 0, 1, "n1:5000", NULL},
    {"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3", LAUNCHER_MPICH, 2, 3, 2, 3, "127.0.0.1:0", NULL},
    {"PMI_RANK=0 PMI_SIZE=1", LAUNCHER_MPICH, 0, 1, 0, 1, ":", NULL},
    /* MPICH's mpirun in a Slurm job: two helper processes, four ranks */
    {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 "
     "SLURM_JOB_ID=7 SLURM_STEP_NODELIST=n[1-2] MASTER_ADDR=n1",
     LAUNCHER_MPICH, 2, 4, 0, 2, "n1:0", NULL},
    {"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3 I_MPI_HYDRA_UUID=9d26", LAUNCHER_MPICH, 2, 3, 2, 3,
     "127.0.0.1:0", "MPICH 9d26"},
    /* the last rank of a host whose number of ranks is not known does not assume that all are on it */
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MASTER_ADDR=n1", LAUNCHER_MPICH, 1, 2, 1, 2, "n1:0", NULL},
    {"PMI_ID=1 PMI_PORT=n1:4001 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 WORLD_SIZE=2", LAUNCHER_MPICH, 1, 2, 1, 2,
     "127.0.0.1:0", NULL},
    {MVAPICH2 "MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_SIZE=4", LAUNCHER_MVAPICH2, 3, 4, 1, 4, "127.0.0.1:0",
     "MVAPICH2 812"},
    {MVAPICH2 "MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=n1", LAUNCHER_MVAPICH2, 3, 4, 1, 2, "n1:0",
     NULL},
    {PALS CRAY_PMI "MASTER_ADDR=n1", LAUNCHER_MPICH, 3, 4, 1, 2, "n1:0", "MPICH 5f01"},
    {PALS "WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=4000", LAUNCHER_PALS, 3, 4, 1, 2, "n1:4000", "PALS 5f01"},
    {PALS PMIX "5f01 WORLD_SIZE=4 MASTER_ADDR=n1", LAUNCHER_PALS, 3, 4, 1, 2, "n1:0", "PALS 5f01"},
    {"PALS_RANKID=3 PALS_LOCAL_RANKID=3 PALS_LOCAL_SIZE=4 PALS_APID=5f01 WORLD_SIZE=4", LAUNCHER_PALS, 3, 4, 3, 4,
     "127.0.0.1:0", "PALS 5f01"},
    {SLURM2 "n[1-2] " PALS CRAY_PMI, LAUNCHER_SLURM, 3, 4, 1, 2, "n1:0", "slurm-77.0"},
    {SLURM2 "n[1-2] " PMIX "slurm.pmix.77.0", LAUNCHER_SLURM, 3, 4, 1, 2, "n1:0", "slurm-77.0"},
    /* a container that gets PMIx's variables, but not all of Slurm's */
    {PMIX "slurm.pmix.77.0 SLURM_NTASKS=4 SLURM_LOCALID=1 MASTER_ADDR=n1", LAUNCHER_PMIX, 3, 4, 1, 2, "n1:0",
     "PMIx slurm.pmix.77.0"},
    {PMIX "prterun-n1-88@1 WORLD_SIZE=4 MASTER_ADDR=n1", LAUNCHER_PMIX, 3, 4, 0, 1, "n1:0", "PMIx prterun-n1-88@1"},
    /* prterun in a Slurm job: two helper processes, four ranks */
    {PMIX "prterun-n1-88@1 WORLD_SIZE=4 MASTER_ADDR=n1 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0", LAUNCHER_PMIX, 3,
     4, 0, 1, "n1:0", NULL},
    {FLUX "FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2 MASTER_ADDR=n1 PMI_RANK=3 PMI_SIZE=4", LAUNCHER_FLUX, 3, 4, 1, 2, "n1:0",
     "Flux f2YP"},
    /* jsrun: without an MPI, on one host, with Spectrum MPI, which is Open MPI */
    {JSM "JSM_NAMESPACE_LOCAL_SIZE=2 MASTER_ADDR=n1", LAUNCHER_JSM, 3, 4, 1, 2, "n1:0", "jsrun 91"},
    {"JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=3 JSM_NAMESPACE_LOCAL_SIZE=4", LAUNCHER_JSM, 3,
     4, 3, 4, "127.0.0.1:0", NULL},
    {JSM "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
         "MASTER_ADDR=n1",
     LAUNCHER_OPENMPI, 3, 4, 1, 2, "n1:0", NULL},
    {FLUX "FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1", LAUNCHER_FLUX, 3, 4, 1, 4, "127.0.0.1:0", "Flux f2YP"},
    /* Flux in a Slurm job; MPICH's mpirun in one task of Flux, of PALS and of Slurm */
    {FLUX "FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", LAUNCHER_FLUX, 3, 4, 1, 4,
     "127.0.0.1:0", NULL},
    {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", LAUNCHER_MPICH, 0, 4,
     0, 4, "127.0.0.1:0", NULL},
    {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4 PALS_RANKID=0 PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=1",
     LAUNCHER_MPICH, 2, 4, 2, 4, "127.0.0.1:0", NULL},
    {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0",
     LAUNCHER_MPICH, 0, 4, 0, 4, "127.0.0.1:0", NULL},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0",
     LAUNCHER_MPICH, 0, 2, 0, 2, "127.0.0.1:0", NULL},
    /* MPICH's mpirun in one task of Open MPI's, and the other way round; srun in one task of MPICH's */
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
     LAUNCHER_MPICH, 1, 2, 1, 2, "127.0.0.1:0", NULL},
    {"PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=77",
     LAUNCHER_OPENMPI, 1, 2, 1, 2, "127.0.0.1:0", "Open MPI 77"},
    {SLURM2 "n7 PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", LAUNCHER_SLURM, 3, 4, 1, 4, "127.0.0.1:0",
     NULL},
    /* a step of one task, such as an interactive shell, whose PMI is Cray's or PMIx: --nproc starts the ranks */
    {"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 PMI_RANK=0 PMI_SIZE=1 PALS_RANKID=0", LAUNCHER_NONE, 0, 1, 0, 1,
     ":", NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.7.0", LAUNCHER_NONE, 0, 1, 0,
     1, ":", NULL},
};

TEST_EACH(rank_is_detected, good) {
    struct dist_env env;
    set_environment(good[_i].environment);
    status s = dist_env_detect(&env);
    ck_assert_msg(s == OK, "%s: %s", good[_i].environment, status_message(s));
    ck_assert_msg(env.launcher == good[_i].launcher, "%s: %s", good[_i].environment, dist_launcher_name(env.launcher));
    ck_assert_int_eq(env.rank, good[_i].rank);
    ck_assert_int_eq(env.world_size, good[_i].world);
    ck_assert_int_eq(env.local_rank, good[_i].local_rank);
    ck_assert_int_eq(env.local_world_size, good[_i].local_world);
    const char *colon = strchr(good[_i].master, ':');
    ck_assert_int_eq(strncmp(env.master_addr, good[_i].master, (size_t)(colon - good[_i].master)), 0);
    ck_assert_uint_eq(strlen(env.master_addr), (size_t)(colon - good[_i].master));
    int port = colon[1] ? atoi(colon + 1) : 0;
    if (colon[1] && port == 0)
        ck_assert(env.master_port == dist_env_derive_port(env.job_id) && env.master_port > 1024 &&
                  env.master_port < 32768);
    else
        ck_assert_int_eq(env.master_port, port);
    if (!good[_i].job) return;
    char job[160];
    bool has_restart_count = strchr(good[_i].job, '/') != NULL;
    if (has_restart_count)
        snprintf(job, sizeof job, "%s/%d", env.job_id, env.restart_count);
    else
        snprintf(job, sizeof job, "%s", env.job_id);
    ck_assert_str_eq(job, good[_i].job);
    ck_assert_int_eq(env.has_begun, env.restart_count > 0);
}

static const struct {
    const char *environment, *expected; /* part of the message */
} bad[] = {
    {"RANK=1", "WORLD_SIZE is not set"},
    {"WORLD_SIZE=2", "RANK is not set"},
    {"RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "rank 2 does not exist: the world size is 2"},
    {"RANK=-1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK is '-1'"},
    {"RANK=1x WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK is '1x'"},
    {"RANK=1 WORLD_SIZE=two MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is 'two'"},
    {"RANK=1 WORLD_SIZE=99999999999 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is '99999999999'"},
    {"RANK=1 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT is not set"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=http", "MASTER_PORT is 'http'"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65536", "MASTER_PORT is '65536'"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "local rank 3 does not exist"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1",
     "the local world size 3 is larger than"},
    {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=5 MASTER_ADDR=a MASTER_PORT=1",
     "local rank 5 does not exist: the world size is 1"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535 TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True",
     "65535"},
    {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE, their number, is not set"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0",
     "set MASTER_ADDR"},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", "set MASTER_ADDR"},
    {PALS PMIX "5f01", "PALS_RANKID is 3, so this process is one of those that PALS has started, but PMI_SIZE, their "
                       "number, is not set; set WORLD_SIZE to it"},
    {PALS "WORLD_SIZE=4", "PALS does not set the host of rank 0; set MASTER_ADDR"},
    {PALS CRAY_PMI "MASTER_ADDR=n1 WORLD_SIZE=8", "WORLD_SIZE is 8, but the world size of MPICH is 4"},
    {PALS "WORLD_SIZE=3 MASTER_ADDR=n1", "rank 3 does not exist: the world size is 3 (PALS)"},
    {PMIX "prterun-n1-88@1", "PMIX_RANK is 3, so this process is one of those that PMIx has started"},
    {PMIX "prterun-n1-88@1 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0", "PMIX_RANK is 3"},
    {PMIX "slurm.pmix.77.0", "but SLURM_STEP_NUM_TASKS, their number, is not set"},
    {"PMIX_RANK=0", "PMIX_RANK is 0"},
    {"MV2_COMM_WORLD_RANK=1", "but MV2_COMM_WORLD_SIZE, their number, is not set"},
    {FLUX, "but FLUX_JOB_SIZE, their number, is not set"},
    {"PMI_RANK=1", "but PMI_SIZE, their number, is not set"},
    {"PMI_ID=1 PMI_PORT=n1:4001 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "PMI_ID is 1"},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", "set MASTER_ADDR"},
    {"SLURM_PROCID=3", "SLURM_PROCID is 3, so this process is one of those that srun has started, but SLURM_NTASKS"},
    {"SLURM_PROCID=3 SLURM_NTASKS=4", "but SLURM_STEP_ID is not set; set it to the number of their step"},
    {"SLURM_PROCID=3 WORLD_SIZE=4 MASTER_ADDR=n1", "but SLURM_STEP_ID is not set; set it to the number of their step"},
    {"SLURM_PROCID=3 SLURM_STEP_ID=0 WORLD_SIZE=3 MASTER_ADDR=n1", "rank 3 does not exist: the world size is 3 (srun)"},
    {SLURM2 "n7 WORLD_SIZE=2", "WORLD_SIZE is 2, but the world size of srun is 4"},
    {SLURM2 "n[1-", "not a list of nodes"},
    {"SLURM_PROCID=0 SLURM_NTASKS=many SLURM_STEP_ID=0", "SLURM_NTASKS is 'many'"},
};

TEST_EACH(invalid_environments_are_rejected, bad) {
    struct dist_env env;
    set_environment(bad[_i].environment);
    status s = dist_env_detect(&env);
    ck_assert_msg(status_code(s) == STATUS_USAGE, "%s", bad[_i].environment);
    ck_assert_msg(strstr(status_message(s), bad[_i].expected), "%s: %s", bad[_i].environment, status_message(s));
    status_free(s);
}

/* The host of rank 0 from the file of a queue; OWN is this host. Rank 0 must be there. */
static const struct {
    const char *variable, *more, *text, *rank_0, *others; /* rank_0: a failure; others: the host; "": a failure */
} queues[] = {
    {"PBS_NODEFILE", "", "OWN\nOWN\nn2\nn2\n", NULL, "OWN"},
    {"PBS_NODEFILE", "", "OWN.cluster.example\nn2.cluster.example\n", NULL, "OWN.cluster.example"},
    {"PBS_NODEFILE", "", "n1\nn2\n", "rank 0 is not on the first host of the PBS job, n1 (PBS_NODEFILE)", "n1"},
    {"PBS_NODEFILE", "", "OWNx\nn2\n", "rank 0 is not on the first host", "OWNx"},
    {"PBS_NODEFILE", "", "\n  \n", "set MASTER_ADDR", ""},
    {"LSB_DJOB_RANKFILE", "", "OWN\nn2\n", NULL, "OWN"},
    {"LSB_DJOB_RANKFILE", " JSM_NAMESPACE_RANK=3", "batch1\nOWN\nOWN\nn2\n", NULL, "OWN"},
    {"LSB_DJOB_RANKFILE", " JSM_NAMESPACE_RANK=3", "batch1\n", "set MASTER_ADDR", ""},
    {"PE_HOSTFILE", "", "OWN 4 all.q@OWN UNDEFINED\nn2 4 all.q@n2 UNDEFINED\n", NULL, "OWN"},
};

/* With the name of this host for OWN. */
static void add_own(const char *text, char *out, size_t size) {
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    own[strcspn(own, ".")] = 0;
    *out = 0;
    for (const char *at; (at = strstr(text, "OWN")); text = at + 3)
        snprintf(out + strlen(out), size - strlen(out), "%.*s%s", (int)(at - text), text, own);
    snprintf(out + strlen(out), size - strlen(out), "%s", text);
}

TEST_EACH(hosts_of_queues, queues) {
    char environment[256], text[1024], host[300], path[] = "/tmp/hosts-XXXXXX";
    struct dist_env env;
    int fd = mkstemp(path);
    add_own(queues[_i].text, text, sizeof text);
    add_own(queues[_i].others, host, sizeof host);
    ck_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(environment, sizeof environment, "PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=%d MPI_LOCALNRANKS=2 %s=%s%s",
                 rank, rank, queues[_i].variable, path, queues[_i].more);
        set_environment(environment);
        if (rank == 0 && queues[_i].rank_0) {
            ck_failure(dist_env_detect(&env), STATUS_USAGE, queues[_i].rank_0);
        } else if (!*host) {
            ck_failure(dist_env_detect(&env), STATUS_USAGE, "set MASTER_ADDR");
        } else {
            ck_ok(dist_env_detect(&env));
            ck_assert_str_eq(env.master_addr, host);
        }
        strcat(environment, " MASTER_ADDR=other"); /* the user's word */
        set_environment(environment);
        ck_ok(dist_env_detect(&env));
        ck_assert_str_eq(env.master_addr, "other");
    }
    unlink(path);
}

/* A process of any launcher, without the variables that are known to be of one, is not a rank. */
TEST_EACH(variables_of_launchers_are_known, good) {
    struct dist_env env;
    set_environment(good[_i].environment);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char assignment[64];
        snprintf(assignment, sizeof assignment, "%s=1", known[i]);
        if (dist_env_is_of_launcher(assignment)) unsetenv(known[i]);
    }
    unsetenv(LAUNCHER_VARIABLE); /* counts only in a child of that launcher */
    ck_ok(dist_env_detect(&env));
    ck_assert_msg(env.launcher == LAUNCHER_NONE, "%s: %s", good[_i].environment, dist_launcher_name(env.launcher));
    ck_assert(!dist_env_is_of_launcher("PATH=/bin") && !dist_env_is_of_launcher("RANKS=2"));
}

static const struct {
    const char *list, *hosts; /* "" : not a list */
} lists[] = {
    {"n1", "n1"},
    {"n[1-3]", "n1 n2 n3"},
    {"n[1-2,5],m7", "n1 n2 n5 m7"},
    {"gpu[008-011]x", "gpu008x gpu009x gpu010x gpu011x"},
    {"a,b-[9-10],c", "a b-9 b-10 c"},
    {"[1-2]", "1 2"},
    {"", ""},
    {",a", ""},
    {"a,", ""},
    {"n[", ""},
    {"n[]", ""},
    {"n[2-1]", ""},
    {"n[1-]", ""},
    {"n[a]", ""},
    {"n]", ""},
    {"n[1][2]", ""},
    {"a,n[2-1]", ""},
    {"a,n[1", ""},
    {"a,n],b", ""},
    {"n[1-99999999999999999999]", ""},
};

/* In seconds since 1970, which have more than 31 bits from 2038 on. */
TEST(the_end_of_an_allocation) {
    struct dist_env env;
    set_environment("");
    ck_assert(dist_env_detect(&env) == OK && env.ends_at == 0);
    set_environment("SLURM_JOB_END_TIME=2147483649");
    ck_ok(dist_env_detect(&env));
    ck_assert_double_eq(env.ends_at, 2147483649.0);
    set_environment("SLURM_JOB_END_TIME=100 DDPTRAIN_END_TIME=2147483650"); /* the script's word */
    ck_ok(dist_env_detect(&env));
    ck_assert_double_eq(env.ends_at, 2147483650.0);
    set_environment("DDPTRAIN_END_TIME=soon");
    ck_failure(dist_env_detect(&env), STATUS_USAGE, "DDPTRAIN_END_TIME is 'soon', but must be a number from 0 to");
    set_environment("SLURM_JOB_END_TIME=never");
    ck_failure(dist_env_detect(&env), STATUS_USAGE, "SLURM_JOB_END_TIME is 'never', but must be a number from 0 to");
}

TEST_EACH(node_lists, lists) {
    char all[256] = "", host[64];
    int count = slurm_host_count(lists[_i].list);
    for (int i = 0; i < count; i++) {
        ck_assert(slurm_host(lists[_i].list, i, host, sizeof host));
        if (i) strcat(all, " ");
        strcat(all, host);
    }
    ck_assert_str_eq(all, lists[_i].hosts);
    ck_assert(!slurm_host(lists[_i].list, count, host, sizeof host));
}

TEST(counts_per_node) {
    ck_assert_int_eq(slurm_count("2(x3),1", 0), 2);
    ck_assert_int_eq(slurm_count("2(x3),1", 2), 2);
    ck_assert_int_eq(slurm_count("2(x3),1", 3), 1);
    ck_assert_int_eq(slurm_count("2(x3),1", 4), 0);
    ck_assert_int_eq(slurm_count("4", 0), 4);
    ck_assert_int_eq(slurm_count("", 0), 0);
    ck_assert_int_eq(slurm_count("2(x", 0), 0);
    ck_assert_int_eq(slurm_count("x", 0), 0);
    ck_assert_int_eq(slurm_count("1048576", 0), 1 << 20);
    static const char *const wrong[] = {"0,3", "1048577,3", "2(x0),3", "2(x-1),3", "2(x3", "2(x1)4", "2;3", "2, 3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int index = i < 5 ? 0 : 1; index < 4; index++)
            ck_assert_msg(slurm_count(wrong[i], index) == 0, "'%s', %d", wrong[i], index);
}

CHECK_MAIN("env")
