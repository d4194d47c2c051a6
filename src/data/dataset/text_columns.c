/* All columns of texts have one tokenizer, because a checkpoint stores one. */
#include "data/dataset/text_columns.h"

#include <string.h>

#include "data/columns/preparation.h"
#include "data/columns/raw_columns.h"
#include "data/source/config.h"
#include "data/text/tokenizer.h"

/* The first column of texts among count columns; SIZE_MAX: there is none. */
static size_t find_texts(const struct raw_column *columns, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (columns[i].type == COLUMN_TEXT) return i;
    return SIZE_MAX;
}

static status reject_shared(const struct dataset_config *config, const char *name) {
    struct text shown = {0};
    text_add_value(&shown, name, TEXT_MAX_NAME);
    status s = status_new(STATUS_USAGE,
                          "%s: column '%s' is a text, whose tokens are an input of their own; give the other columns "
                          "another name, as in dataset.inputs: {words: [%s], numbers: [...]}, or ignore them",
                          config->path, text_string(&shown), text_string(&shown));
    text_free(&shown);
    return s;
}

/* Each column of texts must be all of its input. */
static status check_inputs(const struct dataset_config *config, const struct raw_column *columns, size_t count) {
    const struct string_groups *groups = &config->input_groups;
    size_t texts = find_texts(columns, count), first = 0;
    if (texts == SIZE_MAX || count == 1) return OK;
    if (groups->count == 0) return reject_shared(config, columns[texts].name);
    for (size_t i = 0; i < groups->count && first < count; first += groups->items[i++].count) {
        size_t size = groups->items[i].count;
        texts = find_texts(columns + first, first + size <= count ? size : count - first);
        if (texts != SIZE_MAX && size > 1) return reject_shared(config, columns[first + texts].name);
    }
    return OK;
}

status text_columns_open(const struct dataset_config *config, const struct source *source, struct text_columns *out) {
    size_t texts = find_texts(source->columns, source->input_size);
    if (texts == SIZE_MAX) return OK;
    struct arena *arena = arena_create();
    struct column_rules rules = column_rules_index(arena, &config->rules);
    const struct column_rule *rule = column_rule_find(&rules, source->columns[texts].name);
    arena_destroy(arena);
    const char *trained = config->is_trained ? config->trained_tokenizer : NULL;
    if (config->is_trained && !trained)
        return status_new(STATUS_DATA, "the checkpoint has columns of texts, but no tokenizer (data/tokenizer)");
    if (!config->is_trained) TRY(check_inputs(config, source->columns, source->input_size));
    if (!config->is_trained && (!rule || !rule->tokenizer)) return OK;
    return tokenizer_open(rule ? rule->tokenizer : NULL, "dataset.columns", trained, &out->json, &out->tokenizer);
}

status text_columns_fit(const struct source *source, const struct fit_rows *rows, struct text_columns *texts) {
    if (texts->tokenizer || find_texts(source->columns, source->input_size) == SIZE_MAX) return OK;
    struct text json = {0};
    status s = preparation_make_tokenizer(source->columns, source->input_size, rows, &json);
    if (!s) s = tokenizer_open(NULL, NULL, text_string(&json), &texts->json, &texts->tokenizer);
    text_free(&json);
    return s;
}

void text_columns_close(struct text_columns *texts) {
    tokenizer_destroy(texts->tokenizer);
    buffer_free(texts->json);
    *texts = (struct text_columns){0};
}

void text_columns_check(const struct dataset_config *config, const struct node *where, struct problems *problems) {
    const struct column_rule *rules = config->rules.items, *first = NULL;
    for (size_t i = 0; i < config->rules.count; i++) {
        if (rules[i].type != COLUMN_TEXT) continue;
        const char *known = first && first->tokenizer ? first->tokenizer : "";
        if (first && strcmp(known, rules[i].tokenizer ? rules[i].tokenizer : "") != 0)
            problems_add(problems, dataset_place(where, "columns"), "dataset.columns",
                         "'%.60s' and '%.60s' have different tokenizers; all columns of texts have the same",
                         first->name, rules[i].name);
        first = first ? first : &rules[i];
    }
}
