/* sweep: many runs of one config, in worker processes of this machine or in the ranks that srun, mpirun or torchrun
 * started. */
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/stop.h"
#include "base/system/machine.h"
#include "command.h"
#include "device/gpus.h"
#include "sweep/compare.h"

char *command_sweep_folder(const struct command_line *line) {
    struct text path = {0};
    const char *slash = strrchr(line->config, '/'), *name = slash ? slash + 1 : line->config;
    const char *dot = strrchr(name, '.');
    if (line->run_dir)
        text_add(&path, line->run_dir);
    else
        text_printf(&path, "sweeps/%.*s", (int)(dot && dot > name ? dot - name : (ptrdiff_t)strlen(name)), name);
    return path.data;
}

/* One worker for each GPU that runs take, else for each processor. */
static status count_workers(const struct command_line *line, const struct sweep_file *file, const struct dist_env *env,
                            int *workers, struct text *no_gpu) {
    const struct config *config = sweep_file_base(file);
    int64_t processes = sweep_file_config(file)->nproc_per_trial;
    struct gpus_process process = dist_env_gpus(env);
    const char *device = config_device_name(config);
    bool is_given = line->nproc && strcmp(line->nproc, "auto") != 0;
    int gpus = 0;
    process.local_size = 0;
    bool has_gpus = config_device_is_auto(config) && gpus_available(&process, &gpus, no_gpu);
    if (env->launcher != LAUNCHER_NONE && env->world_size > 1) {
        *workers = 1;
        if (processes > 1)
            return status_new(STATUS_USAGE,
                              "nproc_per_trial: %lld: each process of %s is one worker; leave it out, or run the sweep "
                              "once on one machine",
                              (long long)processes, dist_launcher_name(env->launcher));
        if (!is_given) return OK;
        TRY(command_nproc(line, device, workers));
        return command_check_launcher(line, env, *workers);
    }
    TRY(command_nproc(line, has_gpus ? "cuda" : device, workers));
    if (!is_given && !has_gpus && strcmp(device, "cpu") == 0) *workers = processors_allowed();
    if (!is_given) *workers = *workers / processes > 1 ? (int)(*workers / processes) : 1;
    return OK;
}

status command_sweep_open(const struct command_line *line, const struct sweep_file *file, const char *folder,
                          struct command_sweep *out) {
    *out = (struct command_sweep){.log = log_create(line->is_quiet, !line->has_no_progress)};
    out->options = (struct sweep_options){.folder = folder,
                                          .is_fresh = line->is_fresh,
                                          .is_shared = line->is_shared,
                                          .lease = line->lease,
                                          .env = &out->env,
                                          .grace = line->grace};
    TRY(dist_env_detect(&out->env));
    if (line->is_shared && line->is_fresh)
        return status_new(STATUS_USAGE,
                          "--share with --fresh: other processes may be training in the folder; move it away");
    if (line->nnodes > 1)
        return status_new(STATUS_USAGE, "%s on several machines: start it with srun, mpirun or torchrun",
                          line->subcommand->name);
    TRY(count_workers(line, file, &out->env, &out->options.workers, &out->no_gpu));
    out->options.threads = command_threads(&out->env, out->options.workers);
    if (line->is_shared) { /* each task of a launcher joins by itself */
        out->env.rank = 0;
        out->env.world_size = 1;
    }
    if (out->no_gpu.length) out->options.no_gpu = text_string(&out->no_gpu);
    command_stop_before(out->env.ends_at, line->grace, out->log);
    stop_defer();
    return OK;
}

void command_sweep_close(struct command_sweep *sweep) {
    text_free(&sweep->no_gpu);
    log_destroy(sweep->log);
}

/* Alone, also where other ranks took part in the sweep: they have ended with it. */
static status confirm(const struct sweep_file *file, const struct command_sweep *sweep, const char *folder) {
    SCOPED_TEXT out = {0};
    struct dist_env env = sweep->env;
    struct sweep_options options = sweep->options;
    env.rank = 0;
    env.world_size = 1;
    options.env = &env;
    options.folder = folder;
    status s = confirm_run(file, &options, sweep->log, &out);
    command_print(stdout, &out);
    return s;
}

static status run(const struct command_line *line) {
    struct sweep_file *file;
    struct command_sweep sweep;
    SCOPED_TEXT now = {0};
    TRY(sweep_load(line->config, line->overrides, line->override_count, &file));
    SCOPED_STRING folder = command_sweep_folder(line);
    status s = command_sweep_open(line, file, folder, &sweep);
    sweep.options.folder_now = &now;
    if (!s)
        s = sweep.env.rank == 0 ? sweep_run(file, &sweep.options, sweep.log)
                                : sweep_run_worker(file, &sweep.options, sweep_file_base(file)->dist.timeout);
    bool is_confirmed = sweep_file_config(file)->confirm.seeds != SCHEMA_NO_INT && sweep.env.rank == 0;
    if (!s && is_confirmed) s = confirm(file, &sweep, text_string(&now));
    command_sweep_close(&sweep);
    sweep_free(file);
    return s;
}

const struct subcommand subcommand_sweep = {
    .name = "sweep",
    .arguments = "SWEEP [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "train a config with many values of its keys; write a table of trials",
    .run = run,
    .options = OPTION_FRESH | OPTION_TENSORBOARD | OPTION_SHARE,
    .tensorboard = "tensorboard=true",
    .operand = "sweep",
    .saves = true,
};
