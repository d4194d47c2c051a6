/* export: the weights of a checkpoint as a safetensors file. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "command.h"
#include "train/weights.h"

#define NOTES 2

struct list {
    struct arena *arena;
    struct safetensors_tensor *items;
    size_t count, capacity;
};

static status add(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    struct list *list = context;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        struct safetensors_tensor *items = arena_alloc(list->arena, capacity * sizeof *items);
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    int64_t *copy = arena_alloc(list->arena, MAX_DIMS * sizeof *copy);
    memcpy(copy, shape, (size_t)dims * sizeof *copy);
    list->items[list->count++] = (struct safetensors_tensor){arena_copy(list->arena, name), dims, copy, values};
    return OK;
}

/* The moving average has a tensor for each parameter; running statistics have none. */
static status replace(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    struct list *list = context;
    (void)dims, (void)shape;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0) list->items[i].values = values;
    return OK;
}

/* The columns of the inputs and the labels of the classes, if the checkpoint has them, as JSON. */
static status read_notes(struct checkpoint *checkpoint, struct safetensors_note *notes, char **texts) {
    static const char *const paths[] = {"data/columns", "data/labels"}, *const keys[] = {"columns", "labels"};
    struct entry entries[NOTES];
    for (size_t i = 0; i < NOTES; i++)
        entries[i] =
            (struct entry){.path = paths[i], .type = ENTRY_TEXT, .data = (void *)&texts[i], .is_optional = true};
    TRY(checkpoint_read(checkpoint, entries, NOTES, NULL));
    for (size_t i = 0; i < NOTES; i++) notes[i] = (struct safetensors_note){keys[i], texts[i]};
    return OK;
}

static status run(const struct command_line *line) {
    if (!line->out) return status_new(STATUS_USAGE, "export needs --out FILE.safetensors");
    if (line->checkpoint && strcmp(line->checkpoint, CHECKPOINT_BEST) != 0)
        return status_new(STATUS_USAGE, "--checkpoint: export accepts only best; give a file in place of RUN");
    const char *dot = strrchr(line->out, '.');
    if (!dot || strcmp(dot, ".safetensors") != 0)
        return status_new(STATUS_USAGE, "--out: the only format is .safetensors, got '%s'", line->out);
    TRY(weights_check_out(line->out));
    struct list list = {.arena = arena_create()};
    struct log *log = log_create(line->is_quiet, false);
    struct checkpoint *checkpoint = NULL;
    struct weights_options options = {.checkpoint = line->config, .which = line->weights};
    if (line->checkpoint) options = (struct weights_options){line->config, line->checkpoint, line->weights};
    bool average = false;
    status s = weights_open_alone(&options, log, &checkpoint, &average);
    if (!s) s = checkpoint_visit(checkpoint, "model", add, &list);
    if (!s && average) s = checkpoint_visit(checkpoint, "ema", replace, &list);
    struct safetensors_note notes[NOTES];
    char *texts[NOTES] = {0};
    if (!s) s = read_notes(checkpoint, notes, texts);
    *line->can_save = 1; /* from here on a stop request has no effect: the file is written completely */
    if (!s) s = safetensors_write(line->out, notes, NOTES, list.items, list.count);
    for (size_t i = 0; i < NOTES; i++) free(texts[i]);
    if (!s) log_line(log, "%s: %zu tensor%s", line->out, list.count, text_plural(list.count, "s"));
    checkpoint_close(checkpoint);
    log_destroy(log);
    arena_destroy(list.arena);
    return s;
}

const struct verb verb_export = {
    .name = "export",
    .arguments = "RUN|FILE --out FILE.safetensors",
    .help = "the weights of a run's newest checkpoint, for PyTorch",
    .run = run,
    .options = OPTION_OUT | OPTION_CHECKPOINT | OPTION_WEIGHTS,
    .operand = "file",
};
