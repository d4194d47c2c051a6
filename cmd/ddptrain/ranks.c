/* ranks: starts the processes of a command. A process that was started by a launcher is a rank; otherwise it is the
 * launcher that starts the ranks, or the only rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/system/machine.h"
#include "base/system/signals.h"
#include "command.h"
#include "device/cpu/parallel.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "dist/launch/launch.h"
#include "dist/process/launcher_channel.h"
#include "dist/store/store.h"
#include "train/folder/run_folder.h"

static status count_gpus(const char *user, int *nproc) {
    status s = gpus_count(nproc);
    if (!s) return OK;
    status explained = status_new(status_code(s), "%s needs %s, or use device: cpu", user, status_message(s));
    status_free(s);
    return explained;
}

status command_nproc(const struct command_line *line, const char *device, int *nproc) {
    bool is_given = line->nproc && strcmp(line->nproc, "auto") != 0;
    *nproc = 1;
    if (is_given && strcmp(line->nproc, "gpu") == 0) return count_gpus("--nproc gpu", nproc);
    if (!is_given && strcmp(device, "cuda") == 0)
        return count_gpus(command_uses_gpus(line) ? "--backend nccl" : "train.device: cuda", nproc);
    if (!is_given) return OK;
    char *end;
    errno = 0;
    long number = strtol(line->nproc, &end, 10);
    if (errno || *end || end == line->nproc || number < 1 || number > 4096)
        return status_usage("--nproc: expected 1 to 4096, gpu or auto, got '%s'", line->nproc);
    *nproc = (int)number;
    return OK;
}

/* The device that the launcher chose for its ranks: "cuda", or the reason for the CPU. */
#define DEVICE_VARIABLE "DDPTRAIN_DEVICE"

status command_choose_device(const struct command_line *line, struct config_file *file, const struct dist_env *env,
                             int *nproc) {
    struct gpus_process process = dist_env_gpus(env);
    SCOPED_TEXT why = {0};
    int gpus;
    if (!config_device_is_auto(config_of(file))) return OK;
    bool is_default = !line->nproc || strcmp(line->nproc, "auto") == 0;
    if (env->launcher == LAUNCHER_NONE) process.local_size = is_default ? 0 : *nproc;
    if (env->launcher == LAUNCHER_OWN) {
        const char *explained = getenv(DEVICE_VARIABLE);
        if (!explained || strcmp(explained, "cuda") != 0)
            text_add(&why, explained ? explained : "the launcher chose the CPU");
    } else if (gpus_available(&process, &gpus, &why) && process.local_size == 0) {
        *nproc = gpus;
    }
    const char *why_cpu = why.length ? text_string(&why) : NULL;
    setenv(DEVICE_VARIABLE, why_cpu ? why_cpu : "cuda", 1);
    return config_set_auto_device(file, why_cpu);
}

int command_backend(const struct command_line *line) {
    int backend;
    status unknown = comm_backend_find(line->backend ? line->backend : comm_backend_names[BACKEND_AUTO], &backend);
    if (unknown) backend = BACKEND_AUTO;
    status_free(unknown);
    return backend;
}

bool command_uses_gpus(const struct command_line *line) { return comm_backend_needs_gpus(command_backend(line)); }

static bool is_name_given(const struct command_line *line) {
    for (size_t i = 0; i < line->override_count; i++)
        if (strncmp(line->overrides[i], "name=", strlen("name=")) == 0) return true;
    return false;
}

/* --fresh renames the folder of the run; each rank reads the config after that. */
static status check_fresh(const struct command_line *line, const char *folder) {
    struct io_info there = {0}, here;
    TRY(io_stat(folder, &here));
    if (line->run_dir) TRY(io_stat(line->run_dir, &there));
    bool is_same = line->run_dir ? io_is_same(&there, &here) : line->config_run_folder != NULL;
    if (!line->is_fresh || !is_same) return OK;
    return status_usage(
        "%s: --fresh renames the run folder, and this config is in it; copy the config to another place "
        "and use the copy, or give the new run its own folder by --run-dir DIR or name=NAME",
        line->config);
}

