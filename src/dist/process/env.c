/* What the environment says: rank and addresses, the secret and the sockets of a launcher. The launchers are a table,
 * inner ones first: a function for those with rules of their own (ddptrain, torchrun, plain variables, Slurm), names of
 * variables for the others. The first that finds its variables is used, so mpirun in a Slurm job counts as Open MPI. A
 * process that a launcher has numbered, but whose number of ranks is not known, must not train alone: that is a
 * failure. */
#include "dist/process/env.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "dist/process/net.h"

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
        return status_usage("environment variable %s is '%s', but must be a number from %lld to %lld", name, text,
                            (long long)min, (long long)max);
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
    if (!is_set(name)) return status_usage("environment variable %s is not set, although %s is", name, because);
    return read_int(name, min, max, out);
}

static status copy_text(char *to, size_t size, const char *text, const char *what) {
    if (strlen(text) >= size) return status_usage("%s is longer than %zu characters", what, size - 1);
    memcpy(to, text, strlen(text) + 1);
    return OK;
}

int dist_env_derive_port(const char *job_id) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = job_id; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return 20000 + (int)(hash % 12000);
}

static status check(const struct dist_env *env) {
    int world_size = env->world_size;
    TRY(read_int("WORLD_SIZE", 1, MAX_RANKS, &world_size));
    if (world_size != env->world_size)
        return status_usage("WORLD_SIZE is %d, but the world size of %s is %d; unset WORLD_SIZE", world_size,
                            dist_launcher_name(env->launcher), env->world_size);
    if (env->rank >= env->world_size)
        return status_usage("rank %d does not exist: the world size is %d (%s)", env->rank, env->world_size,
                            dist_launcher_name(env->launcher));
    if (env->local_rank >= env->local_world_size)
        return status_usage("local rank %d does not exist: the local world size is %d (%s)", env->local_rank,
                            env->local_world_size, dist_launcher_name(env->launcher));
    if (env->local_rank >= env->world_size)
        return status_usage("local rank %d does not exist: the world size is %d (%s)", env->local_rank, env->world_size,
                            dist_launcher_name(env->launcher));
    if (env->local_world_size > env->world_size)
        return status_usage("the local world size %d is larger than the world size %d (%s)", env->local_world_size,
                            env->world_size, dist_launcher_name(env->launcher));
    return OK;
}

