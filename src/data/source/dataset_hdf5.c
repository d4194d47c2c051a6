/* HDF5 files, as h5py writes them: one dataset for the inputs (or several vectors that are concatenated) and one for
 * the targets. Files are not trusted: external links are not followed, filter plugins are not loaded, and each dataset
 * is checked (hdf5_check.h) before its values are read. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/files/hdf5.h"
#include "base/files/io.h"
#include "data/source/channels_last.h"
#include "data/source/hdf5_check.h"
#include "data/source/hdf5_chunks.h"
#include "data/source/hdf5_piece.h"
#include "data/source/source.h"

#define CHUNK_CACHE_BYTES ((size_t)64 << 20)
#define CHUNK_CACHE_SLOTS 65537 /* a prime number, to avoid collisions of neighbouring chunks */
#define MAX_TRIED_VALUES ((size_t)1 << 24)

enum values { DOUBLES, FLOATS, BYTES };

struct column {
    const char *name;
    hid_t dataset;  /* -1: not open */
    bool is_joined; /* with others to one vector */
    struct hdf5_rows of;
    struct hdf5_chunks *chunks; /* NULL: nothing is compressed */
    struct hdf5_piece piece;
    int dims; /* of a row as it is read */
    int64_t shape[MAX_DIMS];
    struct channels_last layout;
};

struct hdf5 {
    struct source base;
    struct arena *arena;
    const char *path;
    hid_t file; /* -1: not open */
    int descriptor;
    uint64_t bytes; /* of the file when it was opened */
    size_t n_inputs, n_targets, n_weights, n_groups;
    struct column *inputs, *targets, *weights, *groups;
    const char *group_key; /* that names the groups */
};

/* ---- opening ---- */

/* libhdf5 reads zeros behind the end of a file that was truncated. */
static status check_length(const struct hdf5 *h) {
    struct io_info info;
    TRY(io_stat_fd(h->descriptor, h->path, &info));
    if (info.size >= h->bytes) return OK;
    return status_new(STATUS_DATA, "%s: the file was truncated after it was opened (%llu bytes of %llu)", h->path,
                      (unsigned long long)info.size, (unsigned long long)h->bytes);
}

/* Gets the file descriptor of the open HDF5 file. */
static status find_descriptor(struct hdf5 *h) {
    struct io_info info;
    void *handle;
    if (H5Fget_vfd_handle(h->file, H5P_DEFAULT, &handle) < 0)
        return hdf5_failure(h->path, "the file cannot be examined");
    h->descriptor = *(int *)handle;
    TRY(io_stat_fd(h->descriptor, h->path, &info));
    h->bytes = info.size;
    return OK;
}

static status open_file(struct hdf5 *h) {
    H5PLset_loading_state(0); /* no plugins */
    htri_t is_hdf5 = H5Fis_hdf5(h->path);
    if (is_hdf5 == 0) return status_new(STATUS_DATA, "%s: this is not an HDF5 file", h->path);
    hid_t access = hdf5_read_access();
    h->file = H5Fopen(h->path, H5F_ACC_RDONLY, access);
    status s = h->file < 0 ? hdf5_failure(h->path, "cannot be opened as HDF5 file") : OK;
    H5Pclose(access);
    return s == OK ? find_descriptor(h) : s;
}

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    (void)group, (void)info;
    struct text *names = context;
    if (names->length > 200) {
        text_add(names, ", ...");
        return 1;
    }
    text_printf(names, "%s%s", names->length ? ", " : "", name);
    return 0;
}

static status missing(const struct hdf5 *h, const char *name) {
    struct text names = {0};
    H5Literate(h->file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &names);
    status s = status_new(STATUS_DATA, "%s: there is no dataset '%s'; the file has: %s (see dataset.inputs, targets)",
                          h->path, name, names.length ? text_string(&names) : "nothing");
    text_free(&names);
    return s;
}

/* libhdf5 calls it before it follows an external link, also through a soft link; a negative result prevents it. */
/* NOLINTBEGIN(readability-non-const-parameter) */
static herr_t reject_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *access_flags, hid_t access, void *context) {
    (void)parent_file, (void)parent_group, (void)child_file, (void)child_object, (void)access_flags, (void)access;
    (void)context;
    return -1;
}
/* NOLINTEND(readability-non-const-parameter) */

