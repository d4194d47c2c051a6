/* What formats share: their table, the shapes of rows, which must agree, images with the channels last, and several
 * files as one source. */
#include "data/source/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/scoped.h"

/* ---- the table of formats ---- */

static const void *const formats[] = {
#define X(name) &dataset_##name,
    DATASET_FORMATS(X)
#undef X
};

static struct type_table table = {.own = formats, .own_count = sizeof formats / sizeof *formats};

const struct dataset_format *dataset_format_at(size_t index) { return type_table_at(&table, index); }

bool dataset_format_add(const struct dataset_format *format) { return type_table_add(&table, format); }

static bool ends_with(const char *path, const char *extension) {
    size_t length = strlen(path), tail = strlen(extension);
    return length > tail && strcasecmp(path + length - tail, extension) == 0;
}

static const struct dataset_format *format_in_table(const struct dataset_config *config, const char *path) {
    if (config->format > 0) return dataset_format_at((size_t)config->format - 1);
    if (path && config->image.size.count > 0) return &dataset_images;
    for (size_t i = 0; path && dataset_format_at(i); i++) {
        const char *const *extension = dataset_format_at(i)->extensions;
        for (; extension && *extension; extension++)
            if (ends_with(path, *extension)) return dataset_format_at(i);
    }
    return NULL;
}

const struct dataset_format *dataset_format_of(const struct dataset_config *config, const char *path) {
    const struct dataset_format *format = format_in_table(config, path);
    return format == &dataset_text && config->tokens.tokenizer ? &dataset_tokenized : format;
}

const char *dataset_format_advice(const char *path) {
    static const struct {
        const char *extension, *advice;
    } others[] = {
        {".bz2", "; decompress it first: bunzip2 --keep FILE"},
        {".xz", "; decompress it first: unxz --keep FILE"},
        {".zst", "; decompress it first: zstd -d FILE"},
        {".jsonl", "; convert it first: pandas.read_json(FILE, lines=True).to_csv('new.csv', index=False)"},
        {".json", "; convert it first: pandas.read_json(FILE).to_csv('new.csv', index=False)"},
        {".arff", "; write CSV: remove the lines up to @data, and use dataset.csv.no_header"},
        {".xlsx", "; save the sheet as CSV"},
    };
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t end = strlen(others[i].extension);
        if (length > end && strcmp(path + length - end, others[i].extension) == 0) return others[i].advice;
    }
    return "";
}

void dataset_format_names(struct text *out) {
    for (size_t i = 0; dataset_format_at(i); i++) text_printf(out, "%s%s", i ? ", " : "", dataset_format_at(i)->name);
}

bool dataset_has_texts(const struct dataset_config *config) {
    const struct dataset_format *format = dataset_format_of(config, config->path);
    return format && format->records && format != &dataset_cells;
}

/* NULL: unknown. */
static const struct dataset_format *format_of_extension(const char *path) {
    static const struct dataset_config automatic;
    return dataset_format_of(&automatic, path);
}

bool dataset_knows_extension(const char *path) { return format_of_extension(path) != NULL; }

bool dataset_has_queries(const char *path) {
    const struct dataset_format *format = format_of_extension(path);
    return format && format->has_queries;
}

bool dataset_has_other_names(const struct dataset_config *a, const struct dataset_config *b) {
    const struct dataset_format *one = dataset_format_of(a, a->path), *other = dataset_format_of(b, b->path);
    return one && other && one != other && !(one->keys & other->keys & KEY_COLUMNS);
}

bool dataset_has_target_file(const char *path) {
    const struct dataset_format *format = format_of_extension(path);
    return format && format->has_target_file;
}

/* ---- shapes ---- */

#define MIN_SIDE 8 /* pixels; smaller first dimensions are probably channels */

/* The next dimension that is not 1; 0: there are no more. */
static int64_t next(int dims, const int64_t *shape, int *at) {
    while (*at < dims && shape[*at] == 1) ++*at;
    return *at < dims ? shape[(*at)++] : 0;
}

bool source_has_shape(int dims, const int64_t *shape) {
    int at = 0;
    return next(dims, shape, &at) && next(dims, shape, &at);
}

static int64_t elements(int dims, const int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < dims; i++) count *= shape[i];
    return count;
}

/* Dimensions of 1 may be missing, and a list of as many values fits any shape. */
static bool are_like_targets(int a_dims, const int64_t *a, int b_dims, const int64_t *b) {
    bool is_equal = true;
    for (int i = 0, j = 0, k = 0; k < MAX_DIMS; k++) is_equal = is_equal && next(a_dims, a, &i) == next(b_dims, b, &j);
    return is_equal || !source_has_shape(a_dims, a) || !source_has_shape(b_dims, b);
}

