/* A CSV file of labels is opened as a dataset of format csv with one input, a text: the names of the images. */
#include "data/source/image_labels.h"

#include <math.h>
#include <string.h>

#include "data/csv/csv.h"
#include "data/source/image_names.h"

const char *image_labels_path(const struct dataset_config *config, bool is_validation) {
    if (!config->image.labels) return NULL;
    return is_validation ? config->validation.targets : config->image.labels;
}

/* The name of the first column that has one; of a file without header the number of the first. */
static status find_first_column(const struct dataset_config *config, const char *path, struct arena *arena,
                                const char **name) {
    struct csv_reader reader = {0};
    bool has_record = false;
    char *text;
    status s = csv_open_first(path, &config->csv, &reader, &text);
    if (!s) s = csv_next(&reader, &has_record);
    size_t column = 0;
    while (!s && has_record && column + 1 < reader.count && !*reader.fields[column].text) column++;
    bool has_names = has_record && !config->csv.has_no_header;
    if (!s) *name = arena_copy(arena, has_names ? reader.fields[column].text : "0");
    csv_free(&reader);
    buffer_free(text);
    return s;
}

bool image_labels_trained(const struct dataset_config *config) {
    return config->columns.count && strcmp(config->columns.format, dataset_images.name) == 0;
}

/* The names of the targets that a model was trained with, else those of the config. */
static struct string_list targets_of(const struct dataset_config *config, struct arena *arena) {
    const struct column_list *trained = &config->columns;
    struct string_list targets = {.items = arena_alloc(arena, (trained->count + 1) * sizeof *targets.items)};
    if (!image_labels_trained(config)) return config->targets;
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == COLUMN_TARGET) targets.items[targets.count++] = trained->items[i].name;
    return targets;
}

static status open_file(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct arena *arena, struct source **out) {
    struct dataset_config table = *config;
    struct column_rule names = {.type = COLUMN_TEXT, .scale = -1, .is_given = {.type = true}}; /* also of digits */
    const char *nothing = "";
    uint64_t bytes;
    TRY(status_prefix(file_check(path, &bytes), "dataset.image.labels"));
    names.name = config->image.column;
    if (!names.name) TRY(find_first_column(config, path, arena, &names.name));
    table.path = table.validation.path = path;
    table.format = 0;
    table.others = table.validation.others = (struct string_list){0};
    table.inputs = (struct string_list){&names.name, 1};
    table.targets = targets_of(config, arena);
    table.weights = NULL;
    table.rules = (struct section_list){&names, 1};
    table.missing = (struct string_list){&nothing, 1}; /* NA may be a name */
    table.columns = (struct column_list){0};
    table.is_trained = false; /* names of files are no inputs of the model */
    table.preparation = NULL;
    return dataset_csv.open(&table, path, wants_classes, train, out);
}

status image_labels_open(const struct dataset_config *config, const char *path, bool wants_classes,
                         const struct source *train, struct source **out) {
    if (!path)
        return status_new(
            STATUS_USAGE,
            "dataset.validation.targets is missing: give the CSV file of the labels of the images in '%s'",
            config->validation.path);
    struct arena *arena = arena_create();
    status s = open_file(config, path, wants_classes, train, arena, out);
    arena_destroy(arena);
    return s;
}

static status no_image(const struct source *labels, const char *folder, size_t row, const char *name) {
    struct text place = {0}, printable = {0};
    labels->format->describe(labels, false, row, 0, &place);
    text_add_value(&printable, name, TEXT_MAX_NAME);
    status s =
        status_new(STATUS_DATA,
                   "%s: there is no image '%s' in the folder '%s'; correct or remove the line, or name the column "
                   "of the file names with dataset.image.column",
                   text_string(&place), text_string(&printable), folder);
    text_free(&place);
    text_free(&printable);
    return s;
}

status image_labels_name(struct source *labels, const char *folder, size_t row, struct arena *arena,
                         const char **name) {
    double value;
    bool exists = false;
    TRY(labels->format->read(labels, row, 1, &value, NULL));
    const char *text = isnan(value) ? "" : labels->columns[0].texts.items[(size_t)value];
    if (!image_is_named(text) && image_is_foreign(text))
        return status_new(STATUS_DATA, "%s/%s: only JPEG and PNG images are read; convert the file", folder, text);
    TRY(image_names_complete(folder, text, arena, name, &exists));
    return exists ? OK : no_image(labels, folder, row, text);
}

struct column_list image_labels_columns(const struct source *labels, struct arena *arena) {
    struct column_list all = labels->format->columns(labels, arena);
    struct column_list list = {dataset_images.name, arena_alloc(arena, (all.count + 1) * sizeof *list.items), 0};
    for (size_t i = 0; i < all.count; i++)
        if (all.items[i].role == COLUMN_TARGET) list.items[list.count++] = all.items[i];
    return list;
}
