/* sweep, compare: many runs of one config, or of two with the same seeds, in worker processes of this machine or in the
 * ranks that srun, mpirun or torchrun started. */
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "base/system/machine.h"
#include "command.h"
#include "device/gpus.h"
#include "sweep/compare.h"

/* The name of the file without folder and ending. */
static void add_stem(const char *path, struct text *out) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    text_add_bytes(out, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

char *command_sweep_folder(const struct command_line *line) {
    struct text path = {0};
    if (line->run_dir) {
        text_add(&path, line->run_dir);
        return path.data;
    }
    text_add(&path, "sweeps/");
    add_stem(line->config, &path);
    if (line->operand_count == 2) { /* compare */
        text_add(&path, "-or-");
        add_stem(line->operands[1], &path);
        if (line->metric) text_printf(&path, "-%s", line->metric);
    }
    return path.data;
}

/* What a command needs to run sweeps: how many workers, which devices, until when. */
struct prepared {
    struct sweep_options options;
    struct dist_env env;
    struct text no_gpu;
    struct log *log;
};

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
            return status_usage(
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

/* From here on a stop request waits for the sweep. Close it also after a failure. [folder]: the sweep's. */
static status prepare(const struct command_line *line, const struct sweep_file *file, const char *folder,
                      struct prepared *out) {
    *out = (struct prepared){.log = log_create(line->is_quiet, !line->has_no_progress)};
    out->options = (struct sweep_options){.folder = folder,
                                          .is_fresh = line->is_fresh,
                                          .is_shared = line->is_shared,
                                          .lease = line->lease,
                                          .env = &out->env,
                                          .grace = line->grace};
    TRY(dist_env_detect(&out->env));
    if (line->is_shared && line->is_fresh)
        return status_usage("--share with --fresh: other processes may be training in the folder; move it away");
    if (line->nnodes > 1)
        return status_usage("%s on several machines: start it with srun, mpirun or torchrun", line->subcommand->name);
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

static void close_prepared(struct prepared *sweep) {
    text_free(&sweep->no_gpu);
    log_destroy(sweep->log);
}

/* Alone, also where other ranks took part in the sweep: they have ended with it. */
static status confirm(const struct sweep_file *file, const struct prepared *sweep, const char *folder) {
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

static status run_sweep(const struct command_line *line) {
    struct sweep_file *file;
    struct prepared sweep;
    SCOPED_TEXT now = {0};
    TRY(sweep_load(line->config, line->overrides, line->override_count, &file));
    SCOPED_STRING folder = command_sweep_folder(line);
    status s = prepare(line, file, folder, &sweep);
    sweep.options.folder_now = &now;
    if (!s)
        s = sweep.env.rank == 0 ? sweep_run(file, &sweep.options, sweep.log)
                                : sweep_run_worker(file, &sweep.options, sweep_file_base(file)->dist.timeout);
    bool is_confirmed = sweep_file_config(file)->confirm.seeds != SCHEMA_NO_INT && sweep.env.rank == 0;
    if (!s && is_confirmed) s = confirm(file, &sweep, text_string(&now));
    close_prepared(&sweep);
    sweep_free(file);
    return s;
}

const struct subcommand subcommand_sweep = {
    .name = "sweep",
    .arguments = "SWEEP [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "train a config with many values of its keys; write a table of trials",
    .run = run_sweep,
    .options = OPTION_FRESH | OPTION_TENSORBOARD | OPTION_SHARE | OPTION_RUN_DIR,
    .tensorboard = "tensorboard=true",
    .operand = "sweep",
    .saves = true,
};

/* ---- compare: two configs, trained with the same seeds ---- */

static status run_compare(const struct command_line *line) {
    struct sweep_file *file;
    SCOPED_TEXT out = {0};
    if (line->operand_count < 2)
        return status_usage("compare needs two configs: ddptrain compare A.yaml B.yaml --seeds 30");
    if (line->seeds < 2)
        return status_usage("--seeds: expected at least 2 pairs of runs, got %d; 30 show most differences",
                            line->seeds);
    TRY(sweep_load_comparison(line->operands[0], line->operands[1], line->overrides, line->override_count, line->seeds,
                              1, line->metric ? line->metric : "val_loss", &file));
    SCOPED_STRING folder = command_sweep_folder(line);
    struct prepared prepared;
    status s = prepare(line, file, folder, &prepared);
    if (!s && prepared.env.rank > 0)
        s = sweep_run_worker(file, &prepared.options, sweep_file_base(file)->dist.timeout);
    else if (!s)
        s = compare_run(file, &prepared.options, prepared.log, &out);
    close_prepared(&prepared);
    command_print(stdout, &out);
    sweep_free(file);
    return s;
}

const struct subcommand subcommand_compare = {
    .name = "compare",
    .arguments = "A B [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "train two configs with the same seeds and test whether one is better",
    .run = run_compare,
    .options = OPTION_FRESH | OPTION_SEEDS | OPTION_METRIC | OPTION_RUN_DIR,
    .operand = "config",
    .max_operands = 2,
    .saves = true,
};
