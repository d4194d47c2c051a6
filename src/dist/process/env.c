/* One function for each launcher, inner launchers first: ddptrain, torchrun, plain variables, Open MPI, Slurm, MPICH.
 * The first that finds its variables is used, so mpirun in a Slurm job counts as Open MPI. */
#include "dist/process/env.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/process/env_slurm.h"
#include "dist/process/variables.h"

#define MAX_PORT 65535
#define MAX_RANKS (1 << 20)
#define MAX_SECONDS (INT64_C(1) << 53) /* since 1970 */

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

/* The first of [names] (NULL-terminated) that is set; NULL: none. */
static const char *first_set(const char *const *names) {
    for (; *names; names++)
        if (is_set(*names)) return *names;
    return NULL;
}

/* Reads variable [name], an integer from [min] to [max]. *out is not changed if it is not set. */
static status read_number(const char *name, int64_t min, int64_t max, int64_t *out) {
    if (!is_set(name)) return OK;
    const char *text = getenv(name);
    char *end;
    int64_t value = strtoll(text, &end, 10);
    if (*end || end == text || value < min || value > max)
        return status_new(STATUS_USAGE, "environment variable %s is '%s', but must be a number from %lld to %lld", name,
                          text, (long long)min, (long long)max);
    *out = value;
    return OK;
}

static status read_int(const char *name, int min, int max, int *out) {
    int64_t value = *out;
    TRY(read_number(name, min, max, &value));
    *out = (int)value;
    return OK;
}

static status require_int(const char *name, int min, int max, int *out, const char *because) {
    if (!is_set(name))
        return status_new(STATUS_USAGE, "environment variable %s is not set, although %s is", name, because);
    return read_int(name, min, max, out);
}

static status copy_text(char *to, size_t size, const char *text, const char *what) {
    if (strlen(text) >= size) return status_new(STATUS_USAGE, "%s is longer than %zu characters", what, size - 1);
    memcpy(to, text, strlen(text) + 1);
    return OK;
}

int dist_env_derive_port(const char *job_id) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = job_id; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return 20000 + (int)(hash % 12000);
}

static status check(const struct dist_env *env) {
    if (env->rank >= env->world_size)
        return status_new(STATUS_USAGE, "rank %d does not exist: the world size is %d (%s)", env->rank, env->world_size,
                          dist_launcher_name(env->launcher));
    if (env->local_rank >= env->local_world_size)
        return status_new(STATUS_USAGE, "local rank %d does not exist: the local world size is %d (%s)",
                          env->local_rank, env->local_world_size, dist_launcher_name(env->launcher));
    if (env->local_rank >= env->world_size)
        return status_new(STATUS_USAGE, "local rank %d does not exist: the world size is %d (%s)", env->local_rank,
                          env->world_size, dist_launcher_name(env->launcher));
    if (env->local_world_size > env->world_size)
        return status_new(STATUS_USAGE, "the local world size %d is larger than the world size %d (%s)",
                          env->local_world_size, env->world_size, dist_launcher_name(env->launcher));
    return OK;
}

