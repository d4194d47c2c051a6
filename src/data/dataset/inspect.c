/* `inspect` for data files that are not HDF5: what a format says about a file (a CSV file's columns), or the shape of
 * its rows. */
#include <string.h>

#include "base/files/io.h"
#include "data/dataset/dataset.h"

static status inspect_rows(const char *path, const char *format, struct arena *arena, struct text *out) {
    struct dataset_config config;
    struct problems problems = {0};
    struct dataset *dataset;
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    config.without_targets = true;
    TRY(dataset_open(&config, true, true, &dataset));
    const struct dataset_info *info = dataset_info(dataset);
    text_printf(out, "file    %s\nformat  %s, %zu row%s of (", path, format, info->train_rows,
                text_plural(info->train_rows, "s"));
    for (int i = 0; i < info->input_dims; i++)
        text_printf(out, "%s%lld", i ? ", " : "", (long long)info->input_shape[i]);
    text_add(out, info->input_kind == INPUT_TOKENS ? ") tokens" : ")");
    if (info->vocabulary) text_printf(out, ", vocabulary %lld", (long long)info->vocabulary);
    text_add(out, "\n");
    dataset_close(dataset);
    return OK;
}

bool dataset_is_inspected(const char *path) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    return image_is_named(path) || (format && strcmp(format->name, "hdf5") != 0);
}

static status inspect_image(const char *path, struct text *out) {
    struct image_config config = {.channels = 3};
    struct image_decoder *decoder;
    text_printf(out, "file    %s\nformat  ", path);
    status s = image_decoder_create(&config, &decoder);
    if (!s) s = image_describe_file(decoder, path, out);
    image_decoder_destroy(decoder);
    text_add(out, "\n");
    return s;
}

status dataset_inspect(const char *path, struct text *out) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    uint64_t bytes;
    struct io_info info = {0};
    if (!format && image_is_named(path)) TRY(io_stat(path, &info));
    if (info.is_file) return inspect_image(path, out);
    struct arena *arena = arena_create();
    status s = format ? OK : io_stat(path, &info);
    if (!s && !format && info.is_folder) format = &dataset_images;
    if (!s && format != &dataset_images) s = file_check(path, &bytes);
    if (!s) s = format->inspect ? format->inspect(path, out) : inspect_rows(path, format->name, arena, out);
    arena_destroy(arena);
    return s;
}
