/* generate: text from a trained model of texts, on standard output as it comes. */
#include "train/inference/inference.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/io.h"
#include "command.h"

/* What failed is reported at the end of the program. A terminal would obey control characters of the text. */
static bool print(void *context, const char *text) {
    const bool *is_terminal = context;
    SCOPED_TEXT piece = {0};
    text_add(&piece, text);
    bool is_printed = *is_terminal ? command_print(stdout, &piece) : fputs(text, stdout) >= 0;
    return is_printed && fflush(stdout) == 0;
}

/* Adds the bytes of [fd] to its end. */
static status read_all(int fd, const char *name, struct text *out) {
    char bytes[4096];
    for (size_t got = 1; got > 0;) {
        TRY(io_read(fd, name, bytes, sizeof bytes, &got));
        text_add_bytes(out, bytes, got);
    }
    if (strlen(text_string(out)) == out->length) return OK;
    return status_usage("%s: a byte of the file is 0; this is not text", name);
}

static status read_file(const char *path, struct text *out) {
    struct io_info info;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s && !info.is_file)
        s = status_usage("--prompt-file: '%s' is not a regular file; - reads the standard input", path);
    if (!s) s = read_all(fd, path, out);
    return status_first(s, io_close(fd, path));
}

/* The text of --prompt or --prompt-file; *source: for messages. */
static status read_prompt(const struct command_line *line, struct text *out, const char **source) {
    const char *file = line->prompt_file;
    if (!line->prompt == !file)
        return status_usage("generate needs --prompt TEXT or --prompt-file FILE%s", file ? ", and not both" : "");
    *source = file ? file : "--prompt";
    if (file && strcmp(file, "-") == 0) {
        *source = "standard input";
        return read_all(STDIN_FILENO, *source, out);
    }
    if (!file) {
        text_add(out, line->prompt);
        return OK;
    }
    return read_file(file, out);
}

static status generate(const struct command_line *line, const char *prompt, const char *source) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    SCOPED_CONFIG config = NULL;
    int nproc = 1; /* only one process generates */
    bool is_terminal = isatty(STDOUT_FILENO);
    if (line->top_p > 1) return status_usage("--top-p: expected a number from 0 to 1, got %g", line->top_p);
    TRY(config_load(line->config, line->overrides, line->override_count, &config));
    struct generate_options options = {.weights = command_weights(line),
                                       .prompt = prompt,
                                       .prompt_source = source,
                                       .characters = line->characters,
                                       .temperature = line->temperature,
                                       .top_k = line->top_k,
                                       .top_p = line->top_p,
                                       .seed = line->seed < 0 ? 0 : line->seed,
                                       .stop_text = line->stop_text};
    SCOPED_LOG log = log_create(line->is_quiet, false);
    status s = command_choose_device(line, config, &alone, &nproc);
    if (!s) s = generate_text(config_of(config), &options, log, print, &is_terminal);
    if (!s || status_code(s) == STATUS_STOPPED) putchar('\n');
    return s;
}

static status run(const struct command_line *line) {
    SCOPED_TEXT prompt = {0};
    const char *source = NULL;
    TRY(read_prompt(line, &prompt, &source));
    return generate(line, text_string(&prompt), source);
}

const struct subcommand subcommand_generate = {
    .name = "generate",
    .arguments = "CONFIG|RUN --prompt TEXT",
    .takes_overrides = true,
    .help = "text from a trained model of texts",
    .run = run,
    .options = OPTION_CHECKPOINT | OPTION_WEIGHTS | OPTION_PROMPT | OPTION_CHARACTERS | OPTION_TEMPERATURE |
               OPTION_TOP_K | OPTION_TOP_P | OPTION_SEED | OPTION_STOP | OPTION_RUN_DIR,
    .operand = "config",
    .accepts_run = true,
};