bool source_is_like(const struct source *a, const struct source *b) {
    return a->input_dims == b->input_dims && memcmp(a->input_shape, b->input_shape, sizeof a->input_shape) == 0 &&
           a->target_size == b->target_size &&
           are_like_targets(a->target_dims, a->target_shape, b->target_dims, b->target_shape);
}

void source_add_shape(int dims, const int64_t *shape, struct text *out) {
    for (int i = 0; i < dims; i++) text_printf(out, "%s%lld", i ? "x" : "", (long long)shape[i]);
    if (dims == 0) text_add(out, "1");
}

bool source_seems_channels_last(int dims, const int64_t *shape) {
    if (dims != 3 || shape[0] < MIN_SIDE || shape[1] < MIN_SIDE) return false;
    return shape[2] == 3 || shape[2] == 4 || (shape[2] == 1 && shape[0] == shape[1]);
}

status source_compare_names(const struct source *a, const struct source *b, bool is_target,
                            const struct string_list *names, const char *where, const char *other) {
    if (names->count < 2 || !a->format->shape_of_name || !b->format->shape_of_name) return OK;
    for (size_t i = 0; i < names->count; i++) {
        int dims[2];
        int64_t shapes[2][MAX_DIMS] = {{0}};
        a->format->shape_of_name(a, is_target, i, &dims[0], shapes[0]);
        b->format->shape_of_name(b, is_target, i, &dims[1], shapes[1]);
        bool is_same = dims[0] == dims[1] && memcmp(shapes[0], shapes[1], sizeof shapes[0]) == 0;
        bool is_like = is_target && elements(dims[0], shapes[0]) == elements(dims[1], shapes[1]) &&
                       are_like_targets(dims[0], shapes[0], dims[1], shapes[1]);
        if (is_same || is_like) continue;
        SCOPED_TEXT both = {0};
        source_add_shape(dims[0], shapes[0], &both);
        text_printf(&both, ", but in the %s file ", other);
        source_add_shape(dims[1], shapes[1], &both);
        return status_data("%s: rows of '%s' have shape %s", where, names->items[i], text_string(&both));
    }
    return OK;
}

/* ---- channels last ---- */

/* One image at a time, through a copy. */

status channels_last_reject(const char *name, int dims) {
    return status_usage("dataset.layout: nhwc needs images, (rows, height, width, channels), but %s has %d dimension%s",
                        name, dims + 1, text_plural((uint64_t)dims + 1, "s"));
}

bool channels_last_fits(int dims, const int64_t *shape, const int64_t *image) {
    return dims == 3 && shape[0] == image[0] && shape[1] == image[1];
}

status channels_last_create(int64_t shape[3], struct channels_last *out) {
    int64_t height = shape[0], width = shape[1], channels = shape[2];
    shape[0] = channels;
    shape[1] = height;
    shape[2] = width;
    out->channels = (size_t)channels;
    out->pixels = (size_t)(height * width);
    return rows_alloc(out->pixels * out->channels, sizeof(double), "an image", &out->image);
}

void channels_last_free(struct channels_last *layout) { buffer_free(layout->image); }

static void transpose(const struct channels_last *layout, char *row, size_t bytes) {
    memcpy(layout->image, row, layout->channels * layout->pixels * bytes);
    for (size_t c = 0; c < layout->channels; c++)
        for (size_t p = 0; p < layout->pixels; p++)
            memcpy(row + (c * layout->pixels + p) * bytes,
                   (const char *)layout->image + (p * layout->channels + c) * bytes, bytes);
}

void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t stride, size_t bytes) {
    for (size_t i = 0; layout->image && i < count; i++) transpose(layout, (char *)rows + i * stride, bytes);
}

size_t channels_last_element(const struct channels_last *layout, size_t element) {
    return layout->image ? element % layout->pixels * layout->channels + element / layout->pixels : element;
}

/* ---- several files as one ---- */

/* A source of sources. Names of columns are those of the first file. */

struct joined {
    struct source base;
    struct arena *arena;
    struct source **sources; /* (count) */
    size_t *first;           /* (count + 1): the first row of each */
    size_t count;
};

static const struct dataset_format format_joined;

bool joined_supports(const struct dataset_format *format) {
    return format->read && !format->decode && format->extensions;
}

const struct source *joined_first(const struct source *source) {
    return source && source->format == &format_joined ? ((const struct joined *)source)->sources[0] : source;
}

/* ---- opening ---- */

