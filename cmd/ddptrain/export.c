/* export: the weights of a checkpoint as a safetensors file. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "command.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"
#include "train/weights.h"

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
    int64_t *copy = arena_alloc(list->arena, ENTRY_MAX_DIMS * sizeof *copy);
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

status verb_export(const struct command_line *line) {
    if (!line->out) return status_new(STATUS_USAGE, "export needs --out FILE.safetensors");
    const char *dot = strrchr(line->out, '.');
    if (!dot || strcmp(dot, ".safetensors") != 0)
        return status_new(STATUS_USAGE, "--out: the only format is .safetensors, got '%s'", line->out);
    TRY(weights_check_out(line->out));
    struct list list = {.arena = arena_create()};
    struct log *log = log_create(line->is_quiet, false);
    struct checkpoint *checkpoint = NULL;
    struct weights_options options = {.checkpoint = line->config, .which = line->weights};
    bool average = false;
    status s = weights_open_alone(&options, log, &checkpoint, &average);
    if (!s) s = checkpoint_visit(checkpoint, "model", add, &list);
    if (!s && average) s = checkpoint_visit(checkpoint, "ema", replace, &list);
    if (!s) s = safetensors_write(line->out, list.items, list.count);
    if (!s) log_line(log, "%s: %zu tensors", line->out, list.count);
    checkpoint_close(checkpoint);
    log_destroy(log);
    arena_destroy(list.arena);
    return s;
}
