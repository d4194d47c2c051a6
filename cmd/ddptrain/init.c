/* init: a first config for a data file, on standard output. */
#include <stdio.h>

#include "base/text.h"
#include "command.h"
#include "train/config/first_config.h"

static status run(const struct command_line *line) {
    struct text out = {0};
    status s = first_config_write(line->config, line->target, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    if (!s) return OK;
    /* The shell has created the file of `> CONFIG` already. */
    status failure = status_new(status_code(s), "%s; no config was written", status_message(s));
    status_free(s);
    return failure;
}

const struct subcommand subcommand_init = {
    .name = "init",
    .arguments = "DATA [--target COLUMN] > CONFIG",
    .help = "a commented config for a data file, which trains at once",
    .run = run,
    .options = OPTION_TARGET,
    .operand = "data",
    .takes_pattern = true,
};