/* Checks that each step of "a/b/c" is a link within this file. */
static status check_links(const struct hdf5 *h, const char *name, hid_t access) {
    char step[1024];
    size_t length = strlen(name);
    if (length >= sizeof step) return missing(h, name);
    for (size_t i = 1; i <= length; i++) {
        if ((name[i] != '/' && name[i] != 0) || name[i - 1] == '/') continue;
        memcpy(step, name, i);
        step[i] = 0;
        H5L_info_t link;
        if (H5Lexists(h->file, step, access) <= 0) return missing(h, name);
        if (H5Lget_info(h->file, step, &link, access) < 0) return hdf5_failure(h->path, "'%s' cannot be found", step);
        if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT)
            return status_new(STATUS_DATA, "%s: '%s' is a link to another file, which is not followed", h->path, step);
    }
    return OK;
}

static status open_dataset(const struct hdf5 *h, struct column *column) {
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_elink_cb(access, reject_link, NULL);
    H5Pset_chunk_cache(access, CHUNK_CACHE_SLOTS, CHUNK_CACHE_BYTES, H5D_CHUNK_CACHE_W0_DEFAULT);
    status s = check_links(h, column->name, access);
    hid_t object = s == OK ? H5Oopen(h->file, column->name, access) : -1;
    if (s != OK)
        ;
    else if (object < 0)
        s = hdf5_failure(h->path, "'%s' cannot be opened", column->name);
    else if (H5Iget_type(object) != H5I_DATASET)
        s = status_new(STATUS_DATA, "%s: '%s' is a group, not a dataset; name a dataset in it, such as '%s/x'", h->path,
                       column->name, column->name);
    else
        column->dataset = H5Dopen2(h->file, column->name, access);
    if (s == OK && column->dataset < 0) s = hdf5_failure(h->path, "'%s' cannot be opened", column->name);
    if (object >= 0) H5Oclose(object);
    H5Pclose(access);
    return s;
}

static status open_column(const struct hdf5 *h, struct column *column) {
    TRY(open_dataset(h, column));
    TRY(hdf5_check(column->dataset, h->path, column->name, h->bytes, &column->of));
    column->dims = column->of.dims - 1;
    for (int i = 0; i < column->dims; i++) column->shape[i] = (int64_t)column->of.shape[i + 1];
    hdf5_piece_find(column->dataset, &column->of, h->descriptor, h->path, &column->piece);
    return hdf5_chunks_open(column->dataset, h->path, column->name, &column->of, &column->chunks);
}

static void close_columns(struct column *columns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        hdf5_chunks_close(columns[i].chunks);
        channels_last_free(&columns[i].layout);
        if (columns[i].dataset >= 0) H5Dclose(columns[i].dataset);
    }
}

/* ---- rows of one dataset ---- */

/* The selection of out (count, total) for a dataset with rows of shape extent[1..]; negative on failure. A single
 * dataset keeps its number of dimensions, because libhdf5 is many times faster then. */
static hid_t memory_space(const struct column *column, const hsize_t *extent, size_t offset, size_t total) {
    if (column->of.size == total) return H5Screate_simple(column->of.dims, extent, NULL);
    const hsize_t shape[2] = {extent[0], total}, start[2] = {0, offset}, part[2] = {extent[0], column->of.size};
    hid_t space = H5Screate_simple(2, shape, NULL);
    if (space >= 0) H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
    return space;
}

