/* runs: the run folders in a folder, as a table. */
#include <stdio.h>

#include "command.h"
#include "train/folder/run_list.h"

static status run(const struct command_line *line) {
    SCOPED_TEXT out = {0};
    status s = run_list(line->config ? line->config : "runs", &out);
    if (!s) command_print(stdout, &out);
    return s;
}

const struct subcommand subcommand_runs = {
    .name = "runs",
    .arguments = "[FOLDER]",
    .help = "the run folders in a folder (default: runs): state, progress, best epoch, time, size",
    .run = run,
    .operand = "folder",
    .needs_no_operand = true,
};
