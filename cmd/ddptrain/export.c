/* export: the model of a checkpoint as a file for other programs. */
#include "export/export.h"

#include <string.h>

#include "base/files/io.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "command.h"

/* The config of a run folder, or the file [path]. */
static status load_config(const char *path, struct config_file **out) {
    struct text name = {0};
    struct io_info info;
    TRY(io_stat(path, &info));
    text_add(&name, path);
    if (info.is_folder) text_add(&name, "/config.yaml");
    status s = config_load(text_string(&name), NULL, 0, out);
    text_free(&name);
    return s;
}

static status run(const struct command_line *line) {
    struct export_options options = {.weights = {.checkpoint = line->config, .which = line->weights},
                                     .format = line->format,
                                     .out = line->out,
                                     .defers_stop = line->defers_stop};
    struct config_file *config = NULL;
    bool is_initial = line->checkpoint && strcmp(line->checkpoint, CHECKPOINT_INITIAL) == 0;
    if (line->checkpoint && !is_initial && strcmp(line->checkpoint, CHECKPOINT_BEST) != 0)
        return status_new(STATUS_USAGE,
                          "--checkpoint: export accepts only best and initial; give a file in place of RUN");
    if (line->checkpoint)
        options.weights =
            (struct weights_options){.folder = line->config, .checkpoint = line->checkpoint, .which = line->weights};
    if (is_initial) TRY(load_config(line->config, &config));
    if (is_initial) options.weights.training = config_of(config);
    struct log *log = log_create(line->is_quiet, false);
    status s = export_run(&options, log);
    log_destroy(log);
    config_free(config);
    return s;
}

const struct subcommand subcommand_export = {
    .name = "export",
    .arguments = "RUN|FILE --out FILE",
    .help = "the model of a run's newest checkpoint, for other programs (--format)",
    .run = run,
    .options = OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_FORMAT,
    .operand = "file",
};
