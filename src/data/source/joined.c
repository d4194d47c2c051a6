/* A source of sources. Names of columns are those of the first file. */
#include "data/source/joined.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct joined {
    struct source base;
    struct arena *arena;
    struct source **sources; /* (count) */
    size_t *first;           /* (count + 1): the first row of each */
    size_t count;
};

static const struct dataset_format format_joined;

bool joined_supports(const struct dataset_format *format) {
    return format->read && !format->labels && !format->decode && format->extensions;
}

const struct source *joined_first(const struct source *source) {
    return source && source->format == &format_joined ? ((const struct joined *)source)->sources[0] : source;
}

/* ---- opening ---- */

static status check_shape(const struct source *first, const struct source *source, const struct string_list *files,
                          size_t index) {
    if (source_is_like(first, source)) return OK;
    struct text shapes = {0};
    for (int k = 0; k < 2; k++) {
        const struct source *one = k ? first : source;
        text_add(&shapes, k ? "; those of the first file have " : "rows have ");
        source_add_shape(one->input_dims, one->input_shape, &shapes);
        text_printf(&shapes, " inputs and %zu target value%s", one->target_size, text_plural(one->target_size, "s"));
        if (first->target_size != source->target_size || !one->target_dims) continue;
        text_add(&shapes, " of shape ");
        source_add_shape(one->target_dims, one->target_shape, &shapes);
    }
    status s = status_new(STATUS_DATA, "%s: %s, '%s'", files->items[index], text_string(&shapes), files->items[0]);
    text_free(&shapes);
    return s;
}

/* The same for each dataset of a row, which several together may hide. */
static status check_names(const struct source *first, const struct source *source, const struct dataset_config *config,
                          const char *path) {
    TRY(source_compare_names(source, first, false, &config->inputs, path, "first"));
    return config->without_targets ? OK : source_compare_names(source, first, true, &config->targets, path, "first");
}

/* Bytes of images are divided by 255 and other values are not, unless dataset.divide says it. */
static status check_divide(const struct source *first, const struct source *source, const struct dataset_config *config,
                           const struct string_list *files, size_t index) {
    if (!isnan(config->divide) || first->divide == source->divide) return OK;
    return status_new(STATUS_DATA,
                      "%s: its values are %s, but those of the first file, '%s', are %s; write dataset.divide: the "
                      "number by which all are divided",
                      files->items[index], source->is_bytes ? "bytes" : "not bytes", files->items[0],
                      first->is_bytes ? "bytes" : "not bytes");
}

/* The file [index] of the targets, where targets are files: as many as there are files of inputs. */
static status choose_targets(const struct dataset_format *format, struct dataset_config *config, size_t count,
                             size_t index) {
    if (!format->has_target_file || config->targets.count == 0) return OK;
    if (config->targets.count != count)
        return status_new(STATUS_USAGE, "dataset.targets: there are %zu files of inputs, but %zu of targets", count,
                          config->targets.count);
    config->targets.items += index;
    config->targets.count = 1;
    return OK;
}

static status open_one(struct joined *j, const struct dataset_format *format, const struct dataset_config *config,
                       const struct string_list *files, bool wants_classes, const struct source *train) {
    struct dataset_config own = *config;
    struct source *base = &j->base, *source = NULL;
    uint64_t bytes;
    size_t index = j->count;
    if (train && format->has_target_file && config->validation.targets)
        return status_new(STATUS_USAGE, "dataset.validation.targets is one file, but '%s' matches %zu; remove the key",
                          config->validation.path, files->count);
    if (!train) TRY(choose_targets(format, &own, files->count, index));
    TRY(file_check(files->items[index], &bytes));
    TRY(format->open(&own, files->items[index], wants_classes, train, &source));
    j->sources[j->count++] = source;
    const struct source *first = j->sources[0];
    if (index == 0) {
        *base = *source;
        base->format = &format_joined;
        base->rows = 0;
        base->file_bytes = 0;
    }
    TRY(check_shape(first, source, files, index));
    TRY(check_names(first, source, config, files->items[index]));
    TRY(check_divide(first, source, config, files, index));
    j->first[index] = base->rows;
    base->rows += source->rows;
    j->first[index + 1] = base->rows;
    base->is_float32 = base->is_float32 && source->is_float32;
    base->has_floats = base->has_floats && source->has_floats;
    base->is_bytes = base->is_bytes && source->is_bytes;
    base->is_small = base->is_small && source->is_small;
    base->classes = source->classes > base->classes ? source->classes : base->classes;
    base->file_bytes += bytes;
    return OK;
}

static void close_joined(struct source *source) {
    struct joined *j = (struct joined *)source;
    for (size_t i = 0; i < j->count; i++) j->sources[i]->format->close(j->sources[i]);
    arena_destroy(j->arena);
    free(j);
}

