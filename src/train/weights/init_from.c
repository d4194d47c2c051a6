/* A file of PyTorch (safetensors, torch.save) differs from a checkpoint: a tied weight has several names, and the
 * matrices of linear layers have other shapes. */
#include "train/weights/init_from.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/files/io.h"
#include "checkpoint/foreign.h"
#include "checkpoint/loading.h"
#include "checkpoint/safetensors.h"
#include "train/weights/saved_config.h"
#include "train/weights/start_data.h"
#include "train/weights/weights.h"

static void add_warning(const struct text *differences, struct text *report) {
    if (differences->length) text_printf(report, "; warning: weights are taken by position, but %s", differences->data);
}

/* Adds a warning to the report. */
static status compare_data(struct checkpoint *checkpoint, const struct dataset *dataset, struct text *report) {
    struct text differences = {0};
    status s = dataset ? start_data_compare(checkpoint, dataset, &differences) : OK;
    if (!s) add_warning(&differences, report);
    text_free(&differences);
    return s;
}

static status from_checkpoint(struct model *model, const char *path, const struct dataset *dataset,
                              struct text *report) {
    struct checkpoint *checkpoint;
    struct text warning = {0};
    char *found;
    status s = weights_open_start(path, &checkpoint, &found);
    if (!s) s = compare_data(checkpoint, dataset, &warning);
    if (!s) s = weights_load(model, checkpoint, false);
    if (!s && (found || warning.length)) text_printf(report, "%s%s", found ? found : path, text_string(&warning));
    text_free(&warning);
    checkpoint_close(checkpoint);
    free(found);
    return s;
}

/* Fills [names] (model->params.count) with the parameters of the layers that compute matrix products, each once, though
 * layers may share it; returns their number. */
static size_t find_products(const struct model *model, const char **names, struct arena *arena) {
    size_t count = 0;
    bool *is_found = arena_alloc(arena, model->params.count + 1);
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct layer *layer = &model->layers[i];
        for (size_t p = 0; layer->type->multiply_adds && p < layer->param_count; p++) {
            size_t param = layer->first_param + p;
            if (!is_found[param]) names[count++] = model->params.items[param].name;
            is_found[param] = true;
        }
    }
    return count;
}

/* A tied weight has a name in each layer that uses it. */
static status from_tensors(struct model *model, const struct weight_source *source, const char *path, bool is_torch,
                           const struct dataset *dataset, struct text *report) {
    struct arena *arena = arena_create();
    const struct params *sets[] = {&model->params, &model->buffers};
    struct safetensors_alias *aliases = arena_alloc(arena, (model->layer_count + 1) * sizeof *aliases);
    struct safetensors_wanted wanted[] = {{.key = "columns"}, {.key = "labels"}};
    struct safetensors_target target = {
        .sets = sets, .set_count = 2, .aliases = aliases, .wanted = wanted, .wanted_count = 2, .is_torch = is_torch};
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].tied_count)
            aliases[target.alias_count++] =
                (struct safetensors_alias){arena_printf(arena, "%s.weight", model->layers[i].name),
                                           model->params.items[model->layers[i].tied].name};
    const char **products = arena_alloc(arena, (model->params.count + 1) * sizeof *products);
    target.product_count = find_products(model, products, arena);
    target.products = products;
    status s =
        weight_source_is_mapped(source) ? mapped_load(path, &target, source, report) : safetensors_load(path, &target);
    struct text differences = {0};
    if (!s && dataset) start_data_compare_texts(wanted[0].value, wanted[1].value, dataset, &differences);
    if (differences.length && !report->length) text_add(report, path);
    add_warning(&differences, report);
    text_free(&differences);
    for (size_t i = 0; i < 2; i++) free(wanted[i].value);
    arena_destroy(arena);
    return s;
}

static bool ends_with(const char *path, const char *extension) {
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, extension) == 0;
}

static struct io_info info_of(const char *folder, const char *name, struct arena *arena) {
    struct io_info info = {0};
    status_free(io_stat(arena_printf(arena, "%s/%s", folder, name), &info));
    return info;
}

/* The files of weights, or the indices of several, that transformers' save_pretrained writes. */
static const char *const saved_files[] = {"model.safetensors", "model.safetensors" TENSOR_INDEX_ENDING,
                                          "pytorch_model.bin", "pytorch_model.bin" TENSOR_INDEX_ENDING};
#define SAVED_FILE_COUNT (sizeof saved_files / sizeof *saved_files)

/* A folder is one of a run, whose checkpoints have the names of the model, or one of save_pretrained. NULL: it has no
 * file of weights. */
static const char *find_file(const char *folder, struct arena *arena) {
    if (info_of(folder, "checkpoints", arena).is_folder) return NULL;
    for (size_t i = 0; i < SAVED_FILE_COUNT; i++)
        if (info_of(folder, saved_files[i], arena).is_file) return arena_printf(arena, "%s/%s", folder, saved_files[i]);
    return NULL;
}

/* Compares the model with the config.json beside a file of save_pretrained. */
static status compare_saved_config(const struct model *model, const char *path, bool is_partial, struct arena *arena,
                                   struct text *warnings) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folder = slash ? arena_printf(arena, "%.*s", (int)(slash - path), path) : ".";
    for (size_t i = 0; i < SAVED_FILE_COUNT; i++)
        if (strcmp(name, saved_files[i]) == 0) return saved_config_compare(model, folder, is_partial, warnings);
    return OK;
}

static status from_path(struct model *model, const struct weight_source *source, const char *path, bool is_folder,
                        const struct dataset *dataset, struct text *report) {
    bool is_index = !is_folder && tensor_index_is_name(path);
    bool is_torch = !is_folder && (ends_with(path, ".pt") || ends_with(path, ".pth") || foreign_is_torch(path));
    bool is_safetensors = !is_folder && (ends_with(path, ".safetensors") || foreign_is_safetensors(path));
    bool is_checkpoint = !is_index && !is_safetensors && !is_torch;
    if (is_folder && weight_source_is_mapped(source))
        return status_new(STATUS_USAGE,
                          "model.init_from: map, skip and partial are for files, and %s is a folder without "
                          "model.safetensors or pytorch_model.bin; the weights of a run become a file with: ddptrain "
                          "export %s --out weights.safetensors",
                          path, path);
    if (is_checkpoint && weight_source_is_mapped(source))
        return status_new(
            STATUS_USAGE,
            "model.init_from: map, skip and partial are for safetensors files and those of torch.save, and "
            "%s is neither; a checkpoint becomes one with ddptrain export",
            path);
    TRY(model_map(model));
    status s = is_checkpoint ? from_checkpoint(model, path, dataset, report)
                             : from_tensors(model, source, path, !is_safetensors && !is_index, dataset, report);
    return status_prefix(status_first(s, model_unmap(model, true)), "model.init_from");
}

status init_from(struct model *model, const struct weight_source *source, const struct dataset *dataset,
                 struct text *report) {
    struct io_info info;
    if (!source->file) return OK;
    TRY(io_stat(source->file, &info));
    struct arena *arena = arena_create();
    const char *file = info.is_folder ? find_file(source->file, arena) : source->file;
    struct text warnings = {0};
    status s = file ? compare_saved_config(model, file, source->is_partial, arena, &warnings) : OK;
    if (!s) s = from_path(model, source, file ? file : source->file, !file, dataset, report);
    if (warnings.length && !report->length) text_add(report, file);
    text_add(report, text_string(&warnings));
    text_free(&warnings);
    arena_destroy(arena);
    return s;
}
