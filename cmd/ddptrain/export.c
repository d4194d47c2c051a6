/* export: the model of a checkpoint, or of the run of a config, as a file for other programs. */
#include "export/export.h"

#include <string.h>

#include "base/files/io.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "report/report_page.h"

static bool is_initial(const struct command_line *line) {
    return line->checkpoint && strcmp(line->checkpoint, CHECKPOINT_INITIAL) == 0;
}

/* The config of a run folder, or the file [path]. */
static status load_config(const struct command_line *line, struct config_file **out) {
    const char *path = line->config;
    SCOPED_TEXT name = {0};
    struct io_info info;
    TRY(io_stat(path, &info));
    text_add(&name, path);
    if (info.is_folder) text_add(&name, "/config.yaml");
    return config_load(text_string(&name), line->overrides, line->override_count, out);
}

/* The run: --run-dir, or the folder that the config is in, or runs/<name> of a config; else [line]'s operand. *config
 * is the config, if it is not that of the folder. */
static status find_run(const struct command_line *line, struct text *run, struct config_file **config) {
    struct io_info info;
    const char *folder = line->config_run_folder, *dot = strrchr(line->config, '.');
    TRY(io_stat(line->config, &info));
    bool is_config = !info.is_folder && dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    if (line->run_dir && !info.is_folder && !is_config)
        return status_usage("--run-dir is for a config or a run folder, and %s is neither", line->config);
    if (folder || !is_config) {
        text_add(run, line->run_dir ? line->run_dir : folder ? folder : line->config);
        return OK;
    }
    TRY(config_load(line->config, NULL, 0, config));
    if (line->run_dir)
        text_add(run, line->run_dir);
    else
        text_printf(run, "runs/%s", config_of(*config)->name);
    status s = io_stat(text_string(run), &info);
    if (s || info.exists) return s;
    return status_data("%s: its run would be in %s, which does not exist; train first, or give a run folder",
                       line->config, text_string(run));
}

/* [named]: the config that names the run; NULL: none. */
static status export_from(const struct command_line *line, const char *run, const struct config_file *named) {
    struct export_options options = {.weights = {.which = line->weights}, .format = line->format, .out = line->out};
    SCOPED_CONFIG config = NULL;
    if (named) options.config = config_of(named);
    options.weights.folder = line->checkpoint ? run : NULL;
    options.weights.checkpoint = line->checkpoint ? line->checkpoint : run;
    if (is_initial(line)) TRY(load_config(line, &config));
    if (is_initial(line)) options.weights.training = config_of(config);
    SCOPED_LOG log = log_create(line->is_quiet, false);
    return export_run(&options, log);
}

/* The training of a config, or of the config of a run. */
static status export_config(const struct command_line *line, const struct export_options *options) {
    SCOPED_CONFIG config = NULL;
    if (line->checkpoint || line->weights)
        return status_usage("--%s: a PyTorch script has no weights; it begins with the initial ones",
                            line->checkpoint ? "checkpoint" : "weights");
    TRY(load_config(line, &config));
    SCOPED_LOG log = log_create(line->is_quiet, false);
    return export_training(options, config_of(config), line->config, log);
}

/* What the run of a config, or of a folder, has recorded. */
static status export_recorded(const struct command_line *line) {
    SCOPED_TEXT run = {0};
    SCOPED_CONFIG config = NULL;
    if (line->checkpoint || line->weights || line->override_count)
        return status_new(
            STATUS_USAGE,
            "--format %s: it writes what a run has recorded; it takes a run folder, --out, and nothing else",
            line->format);
    TRY(find_run(line, &run, &config));
    SCOPED_LOG log = log_create(line->is_quiet, false);
    return run_export(line->format, text_string(&run), line->out, log);
}

static status run(const struct command_line *line) {
    SCOPED_TEXT run = {0};
    SCOPED_CONFIG config = NULL;
    const struct export_options options = {.format = line->format, .out = line->out};
    if (run_export_has(line->format)) return export_recorded(line);
    if (line->run_dir && (export_is_of_training(&options) || is_initial(line)))
        return status_usage("--run-dir: a PyTorch script and initial weights are of a config, without a run");
    if (export_is_of_training(&options)) return export_config(line, &options);
    if (line->override_count) {
        const char *word = line->overrides[0], *equals = strchr(word, '=');
        return status_usage("unexpected argument '%s' after '%s'; options are written --%.*s %s, and only a PyTorch "
                            "script (--format pytorch) is of a changed config",
                            word, line->config, (int)(equals - word), word, equals + 1);
    }
    if (line->checkpoint && !is_initial(line) && strcmp(line->checkpoint, CHECKPOINT_BEST) != 0 &&
        strcmp(line->checkpoint, CHECKPOINT_NEWEST) != 0)
        return status_usage("--checkpoint: export accepts only best, newest and initial; give a file in place of RUN");
    if (is_initial(line)) return export_from(line, line->config, NULL); /* of a config, without a run */
    TRY(find_run(line, &run, &config));
    return export_from(line, text_string(&run), config);
}

const struct subcommand subcommand_export = {
    .name = "export",
    .arguments = "CONFIG|RUN|FILE --out FILE [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "the model of a run's best or newest checkpoint, for other programs, or its training as a PyTorch script, "
            "or its metrics (--format)",
    .run = run,
    .options = OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_FORMAT | OPTION_RUN_DIR,
    .operand = "file",
};
