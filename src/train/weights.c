/* The entries of a model under "model/", complete in both directions. */
#include "train/weights.h"

#include <stdlib.h>
#include <string.h>

static status open_newest(const struct config *config, const char *folder, struct log *log, struct checkpoint **out,
                          struct text *path) {
    struct text run = {0};
    char *found = NULL;
    if (folder)
        text_add(&run, folder);
    else
        text_printf(&run, "runs/%s", config->name);
    text_printf(path, "%s/checkpoints", text_string(&run));
    status s = checkpoint_open_newest(text_string(path), log, out, &found);
    if (!s && !*out)
        s = status_new(STATUS_DATA, "%s has no checkpoint; train first, or name one with --checkpoint",
                       text_string(&run));
    text_clear(path);
    if (found) text_add(path, found);
    free(found);
    text_free(&run);
    return s;
}

status weights_open(const struct config *config, const char *folder, const char *file, struct log *log,
                    struct checkpoint **out) {
    struct text path = {0};
    int64_t epoch = 0, step = 0;
    *out = NULL;
    if (file) text_add(&path, file);
    status s = file ? checkpoint_open(file, out) : open_newest(config, folder, log, out, &path);
    struct entry counters[] = {{.path = "state/epoch", .type = ENTRY_INT64, .data = &epoch},
                               {.path = "state/step", .type = ENTRY_INT64, .data = &step}};
    if (!s) s = checkpoint_read(*out, counters, 2, NULL);
    if (!s) log_line(log, "%s: epoch %lld, step %lld", text_string(&path), (long long)epoch, (long long)step);
    if (s) {
        checkpoint_close(*out);
        *out = NULL;
    }
    text_free(&path);
    return s;
}

static void add_entries(struct arena *arena, const char *group, const struct params *params, struct entry *entries,
                        size_t *count) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        struct entry *e = &entries[(*count)++];
        *e = (struct entry){.path = arena_printf(arena, "%s/%s", group, p->name),
                            .type = ENTRY_FLOAT32,
                            .dims = p->dims,
                            .data = params_value(params, i)};
        memcpy(e->shape, p->shape, (size_t)p->dims * sizeof *e->shape);
    }
}

status weights_load(struct model *model, struct checkpoint *checkpoint, bool average) {
    const char *group = average ? "ema" : "model";
    const char *const complete[] = {group, NULL};
    struct arena *arena = arena_create();
    size_t count = 0;
    struct entry *entries = arena_alloc(arena, (model->params.count + model->buffers.count) * sizeof *entries);
    add_entries(arena, group, &model->params, entries, &count);
    add_entries(arena, "model", &model->buffers, entries, &count);
    status s = checkpoint_read(checkpoint, entries, count, complete);
    arena_destroy(arena);
    return s;
}