/* Reads rows of one dataset to columns offset .. offset + size - 1 of out (count, total) with libhdf5. */
static status read_with_library(const struct hdf5 *h, const struct column *column, size_t first, size_t count,
                                enum values as, void *out, size_t offset, size_t total) {
    const hid_t types[] = {[DOUBLES] = H5T_NATIVE_DOUBLE, [FLOATS] = H5T_NATIVE_FLOAT, [BYTES] = H5T_NATIVE_UINT8};
    hsize_t start[MAX_DIMS + 1] = {first}, extent[MAX_DIMS + 1];
    TRY(hdf5_chunks_check(column->chunks, first, count));
    memcpy(extent, column->of.shape, sizeof extent);
    extent[0] = count;
    hid_t space = H5Dget_space(column->dataset), memory = memory_space(column, extent, offset, total);
    bool is_read = space >= 0 && memory >= 0 &&
                   H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, extent, NULL) >= 0 &&
                   H5Dread(column->dataset, types[as], memory, space, H5P_DEFAULT, out) >= 0;
    status s = is_read ? OK
                       : hdf5_failure(h->path, "rows %zu to %zu of dataset '%s' cannot be read", first,
                                      first + count - 1, column->name);
    if (space >= 0) H5Sclose(space);
    if (memory >= 0) H5Sclose(memory);
    return s;
}

/* Whether rows can be read to out (count, total) without libhdf5. */
static bool is_in_piece(const struct column *column, enum values as, size_t total) {
    const struct hdf5_piece *piece = &column->piece;
    if (!piece->of.type || column->of.size != total) return false;
    return as == DOUBLES || hdf5_piece_is(piece, as == FLOATS ? "float32" : "uint8");
}

static status read_piece(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                         void *out) {
    status s = as == DOUBLES ? hdf5_piece_read(&column->piece, first, count, out)
                             : hdf5_piece_read_raw(&column->piece, first, count, out);
    status length = s ? check_length(h) : OK;
    if (!length) return s;
    status_free(s);
    return length;
}

/* Reads rows of one dataset, as they are in the file, to columns offset .. offset + size - 1 of out (count, total). */
static status read_stored(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                          void *out, size_t offset, size_t total) {
    if (is_in_piece(column, as, total)) return read_piece(h, column, first, count, as, out);
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = check_length(h);
    if (s == OK) s = read_with_library(h, column, first, count, as, out, offset, total);
    hdf5_leave(&silence);
    return s;
}

static status read_column(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                          void *out, size_t offset, size_t total) {
    static const size_t sizes[] = {[DOUBLES] = sizeof(double), [FLOATS] = sizeof(float), [BYTES] = 1};
    size_t bytes = sizes[as];
    TRY(read_stored(h, column, first, count, as, out, offset, total));
    channels_last_apply(&column->layout, (char *)out + offset * bytes, count, total * bytes, bytes);
    return OK;
}

/* ---- the source ---- */

static struct column *make_columns(struct hdf5 *h, const struct string_list *names, const struct string_groups *groups,
                                   const char *fallback, size_t *count) {
    *count = names->count ? names->count : 1;
    struct column *columns = arena_alloc(h->arena, *count * sizeof *columns);
    for (size_t i = 0; i < *count; i++) {
        columns[i].name = arena_copy(h->arena, names->count ? names->items[i] : fallback);
        columns[i].dataset = -1;
        columns[i].is_joined = *count > 1;
    }
    for (size_t g = 0, i = 0; g < groups->count; i += groups->items[g++].count)
        for (size_t j = i; j < i + groups->items[g].count; j++) columns[j].is_joined = groups->items[g].count > 1;
    return columns;
}

/* Opens all input or target datasets; *size: values of a row of all of them. */
static status open_columns(const struct hdf5 *h, struct column *columns, size_t count, size_t *size) {
    *size = 0;
    for (size_t i = 0; i < count; i++) {
        struct column *column = &columns[i];
        if (column->name[0] == 0) return status_new(STATUS_USAGE, "%s: the name of a dataset is empty", h->path);
        TRY(open_column(h, column));
        if (column->is_joined && column->of.dims > 2)
            return status_new(STATUS_DATA,
                              "%s: dataset '%s' has rows of %d dimensions; only vectors can be concatenated", h->path,
                              column->name, column->of.dims - 1);
        if (column->of.shape[0] != h->inputs[0].of.shape[0])
            return status_new(STATUS_DATA, "%s: dataset '%s' has %llu rows, but '%s' has %llu", h->path,
                              h->inputs[0].name, (unsigned long long)h->inputs[0].of.shape[0], column->name,
                              (unsigned long long)column->of.shape[0]);
        *size += column->of.size;
    }
    return OK;
}