status command_find_folder(struct command_line *line) {
    const char *slash = line->config ? strrchr(line->config, '/') : NULL;
    const char *name = slash ? slash + 1 : line->config;
    bool is_run = false;
    if (!name || strcmp(name, "config.yaml") != 0) return OK;
    char *folder = io_folder_of(line->config);
    status s = run_folder_is_run(folder, &is_run);
    if (!s && is_run && !is_name_given(line)) line->config_run_folder = folder;
    if (!s && is_run) s = check_fresh(line, folder);
    if (!line->config_run_folder) free(folder);
    return s;
}

void command_end_overdue(enum status_code code, const char *why) {
    status failure = status_new(code, "%s", why); /* files on disk are complete */
    if (!launcher_report(failure)) fprintf(stderr, "ddptrain: %s\n", why);
    _exit(status_exit_code(code));
}

struct weights_options command_weights(const struct command_line *line) {
    return (struct weights_options){.folder = line->run_dir ? line->run_dir : line->config_run_folder,
                                    .checkpoint = line->checkpoint,
                                    .which = line->weights};
}

status command_cpu_bind(const struct command_line *line, bool *binds_cores) {
    *binds_cores = line->cpu_bind && strcmp(line->cpu_bind, "cores") == 0;
    if (*binds_cores || !line->cpu_bind || strcmp(line->cpu_bind, "none") == 0) return OK;
    return status_usage("--cpu-bind: expected none or cores, got '%s'", line->cpu_bind);
}

/* The config must be a file, because each process reads it. */
static status check_config_file(const struct command_line *line) {
    struct io_info info;
    if (!line->config) return OK;
    TRY(io_stat(line->config, &info));
    if (info.is_file) return OK;
    return status_usage("%s: the launcher and each process that it starts read the config, and a pipe can be read only "
                        "once; write it to a file",
                        line->config);
}

static struct launch_config launch_of(const struct command_line *line, int nproc) {
    return (struct launch_config){.nproc = nproc,
                                  .nnodes = line->nnodes,
                                  .node_rank = line->node_rank,
                                  .master_addr = line->master_addr,
                                  .master_port = line->master_port,
                                  .grace = line->grace,
                                  .max_restarts = line->max_restarts,
                                  .saves = line->subcommand->saves};
}

status command_check_nodes(const struct command_line *line) {
    if (line->nnodes == 1 || (line->master_addr && line->master_port)) return OK;
    return status_usage("--nnodes %d needs --master-addr and --master-port: where rank 0 listens", line->nnodes);
}

static status start_ranks(const struct command_line *line, int nproc, struct log *log) {
    TRY(check_config_file(line));
    struct launch_config launch = launch_of(line, nproc);
    TRY(command_cpu_bind(line, &launch.binds_cores));
    TRY(command_check_nodes(line));
    signals_block_stops(); /* launch_run reads them; after all ranks have ended, a request has no effect */
    return launch_run(&launch, line->argv, log);
}

/* STATUS_USAGE for options that contradict another launcher, which started this process as a rank. */
status command_check_launcher(const struct command_line *line, const struct dist_env *env, int nproc) {
    bool binds_cores;
    TRY(command_cpu_bind(line, &binds_cores));
    if (env->launcher == LAUNCHER_NONE || env->launcher == LAUNCHER_OWN) return OK;
    if (binds_cores)
        return status_usage("--cpu-bind cores: this process is already rank %d of %d (%s), whose own options bind it "
                            "(srun --cpu-bind=cores, mpirun --bind-to core)",
                            env->rank, env->world_size, dist_launcher_name(env->launcher));
    if (nproc == 1 && line->nnodes == 1) return OK;
    bool is_by_hand = env->launcher == LAUNCHER_ENVIRONMENT;
    return status_usage("%s %d: this process is already rank %d of %d (%s); leave the option out%s",
                        nproc > 1 ? "--nproc" : "--nnodes", nproc > 1 ? nproc : line->nnodes, env->rank,
                        env->world_size, dist_launcher_name(env->launcher),
                        is_by_hand ? ", or unset RANK and WORLD_SIZE to start the processes here" : "");
}