status joined_open(const struct dataset_format *format, const struct dataset_config *config,
                   const struct string_list *files, bool wants_classes, const struct source *train,
                   struct source **out) {
    struct joined *j = calloc(1, sizeof *j);
    if (!j) return status_memory("a dataset");
    j->base.format = &format_joined;
    j->arena = arena_create();
    j->sources = arena_alloc(j->arena, files->count * sizeof *j->sources);
    j->first = arena_alloc(j->arena, (files->count + 1) * sizeof *j->first);
    status s = OK;
    while (!s && j->count < files->count) s = open_one(j, format, config, files, wants_classes, train);
    if (s)
        close_joined(&j->base);
    else
        *out = &j->base;
    return s;
}

/* ---- reading ---- */

/* The file that has [row]. */
static size_t file_of(const struct joined *j, size_t row) {
    size_t low = 0, high = j->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (j->first[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Inputs as doubles, floats or bytes. */
static status read_parts(struct joined *j, size_t first, size_t count, double *inputs, float *floats, uint8_t *bytes,
                         double *targets) {
    size_t done = 0;
    for (size_t i = file_of(j, first); done < count; i++) {
        size_t row = first + done, n = j->first[i + 1] - row;
        struct source *source = j->sources[i];
        if (n > count - done) n = count - done;
        size_t at = done * j->base.input_size;
        done += n;
        if (n == 0) continue; /* a file without rows */
        if (bytes)
            TRY(source->format->read_bytes(source, row - j->first[i], n, bytes + at));
        else if (floats)
            TRY(source->format->read_floats(source, row - j->first[i], n, floats + at));
        else
            TRY(source->format->read(source, row - j->first[i], n, inputs ? inputs + at : NULL,
                                     targets ? targets + (done - n) * j->base.target_size : NULL));
    }
    return OK;
}

static status read_joined(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    return read_parts((struct joined *)source, first, count, inputs, NULL, NULL, targets);
}

static status read_floats(struct source *source, size_t first, size_t count, float *inputs) {
    return read_parts((struct joined *)source, first, count, NULL, inputs, NULL, NULL);
}

static void will_read(const struct source *source, size_t row) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    const struct dataset_format *format = j->sources[file]->format;
    if (format->will_read) format->will_read(j->sources[file], row - j->first[file]);
}

static status read_weights(struct source *source, size_t first, size_t count, double *weights) {
    const struct joined *j = (struct joined *)source;
    for (size_t done = 0, i = file_of(j, first); done < count; i++) {
        size_t row = first + done, n = j->first[i + 1] - row;
        if (n > count - done) n = count - done;
        if (n) TRY(j->sources[i]->format->read_weights(j->sources[i], row - j->first[i], n, weights + done));
        done += n;
    }
    return OK;
}

static void describe_weight(const struct source *source, size_t row, struct text *out) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    j->sources[file]->format->describe_weight(j->sources[file], row - j->first[file], out);
}

static status read_groups(struct source *source, size_t first, size_t count, double *groups) {
    const struct joined *j = (struct joined *)source;
    for (size_t done = 0, i = file_of(j, first); done < count; i++) {
        size_t row = first + done, n = j->first[i + 1] - row;
        if (n > count - done) n = count - done;
        if (n) TRY(j->sources[i]->format->read_groups(j->sources[i], row - j->first[i], n, groups + done));
        done += n;
    }
    return OK;
}

static void describe_group(const struct source *source, size_t row, struct text *out) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    j->sources[file]->format->describe_group(j->sources[file], row - j->first[file], out);
}

static status read_bytes(struct source *source, size_t first, size_t count, uint8_t *inputs) {
    return read_parts((struct joined *)source, first, count, NULL, NULL, inputs, NULL);
}

static void describe_joined(const struct source *source, bool is_target, size_t row, size_t element, struct text *out) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    j->sources[file]->format->describe(j->sources[file], is_target, row - j->first[file], element, out);
}

static struct column_list columns_of(const struct source *source, struct arena *arena) {
    const struct source *first = joined_first(source);
    return first->format->columns ? first->format->columns(first, arena) : (struct column_list){0};
}

static void shape_of_name(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape) {
    const struct source *first = joined_first(source);
    *dims = 1;
    shape[0] = 1;
    if (first->format->shape_of_name) first->format->shape_of_name(first, is_target, index, dims, shape);
}

static const struct dataset_format format_joined = {.name = "joined",
                                                    .read = read_joined,
                                                    .read_floats = read_floats,
                                                    .will_read = will_read,
                                                    .read_weights = read_weights,
                                                    .describe_weight = describe_weight,
                                                    .read_groups = read_groups,
                                                    .describe_group = describe_group,
                                                    .read_bytes = read_bytes,
                                                    .describe = describe_joined,
                                                    .columns = columns_of,
                                                    .shape_of_name = shape_of_name,
                                                    .close = close_joined};
