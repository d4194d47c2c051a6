/* export: the weights of a checkpoint as a safetensors file. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "command.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"

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

/* A checkpoint file, a run folder or its folder of checkpoints. */
static status open_source(const char *path, struct log *log, struct arena *arena, struct checkpoint **out) {
    struct io_info info, inside;
    char *folder = arena_printf(arena, "%s/checkpoints", path), *found = NULL;
    TRY(io_stat(path, &info));
    if (!info.is_folder) return checkpoint_open(path, out);
    TRY(io_stat(folder, &inside));
    TRY(checkpoint_open_newest(inside.is_folder ? folder : path, log, out, &found));
    free(found);
    return *out ? OK : status_new(STATUS_DATA, "%s: there is no checkpoint in it", path);
}

status verb_export(const struct command_line *line) {
    if (!line->out) return status_new(STATUS_USAGE, "export needs --out FILE.safetensors");
    const char *dot = strrchr(line->out, '.');
    if (!dot || strcmp(dot, ".safetensors") != 0)
        return status_new(STATUS_USAGE, "--out: the only format is .safetensors, got '%s'", line->out);
    struct list list = {.arena = arena_create()};
    struct log *log = log_create(line->is_quiet, false);
    struct checkpoint *checkpoint = NULL;
    status s = open_source(line->config, log, list.arena, &checkpoint);
    if (!s) s = checkpoint_visit(checkpoint, "model", add, &list);
    if (!s) s = safetensors_write(line->out, list.items, list.count);
    if (!s) log_line(log, "%s: %zu tensors", line->out, list.count);
    checkpoint_close(checkpoint);
    log_destroy(log);
    arena_destroy(list.arena);
    return s;
}
