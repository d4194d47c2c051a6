/* init: a first config for a data file, on standard output. */
#include <stdio.h>

#include "command.h"
#include "train/config/config.h"

static status run(const struct command_line *line) {
    SCOPED_TEXT out = {0}, notes = {0};
    status s = first_config_write(line->config, line->target, line->overrides, line->override_count, &out, &notes);
    if (!s) fputs(text_string(&out), stdout);
    if (!s) command_print(stderr, &notes);
    if (!s) return OK;
    /* The shell has created the file of `> CONFIG` already. */
    status failure = status_new(status_code(s), "%s; no config was written", status_message(s));
    status_free(s);
    return failure;
}

const struct subcommand subcommand_init = {
    .name = "init",
    .arguments = "DATA [--target COLUMN] [KEY=VALUE ...] > CONFIG",
    .help = "a commented config for a data file, which trains at once",
    .run = run,
    .options = OPTION_TARGET,
    .operand = "data",
    .takes_overrides = true,
    .override_prefixes = (const char *const[]){"dataset.csv.", NULL},
    .takes_pattern = true,
};