static status check_shape(const struct source *first, const struct source *source, const struct string_list *files,
                          size_t index) {
    if (source_is_like(first, source)) return OK;
    SCOPED_TEXT shapes = {0};
    for (int k = 0; k < 2; k++) {
        const struct source *one = k ? first : source;
        text_add(&shapes, k ? "; those of the first file have " : "rows have ");
        source_add_shape(one->input_dims, one->input_shape, &shapes);
        text_printf(&shapes, " inputs and %zu target value%s", one->target_size, text_plural(one->target_size, "s"));
        if (first->target_size != source->target_size || !one->target_dims) continue;
        text_add(&shapes, " of shape ");
        source_add_shape(one->target_dims, one->target_shape, &shapes);
    }
    return status_data("%s: %s, '%s'", files->items[index], text_string(&shapes), files->items[0]);
}

/* The same for each dataset of a row, which several together may hide. */
static status check_names(const struct source *first, const struct source *source, const struct dataset_config *config,
                          const char *path) {
    TRY(source_compare_names(source, first, false, &config->inputs, path, "first"));
    return config->request.without_targets ? OK
                                           : source_compare_names(source, first, true, &config->targets, path, "first");
}

/* Bytes of images are divided by 255 and other values are not, unless dataset.divide says it. */
static status check_divide(const struct source *first, const struct source *source, const struct dataset_config *config,
                           const struct string_list *files, size_t index) {
    if (!isnan(config->divide) || first->divide == source->divide) return OK;
    return status_data("%s: its values are %s, but those of the first file, '%s', are %s; write dataset.divide: the "
                       "number by which all are divided",
                       files->items[index], source->is_bytes ? "bytes" : "not bytes", files->items[0],
                       first->is_bytes ? "bytes" : "not bytes");
}

/* The file [index] of the targets, where targets are files: as many as there are files of inputs. */
static status choose_targets(const struct dataset_format *format, struct dataset_config *config, size_t count,
                             size_t index) {
    if (!format->has_target_file || config->targets.count == 0) return OK;
    if (config->targets.count != count)
        return status_usage("dataset.targets: there are %zu files of inputs, but %zu of targets", count,
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
        return status_usage("dataset.validation.targets is one file, but '%s' matches %zu; remove the key",
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
    if (s) close_joined(&j->base);
    if (!s) *out = &j->base;
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

/* Inputs as doubles, or as they are stored. */
static status read_parts(struct joined *j, size_t first, size_t count, double *inputs, char *stored, bool as_floats,
                         double *targets) {
    size_t done = 0, row_bytes = j->base.input_size * (as_floats ? sizeof(float) : 1);
    for (size_t i = file_of(j, first); done < count; i++) {
        size_t row = first + done, n = j->first[i + 1] - row;
        struct source *source = j->sources[i];
        if (n > count - done) n = count - done;
        size_t at = done;
        done += n;
        if (n == 0) continue; /* a file without rows */
        if (stored)
            TRY(source->format->read_stored(source, as_floats, row - j->first[i], n, stored + at * row_bytes));
        else
            TRY(source->format->read(source, row - j->first[i], n, inputs ? inputs + at * j->base.input_size : NULL,
                                     targets ? targets + at * j->base.target_size : NULL));
    }
    return OK;
}

static status read_joined(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    return read_parts((struct joined *)source, first, count, inputs, NULL, false, targets);
}

static status read_stored(struct source *source, bool as_floats, size_t first, size_t count, void *inputs) {
    return read_parts((struct joined *)source, first, count, NULL, inputs, as_floats, NULL);
}

static void will_read(const struct source *source, size_t row) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    const struct dataset_format *format = j->sources[file]->format;
    if (format->will_read) format->will_read(j->sources[file], row - j->first[file]);
}

static status read_extra(struct source *source, enum row_value extra, size_t first, size_t count, double *values) {
    const struct joined *j = (struct joined *)source;
    for (size_t done = 0, i = file_of(j, first); done < count; i++) {
        size_t row = first + done, n = j->first[i + 1] - row;
        if (n > count - done) n = count - done;
        if (n) TRY(j->sources[i]->format->read_extra(j->sources[i], extra, row - j->first[i], n, values + done));
        done += n;
    }
    return OK;
}

static void describe_joined(const struct source *source, enum row_value kind, size_t row, size_t element,
                            struct text *out) {
    const struct joined *j = (const struct joined *)source;
    size_t file = file_of(j, row);
    j->sources[file]->format->describe(j->sources[file], kind, row - j->first[file], element, out);
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
                                                    .read_stored = read_stored,
                                                    .will_read = will_read,
                                                    .read_extra = read_extra,
                                                    .describe = describe_joined,
                                                    .columns = columns_of,
                                                    .shape_of_name = shape_of_name,
                                                    .close = close_joined};