bool dist_env_is_loopback_name(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

/* Files in which queues write the hosts of a job, one a line, the first one that of rank 0. */
static const struct host_file {
    const char *variable, *queue;
    /* With this variable set the first line is the host that started the job, which has no ranks (jsrun on machines
     * with such hosts); NULL: never. */
    const char *skips_first_with;
} host_files[] = {
    {"PBS_NODEFILE", "PBS", NULL},
    {"LSB_DJOB_RANKFILE", "LSF", "JSM_NAMESPACE_RANK"},
    {"PE_HOSTFILE", "Grid Engine", NULL},
};

/* host (size): the first word of the first line, or of the first other one after it. False: there is none. */
static bool read_first_host(const struct host_file *file, char *host, size_t size) {
    bool skips = file->skips_first_with && is_set(file->skips_first_with), is_found = false;
    char line[NI_MAXHOST + 256], first[NI_MAXHOST] = "";
    FILE *stream = is_set(file->variable) ? fopen(getenv(file->variable), "re") : NULL;
    while (stream && !is_found && fgets(line, sizeof line, stream)) {
        size_t begin = strspn(line, " \t"), length = strcspn(line + begin, " \t\r\n");
        if (length == 0 || length >= sizeof first) continue;
        snprintf(host, size, "%.*s", (int)length, line + begin);
        if (!*first) snprintf(first, sizeof first, "%.*s", (int)length, line + begin);
        is_found = !skips || strcmp(host, first) != 0;
    }
    if (stream) fclose(stream);
    return is_found;
}

/* Whether [host] is a name of this host, without regard to domains. */
static bool is_own_name(const char *host) {
    char own[NI_MAXHOST] = "";
    gethostname(own, sizeof own - 1);
    size_t length = strcspn(own, ".");
    return strncasecmp(host, own, length) == 0 && (host[length] == 0 || host[length] == '.');
}

/* The host of rank 0 where the launcher does not say it: the first one of the queue's file, if rank 0 is there. */
static status find_first_host(const struct dist_env *env, char host[NI_MAXHOST]) {
    const struct host_file *file = host_files;
    const struct host_file *end = host_files + sizeof host_files / sizeof *host_files;
    while (file < end && !read_first_host(file, host, NI_MAXHOST)) file++;
    if (file == end)
        return status_usage("%s does not set the host of rank 0; set MASTER_ADDR to that host, the same on every rank",
                            dist_launcher_name(env->launcher));
    if (env->rank == 0 && !is_own_name(host))
        return status_usage("rank 0 is not on the first host of the %s job, %s (%s), where the others look for it; set "
                            "MASTER_ADDR to the host of rank 0, the same on every rank",
                            file->queue, host, file->variable);
    return OK;
}

/* The address of the store, for launchers that do not set MASTER_ADDR and MASTER_PORT. */
static status find_master(struct dist_env *env, const char *default_host) {
    char first[NI_MAXHOST];
    if (env->world_size == 1) return OK;
    const char *host = is_set("MASTER_ADDR") ? getenv("MASTER_ADDR") : default_host;
    if (!host) TRY(find_first_host(env, first));
    if (!host) host = first;
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
            return status_new(
                STATUS_USAGE,
                "environment variable MASTER_ADDR (the host of rank 0) is not set, although RANK and WORLD_SIZE are");
        TRY(copy_text(env->master_addr, sizeof env->master_addr, getenv("MASTER_ADDR"), "MASTER_ADDR"));
        TRY(require_int("MASTER_PORT", 1, MAX_PORT, &env->master_port, "RANK"));
    }
    bool is_one_host = env->world_size == 1 || dist_env_is_loopback_name(env->master_addr);
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
            return status_usage("MASTER_PORT is 65535, but the port after it is needed under torchrun");
        env->master_port++; /* torchrun's own store listens on MASTER_PORT */
    }
    TRY(read_int("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &env->restart_count));
    env->has_begun = env->restart_count > 0;
    return copy_text(env->job_id, sizeof env->job_id, getenv("TORCHELASTIC_RUN_ID"), "TORCHELASTIC_RUN_ID");
}

static status from_environment(struct dist_env *env, bool *is_found) {
    *is_found = is_set("RANK");
    if (!*is_found) return OK;
    TRY(from_variables(env));
    if (is_set(JOB_VARIABLE)) return copy_text(env->job_id, sizeof env->job_id, getenv(JOB_VARIABLE), JOB_VARIABLE);
    if (env->world_size > 1) snprintf(env->job_id, sizeof env->job_id, "port-%d", env->master_port);
    return OK;
}

/* The last one: other launchers that do not set the number of ranks take it from WORLD_SIZE. */
static status from_world_size(struct dist_env *env, bool *is_found) {
    (void)env;
    *is_found = is_set("WORLD_SIZE");
    return *is_found ? status_usage("environment variable RANK is not set, although WORLD_SIZE is") : OK;
}

/* ---- Slurm ---- */

static bool is_number(const char *text) { return text && *text && strspn(text, "0123456789") == strlen(text); }

/* [size]: the variable that should contain the number of ranks. */
static status size_is_unknown(const char *launcher, const char *rank, const char *size) {
    return status_usage("%s is %s, so this process is one of those that %s has started, but %s, their number, is not "
                        "set; set WORLD_SIZE to it, the same for all of them",
                        rank, getenv(rank), launcher, size);
}

/* Whether MPICH's mpirun or another PMI launcher has started this process as one of several, and task [rank] of [size]
 * of Slurm or Flux is only its helper process, whose variables the ranks inherit. */
static status has_other_pmi_rank(int rank, int size, bool *has_other) {
    int pmi_rank = rank, pmi_size = size;
    TRY(read_int("PMI_RANK", 0, MAX_RANKS, &pmi_rank));
    TRY(read_int("PMI_SIZE", 0, MAX_RANKS, &pmi_size));
    *has_other = pmi_size > 1 && (pmi_rank != rank || pmi_size != size || is_set("MPI_LOCALNRANKS"));
    return OK;
}

/* The tasks of a step of srun; 0: not in a step, or started by MPICH's mpirun in a step. SLURM_PROCID is also set in
 * the batch script and in an interactive shell, where the program is not a rank. */
static status slurm_tasks(int *tasks) {
    int rank = 0;
    bool is_helper;
    *tasks = 0;
    const char *name = first_set((const char *[]){"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "WORLD_SIZE", NULL});
    if (!is_set("SLURM_PROCID")) return OK;
    TRY(read_int("SLURM_PROCID", 0, MAX_RANKS, &rank));
    if (rank > 0 && !name) return size_is_unknown("srun", "SLURM_PROCID", "SLURM_NTASKS");
    if (rank > 0 && !is_set("SLURM_STEP_ID"))
        return status_usage("SLURM_PROCID is %s, so this process is one of those that srun has started, but "
                            "SLURM_STEP_ID is not set; set it to the number of their step, the same for all of them",
                            getenv("SLURM_PROCID"));
    if (!name || !is_number(getenv("SLURM_STEP_ID"))) return OK;
    TRY(read_int(name, 1, MAX_RANKS, tasks));
    TRY(has_other_pmi_rank(rank, *tasks, &is_helper));
    if (is_helper) *tasks = 0;
    return OK;
}

static status from_slurm(struct dist_env *env, bool *is_found) {
    int tasks;
    TRY(slurm_tasks(&tasks));
    *is_found = tasks > 1;
    if (!*is_found) return OK;
    env->world_size = tasks;
    TRY(read_int("SLURM_PROCID", 0, MAX_RANKS, &env->rank));
    TRY(read_int("SLURM_LOCALID", 0, MAX_RANKS, &env->local_rank));
    int node = 0;
    TRY(read_int("SLURM_NODEID", 0, MAX_RANKS, &node));

    const char *list = first_set((const char *[]){"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST", NULL});
    int hosts = list ? slurm_host_count(getenv(list)) : 0;
    if (list && hosts == 0)
        return status_usage("environment variable %s is '%s', which is not a list of nodes", list, getenv(list));
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

/* ---- launchers with one variable for each number ---- */

/* Of each list, which ends with NULL, the first variable that is set is used. */
struct variables {
    const char *namespace_start; /* of PMIX_NAMESPACE; NULL: any */
    const char *rank[3], *size[3], *local_rank[4], *local_size[4], *job[3];
    const char *nodes;
    bool is_set_by_slurm; /* srun may set the rank, too: it depends on its --mpi */
};

static const struct variables open_mpi = {.rank = {"OMPI_COMM_WORLD_RANK"},
                                          .size = {"OMPI_COMM_WORLD_SIZE"},
                                          .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                          .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                                          .job = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}};
/* prterun, whose helper processes may be tasks of Slurm or PALS */
static const struct variables prrte = {.namespace_start = "prte", .rank = {"PMIX_RANK"}, .job = {"PMIX_NAMESPACE"}};
static const struct variables flux = {.rank = {"FLUX_TASK_RANK"},
                                      .size = {"FLUX_JOB_SIZE"},
                                      .local_rank = {"FLUX_TASK_LOCAL_ID"},
                                      .job = {"FLUX_JOB_ID"},
                                      .nodes = "FLUX_JOB_NNODES"};
/* jsrun, where its MPI does not set the variables of Open MPI */
static const struct variables jsm = {.rank = {"JSM_NAMESPACE_RANK"},
                                     .size = {"JSM_NAMESPACE_SIZE"},
                                     .local_rank = {"JSM_NAMESPACE_LOCAL_RANK"},
                                     .local_size = {"JSM_NAMESPACE_LOCAL_SIZE"},
                                     .job = {"LSB_JOBID", "PMIX_NAMESPACE"}};
static const struct variables mvapich2 = {.rank = {"MV2_COMM_WORLD_RANK"},
                                          .size = {"MV2_COMM_WORLD_SIZE"},
                                          .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
                                          .local_size = {"MV2_COMM_WORLD_LOCAL_SIZE"},
                                          .job = {"MPIRUN_ID"}};
/* MPICH, Intel MPI, and PALS with Cray's PMI */
static const struct variables pmi = {.rank = {"PMI_RANK", "PMI_ID"},
                                     .size = {"PMI_SIZE"},
                                     .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
                                     .local_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
                                     .job = {"I_MPI_HYDRA_UUID", "PALS_APID"},
                                     .is_set_by_slurm = true};
static const struct variables pals = {.rank = {"PALS_RANKID"},
                                      .size = {"PMI_SIZE"},
                                      .local_rank = {"PALS_LOCAL_RANKID"},
                                      .local_size = {"PALS_LOCAL_SIZE"},
                                      .job = {"PALS_APID"},
                                      .is_set_by_slurm = true};
static const struct variables slurm_pmix = {.namespace_start = "slurm.",
                                            .rank = {"PMIX_RANK"},
                                            .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                                            .local_rank = {"SLURM_LOCALID"},
                                            .job = {"PMIX_NAMESPACE"},
                                            .is_set_by_slurm = true};
static const struct variables pmix = {.rank = {"PMIX_RANK"}, .job = {"PMIX_NAMESPACE"}, .is_set_by_slurm = true};

/* The first bytes of the file [name] of a process, and two zeros; their number. */
static size_t read_process(long pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, size - 2, file) : 0;
    if (file) fclose(file);
    memset(text + length, 0, 2);
    return length;
}

static long parent_of(long pid) {
    char text[512];
    long parent = 0;
    read_process(pid, "stat", text, sizeof text);
    const char *after_name = strrchr(text, ')');
    return after_name && sscanf(after_name, ") %*c %ld", &parent) == 1 ? parent : 0;
}

/* The address of MPICH's mpiexec, the same for all ranks: an argument of the process manager of each host, which is an
 * ancestor of the ranks. Between them may be shells and other wrappers. false: no ancestor has it. */
static bool find_mpiexec(char *address, size_t size) {
    for (long pid = getppid(); pid > 1; pid = parent_of(pid)) {
        char words[4096];
        size_t length = read_process(pid, "cmdline", words, sizeof words);
        for (const char *word = words, *next; word < words + length; word = next) {
            next = word + strlen(word) + 1;
            if (strcmp(word, "--control-port") != 0) continue;
            snprintf(address, size, "%s", next);
            return true;
        }
    }
    return false;
}

/* Ranks of this host: a variable contains it, or it follows from the number of nodes, or at least local rank + 1. */
static status read_local(const struct variables *v, struct dist_env *env, bool *is_known) {
    const char *rank = first_set(v->local_rank), *size = first_set(v->local_size);
    int nodes = 0;
    if (rank) TRY(read_int(rank, 0, MAX_RANKS, &env->local_rank));
    if (v->nodes) TRY(read_int(v->nodes, 1, MAX_RANKS, &nodes));
    int local = nodes ? (env->world_size + nodes - 1) / nodes : 0;
    if (size) TRY(read_int(size, 1, MAX_RANKS, &local));
    *is_known = local > 0;
    env->local_world_size = *is_known ? local : env->local_rank + 1;
    return OK;
}

static bool is_in_namespace(const char *start) {
    const char *namespace = getenv("PMIX_NAMESPACE");
    return !start || (namespace && strncmp(namespace, start, strlen(start)) == 0);
}

/* Sets *is_found, which is false before. */
static status from_names(const struct variables *v, const char *name, struct dist_env *env, bool *is_found) {
    const char *rank = first_set(v->rank), *size = first_set(v->size), *job = first_set(v->job);
    char address[80] = "";
    int tasks = 0;
    bool is_local_size_known, is_helper = false;
    if (!rank || !is_in_namespace(v->namespace_start)) return OK;
    if (v->is_set_by_slurm) TRY(slurm_tasks(&tasks));
    if (tasks == 1) return OK; /* a step of one task, in which --nproc may start the ranks */
    if (!size && is_set("WORLD_SIZE")) size = "WORLD_SIZE";
    if (!size) return size_is_unknown(name, rank, v->size[0] ? v->size[0] : "WORLD_SIZE");
    TRY(read_int(rank, 0, MAX_RANKS, &env->rank));
    TRY(read_int(size, 1, MAX_RANKS, &env->world_size));
    if (v == &flux || (v == &open_mpi && env->world_size == 1))
        TRY(has_other_pmi_rank(env->rank, env->world_size, &is_helper));
    if (is_helper) return OK;
    *is_found = true;
    TRY(read_local(v, env, &is_local_size_known));
    if (!job) find_mpiexec(address, sizeof address);
    snprintf(env->job_id, sizeof env->job_id, "%s %.*s", name, 80, job ? getenv(job) : address);
    bool is_one_host = is_local_size_known && env->local_world_size == env->world_size;
    return find_master(env, is_one_host ? "127.0.0.1" : NULL);
}

static const struct launcher {
    enum dist_launcher id;
    const char *name; /* NULL: end of the table */
    status (*detect)(struct dist_env *env, bool *is_found);
    const struct variables *variables; /* for from_names, if detect is NULL */
} launchers[] = {
    {LAUNCHER_OWN, "ddptrain", from_own_launcher, NULL},
    {LAUNCHER_TORCHRUN, "torchrun", from_torchrun, NULL},
    {LAUNCHER_ENVIRONMENT, "the environment", from_environment, NULL},
    {LAUNCHER_OPENMPI, "Open MPI", NULL, &open_mpi},
    {LAUNCHER_PMIX, "PMIx", NULL, &prrte},
    {LAUNCHER_FLUX, "Flux", NULL, &flux},
    {LAUNCHER_SLURM, "srun", from_slurm, NULL},
    {LAUNCHER_MVAPICH2, "MVAPICH2", NULL, &mvapich2},
    {LAUNCHER_MPICH, "MPICH", NULL, &pmi},
    {LAUNCHER_PALS, "PALS", NULL, &pals},
    {LAUNCHER_JSM, "jsrun", NULL, &jsm},
    {LAUNCHER_PMIX, "PMIx", NULL, &slurm_pmix},
    {LAUNCHER_PMIX, "PMIx", NULL, &pmix},
    {LAUNCHER_ENVIRONMENT, "the environment", from_world_size, NULL},
    {LAUNCHER_NONE, NULL, NULL, NULL},
};

/* Set in every process of a Slurm job, under any launcher, or by a job script of any queue. */
static status read_end(struct dist_env *env) {
    int64_t seconds = 0;
    TRY(read_number("SLURM_JOB_END_TIME", 0, MAX_SECONDS, &seconds));
    TRY(read_number(END_VARIABLE, 0, MAX_SECONDS, &seconds));
    env->ends_at = (double)seconds;
    return OK;
}

status dist_env_detect(struct dist_env *out) {
    for (const struct launcher *l = launchers; l->name; l++) {
        struct dist_env env = {.launcher = l->id, .world_size = 1, .local_world_size = 1};
        bool is_found = false;
        TRY(l->detect ? l->detect(&env, &is_found) : from_names(l->variables, l->name, &env, &is_found));
        if (!is_found) continue;
        TRY(check(&env));
        *out = env;
        return read_end(out);
    }
    *out = (struct dist_env){.launcher = LAUNCHER_NONE, .world_size = 1, .local_world_size = 1};
    return read_end(out);
}

/* Whether it begins like one of [names] up to the first '_': "OMPI_" of "OMPI_COMM_WORLD_RANK". */
static bool begins_like(const char *assignment, const char *const *names) {
    for (; *names; names++)
        if (strncmp(assignment, *names, strcspn(*names, "_") + 1) == 0) return true;
    return false;
}

bool dist_env_is_of_launcher(const char *assignment) {
    static const char *const others[] = {"SLURM_", "HYDRA_", "TORCHELASTIC_", "GROUP_", "LOCAL_", "MASTER_", NULL};
    static const char *const whole[] = {"RANK=", "WORLD_SIZE=", SECRET_VARIABLE "="};
    bool is_found = begins_like(assignment, others);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        is_found = is_found || strncmp(assignment, whole[i], strlen(whole[i])) == 0;
    for (const struct launcher *l = launchers; l->name && !is_found; l++)
        is_found = l->variables &&
                   (begins_like(assignment, l->variables->rank) || begins_like(assignment, l->variables->local_rank));
    return is_found;
}

struct gpus_process dist_env_gpus(const struct dist_env *env) {
    return (struct gpus_process){.local_rank = env->local_rank,
                                 .local_size = env->local_world_size,
                                 .is_launched = env->launcher != LAUNCHER_NONE && env->launcher != LAUNCHER_OWN};
}

const char *dist_launcher_name(enum dist_launcher launcher) {
    const struct launcher *l = launchers;
    while (l->id != launcher && l->name) l++;
    return l->name ? l->name : "none";
}

/* ---- Slurm's lists ---- */

/* Parses Slurm's two compact lists, hosts ("n[1-2,05],m7") and counts ("2(x3),1"), without the scontrol command. */

#define MAX_HOSTS (1 << 20)

/* Expands a list, counts its hosts and copies host [index]; -1: none. */
struct expansion {
    int index, count;
    char *host;
    size_t size;
};

static bool put(struct expansion *expansion, const char *prefix, size_t prefix_length, const char *number,
                const char *suffix, size_t suffix_length) {
    if (expansion->count++ != expansion->index) return true;
    int length = snprintf(expansion->host, expansion->size, "%.*s%s%.*s", (int)prefix_length, prefix, number,
                          (int)suffix_length, suffix);
    return length >= 0 && (size_t)length < expansion->size;
}

/* "1-2,05": numbers keep their width, with leading zeros. */
static bool expand_ranges(struct expansion *expansion, const char *prefix, size_t prefix_length, const char *ranges,
                          const char *end, const char *suffix, size_t suffix_length) {
    while (ranges < end) {
        char *after;
        if (!isdigit((unsigned char)*ranges)) return false;
        long first = strtol(ranges, &after, 10), last = first;
        int width = (int)(after - ranges);
        if (*after == '-') {
            if (!isdigit((unsigned char)after[1])) return false;
            last = strtol(after + 1, &after, 10);
        }
        if (width > 18 || last < first || last - first >= MAX_HOSTS || expansion->count > MAX_HOSTS) return false;
        if (after != end && *after != ',') return false;
        for (long n = first; n <= last; n++) {
            char number[40];
            snprintf(number, sizeof number, "%0*ld", width, n);
            if (!put(expansion, prefix, prefix_length, number, suffix, suffix_length)) return false;
        }
        ranges = after == end ? end : after + 1;
    }
    return true;
}

/* One entry: a name with at most one bracket. */
static bool expand_entry(struct expansion *expansion, const char *entry, size_t length) {
    const char *open = memchr(entry, '[', length), *end = entry + length;
    if (length == 0) return false;
    if (!open) return !memchr(entry, ']', length) && put(expansion, entry, length, "", "", 0);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close || close == open + 1 || memchr(close + 1, '[', (size_t)(end - close - 1))) return false;
    return expand_ranges(expansion, entry, (size_t)(open - entry), open + 1, close, close + 1,
                         (size_t)(end - close - 1));
}

static bool expand(struct expansion *expansion, const char *list) {
    while (*list) {
        size_t length = 0;
        for (bool inside = false; list[length] && (inside || list[length] != ','); length++)
            inside = list[length] == '[' || (inside && list[length] != ']');
        if (!expand_entry(expansion, list, length)) return false;
        list += length;
        if (*list == ',' && !*++list) return false;
    }
    return true;
}

bool slurm_host(const char *list, int index, char *host, size_t size) {
    struct expansion expansion = {.index = index, .host = host, .size = size};
    return expand(&expansion, list) && expansion.count > index;
}

int slurm_host_count(const char *list) {
    struct expansion expansion = {.index = -1};
    return expand(&expansion, list) ? expansion.count : 0;
}

int slurm_count(const char *list, int index) {
    while (isdigit((unsigned char)*list)) {
        char *after;
        long count = strtol(list, &after, 10), times = 1;
        if (after[0] == '(' && after[1] == 'x') {
            times = strtol(after + 2, &after, 10);
            if (*after++ != ')') return 0;
        }
        if (count < 1 || count > MAX_HOSTS || times < 1) return 0;
        if (index < times) return (int)count;
        index -= (int)times;
        if (*after != ',') return 0;
        list = after + 1;
    }
    return 0;
}

/* ---- secret and listening socket ---- */

#define MIN_SECRET 16

/* A descriptor that the launcher passed in [variable], now close-on-exec; -1: none. */
static int passed_descriptor(const char *variable) {
    const char *text = getenv(variable);
    if (!text || !*text) return -1;
    int fd = atoi(text);
    if (fd <= 2 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return -1;
    return fd;
}

static void derive_secret(const char *source, const char *value, uint8_t secret[32]) {
    SCOPED_TEXT text = {0};
    text_printf(&text, "ddptrain %s:%s", source, value);
    digest_of(text.data, text.length, secret);
}

static int secret_descriptor(const struct dist_env *env) {
    return env->launcher == LAUNCHER_OWN ? passed_descriptor(SECRET_FD_VARIABLE) : -1;
}

status dist_env_secret(const struct dist_env *env, uint8_t secret[32]) {
    const char *variable = getenv(SECRET_VARIABLE);
    int fd = secret_descriptor(env);
    if (fd >= 0) return io_read_at(fd, "the job's secret from the launcher", secret, 32, 0, NULL);
    if (dist_env_secret_is_guessable(env)) {
        derive_secret("job", env->job_id, secret);
        return OK;
    }
    if (strlen(variable) < MIN_SECRET)
        return status_usage(SECRET_VARIABLE " has %zu characters, but must have at least %d, so that nobody can guess "
                                            "it; set it to the output of 'openssl rand -hex 16', the same on all hosts",
                            strlen(variable), MIN_SECRET);
    derive_secret("secret", variable, secret);
    return OK;
}

bool dist_env_secret_is_guessable(const struct dist_env *env) {
    const char *variable = getenv(SECRET_VARIABLE);
    return secret_descriptor(env) < 0 && (!variable || !*variable);
}

const char *const dist_env_secret_warning =
    "anyone who can reach rank 0 can join this job, because its secret is derived from its name; set " SECRET_VARIABLE
    " to the output of 'openssl rand -hex 16', the same on all hosts";

status dist_env_listener(const struct dist_env *env, int *fd) {
    *fd = env->launcher == LAUNCHER_OWN ? passed_descriptor(STORE_FD_VARIABLE) : -1;
    if (*fd >= 0) {
        int flags = fcntl(*fd, F_GETFL);
        if (flags < 0 || fcntl(*fd, F_SETFL, flags | O_NONBLOCK) != 0)
            return status_errno(STATUS_BUG, errno, "the launcher passed no usable socket in " STORE_FD_VARIABLE);
        return OK;
    }
    return net_listen(env->master_addr, env->master_port, env->local_world_size == env->world_size, fd);
}
