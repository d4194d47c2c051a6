/* check: verifies a config and its data, and prints the plan of the run. */
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "dist/launch/launch.h"
#include "train/run/run.h"

static status add_parts(const struct command_line *line, int nproc, struct text *out) {
    cpu_set_t *parts;
    bool binds_cores;
    TRY(command_cpu_bind(line, &binds_cores));
    if (!binds_cores) return OK;
    TRY(launch_split(nproc, &parts));
    launch_describe_parts(parts, nproc, line->node_rank * nproc, out);
    text_add(out, "\n");
    free(parts);
    return OK;
}

static status check_config(const struct command_line *line, const char *path, char *const *overrides, size_t count) {
    SCOPED_CONFIG config = NULL;
    SCOPED_TEXT out = {0};
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    int nproc = 1;
    TRY(config_load(path, overrides, count, &config));
    if (line->prints_sources) {
        config_write_sources(config, &out);
        command_print(stdout, &out);
        return OK;
    }
    status s = command_nproc(line, config_device_name(config_of(config)), &nproc);
    if (s && !line->nproc &&
        status_code(s) == STATUS_USAGE) { /* no GPU to count: reported below, with all other problems */
        status_free(s);
        s = OK;
        nproc = 1;
    }
    status missing = OK, no_device = s ? OK : command_choose_device(line, config, &alone, &nproc);
    const struct dist_env env = {.world_size = nproc * line->nnodes, .local_world_size = nproc};
    const struct check_options options = {
        .prints_dot = line->prints_dot, .reads_all = line->reads_all, .run_dir = line->run_dir};
    if (!s) s = check_run(config_of(config), &env, &options, &out, &missing);
    if (!s && !line->prints_dot) s = add_parts(line, nproc, &out);
    if (!s) command_print(stdout, &out);
    return status_first(status_first(s, no_device), missing);
}

/* Every value of its parameters (sweep_load), and the config that they change. */
static status check_sweep(const struct command_line *line) {
    struct sweep_file *file;
    SCOPED_TEXT out = {0};
    TRY(sweep_load(line->config, line->overrides, line->override_count, &file));
    const struct sweep_config *sweep = sweep_file_config(file);
    text_printf(&out, "%s: a sweep of %lld trials, %lld run%s each; its keys:\n", line->config,
                (long long)sweep->trials, (long long)sweep->runs, text_plural((uint64_t)sweep->runs, "s"));
    sweep_write(sweep, &out);
    text_printf(&out, "\nthe config of its trials, %s:\n", sweep->config);
    if (!line->prints_dot) command_print(stdout, &out);
    status s = check_config(line, sweep->config, (char *const *)sweep->overrides.items, sweep->overrides.count);
    sweep_free(file);
    return s;
}

static status run(const struct command_line *line) {
    if (config_is_sweep(line->config)) return check_sweep(line);
    return check_config(line, line->config, line->overrides, line->override_count);
}

const struct subcommand subcommand_check = {
    .name = "check",
    .arguments = "CONFIG|SWEEP [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "check the config, or the sweep; print shapes, memory and buckets",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_CHECK | OPTION_RUN_DIR,
    .operand = "config",
};
