/* Reads the tensors of the checkpoint, then calls the format. */
#include "export/export.h"

#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "export/formats.h"
#include "train/inference/session.h"

static const struct export_format *const formats[] = {
#define X(name) &export_##name,
    EXPORT_FORMATS(X)
#undef X
        /* what a run has recorded, by name alone: report/run_export.c writes it */
        & (const struct export_format){.name = "mlflow", .extension = ""},
    &(const struct export_format){.name = "metrics-csv", .extension = ""},
};
#define FORMAT_COUNT (sizeof formats / sizeof *formats)

/* Adds the names of all formats: "safetensors, pt". */
static void export_add_names(struct text *out) {
    for (size_t i = 0; i < FORMAT_COUNT; i++) text_printf(out, "%s%s", i ? ", " : "", formats[i]->name);
}

static const struct export_format *find_name(const char *name) {
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(formats[i]->name, name) == 0) return formats[i];
    return NULL;
}

static const struct export_format *find_extension(const char *path) {
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < FORMAT_COUNT; i++)
        if (strcmp(formats[i]->extension, dot) == 0) return formats[i];
    return NULL;
}

static status choose(const struct export_options *options, const struct export_format **out) {
    SCOPED_TEXT names = {0};
    if (!options->out) return status_usage("export needs --out FILE");
    *out = options->format ? find_name(options->format) : find_extension(options->out);
    if (*out) return OK;
    export_add_names(&names);
    if (options->format)
        return status_usage("--format: expected one of %s, got '%s'", text_string(&names), options->format);
    return status_usage("--out: the format is not known by the extension of '%s'; give --format, one of %s",
                        options->out, text_string(&names));
}

bool export_is_of_training(const struct export_options *options) {
    const struct export_format *format = NULL;
    status s = choose(options, &format);
    status_free(s);
    return format && format->write_training;
}

status export_training(const struct export_options *options, const struct config *config, const char *source,
                       struct log *log) {
    const struct export_format *format = NULL;
    TRY(choose(options, &format));
    TRY(weights_check_out(options->out));
    TRY(format->write_training(config, source, options->out, log));
    if (!config->model.has_init_from) return OK;
    SCOPED_ARENA arena = arena_create();
    const struct export_options initial = {.weights = {.checkpoint = CHECKPOINT_INITIAL, .training = config},
                                           .format = export_pt.name,
                                           .out = export_initial_weights(options->out, arena)};
    status s = export_run(&initial, log);
    if (s) status_free(io_remove(options->out)); /* without its weights it is another training */
    return s;
}

const char *export_initial_weights(const char *path, struct arena *arena) {
    size_t length = strlen(path), end = strlen(export_pytorch.extension);
    bool has_extension = length > end && strcmp(path + length - end, export_pytorch.extension) == 0;
    return arena_printf(arena, "%.*s_initial.pt", (int)(has_extension ? length - end : length), path);
}

struct list {
    struct export_source *source;
    size_t capacity;
};

static status add(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    struct list *list = context;
    struct export_source *source = list->source;
    if (source->tensor_count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 64;
        struct named_tensor *tensors = arena_alloc(source->arena, list->capacity * sizeof *tensors);
        if (source->tensor_count) memcpy(tensors, source->tensors, source->tensor_count * sizeof *tensors);
        source->tensors = tensors;
    }
    int64_t *copy = arena_alloc(source->arena, MAX_DIMS * sizeof *copy);
    memcpy(copy, shape, (size_t)dims * sizeof *copy);
    source->tensors[source->tensor_count++] =
        (struct named_tensor){arena_copy(source->arena, name), dims, copy, values};
    return OK;
}

/* The moving average has a tensor for each parameter; running statistics have none. */
static status replace(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    struct export_source *source = context;
    for (size_t i = 0; i < source->tensor_count; i++) {
        struct named_tensor *t = &source->tensors[i];
        if (strcmp(t->name, name) != 0) continue;
        if (t->dims != dims || memcmp(t->shape, shape, (size_t)dims * sizeof *shape) != 0)
            return status_data("%s: ema/%s and model/%s have different shapes; the file was changed", source->path,
                               name, name);
        t->values = values;
    }
    return OK;
}

static status read_tensors(struct export_source *source) {
    struct list list = {.source = source};
    const struct session *session = source->session;
    TRY(checkpoint_visit(session->checkpoint, "model", add, &list));
    return session->average ? checkpoint_visit(session->checkpoint, "ema", replace, source) : OK;
}

status export_run(const struct export_options *options, struct log *log) {
    const struct export_format *format = NULL;
    TRY(choose(options, &format));
    TRY(weights_check_out(options->out));
    const struct weights_options *weights = &options->weights;
    const char *path = weights->folder ? weights->folder : weights->checkpoint;
    struct session session;
    const struct session_options opening = {
        .weights = *weights, .path = path, .config = options->config, .is_own = true, .predicts = true};
    struct export_source source = {.arena = arena_create(), .path = path, .session = &session, .log = log};
    status s = session_open(&opening, log, &session);
    if (!s) s = read_tensors(&source);
    stop_defer(); /* a request has no effect: the file is written completely */
    if (!s) s = format->write(&source, options->out);
    if (!s) log_line(log, "%s: %zu tensor%s", options->out, source.tensor_count, text_plural(source.tensor_count, "s"));
    session_close(&session);
    arena_destroy(source.arena);
    return s;
}
