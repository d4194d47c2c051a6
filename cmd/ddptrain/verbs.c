/* The table of verbs, and suggestions for an unknown one. */
#include <string.h>
#include <unistd.h>

#include "base/schema/schema.h"
#include "command.h"

static const struct verb *const verbs[] = {
#define X(name) &verb_##name,
    VERBS(X)
#undef X
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

const struct verb *verb_at(size_t index) { return index < N_VERBS ? verbs[index] : NULL; }

const struct verb *verb_find(const char *word) {
    for (size_t i = 0; word && i < N_VERBS; i++)
        if (strcmp(word, verbs[i]->name) == 0) return verbs[i];
    return NULL;
}

/* Names of verbs in other programs. */
static const struct {
    const char *word, *verb, *note;
} other_verbs[] = {
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

status verb_check_word(const char *word) {
    const char *names[N_VERBS + 1] = {NULL};
    if (!word || verb_find(word)) return OK;
    if (word[0] == '-' || strpbrk(word, "./=") || access(word, F_OK) == 0) return OK;
    for (size_t i = 0; i < sizeof other_verbs / sizeof *other_verbs; i++)
        if (strcmp(word, other_verbs[i].word) == 0)
            return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'%s? (see ddptrain --help)", word,
                              other_verbs[i].verb, other_verbs[i].note);
    for (size_t i = 0; i < N_VERBS; i++) names[i] = verbs[i]->name;
    const char *nearest = schema_nearest(word, names);
    if (!nearest) return OK;
    return status_new(STATUS_USAGE, "unknown command '%s'; did you mean '%s'? (see ddptrain --help)", word, nearest);
}
