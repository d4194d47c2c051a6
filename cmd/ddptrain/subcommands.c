/* The table of commands, suggestions for an unknown one, and how commands print. */
#include <string.h>
#include <unistd.h>

#include "base/schema/schema.h"
#include "command.h"

static const struct subcommand *const subcommands[] = {
#define X(name) &subcommand_##name,
    SUBCOMMANDS(X)
#undef X
};
#define SUBCOMMAND_COUNT (sizeof subcommands / sizeof *subcommands)

const struct subcommand *subcommand_at(size_t index) { return index < SUBCOMMAND_COUNT ? subcommands[index] : NULL; }

const struct subcommand *subcommand_find(const char *word) {
    for (size_t i = 0; word && i < SUBCOMMAND_COUNT; i++)
        if (strcmp(word, subcommands[i]->name) == 0) return subcommands[i];
    return NULL;
}

/* Names of commands in other programs. */
static const struct {
    const char *word, *subcommand, *note;
} other_subcommands[] = {
    {"evaluate", "eval", ""},   {"evaluation", "eval", ""},
    {"test", "eval", ""},       {"val", "eval", ""},
    {"score", "eval", ""},      {"validate", "eval", ", or 'check' for the config alone"},
    {"fit", "train", ""},       {"run", "train", ""},
    {"start", "train", ""},     {"resume", "train", "; it continues an unfinished run"},
    {"infer", "predict", ""},   {"inference", "predict", ""},
    {"sample", "generate", ""}, {"lint", "check", ""},
    {"verify", "check", ""},    {"dry-run", "check", ""},
    {"info", "inspect", ""},    {"show", "inspect", ""},
    {"list", "runs", ""},       {"ls", "runs", ""},
    {"history", "runs", ""},    {"status", "runs", ""},
    {"new", "init", ""},        {"create", "init", ""},
    {"search", "sweep", ""},    {"tune", "sweep", ""},
    {"optimize", "sweep", ""},  {"hpo", "sweep", ""},
    {"plot", "report", ""},     {"html", "report", ""},
    {"monitor", "watch", ""},   {"tail", "watch", ""},
    {"summary", "check", ""},   {"bench", "comm", ""},
    {"benchmark", "comm", ""},
};

status subcommand_check_word(const char *word) {
    const char *names[SUBCOMMAND_COUNT + 1] = {NULL};
    if (!word || subcommand_find(word)) return OK;
    if (word[0] == '-' || strpbrk(word, "./=") || access(word, F_OK) == 0) return OK;
    for (size_t i = 0; i < sizeof other_subcommands / sizeof *other_subcommands; i++)
        if (strcmp(word, other_subcommands[i].word) == 0)
            return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'%s? (see ddptrain --help)", word,
                              other_subcommands[i].subcommand, other_subcommands[i].note);
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++) names[i] = subcommands[i]->name;
    const char *nearest = schema_nearest(word, names);
    if (!nearest) return OK;
    return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'? (see ddptrain --help)", word, nearest);
}

bool command_print(FILE *stream, const struct text *text) {
    struct text escaped = {0};
    text_add_escaped(&escaped, text_string(text));
    bool is_printed = fputs(text_string(&escaped), stream) >= 0;
    text_free(&escaped);
    return is_printed;
}
