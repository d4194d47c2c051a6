/* eval, predict: a trained model on rows. Numbers go to standard output as one JSON line, words to standard error. */
#include <stdio.h>

#include "base/text.h"
#include "command.h"
#include "train/inference/inference.h"

static struct inference_options options_of(const struct command_line *line) {
    return (struct inference_options){.weights = command_weights(line),
                                      .part = line->part,
                                      .out = line->out,
                                      .is_ending = line->can_save,
                                      .stop_fd = line->stop_fd,
                                      .overdue = command_end_overdue};
}

static status evaluate(const struct command_line *line, const struct config *config, const struct dist_env *env,
                       struct log *log) {
    struct inference_options options = options_of(line);
    struct text out = {0};
    status s = inference_evaluate(config, env, &options, log, &out);
    if (!s && env->rank == 0) fputs(text_string(&out), stdout);
    text_free(&out);
    return s;
}

static status predict(const struct command_line *line, const struct config *config, const struct dist_env *env,
                      struct log *log) {
    struct inference_options options = options_of(line);
    return inference_predict(config, env, &options, log);
}

status verb_eval(const struct command_line *line) { return command_on_ranks(line, evaluate); }
status verb_predict(const struct command_line *line) { return command_on_ranks(line, predict); }
