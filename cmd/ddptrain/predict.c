/* predict: labels, values and probabilities of rows, to a file or to standard output. */
#include <stdio.h>
#include <unistd.h>

#include "base/scoped.h"
#include "command.h"

/* A terminal would interpret control characters of labels and copied columns. */
static void print(const struct text *csv) {
    if (isatty(STDOUT_FILENO))
        command_print(stdout, csv);
    else
        fputs(text_string(csv), stdout);
}

static status predict(const struct command_line *line, const struct config *config, const struct dist_env *env,
                      struct log *log) {
    struct inference_options options;
    struct config_file *training;
    SCOPED_TEXT csv = {0};
    status s = command_inference(line, &options, &training);
    if (!s) s = inference_predict(config, env, &options, log, &csv);
    if (!s) print(&csv);
    config_free(training);
    return s;
}

static status run(const struct command_line *line) { return command_on_ranks(line, predict); }

const struct subcommand subcommand_predict = {
    .name = "predict",
    .arguments = "CONFIG|RUN [DATA|-] [--out FILE]",
    .takes_overrides = true,
    .help = "labels or values of rows, as CSV or HDF5",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PART | OPTION_PREDICTIONS |
               OPTION_SKIP,
    .operand = "config",
    .max_operands = 2,
    .accepts_run = true,
    .accepts_data = true,
};
