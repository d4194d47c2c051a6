/* The entries of a model: "model/" or "ema/" for parameters, "model/" for buffers. */
#include "train/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/sealed.h"

/* Opens the newest checkpoint of a run folder or of a folder of checkpoints. */
static status open_folder(const char *folder, struct log *log, struct checkpoint **out, char **path) {
    struct text inside = {0};
    struct io_info info;
    text_printf(&inside, "%s/checkpoints", folder);
    status s = io_stat(text_string(&inside), &info);
    if (!s) s = checkpoint_open_newest(info.is_folder ? text_string(&inside) : folder, log, out, path);
    text_free(&inside);
    if (s || *out) return s;
    return status_new(STATUS_DATA, "%s has no checkpoint; train first, or give --checkpoint FILE", folder);
}

/* Opens best.h5 of a run folder. */
static status open_best(const char *folder, struct checkpoint **out, char **found) {
    struct text path = {0};
    struct io_info info;
    text_printf(&path, "%s/checkpoints/%s.h5", folder, CHECKPOINT_BEST);
    status s = io_stat(text_string(&path), &info);
    if (!s && !info.exists)
        s = status_new(STATUS_DATA, "%s does not exist; a run saves it with checkpoint.best", text_string(&path));
    if (!s) s = checkpoint_open(text_string(&path), out);
    *found = path.data;
    return s;
}

static status open_path(const char *path, struct log *log, struct checkpoint **out, char **found) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_folder) return open_folder(path, log, out, found);
    TRY(checkpoint_open(path, out));
    *found = strdup(path);
    return OK;
}

static bool is_best(const struct weights_options *options) {
    return options->checkpoint && strcmp(options->checkpoint, CHECKPOINT_BEST) == 0;
}

static status open_run(const struct config *config, const struct weights_options *options, struct log *log,
                       struct checkpoint **out, char **found) {
    struct text run = {0};
    if (options->folder)
        text_add(&run, options->folder);
    else
        text_printf(&run, "runs/%s", config->name);
    status s =
        is_best(options) ? open_best(text_string(&run), out, found) : open_folder(text_string(&run), log, out, found);
    text_free(&run);
    return s;
}

/* *average: whether the evaluations of the run used it. True when the config cannot be read by this version. */
static status read_default(struct checkpoint *checkpoint, const char *path, bool *average) {
    char *text = NULL;
    struct entry entry = {.path = "config", .type = ENTRY_TEXT, .data = &text};
    struct config_file *file;
    TRY(checkpoint_read(checkpoint, &entry, 1, NULL));
    status s = config_parse(path, text, &file);
    free(text);
    *average = true;
    if (s) {
        status_free(s);
        return OK;
    }
    *average = ema_is_used(&config_of(file)->train.ema);
    config_free(file);
    return OK;
}

static status choose(const struct weights_options *options, const char *path, struct checkpoint *checkpoint,
                     bool *has_average, bool *average) {
    const char *which = options->which;
    *average = which && strcmp(which, "average") == 0;
    TRY(checkpoint_has(checkpoint, "ema", has_average));
    if (which && !*average && strcmp(which, "trained") != 0)
        return status_new(STATUS_USAGE, "--weights: expected trained or average, got '%s'", which);
    if (!which && *has_average) TRY(read_default(checkpoint, path, average));
    if (!*average || *has_average) return OK;
    return status_new(STATUS_USAGE, "%s: it has no moving average of the weights (it was trained without train.ema)",
                      path);
}

static status open_and_choose(const struct config *config, const struct weights_options *options, struct log *log,
                              struct checkpoint **out, bool *average) {
    int64_t epoch = 0, step = 0;
    bool has_average = false;
    char *path = NULL;
    *out = NULL;
    status s = options->checkpoint && !is_best(options) ? open_path(options->checkpoint, log, out, &path)
                                                        : open_run(config, options, log, out, &path);
    struct entry counters[] = {{.path = "state/epoch", .type = ENTRY_INT64, .data = &epoch},
                               {.path = "state/step", .type = ENTRY_INT64, .data = &step}};
    if (!s) s = checkpoint_read(*out, counters, 2, NULL);
    if (!s) s = choose(options, path, *out, &has_average, average);
    if (!s)
        log_line(log, "%s: epoch %lld, step %lld%s", path, (long long)epoch, (long long)step,
                 !has_average ? ""
                 : *average   ? "; the moving average of the weights (--weights trained: as trained)"
                              : "; the weights as trained (--weights average: their moving average)");
    free(path);
    if (s) {
        checkpoint_close(*out);
        *out = NULL;
    }
    return s;
}

status weights_open(const struct config *config, const struct weights_options *options, struct log *log,
                    struct checkpoint **out, bool *average) {
    return open_and_choose(config, options, log, out, average);
}

status weights_open_alone(const struct weights_options *options, struct log *log, struct checkpoint **out,
                          bool *average) {
    return open_and_choose(NULL, options, log, out, average);
}

status weights_check_out(const char *out) {
    struct io_info info;
    bool is_checkpoint = false;
    TRY(io_stat(out, &info));
    if (info.is_file) TRY(sealed_has_trailer(out, &is_checkpoint));
    if (!is_checkpoint) return OK;
    return status_new(STATUS_USAGE, "--out %s: this is a checkpoint, which would be overwritten; choose another name",
                      out);
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
