/* generate: text from a trained model of texts, on standard output as it comes. */
#include "train/inference/generate.h"

#include <stdio.h>

#include "command.h"

static void print(void *context, const char *text) {
    (void)context;
    fputs(text, stdout);
    fflush(stdout);
}

static status run(const struct command_line *line) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct config_file *config;
    int nproc = 1; /* only one process generates */
    if (!line->prompt) return status_new(STATUS_USAGE, "generate needs --prompt TEXT");
    TRY(config_load(line->config, line->overrides, line->override_count, &config));
    struct generate_options options = {.weights = command_weights(line),
                                       .prompt = line->prompt,
                                       .characters = line->characters,
                                       .temperature = line->temperature,
                                       .top_k = line->top_k,
                                       .seed = line->seed,
                                       .stop = line->stop,
                                       .can_save = line->can_save};
    struct log *log = log_create(line->is_quiet, false);
    status s = command_choose_device(line, config, &alone, &nproc);
    if (!s) s = generate_text(config_of(config), &options, log, print, NULL);
    if (!s || status_code(s) == STATUS_STOPPED) putchar('\n');
    log_destroy(log);
    config_free(config);
    return s;
}

const struct verb verb_generate = {
    .name = "generate",
    .arguments = "CONFIG|RUN --prompt TEXT",
    .takes_overrides = true,
    .help = "text from a trained model of texts",
    .run = run,
    .options = OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PROMPT | OPTION_CHARACTERS | OPTION_TEMPERATURE |
               OPTION_TOP_K | OPTION_SEED,
    .operand = "config",
    .accepts_run = true,
};
