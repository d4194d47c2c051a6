/* The entries of a model: "model/" or "ema/" for parameters, "model/" for buffers. */
#include "train/weights/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "train/state/data_entries.h"

/* *out: the folder of checkpoints of a run folder, or [folder], if it is that; malloc'ed. */
static status find_checkpoints(const char *folder, char **out) {
    struct io_info info;
    SCOPED_STRING inside = text_path(folder, "checkpoints");
    TRY(io_stat(inside, &info));
    *out = text_format("%s", info.is_folder ? inside : folder);
    return OK;
}

/* Opens the newest checkpoint of a run folder or of a folder of checkpoints. [advice]: what to do if there is none. */
static status open_folder(const char *folder, const char *advice, struct log *log, struct checkpoint **out,
                          char **path) {
    SCOPED_STRING inside = NULL;
    TRY(find_checkpoints(folder, &inside));
    TRY(checkpoint_open_newest(inside, log, out, path));
    return *out ? OK : status_data("%s has no checkpoint; train first%s", folder, advice);
}

#define GIVE_FILE ", or give --checkpoint FILE"
#define GIVE_INITIAL GIVE_FILE ", or --checkpoint " CHECKPOINT_INITIAL " for the weights of model.init_from"

/* Opens the best checkpoint; *out NULL: there is none. *found: its path, malloc'ed, also then. */
static status open_best(const char *folder, struct checkpoint **out, char **found) {
    struct io_info info;
    SCOPED_STRING inside = NULL;
    *out = NULL;
    TRY(find_checkpoints(folder, &inside));
    *found = text_path(inside, CHECKPOINT_BEST ".h5");
    TRY(io_stat(*found, &info));
    return info.exists ? checkpoint_open(*found, out) : OK;
}

/* The failure to open a best checkpoint that was not asked for. */
static status advise_newest(status s) {
    if (!s) return OK;
    status advised = status_new(status_code(s), "%s; --checkpoint " CHECKPOINT_NEWEST " takes the newest checkpoint",
                                status_message(s));
    status_free(s);
    return advised;
}

/* Opens a checkpoint of a run folder: "best", "newest", or for [which] NULL the best one if there is one, else the
 * newest. */
static status open_choice(const char *folder, const char *which, const char *advice, struct log *log,
                          struct checkpoint **out, char **found) {
    bool wants_best = which && strcmp(which, CHECKPOINT_BEST) == 0;
    if (which && !wants_best) return open_folder(folder, advice, log, out, found);
    status s = open_best(folder, out, found);
    if (s) return wants_best ? s : advise_newest(s);
    if (*out) return OK;
    if (wants_best) return status_data("%s does not exist; a run saves it with checkpoint.best", *found);
    free(*found);
    *found = NULL;
    return open_folder(folder, advice, log, out, found);
}

status weights_open_start(const char *path, struct checkpoint **out, char **found) {
    struct io_info info;
    *out = NULL;
    *found = NULL;
    TRY(io_stat(path, &info));
    if (!info.is_folder) return checkpoint_open(path, out);
    TRY(open_best(path, out, found));
    if (*out) return OK;
    free(*found);
    *found = NULL;
    return open_folder(path, "", NULL, out, found);
}

static bool is_word(const char *checkpoint) {
    return strcmp(checkpoint, CHECKPOINT_BEST) == 0 || strcmp(checkpoint, CHECKPOINT_NEWEST) == 0;
}

static status open_path(const char *path, struct log *log, struct checkpoint **out, char **found) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_folder) return open_choice(path, NULL, GIVE_FILE, log, out, found);
    TRY(checkpoint_open(path, out));
    *found = strdup(path);
    return OK;
}

static status open_run(const struct config *config, const struct weights_options *options, struct log *log,
                       struct checkpoint **out, char **found) {
    const char *advice = config && config->model.init_from.file ? GIVE_INITIAL : GIVE_FILE;
    SCOPED_STRING own = options->folder ? NULL : text_path("runs", config->name);
    return open_choice(own ? own : options->folder, options->checkpoint, advice, log, out, found);
}

/* *average: whether the evaluations of the run used it. True when the config cannot be read by this version. */
static status read_default(struct checkpoint *checkpoint, const char *path, bool *average) {
    SCOPED_STRING text = NULL;
    struct entry entry = {.path = "config", .type = ENTRY_TEXT, .data = &text};
    SCOPED_CONFIG file = NULL;
    TRY(checkpoint_read(checkpoint, &entry, 1, NULL));
    status s = config_parse(path, text, &file);
    *average = s || ema_is_used(&config_of(file)->train.ema);
    status_free(s);
    return OK;
}

static status choose(const struct weights_options *options, const char *path, struct checkpoint *checkpoint,
                     bool *has_average, bool *average) {
    const char *which = options->which;
    *average = which && strcmp(which, "average") == 0;
    TRY(checkpoint_has(checkpoint, "ema", has_average));
    if (which && !*average && strcmp(which, "trained") != 0)
        return status_usage("--weights: expected trained or average, got '%s'", which);
    if (!which && *has_average) TRY(read_default(checkpoint, path, average));
    if (!*average || *has_average) return OK;
    return status_usage("%s: it has no moving average of the weights (it was trained without train.ema)", path);
}

