/* predict: writes the outputs of a trained model to a file. */
#include "command.h"

static status predict(const struct command_line *line, const struct config *config, const struct dist_env *env,
                      struct log *log) {
    struct inference_options options = command_inference(line);
    return inference_predict(config, env, &options, log);
}

static status run(const struct command_line *line) { return command_on_ranks(line, predict); }

const struct verb verb_predict = {
    .name = "predict",
    .arguments = "CONFIG --out FILE.csv|.h5",
    .help = "the model's outputs, each with its row number",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PART,
    .operand = "config",
};
