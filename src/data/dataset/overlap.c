/* A pattern such as data/part-*.csv easily names the validation file, too. Files are compared by their inodes. */
#include <string.h>

#include "base/files/io.h"
#include "data/dataset/open_dataset.h"
#include "data/files/files.h"

/* The files that [path], and the list after it, names; a folder of images, or its file of labels, is one. */
static status list_files(const struct dataset_config *config, bool is_validation, struct arena *arena,
                         struct string_list *files) {
    const char *path = is_validation ? config->validation.path : config->path;
    const char *labels = is_validation ? config->validation.targets : config->image.labels;
    if (!dataset_format_of(config, path)->is_folder)
        return file_list_expand(path, dataset_others(config, is_validation), arena, files);
    files->items = arena_alloc(arena, sizeof *files->items);
    files->items[files->count++] = config->image.labels ? labels : path;
    return OK;
}

static status stat_all(const struct string_list *files, struct arena *arena, struct io_info **out) {
    *out = arena_alloc(arena, (files->count + 1) * sizeof **out);
    for (size_t i = 0; i < files->count; i++)
        if (files->items[i]) TRY(io_stat(files->items[i], &(*out)[i]));
    return OK;
}

/* Adds the first file of both lists and the number of the others; returns how many there are. */
static size_t add_common(const struct string_list *train, const struct io_info *train_info,
                         const struct string_list *validation, const struct io_info *info, struct text *out) {
    size_t count = 0;
    for (size_t i = 0; i < validation->count; i++) {
        bool is_common = false;
        for (size_t k = 0; k < train->count && !is_common && info[i].exists; k++)
            is_common = train->items[k] && io_is_same(&info[i], &train_info[k]);
        if (is_common && count++ == 0) text_add(out, validation->items[i]);
    }
    if (count > 1) text_printf(out, " and %zu more", count - 1);
    return count;
}

/* Adds the array of the inputs, as messages name it: ": array 'x': row 0". */
static void add_array(const struct source *source, struct text *out) {
    struct text place = {0};
    source->format->describe(source, false, 0, 0, &place);
    const char *array = strstr(text_string(&place), ": array ");
    text_add(out, array ? array : text_string(&place));
    text_free(&place);
}

/* Whether rows of one file are the same in both parts: not of other arrays of an .npz file, or another query. */
static bool reads_alike(const struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_format *format = dataset_format_of(config, config->validation.path);
    struct text train = {0}, validation = {0};
    if (format->has_queries && config->validation.query)
        return config->query && strcmp(config->query, config->validation.query) == 0;
    if (format != &dataset_npz) return true;
    add_array(dataset->tables[0].source, &train);
    add_array(dataset->tables[1].source, &validation);
    bool is_same = strcmp(text_string(&train), text_string(&validation)) == 0;
    text_free(&train);
    text_free(&validation);
    return is_same;
}

const char *overlap_note(struct dataset *dataset, const struct dataset_config *config) {
    struct string_list train = {0}, validation = {0};
    struct io_info *train_info = NULL, *info = NULL;
    struct text names = {0};
    const char *note = NULL;
    size_t count = 0;
    if (dataset->n_tables < 2 || config->is_trained || !reads_alike(dataset, config)) return NULL;
    struct arena *arena = arena_create();
    status s = list_files(config, false, arena, &train);
    if (!s) s = list_files(config, true, arena, &validation);
    if (!s) s = stat_all(&train, arena, &train_info);
    if (!s) s = stat_all(&validation, arena, &info);
    if (!s) count = add_common(&train, train_info, &validation, info, &names);
    if (count)
        note = arena_printf(dataset->arena,
                            "warning: %s %s in dataset.path and in dataset.validation: the model is trained on "
                            "validation rows, so their loss and metrics are better than those of new rows",
                            text_string(&names), count > 1 ? "are" : "is");
    status_free(s);
    text_free(&names);
    arena_destroy(arena);
    return note;
}