/* Concatenated datasets have column names; a single dataset may have any name. */
static struct column_list columns_of(const struct source *source, struct arena *arena) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    struct column_list list = {.format = dataset_hdf5.name};
    if (h->n_inputs < 2 && h->n_targets < 2) return list;
    list.count = h->n_inputs + h->n_targets;
    list.items = arena_alloc(arena, list.count * sizeof *list.items);
    for (size_t i = 0; i < h->n_inputs; i++) list.items[i] = (struct named_column){h->inputs[i].name, COLUMN_INPUT};
    for (size_t i = 0; i < h->n_targets; i++)
        list.items[h->n_inputs + i] = (struct named_column){h->targets[i].name, COLUMN_TARGET};
    return list;
}

/* Sets *names to those of [role] in the order of the training, if several datasets were concatenated then and are now.
 */
static status use_trained_names(struct hdf5 *h, const struct dataset_config *config, enum column_role role,
                                struct string_list *names) {
    const struct column_list *trained = &config->columns;
    size_t count = columns_count(trained, role), used = 0;
    bool is_same_format = trained->count && strcmp(trained->format, dataset_hdf5.name) == 0;
    if (!is_same_format || count < 2 || names->count == 1) return OK;
    TRY(columns_check_key(trained, role, names));
    *names = (struct string_list){.items = arena_alloc(h->arena, count * sizeof *names->items), .count = count};
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == role) names->items[used++] = trained->items[i].name;
    return OK;
}

/* Rejects a dataset that is named twice; only values may be input and target (autoencoders). */
static status check_names(const struct hdf5 *h, bool wants_classes) {
    const struct column *all[] = {h->inputs, h->targets};
    size_t counts[] = {h->n_inputs, h->n_targets};
    for (size_t i = 0; i < h->n_inputs + h->n_targets; i++)
        for (size_t j = i + 1; j < h->n_inputs + h->n_targets; j++) {
            bool first = i >= counts[0], second = j >= counts[0];
            const char *name = all[first][first ? i - counts[0] : i].name;
            if (strcmp(name, all[second][second ? j - counts[0] : j].name) != 0) continue;
            if (first != second && !wants_classes) continue;
            return status_new(STATUS_DATA,
                              "%s: dataset '%s' is used twice, as %s; see dataset.inputs and "
                              "dataset.targets",
                              h->path, name,
                              first != second ? "input and as target"
                              : first         ? "target"
                                              : "input");
        }
    return OK;
}

/* The column (0 or 1) of the key [key], with one value a row. */
static status open_single(struct hdf5 *h, struct column *column, size_t count, const char *key, const char *what) {
    size_t size;
    TRY(status_prefix(open_columns(h, column, count, &size), "%s", key));
    if (count == 0 || size == 1) return OK;
    return status_new(STATUS_DATA, "%s: %s: dataset '%s' has %zu values a row instead of one%s", key, h->path,
                      column->name, size, what);
}

static status open_and_check(struct hdf5 *h) {
    TRY(open_file(h));
    TRY(open_columns(h, h->inputs, h->n_inputs, &h->base.input_size));
    TRY(open_columns(h, h->targets, h->n_targets, &h->base.target_size));
    TRY(open_single(h, h->weights, h->n_weights, "dataset.weights", " weight"));
    return open_single(h, h->groups, h->n_groups, h->group_key, "");
}

/* Reads the first and the last row as training does, to find errors that libhdf5 reports only for values. Skips rows of
 * more than MAX_TRIED_VALUES values, which would take too much time and memory. */
static status try_rows(const struct hdf5 *h, const struct column *columns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t size = columns[i].of.size, rows = (size_t)columns[i].of.shape[0];
        enum values as = columns[i].of.is_bytes ? BYTES : DOUBLES;
        void *row = size > MAX_TRIED_VALUES || rows == 0 ? NULL : malloc(size * sizeof(double));
        status s = row ? read_with_library(h, &columns[i], 0, 1, as, row, 0, size) : OK;
        if (row && s == OK) s = read_with_library(h, &columns[i], rows - 1, 1, DOUBLES, row, 0, size);
        free(row);
        TRY(s);
    }
    return OK;
}