status weights_open(const struct config *config, const struct weights_options *options, struct log *log,
                    struct checkpoint **out, bool *average) {
    int64_t epoch = 0, step = 0;
    bool has_average = false;
    char *path = NULL;
    *out = NULL;
    status s = options->checkpoint && !is_word(options->checkpoint) ? open_path(options->checkpoint, log, out, &path)
                                                                    : open_run(config, options, log, out, &path);
    struct entry counters[] = {{.path = "state/epoch", .type = ENTRY_INT64, .data = &epoch},
                               {.path = "state/step", .type = ENTRY_INT64, .data = &step}};
    if (!s) s = checkpoint_read(*out, counters, 2, NULL);
    if (!s) s = choose(options, path, *out, &has_average, average);
    bool is_named = !s && options->checkpoint && (is_word(options->checkpoint) || !strcmp(options->checkpoint, path));
    if (!s)
        log_line(log, "%s: epoch %lld, step %lld%s%s", path, (long long)epoch, (long long)step,
                 !is_named && text_ends_with(path, "/" CHECKPOINT_BEST ".h5")
                     ? ", the best epoch; --checkpoint " CHECKPOINT_NEWEST " takes the newest"
                     : "",
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

status weights_check_out(const char *out) {
    struct io_info info;
    bool is_checkpoint = false;
    TRY(io_stat(out, &info));
    if (info.exists && !info.is_file)
        return status_usage("--out %s: it exists and is not a regular file; choose another name", out);
    if (info.is_file) TRY(sealed_has_trailer(out, &is_checkpoint));
    if (!is_checkpoint) return OK;
    return status_usage("--out %s: this is a checkpoint, which would be overwritten; choose another name", out);
}

static void add_entries(struct arena *arena, const char *group, const struct params *params, struct entry *entries,
                        size_t *count) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        if (loading_is_carried_state(p->name)) continue;
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
    SCOPED_ARENA arena = arena_create();
    size_t count = 0;
    struct entry *entries = arena_alloc(arena, (model->params.count + model->buffers.count) * sizeof *entries);
    add_entries(arena, group, &model->params, entries, &count);
    add_entries(arena, "model", &model->buffers, entries, &count);
    return checkpoint_read(checkpoint, entries, count, complete);
}

/* ---- the state of a checkpoint for a ledger ---- */

struct parts {
    struct device *device;
    struct model *model;
    struct optimizer *optimizer;
    struct ema *ema; /* NULL: none */
    struct state *state;
};

static status create(struct parts *p, const struct config *config, const struct input_layout *inputs) {
    struct dataset_info info = input_layout_info(inputs);
    TRY(config_plan_model(config, &info, 0, false, &p->model));
    struct params *params = &p->model->params;
    TRY(device_create("cpu", &p->device));
    p->model->device = p->device;
    TRY(params_alloc(params, p->device, false));
    TRY(params_alloc(&p->model->buffers, p->device, false));
    TRY(optimizer_create(&config->optimizer, params, p->device, &p->optimizer));
    TRY(ema_create(&config->train.ema, params, p->device, &p->ema));
    return state_create(p->model, p->optimizer, p->ema, NULL, NULL, NULL, &p->state);
}

static void destroy(struct parts *p) {
    state_destroy(p->state);
    ema_destroy(p->ema);
    optimizer_destroy(p->optimizer);
    model_destroy(p->model);
    device_destroy(p->device);
}

static status add_hashes(struct state *state, struct checkpoint *checkpoint, bool with_sha256,
                         struct saved_state *out) {
    static const char *const complete[] = {"model", "optimizer", "ema", NULL};
    const struct params *params = &state->model->params;
    TRY(state_map(state));
    TRY(checkpoint_read(checkpoint, state->entries, state->entry_count, complete));
    out->counters = state->counters;
    out->elements = params->elements;
    out->state = state_hash(state);
    out->parameters = state_hash_floats(0, params->values, params->total);
    if (with_sha256) state_sha256(state, out->sha256);
    return state_unmap(state, false);
}

status saved_state_read(struct checkpoint *checkpoint, const struct config *config, bool with_sha256,
                        struct saved_state *out) {
    SCOPED_ARENA arena = arena_create();
    struct input_layout inputs;
    struct parts parts = {0};
    bool has_inputs = false;
    *out = (struct saved_state){0};
    status s = input_layout_read(arena, checkpoint, &inputs, &has_inputs);
    if (!s && !has_inputs) s = status_data("it does not have the shape of the inputs (data/inputs)");
    if (!s) s = create(&parts, config, &inputs);
    if (!s) s = add_hashes(parts.state, checkpoint, with_sha256, out);
    destroy(&parts);
    return s;
}
