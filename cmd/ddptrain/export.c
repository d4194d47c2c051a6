/* export: the model of a checkpoint as a file for other programs. */
#include "export/export.h"

#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "command.h"

static status run(const struct command_line *line) {
    struct export_options options = {.weights = {.checkpoint = line->config, .which = line->weights},
                                     .format = line->format,
                                     .out = line->out,
                                     .can_save = line->can_save};
    if (line->checkpoint && strcmp(line->checkpoint, CHECKPOINT_BEST) != 0)
        return status_new(STATUS_USAGE, "--checkpoint: export accepts only best; give a file in place of RUN");
    if (line->checkpoint) options.weights = (struct weights_options){line->config, line->checkpoint, line->weights};
    struct log *log = log_create(line->is_quiet, false);
    status s = export_run(&options, log);
    log_destroy(log);
    return s;
}

const struct verb verb_export = {
    .name = "export",
    .arguments = "RUN|FILE --out FILE",
    .help = "the model of a run's newest checkpoint, for other programs (--format)",
    .run = run,
    .options = OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_FORMAT,
    .operand = "file",
};