/* In a child process, whose copy of [context] is lost with it. */
static status look(void *context) {
    struct hdf5 *h = context;
    TRY(open_and_check(h));
    TRY(try_rows(h, h->inputs, h->n_inputs));
    TRY(try_rows(h, h->weights, h->n_weights));
    TRY(try_rows(h, h->groups, h->n_groups));
    return try_rows(h, h->targets, h->n_targets);
}

/* Transposes the inputs that are images, and targets of their height and width. */
static status set_layout(struct hdf5 *h) {
    int64_t image[3] = {0};
    for (size_t i = 0; i < h->n_inputs; i++) {
        struct column *input = &h->inputs[i];
        if (input->dims != 3) continue;
        if (!image[0]) memcpy(image, input->shape, sizeof image);
        TRY(channels_last_create(input->shape, &input->layout));
    }
    const char *name = arena_printf(h->arena, "dataset '%s' of %s", h->inputs->name, h->path);
    if (!image[0]) return channels_last_reject(name, h->inputs->dims);
    for (size_t i = 0; i < h->n_targets; i++)
        if (channels_last_fits(h->targets[i].dims, h->targets[i].shape, image))
            TRY(channels_last_create(h->targets[i].shape, &h->targets[i].layout));
    return OK;
}

static void set_shape(const struct column *column, int *dims, int64_t *shape) {
    *dims = column->dims;
    memcpy(shape, column->shape, sizeof column->shape);
}

static struct column *make_column(struct hdf5 *h, const char *name, size_t *count) {
    struct string_list names = {.items = &(const char *){name}, .count = 1};
    return make_columns(h, &names, &(struct string_groups){0}, NULL, count);
}

static status open_all(struct hdf5 *h, const struct dataset_config *config, bool wants_classes) {
    struct source *base = &h->base;
    struct string_list inputs = config->inputs, targets = config->targets;
    TRY(use_trained_names(h, config, COLUMN_INPUT, &inputs));
    TRY(use_trained_names(h, config, COLUMN_TARGET, &targets));
    h->inputs = make_columns(h, &inputs, &config->input_groups, "x", &h->n_inputs);
    if (!config->without_targets) h->targets = make_columns(h, &targets, &config->target_groups, "y", &h->n_targets);
    if (config->weights && !config->without_targets) h->weights = make_column(h, config->weights, &h->n_weights);
    h->group_key = dataset_group_key(config);
    if (dataset_group(config)) h->groups = make_column(h, dataset_group(config), &h->n_groups);
    TRY(check_names(h, wants_classes));
    TRY(hdf5_try_in_child(h->path, look, h));
    TRY(open_and_check(h));
    if (config->layout == LAYOUT_NHWC) TRY(set_layout(h));
    base->rows = (size_t)h->inputs[0].of.shape[0];
    base->input_dims = 1;
    base->input_shape[0] = (int64_t)base->input_size;
    base->is_float32 = true;
    for (size_t i = 0; i < h->n_inputs; i++) base->is_float32 = base->is_float32 && h->inputs[i].of.is_float32;
    base->has_floats = h->n_inputs == 1 && base->is_float32;
    if (h->n_targets == 1) set_shape(h->targets, &base->target_dims, base->target_shape);
    if (h->n_targets == 1) base->target_name = h->targets[0].name;
    if (h->n_inputs > 1 || h->inputs[0].of.dims == 1) return OK;
    set_shape(h->inputs, &base->input_dims, base->input_shape);
    base->is_bytes = h->inputs[0].of.is_bytes;
    return OK;
}

static void shape_of_name(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    set_shape(is_target ? &h->targets[index] : &h->inputs[index], dims, shape);
    if (*dims > 0) return;
    *dims = 1;
    shape[0] = 1;
}

static void close_hdf5(struct source *source) {
    struct hdf5 *h = (struct hdf5 *)source;
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    close_columns(h->inputs, h->n_inputs);
    close_columns(h->targets, h->n_targets);
    close_columns(h->weights, h->n_weights);
    close_columns(h->groups, h->n_groups);
    if (h->file >= 0) H5Fclose(h->file);
    hdf5_leave(&silence);
    arena_destroy(h->arena);
    free(h);
}

