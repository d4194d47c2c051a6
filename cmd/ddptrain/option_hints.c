/* Suggestions for an unknown option: an option or a command of another name, or a key of the config. */
#include <stdio.h>
#include <string.h>

#include "base/schema/schema.h"
#include "command.h"

/* Options of other programs. */
static const struct {
    const char *words, *instead;
} others[] = {
    {"-c --config --cfg --config-file --config-path --config-name --yaml",
     "the config is an argument: ddptrain CONFIG [KEY=VALUE ...] [options]"},
    {"-n -np -j --num-processes --nprocs --ngpus --gpus --num-gpus", "did you mean '--nproc'?"},
    {"-N --num-nodes --nodes", "did you mean '--nnodes'?"},
    {"-o --output --output-file", "did you mean '--out'?"},
    {"--output-dir --out-dir --save-dir --logdir --log-dir --default-root-dir", "did you mean '--run-dir'?"},
    {"-i --input --input-file --data --data-file --stdin",
     "the data file follows the config: ddptrain predict CONFIG DATA; '-' is the standard input"},
    {"--proba --probs --predict-proba --softmax", "did you mean '--probabilities'?"},
    {"--logits --raw", "did you mean '--outputs'?"},
    {"-q --silent", "did you mean '--quiet'?"},
    {"--best --best-model", "did you mean '--checkpoint best'?"},
    {"-v -V", "did you mean '--version'?"},
    {"--verbose --debug", "there is none; --quiet prints less"},
    {"--overwrite --force --restart --no-resume", "did you mean '--fresh'? It renames the folder of an earlier run"},
    {"--dry-run --dryrun --check", "did you mean the command 'check'?"},
    {"--eval --evaluate --test --do-eval", "did you mean the command 'eval'?"},
    {"--predict --do-predict", "did you mean the command 'predict'?"},
    {"--train --do-train", "training is the default: ddptrain CONFIG"},
    {"--config-help", "did you mean '--help-config'?"},
    {"--local-rank --rank --world-size",
     "ranks are read from the environment (RANK, WORLD_SIZE, LOCAL_RANK), or started by --nproc N"},
    {"--rdzv-backend --rdzv-endpoint --rdzv-id",
     "there is no rendezvous; name the host of rank 0 by --master-addr and --master-port"},
};

static const char *instead_of(const char *name) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (const char *w = others[i].words; *w; w += strspn(w, " ")) {
            size_t length = strcspn(w, " ");
            if (strlen(name) == length && strncmp(w, name, length) == 0) return others[i].instead;
            w += length;
        }
    return NULL;
}

void option_hint(const char *word, const char *next, const char *const *known, bool has_config, struct text *out) {
    size_t length = strcspn(word, "="), dashes = strspn(word, "-");
    const char *value = word[length] ? word + length + 1 : next && next[0] != '-' ? next : NULL;
    char name[64], dashed[64];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    snprintf(dashed, sizeof dashed, "%s", name);
    for (char *c = dashed; *c; c++) *c = *c == '_' ? '-' : *c;
    const char *instead = instead_of(dashed), *nearest = schema_nearest(dashed, known);
    bool is_same = nearest && strcmp(nearest, dashed) == 0;
    if (instead)
        text_add(out, instead);
    else if (has_config && !is_same && dashes < strlen(name))
        schema_suggest_override(&config_schema, name + dashes, value, out);
    if (!out->length && nearest) text_printf(out, "did you mean '%s'?", nearest);
}