static bool is_loopback_name(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

/* The address of the store, for launchers that do not set MASTER_ADDR and MASTER_PORT. */
static status find_master(struct dist_env *env, const char *default_host) {
    if (env->world_size == 1) return OK;
    const char *host = is_set("MASTER_ADDR") ? getenv("MASTER_ADDR") : default_host;
    if (!host)
        return status_new(STATUS_USAGE,
                          "%s does not set the host of rank 0; set MASTER_ADDR to that host, the same on every rank",
                          dist_launcher_name(env->launcher));
    TRY(copy_text(env->master_addr, sizeof env->master_addr, host, "MASTER_ADDR"));
    env->master_port = dist_env_derive_port(env->job_id);
    return read_int("MASTER_PORT", 1, MAX_PORT, &env->master_port);
}

/* Reads RANK, WORLD_SIZE and the others as PyTorch's env:// does. */
static status from_variables(struct dist_env *env) {
    TRY(require_int("WORLD_SIZE", 1, MAX_RANKS, &env->world_size, "RANK"));
    TRY(require_int("RANK", 0, MAX_RANKS, &env->rank, "WORLD_SIZE"));
    if (env->world_size > 1) {
        if (!is_set("MASTER_ADDR"))
            return status_new(STATUS_USAGE, "environment variable MASTER_ADDR (the host of rank 0) is not set, "
                                            "although RANK and WORLD_SIZE are");
        TRY(copy_text(env->master_addr, sizeof env->master_addr, getenv("MASTER_ADDR"), "MASTER_ADDR"));
        TRY(require_int("MASTER_PORT", 1, MAX_PORT, &env->master_port, "RANK"));
    }
    bool is_one_host = env->world_size == 1 || is_loopback_name(env->master_addr);
    env->local_rank = is_one_host ? env->rank : 0;
    env->local_world_size = is_one_host ? env->world_size : 1;
    TRY(read_int("LOCAL_RANK", 0, MAX_RANKS, &env->local_rank));
    if (env->local_rank >= env->local_world_size) env->local_world_size = env->local_rank + 1;
    return read_int("LOCAL_WORLD_SIZE", 1, MAX_RANKS, &env->local_world_size);
}

static status from_own_launcher(struct dist_env *env, bool *is_found) {
    *is_found = is_set(LAUNCHER_VARIABLE) && atol(getenv(LAUNCHER_VARIABLE)) == (long)getppid();
    if (!*is_found) return OK;
    TRY(from_variables(env));
    TRY(read_int(RESTART_COUNT_VARIABLE, 0, INT_MAX, &env->restart_count));
    env->has_begun = is_set(BEGUN_VARIABLE) && strcmp(getenv(BEGUN_VARIABLE), "1") == 0;
    return copy_text(env->job_id, sizeof env->job_id, is_set(JOB_VARIABLE) ? getenv(JOB_VARIABLE) : "", JOB_VARIABLE);
}

static status from_torchrun(struct dist_env *env, bool *is_found) {
    *is_found = is_set("TORCHELASTIC_RUN_ID") && is_set("RANK");
    if (!*is_found) return OK;
    TRY(from_variables(env));
    const char *agent_store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (agent_store && strcmp(agent_store, "True") == 0 && env->master_port) {
        if (env->master_port == MAX_PORT)
            return status_new(STATUS_USAGE, "MASTER_PORT is 65535, but the port after it is needed under torchrun");
        env->master_port++; /* torchrun's own store listens on MASTER_PORT */
    }
    TRY(read_int("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &env->restart_count));
    env->has_begun = env->restart_count > 0;
    return copy_text(env->job_id, sizeof env->job_id, getenv("TORCHELASTIC_RUN_ID"), "TORCHELASTIC_RUN_ID");
}

static status from_environment(struct dist_env *env, bool *is_found) {
    *is_found = is_set("RANK") || is_set("WORLD_SIZE");
    if (!*is_found) return OK;
    if (!is_set("RANK"))
        return status_new(STATUS_USAGE, "environment variable RANK is not set, although WORLD_SIZE is");
    TRY(from_variables(env));
    if (is_set(JOB_VARIABLE)) return copy_text(env->job_id, sizeof env->job_id, getenv(JOB_VARIABLE), JOB_VARIABLE);
    if (env->world_size > 1) snprintf(env->job_id, sizeof env->job_id, "port-%d", env->master_port);
    return OK;
}

static status from_openmpi(struct dist_env *env, bool *is_found) {
    *is_found = is_set("OMPI_COMM_WORLD_RANK");
    if (!*is_found) return OK;
    TRY(require_int("OMPI_COMM_WORLD_SIZE", 1, MAX_RANKS, &env->world_size, "OMPI_COMM_WORLD_RANK"));
    TRY(read_int("OMPI_COMM_WORLD_RANK", 0, MAX_RANKS, &env->rank));
    TRY(read_int("OMPI_COMM_WORLD_LOCAL_RANK", 0, MAX_RANKS, &env->local_rank));
    env->local_world_size = env->local_rank + 1;
    TRY(read_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1, MAX_RANKS, &env->local_world_size));
    const char *job = first_set((const char *[]){"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", NULL});
    snprintf(env->job_id, sizeof env->job_id, "openmpi-%s", job ? getenv(job) : "job");
    return find_master(env, env->local_world_size == env->world_size ? "127.0.0.1" : NULL);
}

static bool is_number(const char *text) { return text && *text && strspn(text, "0123456789") == strlen(text); }

/* SLURM_PROCID is also set in the batch script and in an interactive shell, where the program is not a rank. */
static bool is_slurm_task(int *tasks, status *failure) {
    *tasks = 0;
    if (!is_set("SLURM_PROCID") || !is_number(getenv("SLURM_STEP_ID"))) return false;
    const char *name = first_set((const char *[]){"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL});
    if (!name) return false;
    *failure = read_int(name, 1, MAX_RANKS, tasks);
    if (*failure) return true;
    /* MPICH's mpirun starts helper processes with srun, whose number differs from that of the ranks */
    bool is_helper = is_set("PMI_SIZE") && atoi(getenv("PMI_SIZE")) != *tasks;
    return *tasks > 1 && !is_helper;
}

static status from_slurm(struct dist_env *env, bool *is_found) {
    status failure = OK;
    *is_found = is_slurm_task(&env->world_size, &failure);
    if (!*is_found) env->world_size = 1;
    if (!*is_found || failure) return failure;
    TRY(read_int("SLURM_PROCID", 0, MAX_RANKS, &env->rank));
    TRY(read_int("SLURM_LOCALID", 0, MAX_RANKS, &env->local_rank));
    int node = 0;
    TRY(read_int("SLURM_NODEID", 0, MAX_RANKS, &node));

    const char *list = first_set((const char *[]){"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST", NULL});
    int hosts = list ? slurm_host_count(getenv(list)) : 0;
    if (list && hosts == 0)
        return status_new(STATUS_USAGE, "environment variable %s is '%s', which is not a list of nodes", list,
                          getenv(list));
    const char *counts = first_set((const char *[]){"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL});
    env->local_world_size = counts ? slurm_count(getenv(counts), node) : 0;
    if (env->local_world_size == 0) TRY(read_int("SLURM_NTASKS_PER_NODE", 1, MAX_RANKS, &env->local_world_size));
    if (hosts == 1) env->local_world_size = env->world_size;
    if (env->local_world_size <= env->local_rank) env->local_world_size = env->local_rank + 1;

    TRY(read_int("SLURM_RESTART_COUNT", 0, INT_MAX, &env->restart_count));
    env->has_begun = env->restart_count > 0;
    const char *job = first_set((const char *[]){"SLURM_JOB_ID", "SLURM_JOBID", NULL});
    snprintf(env->job_id, sizeof env->job_id, "slurm-%.40s.%.40s", job ? getenv(job) : "", getenv("SLURM_STEP_ID"));
    char first[256];
    bool has_host = list && slurm_host(getenv(list), 0, first, sizeof first);
    return find_master(env, hosts == 1 ? "127.0.0.1" : has_host ? first : NULL);
}

static status from_mpich(struct dist_env *env, bool *is_found) {
    *is_found = is_set("PMI_RANK") && is_set("PMI_SIZE");
    if (!*is_found) return OK;
    TRY(read_int("PMI_RANK", 0, MAX_RANKS, &env->rank));
    TRY(read_int("PMI_SIZE", 1, MAX_RANKS, &env->world_size));
    TRY(read_int("MPI_LOCALRANKID", 0, MAX_RANKS, &env->local_rank));
    env->local_world_size = env->local_rank + 1;
    TRY(read_int("MPI_LOCALNRANKS", 1, MAX_RANKS, &env->local_world_size));
    bool is_one_host = env->local_world_size == env->world_size;
    if (is_one_host) /* the parent is the process manager of all ranks of this host */
        snprintf(env->job_id, sizeof env->job_id, "mpich-%ld", (long)getppid());
    else
        snprintf(env->job_id, sizeof env->job_id, "mpich");
    return find_master(env, is_one_host ? "127.0.0.1" : NULL);
}

static const struct launcher {
    enum dist_launcher id;
    const char *name;
    status (*detect)(struct dist_env *env, bool *is_found); /* NULL: end of the table */
} launchers[] = {
    {LAUNCHER_OWN, "ddptrain", from_own_launcher},
    {LAUNCHER_TORCHRUN, "torchrun", from_torchrun},
    {LAUNCHER_ENVIRONMENT, "the environment", from_environment},
    {LAUNCHER_OPENMPI, "Open MPI", from_openmpi},
    {LAUNCHER_SLURM, "srun", from_slurm},
    {LAUNCHER_MPICH, "MPICH", from_mpich},
    {LAUNCHER_NONE, "none", NULL},
};

/* Set in every process of a Slurm job, under any launcher. */
static status read_end(struct dist_env *env) {
    int64_t seconds = 0;
    TRY(read_number("SLURM_JOB_END_TIME", 0, MAX_SECONDS, &seconds));
    env->ends_at = (double)seconds;
    return OK;
}

status dist_env_detect(struct dist_env *out) {
    for (const struct launcher *l = launchers; l->detect; l++) {
        struct dist_env env = {.launcher = l->id, .world_size = 1, .local_world_size = 1};
        bool is_found = false;
        TRY(l->detect(&env, &is_found));
        if (!is_found) continue;
        TRY(check(&env));
        *out = env;
        return read_end(out);
    }
    *out = (struct dist_env){.launcher = LAUNCHER_NONE, .world_size = 1, .local_world_size = 1};
    return read_end(out);
}

struct gpus_process dist_env_gpus(const struct dist_env *env) {
    return (struct gpus_process){.local_rank = env->local_rank,
                                 .local_size = env->local_world_size,
                                 .is_launched = env->launcher != LAUNCHER_NONE && env->launcher != LAUNCHER_OWN};
}

const char *dist_launcher_name(enum dist_launcher launcher) {
    const struct launcher *l = launchers;
    while (l->id != launcher && l->detect) l++;
    return l->name;
}