static status open_hdf5(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct source **out) {
    (void)train;
    struct hdf5 *h = calloc(1, sizeof *h);
    if (!h) return status_memory("a dataset");
    h->base.format = &dataset_hdf5;
    h->arena = arena_create();
    h->path = arena_copy(h->arena, path);
    h->file = -1;
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = open_all(h, config, wants_classes);
    hdf5_leave(&silence);
    if (s == OK)
        *out = &h->base;
    else
        close_hdf5(&h->base);
    return s;
}

/* ---- reading ---- */

static status read_columns(const struct hdf5 *h, const struct column *columns, size_t n, size_t first, size_t count,
                           double *out, size_t total) {
    size_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(read_column(h, &columns[i], first, count, DOUBLES, out, offset, total));
        offset += columns[i].of.size;
    }
    return OK;
}

static status read_hdf5(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    const struct hdf5 *h = (struct hdf5 *)source;
    if (inputs) TRY(read_columns(h, h->inputs, h->n_inputs, first, count, inputs, source->input_size));
    if (targets) TRY(read_columns(h, h->targets, h->n_targets, first, count, targets, source->target_size));
    return OK;
}

static status read_floats(struct source *source, size_t first, size_t count, float *inputs) {
    const struct hdf5 *h = (struct hdf5 *)source;
    return read_column(h, h->inputs, first, count, FLOATS, inputs, 0, source->input_size);
}

static void will_read(const struct source *source, size_t row) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    for (size_t i = 0; i < h->n_inputs; i++) hdf5_piece_will_read(&h->inputs[i].piece, row);
}

static status read_weights(struct source *source, size_t first, size_t count, double *weights) {
    const struct hdf5 *h = (struct hdf5 *)source;
    return read_columns(h, h->weights, h->n_weights, first, count, weights, 1);
}

static void describe_weight(const struct source *source, size_t row, struct text *out) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    text_printf(out, "%s: dataset '%s', row %zu", h->path, h->weights->name, row);
}

static status read_groups(struct source *source, size_t first, size_t count, double *groups) {
    const struct hdf5 *h = (struct hdf5 *)source;
    return read_columns(h, h->groups, h->n_groups, first, count, groups, 1);
}

static void describe_group(const struct source *source, size_t row, struct text *out) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    text_printf(out, "%s: dataset '%s', row %zu", h->path, h->groups->name, row);
}

static status read_bytes(struct source *source, size_t first, size_t count, uint8_t *inputs) {
    const struct hdf5 *h = (struct hdf5 *)source;
    return read_column(h, h->inputs, first, count, BYTES, inputs, 0, source->input_size);
}

static void describe_hdf5(const struct source *source, bool is_target, size_t row, size_t element, struct text *out) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    const struct column *column = is_target ? h->targets : h->inputs;
    for (; element >= column->of.size; column++) element -= column->of.size;
    element = channels_last_element(&column->layout, element);
    text_printf(out, "%s: dataset '%s', row %zu", h->path, column->name, row);
    if (column->of.dims == 2) text_printf(out, ", column %zu", element);
    if (column->of.dims <= 2) return;
    size_t block = column->of.size;
    for (int i = 1; i < column->of.dims; i++) {
        block /= (size_t)column->of.shape[i];
        text_printf(out, "%s%zu", i == 1 ? ", element [" : ", ", element / block);
        element %= block;
    }
    text_add(out, "]");
}

static const char *const extensions[] = {".h5", ".hdf5", ".hdf", NULL};
const struct dataset_format dataset_hdf5 = {.name = "hdf5",
                                            .keys = KEYS_OF_NAMES,
                                            .extensions = extensions,
                                            .has_layout = true,
                                            .open = open_hdf5,
                                            .read = read_hdf5,
                                            .read_floats = read_floats,
                                            .will_read = will_read,
                                            .read_weights = read_weights,
                                            .describe_weight = describe_weight,
                                            .read_groups = read_groups,
                                            .describe_group = describe_group,
                                            .read_bytes = read_bytes,
                                            .columns = columns_of,
                                            .shape_of_name = shape_of_name,
                                            .describe = describe_hdf5,
                                            .close = close_hdf5};
