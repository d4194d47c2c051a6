/* eval: loss and metrics of a trained model, one JSON line on standard output. */
#include <stdio.h>

#include "base/scoped.h"
#include "command.h"

static status evaluate(const struct command_line *line, const struct config *config, const struct dist_env *env,
                       struct log *log) {
    struct inference_options options;
    struct config_file *training;
    SCOPED_TEXT out = {0};
    status s = command_inference(line, &options, &training);
    if (!s) s = inference_evaluate(config, env, &options, log, &out);
    if (!s && env->rank == 0) command_print(stdout, &out);
    config_free(training);
    return s;
}

static status run(const struct command_line *line) { return command_on_ranks(line, evaluate); }

const struct subcommand subcommand_eval = {
    .name = "eval",
    .arguments = "CONFIG|RUN [DATA|-]",
    .takes_overrides = true,
    .help = "loss and metrics of the best or newest checkpoint",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PART | OPTION_SKIP,
    .operand = "config",
    .max_operands = 2,
    .accepts_run = true,
    .accepts_data = true,
};