int command_threads(const struct dist_env *env, int processes) {
    int mask = processors_in_mask(), threads = processors_allowed();
    bool is_bound = mask < processors_online() && threads == mask;
    if (!is_bound) threads /= env->local_world_size;
    threads /= processes;
    return threads > 0 ? threads : 1;
}

/* Limits the threads before OpenMP is loaded, which knows only the CPU mask of the process, but not a quota or that the
 * ranks share unbound processors. comm_limit_threads corrects it when the ranks are connected. Not in elastic mode,
 * where the bits must not depend on it. */
static void limit_threads(const struct config *config, const struct dist_env *env) {
    if (parallel_is_given() || (config && config->sampler.shards)) return;
    int threads = command_threads(env, 1);
    if (threads < processors_in_mask()) parallel_limit(threads);
}

/* [file]: NULL for commands without a config. */
static status on_ranks(const struct command_line *line, struct config_file *file, rank_function *run) {
    const struct config *config = file ? config_of(file) : NULL;
    struct dist_env env;
    int nproc = 1;
    const char *device = config ? config_device_name(config) : command_uses_gpus(line) ? "cuda" : "cpu";
    SCOPED_LOG log = log_create(line->is_quiet, !line->has_no_progress);
    status s = dist_env_detect(&env);
    bool is_default = !line->nproc || strcmp(line->nproc, "auto") == 0 || strcmp(line->nproc, "gpu") == 0;
    bool is_started = is_default && env.launcher != LAUNCHER_NONE; /* by a launcher, with its number of processes */
    if (!s && !is_started) s = command_nproc(line, device, &nproc);
    if (!s && file) s = command_choose_device(line, file, &env, &nproc);
    if (!s) s = command_check_launcher(line, &env, nproc);
    if (!s && env.launcher == LAUNCHER_NONE && (nproc > 1 || line->nnodes > 1 || line->max_restarts > 0))
        s = start_ranks(line, nproc, log);
    else if (!s) {
        limit_threads(config, &env);
        s = run(line, config, &env, log);
    }
    return s;
}

/* Reports a config that cannot be read to the other nodes, which may have a valid one and would wait. The number of
 * ranks is known only from the command line. */
static void report_config_failure(const struct command_line *line, status failure) {
    struct dist_env env = {0};
    int nproc = 1;
    SCOPED_LOG log = log_create(line->is_quiet, false);
    status unknown = dist_env_detect(&env);
    if (!unknown) unknown = command_nproc(line, "cpu", &nproc);
    struct launch_config launch = launch_of(line, nproc);
    bool is_launcher = env.launcher == LAUNCHER_NONE && launch.node_rank < launch.nnodes && launch.master_port > 0;
    if (!unknown && env.launcher != LAUNCHER_NONE) store_report_before_joining(&env, NULL, 0, NULL, failure);
    if (!unknown && is_launcher) launch_report_before_joining(&launch, log, failure);
    status_free(unknown);
}

status command_on_ranks(const struct command_line *line, rank_function *run) {
    SCOPED_CONFIG config = NULL;
    /* checked before any process is started, so that a wrong config is reported once */
    status s = config_load(line->config, line->overrides, line->override_count, &config);
    if (!s) return on_ranks(line, config, run);
    report_config_failure(line, s);
    return s;
}

status command_on_ranks_without_config(const struct command_line *line, rank_function *run) {
    return on_ranks(line, NULL, run);
}
