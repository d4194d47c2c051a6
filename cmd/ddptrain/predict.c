/* eval, predict: a trained model on rows. eval prints loss and metrics as one JSON line on standard output, predict
 * writes labels, values and probabilities to a file or to standard output. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* The overrides of command_use_data are the last ones. */
static status load_training(const struct command_line *line, struct config_file **training) {
    bool is_initial = line->checkpoint && strcmp(line->checkpoint, CHECKPOINT_INITIAL) == 0;
    *training = NULL;
    if (!is_initial || line->data_override_count == 0) return OK;
    return config_load(line->config, line->overrides, line->override_count - line->data_override_count, training);
}

/* *training is the config without the data file of the command line, to whose rows
 * `--checkpoint initial` fits the scaler; NULL: the options need none. */
static status read_options(const struct command_line *line, struct inference_options *options,
                           struct config_file **training) {
    TRY(load_training(line, training));
    *options = (struct inference_options){.weights = command_weights(line),
                                          .part = line->part,
                                          .out = line->out,
                                          .wants_probabilities = line->wants_probabilities,
                                          .wants_inputs = line->wants_inputs,
                                          .wants_outputs = line->wants_outputs,
                                          .ahead = (size_t)line->ahead,
                                          .skips_bad_rows = line->skips_bad_rows,
                                          .overdue = command_end_overdue};
    if (*training) options->weights.training = config_of(*training);
    return OK;
}

static status evaluate(const struct command_line *line, const struct config *config, const struct dist_env *env,
                       struct log *log) {
    struct inference_options options;
    SCOPED_CONFIG training = NULL;
    SCOPED_TEXT out = {0};
    status s = read_options(line, &options, &training);
    if (!s) s = inference_evaluate(config, env, &options, log, &out);
    if (!s && env->rank == 0) command_print(stdout, &out);
    return s;
}

static status run_eval(const struct command_line *line) { return command_on_ranks(line, evaluate); }

const struct subcommand subcommand_eval = {
    .name = "eval",
    .arguments = "CONFIG|RUN [DATA|-]",
    .takes_overrides = true,
    .help = "loss and metrics of the best or newest checkpoint",
    .run = run_eval,
    .options = OPTION_CPU_BIND | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PART | OPTION_SKIP | OPTION_RUN_DIR,
    .operand = "config",
    .max_operands = 2,
    .accepts_run = true,
    .accepts_data = true,
};

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
    SCOPED_CONFIG training = NULL;
    SCOPED_TEXT csv = {0};
    status s = read_options(line, &options, &training);
    if (!s) s = inference_predict(config, env, &options, log, &csv);
    if (!s) print(&csv);
    return s;
}

static status run_predict(const struct command_line *line) { return command_on_ranks(line, predict); }

const struct subcommand subcommand_predict = {
    .name = "predict",
    .arguments = "CONFIG|RUN [DATA|-] [--out FILE]",
    .takes_overrides = true,
    .help = "labels or values of rows, as CSV or HDF5",
    .run = run_predict,
    .options = OPTION_CPU_BIND | OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PART | OPTION_PREDICTIONS |
               OPTION_SKIP | OPTION_RUN_DIR,
    .operand = "config",
    .max_operands = 2,
    .accepts_run = true,
    .accepts_data = true,
    .writes_stdout = true,
};
