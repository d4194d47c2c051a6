/* NumPy's files: .npy, an array of the inputs and a second file of the targets; .npz, both in one archive. Where the
 * names of the targets' file or arrays are not given, they follow from pairs of usual words: x and y, images and
 * labels. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/zip.h"
#include "base/scoped.h"
#include "data/source/npy_header.h"
#include "data/source/source.h"

struct npy_array {
    const char *name; /* for messages: "a.npy", "a.npz: array 'x'". Not owned, as [file]. */
    const char *path;
    int fd; /* not owned */
    const struct zip *zip;
    const struct zip_member *member; /* NULL: the file is the array */
    struct npy_header of;
    uint64_t start;  /* of the values in the file, unless the member is compressed */
    uint8_t *values; /* of a compressed member, after the first read */
    struct channels_last layout;
};

/* ---- one array ---- */

static status check_size(const struct npy_array *array, double bytes) {
    double expected = (double)array->of.bytes + npy_header_value_bytes(&array->of);
    if (bytes == expected) return OK;
    return status_data("%s: it has %.0f bytes, but its header says %.0f; %s", array->name, bytes, expected,
                       bytes < expected ? "copy the file again" : "the file is damaged, or has several arrays");
}

/* Reads and checks the header of an open .npy file of [bytes] bytes. */
static status npy_array_open(int fd, const char *path, uint64_t bytes, struct npy_array *out) {
    SCOPED_BUFFER void *memory = NULL;
    size_t got = 0;
    *out = (struct npy_array){.name = path, .path = path, .fd = fd};
    TRY(buffer_new(NPY_MAX_HEADER, path, &memory));
    status s = io_read_at(fd, path, memory, NPY_MAX_HEADER, 0, &got);
    if (!s && got >= 4 && memcmp(memory, "PK\3\4", 4) == 0)
        s = status_data("%s: this is an archive of arrays; name it .npz or set dataset.format to npz", path);
    if (!s) s = npy_header_parse(path, memory, got, &out->of);
    if (!s) s = check_size(out, (double)bytes);
    out->start = out->of.bytes;
    return s;
}

/* The same for a member of an archive; [name]: for messages. Both must stay open. */
static status npy_array_open_member(const struct zip *zip, const struct zip_member *member, const char *name,
                                    struct npy_array *out) {
    SCOPED_BUFFER void *memory = NULL;
    size_t got = 0;
    *out = (struct npy_array){.name = name, .path = zip->path, .fd = zip->fd, .zip = zip, .member = member};
    TRY(buffer_new(NPY_MAX_HEADER, name, &memory));
    status s = zip_read_start(zip, member, memory, NPY_MAX_HEADER, &got);
    if (!s) s = npy_header_parse(name, memory, got, &out->of);
    if (!s) s = check_size(out, (double)member->size);
    out->start = member->start + out->of.bytes;
    return s;
}

static void npy_array_free(struct npy_array *array) {
    buffer_free(array->values);
    channels_last_free(&array->layout);
}

/* Bytes [offset] .. of the values. */
static status read_values(const struct npy_array *array, uint64_t offset, void *out, size_t size) {
    if (!array->values) return npy_read_raw(array->fd, array->path, array->start + offset, out, size);
    memcpy(out, array->values + array->of.bytes + offset, size);
    return OK;
}

/* Each element of the rows is a column of the file, from which [count] adjacent values are read to the end of [out].
 * out (count, size): doubles, or with [bytes] the bytes of the values. */
static status read_fortran(struct npy_array *array, size_t first, size_t count, double *out, uint8_t *bytes) {
    const struct npy_header *of = &array->of;
    size_t width = of->type->bytes, size = of->size;
    SCOPED_BUFFER double *values = NULL;
    TRY(rows_alloc(count, width + sizeof(double), "values of the dataset", &values));
    uint8_t *raw = (uint8_t *)(values + count);
    status s = OK;
    for (size_t f = 0; !s && f < size; f++) {
        size_t element = npy_in_c_order(of->dims - 1, of->shape + 1, f);
        s = read_values(array, ((uint64_t)f * of->rows + first) * width, raw, count * width);
        if (!s && out) npy_header_convert(of, raw, count, values);
        for (size_t i = 0; !s && i < count; i++) {
            if (out)
                out[i * size + element] = values[i];
            else
                bytes[i * size + element] = raw[i];
        }
    }
    return s;
}

/* Before every read. */
static status prepare(struct npy_array *array) {
    if (!array->member || !array->member->is_deflated || array->values) return OK;
    return zip_read_all(array->zip, array->member, &array->values);
}

/* Reads rows first .. first + count - 1 as doubles, out (count, size). The raw values are read to the end of [out], so
 * that a conversion does not overwrite values that follow. */
static status npy_array_read(struct npy_array *array, size_t first, size_t count, double *out) {
    const struct npy_header *of = &array->of;
    size_t n = count * of->size, width = of->type->bytes;
    TRY(prepare(array));
    if (of->is_fortran) {
        TRY(read_fortran(array, first, count, out, NULL));
    } else {
        uint8_t *raw = (uint8_t *)out + n * (sizeof *out - width);
        TRY(read_values(array, (uint64_t)first * of->size * width, raw, n * width));
        npy_header_convert(of, raw, n, out);
    }
    channels_last_apply(&array->layout, out, count, of->size * sizeof *out, sizeof *out);
    return OK;
}

/* Whether rows are floats as they are stored: values are float32 of this machine, in C order. */
static bool npy_array_has_floats(const struct npy_array *array) {
    return strcmp(array->of.type->name, "float32") == 0 && !array->of.is_swapped && !array->of.is_fortran;
}

static void npy_array_will_read(const struct npy_array *array, size_t row) {
    size_t bytes = array->of.size * array->of.type->bytes;
    if (!array->of.is_fortran && (!array->member || !array->member->is_deflated))
        npy_will_read(array->fd, array->start + (uint64_t)row * bytes, bytes);
}

/* The same without conversion, for values of one byte or where npy_array_has_floats. */
static status npy_array_read_stored(struct npy_array *array, size_t first, size_t count, void *out) {
    size_t width = array->of.type->bytes, row = array->of.size * width;
    TRY(prepare(array));
    TRY(array->of.is_fortran ? read_fortran(array, first, count, NULL, out)
                             : read_values(array, (uint64_t)first * row, out, count * row));
    channels_last_apply(&array->layout, out, count, row, width);
    return OK;
}

/* Adds "float32 (100, 28, 28)", with ", Fortran order" where the first index changes fastest. */
static void npy_array_add_shape(const struct npy_array *array, struct text *out) {
    const struct npy_header *of = &array->of;
    text_printf(out, "%s (", of->type->name);
    for (int i = 0; i < of->dims; i++) text_printf(out, "%s%zu", i ? ", " : "", of->shape[i]);
    text_add(out, of->is_fortran ? "), Fortran order" : ")");
}

/* ---- the formats ---- */

struct file {
    const char *path;
    int fd; /* -1: not open */
    uint64_t bytes;
};

struct npy {
    struct source base;
    struct arena *arena;
    struct file files[2]; /* inputs and targets; .npz has one */
    struct zip zip;
    struct npy_array arrays[ROW_GROUP + 1]; /* by enum row_value; weights, groups: .npz */
    const char *group_key;                  /* that names the groups */
    const char *names[2];                   /* .npz: of the arrays */
};

static const char *const words[][2] = {
    {"x", "y"},
    {"X", "y"},
    {"X", "Y"},
    {"images", "labels"},
    {"image", "label"},
    {"data", "target"},
    {"data", "labels"},
    {"data", "targets"},
    {"inputs", "targets"},
    {"input", "target"},
    {"features", "labels"},
    {"features", "target"},
    {"features", "targets"},
    {"arr_0", "arr_1"},
};
#define N_WORDS (sizeof words / sizeof *words)

static status open_file(struct npy *npy, int index, const char *path) {
    struct file *file = &npy->files[index];
    file->path = arena_copy(npy->arena, path);
    TRY(file_check(path, &file->bytes));
    return io_open(path, &file->fd);
}

/* All arrays have the same rows. */
static status check_rows(const struct npy *npy) {
    const struct npy_array *inputs = npy->arrays, *weights = &npy->arrays[ROW_WEIGHT],
                           *groups = &npy->arrays[ROW_GROUP];
    for (const struct npy_array *other = inputs + 1; other <= groups; other++)
        if (other->name && inputs->of.rows != other->of.rows)
            return status_data("%s has %zu rows, but %s has %zu", inputs->name, inputs->of.rows, other->name,
                               other->of.rows);
    if (groups->name && groups->of.size != 1)
        return status_data("%s: %s has %zu values a row instead of one", npy->group_key, groups->name, groups->of.size);
    if (!weights->name || weights->of.size == 1) return OK;
    return status_data("dataset.weights: %s has %zu values a row instead of one weight", weights->name,
                       weights->of.size);
}

static status check_count(const struct string_list *names, const char *key, const char *format) {
    if (names->count <= 1) return OK;
    return status_usage("dataset.%s: format %s takes one %s, got %zu", key, format,
                        strcmp(format, "npz") == 0 ? "array" : "file", names->count);
}

/* ---- .npy ---- */

/* [path] with [from], a whole word of its last part, replaced by [to]; NULL: it has no such word. */
static const char *replace_word(struct arena *arena, const char *path, const char *from, const char *to) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(from);
    for (const char *at = name; (at = strstr(at, from)); at++)
        if ((at == name || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return arena_printf(arena, "%.*s%s%s", (int)(at - path), path, to, at + length);
    return NULL;
}

/* *found: the file of the targets of [path]; an error names those that were looked for. */
static status find_targets(struct npy *npy, const char *path, const char *key, const char **found) {
    SCOPED_TEXT tried = {0};
    status s = OK;
    *found = NULL;
    for (size_t i = 0; !s && !*found && i < N_WORDS; i++) {
        struct io_info info;
        const char *candidate = replace_word(npy->arena, path, words[i][0], words[i][1]);
        if (!candidate) continue;
        s = io_stat(candidate, &info);
        if (!s && info.exists) *found = candidate;
        text_add(&tried, tried.length ? ", " : "; looked for ");
        text_add_value(&tried, candidate, TEXT_MAX_NAME * 4);
    }
    if (!s && !*found)
        s = status_usage("%s is missing: give the .npy file of the targets of '%s'%s", key, path, text_string(&tried));
    return s;
}

static status open_npy_files(struct npy *npy, const struct dataset_config *config, const char *path,
                             const struct source *train) {
    const char *key = train ? "dataset.validation.targets" : "dataset.targets", *targets = NULL;
    if (config->inputs.count > 0)
        return status_usage("dataset.inputs: an .npy file is one array and has no names; remove the key");
    TRY(check_count(&config->targets, "targets", npy->base.format->name));
    TRY(open_file(npy, 0, path));
    TRY(npy_array_open(npy->files[0].fd, npy->files[0].path, npy->files[0].bytes, &npy->arrays[ROW_INPUT]));
    if (config->request.without_targets) return OK;
    if (train)
        targets = config->validation.targets;
    else if (config->targets.count == 1)
        targets = config->targets.items[0];
    if (!targets) TRY(find_targets(npy, path, key, &targets));
    TRY(open_file(npy, 1, targets));
    npy->base.target_name = npy->files[1].path;
    return npy_array_open(npy->files[1].fd, npy->files[1].path, npy->files[1].bytes, &npy->arrays[ROW_TARGET]);
}

/* ---- .npz ---- */

static const struct zip_member *member_of(const struct npy *npy, const char *name) {
    return zip_find(&npy->zip, arena_printf(npy->arena, "%s.npy", name));
}

/* Bytes of a member's name without ".npy". */
static size_t name_length(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0 ? length - 4 : length;
}

/* Adds "x, y" or "nothing". */
static void list_arrays(const struct npy *npy, struct text *out) {
    size_t start = out->length;
    for (size_t i = 0; i < npy->zip.count && out->length - start < 400; i++) {
        const char *name = npy->zip.members[i].name;
        text_printf(out, "%s%.*s", out->length > start ? ", " : "", (int)name_length(name), name);
    }
    if (out->length == start) text_add(out, "nothing");
    if (out->length - start >= 400) text_add(out, ", ...");
}

/* "<path>: <what>; the file has: x, y (see dataset.inputs, dataset.targets)" */
static status missing(const struct npy *npy, const char *what) {
    SCOPED_TEXT arrays = {0};
    list_arrays(npy, &arrays);
    return status_data("%s: %s; the file has: %s (see dataset.inputs and dataset.targets)", npy->files[0].path, what,
                       text_string(&arrays));
}

/* Whether [name] of a pair of words can be names[index]: the given one, or an array of the file. */
static bool is_usable(const struct npy *npy, int index, const char *name) {
    return npy->names[index] ? strcmp(npy->names[index], name) == 0 : member_of(npy, name) != NULL;
}

/* Chooses a pair of words that are arrays, alone or with "train". A given name stays. */
static bool choose_pair(struct npy *npy, bool needs_targets) {
    static const char *const parts[][2] = {{"", ""}, {"", "_train"}, {"train_", ""}, {"", "_tr"}};
    bool has_targets = npy->names[1] || !needs_targets;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (size_t k = 0; k < N_WORDS; k++) {
            const char *x = arena_printf(npy->arena, "%s%s%s", parts[i][0], words[k][0], parts[i][1]);
            const char *y = arena_printf(npy->arena, "%s%s%s", parts[i][0], words[k][1], parts[i][1]);
            if (!is_usable(npy, 0, x) || (!has_targets && !is_usable(npy, 1, y))) continue;
            npy->names[0] = x;
            if (!has_targets) npy->names[1] = y;
            return true;
        }
    return false;
}

/* The arrays of a validation file have the names of those for training, or "x_val" and "x_test" for "x_train". */
static void choose_validation(struct npy *npy, const struct npy *train, const char *targets) {
    static const char *const parts[] = {"val", "valid", "validation", "test"};
    npy->names[0] = train->names[0];
    npy->names[1] = targets ? targets : train->names[1];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *x = replace_word(npy->arena, train->names[0], "train", parts[i]);
        const char *y = train->names[1] ? replace_word(npy->arena, train->names[1], "train", parts[i]) : NULL;
        if (!x || !member_of(npy, x)) continue;
        npy->names[0] = x;
        if (!targets && y && member_of(npy, y)) npy->names[1] = y;
        return;
    }
}

static status choose_arrays(struct npy *npy, const struct dataset_config *config, const struct npy *train) {
    bool needs_targets = !config->request.without_targets;
    if (train) {
        choose_validation(npy, train, config->validation.targets);
        return OK;
    }
    if (config->inputs.count) npy->names[0] = config->inputs.items[0];
    if (config->targets.count) npy->names[1] = config->targets.items[0];
    if (npy->names[0] && (npy->names[1] || !needs_targets)) return OK;
    if (choose_pair(npy, needs_targets)) return OK;
    if (npy->names[0]) return missing(npy, "dataset.targets is missing, and no array has a usual name for targets");
    return missing(npy, needs_targets ? "it is not clear which arrays are the inputs and the targets"
                                      : "it is not clear which array is the inputs");
}

static status open_array(struct npy *npy, const char *name, struct npy_array *array) {
    const struct zip_member *member = member_of(npy, name);
    const char *what = arena_printf(npy->arena, "there is no array '%s'", text_name(name).s);
    const char *place = arena_printf(npy->arena, "%s: array '%s'", npy->files[0].path, text_name(name).s);
    return member ? npy_array_open_member(&npy->zip, member, place, array) : missing(npy, what);
}

static status open_npz_file(struct npy *npy, const struct dataset_config *config, const char *path,
                            const struct source *train) {
    bool is_npz = train && train->format == npy->base.format;
    TRY(check_count(&config->inputs, "inputs", npy->base.format->name));
    TRY(check_count(&config->targets, "targets", npy->base.format->name));
    TRY(open_file(npy, 0, path));
    TRY(zip_open(npy->files[0].fd, npy->files[0].path, npy->files[0].bytes, npy->arena, &npy->zip));
    TRY(choose_arrays(npy, config, is_npz ? (const struct npy *)train : NULL));
    TRY(open_array(npy, npy->names[0], &npy->arrays[ROW_INPUT]));
    npy->group_key = dataset_group_key(config);
    if (dataset_group(config))
        TRY(status_prefix(open_array(npy, dataset_group(config), &npy->arrays[ROW_GROUP]), "%s", npy->group_key));
    if (config->request.without_targets) return OK;
    if (config->weights)
        TRY(status_prefix(open_array(npy, config->weights, &npy->arrays[ROW_WEIGHT]), "dataset.weights"));
    npy->base.target_name = npy->names[1];
    return open_array(npy, npy->names[1], &npy->arrays[ROW_TARGET]);
}

/* ---- the source ---- */

static void set_shape(struct npy *npy) {
    struct source *base = &npy->base;
    const struct npy_array *inputs = &npy->arrays[ROW_INPUT], *targets = &npy->arrays[ROW_TARGET];
    const struct npy_header *of = &inputs->of;
    base->rows = of->rows;
    base->input_size = of->size;
    base->target_size = targets->name ? targets->of.size : 0;
    base->input_dims = of->dims > 1 ? of->dims - 1 : 1;
    base->input_shape[0] = 1;
    for (int i = 1; i < of->dims; i++) base->input_shape[i - 1] = (int64_t)of->shape[i];
    base->target_dims = targets->name ? targets->of.dims - 1 : 0;
    for (int i = 0; i < base->target_dims; i++) base->target_shape[i] = (int64_t)targets->of.shape[i + 1];
    base->is_float32 = of->type->is_float32;
    base->has_floats = npy_array_has_floats(inputs);
    base->is_bytes = strcmp(of->type->name, "uint8") == 0;
    base->is_small = inputs->member && inputs->member->is_deflated;
}

/* Transposes the inputs, and targets of their height and width. */
static status set_layout(struct npy *npy) {
    struct source *base = &npy->base;
    if (base->input_dims != 3) return channels_last_reject(npy->arrays[ROW_INPUT].name, base->input_dims);
    bool fits = channels_last_fits(base->target_dims, base->target_shape, base->input_shape);
    TRY(channels_last_create(base->input_shape, &npy->arrays[ROW_INPUT].layout));
    return fits ? channels_last_create(base->target_shape, &npy->arrays[ROW_TARGET].layout) : OK;
}

static void close_npy(struct source *source) {
    struct npy *npy = (struct npy *)source;
    for (int i = 0; i <= ROW_GROUP; i++) npy_array_free(&npy->arrays[i]);
    for (int i = 0; i < 2; i++) /* nothing was written that could be lost */
        if (npy->files[i].fd >= 0) status_free(io_close(npy->files[i].fd, npy->files[i].path));
    arena_destroy(npy->arena);
    free(npy);
}

static status open_any(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                       const struct source *train, struct source **out) {
    struct npy *npy = calloc(1, sizeof *npy);
    if (!npy) return status_memory("a dataset");
    npy->base.format = format;
    npy->arena = arena_create();
    npy->files[0].fd = npy->files[1].fd = -1;
    status s =
        format == &dataset_npz ? open_npz_file(npy, config, path, train) : open_npy_files(npy, config, path, train);
    if (!s) s = check_rows(npy);
    if (!s) {
        set_shape(npy);
        if (config->layout == LAYOUT_NHWC) s = set_layout(npy);
    }
    if (s) close_npy(&npy->base);
    if (!s) *out = &npy->base;
    return s;
}

static status open_npy(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    (void)wants_classes;
    return open_any(&dataset_npy, config, path, train, out);
}

static status open_npz(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    (void)wants_classes;
    return open_any(&dataset_npz, config, path, train, out);
}

static status read_npy(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct npy *npy = (struct npy *)source;
    if (inputs) TRY(npy_array_read(&npy->arrays[ROW_INPUT], first, count, inputs));
    return targets ? npy_array_read(&npy->arrays[ROW_TARGET], first, count, targets) : OK;
}

static status read_stored(struct source *source, bool as_floats, size_t first, size_t count, void *inputs) {
    (void)as_floats; /* the type in the file says it */
    return npy_array_read_stored(&((struct npy *)source)->arrays[ROW_INPUT], first, count, inputs);
}

static void will_read(const struct source *source, size_t row) {
    npy_array_will_read(&((const struct npy *)source)->arrays[ROW_INPUT], row);
}

static status read_extra(struct source *source, enum row_value extra, size_t first, size_t count, double *values) {
    return npy_array_read(&((struct npy *)source)->arrays[extra], first, count, values);
}

static void describe_npy(const struct source *source, enum row_value kind, size_t row, size_t element,
                         struct text *out) {
    const struct npy_array *array = &((const struct npy *)source)->arrays[kind];
    text_printf(out, "%s: row %zu", array->name, row);
    npy_add_element(&array->of, channels_last_element(&array->layout, element), out);
}

/* ---- inspect ---- */

static status inspect_file(const char *path, int fd, uint64_t bytes, struct text *out) {
    struct npy_array array;
    TRY(npy_array_open(fd, path, bytes, &array));
    text_printf(out, "file    %s\nformat  npy, ", path);
    npy_array_add_shape(&array, out);
    text_add(out, "\n");
    return OK;
}

/* A member that is not an array of numbers is listed with the reason. */
static status inspect_archive(const char *path, int fd, uint64_t bytes, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct zip zip;
    status s = zip_open(fd, path, bytes, arena, &zip);
    if (!s) text_printf(out, "file    %s\nformat  npz, %zu array%s\n\n", path, zip.count, text_plural(zip.count, "s"));
    for (size_t i = 0; !s && i < zip.count; i++) {
        const struct zip_member *member = &zip.members[i];
        struct npy_array array;
        status reason = npy_array_open_member(&zip, member, "not read", &array);
        text_printf(out, "  %-28.*s ", (int)name_length(member->name), member->name);
        if (reason)
            text_add(out, status_message(reason));
        else
            npy_array_add_shape(&array, out);
        text_add(out, member->is_deflated ? ", compressed\n" : "\n");
        status_free(reason);
    }
    return s;
}

static status inspect(const char *path, status (*describe)(const char *, int, uint64_t, struct text *),
                      struct text *out) {
    struct io_info info;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s) s = describe(path, fd, info.size, out);
    return status_first(s, io_close(fd, path));
}

static status inspect_npy(const char *path, struct text *out) { return inspect(path, inspect_file, out); }
static status inspect_npz(const char *path, struct text *out) { return inspect(path, inspect_archive, out); }

static const char *const npy_extensions[] = {".npy", NULL};
const struct dataset_format dataset_npy = {.name = "npy",
                                           .keys = KEYS_OF_NAMES,
                                           .extensions = npy_extensions,
                                           .has_layout = true,
                                           .has_target_file = true,
                                           .open = open_npy,
                                           .read = read_npy,
                                           .read_stored = read_stored,
                                           .will_read = will_read,
                                           .describe = describe_npy,
                                           .close = close_npy,
                                           .inspect = inspect_npy};

static const char *const npz_extensions[] = {".npz", NULL};
const struct dataset_format dataset_npz = {.name = "npz",
                                           .keys = KEYS_OF_NAMES,
                                           .extensions = npz_extensions,
                                           .has_layout = true,
                                           .open = open_npz,
                                           .read = read_npy,
                                           .read_stored = read_stored,
                                           .will_read = will_read,
                                           .read_extra = read_extra,
                                           .describe = describe_npy,
                                           .close = close_npy,
                                           .inspect = inspect_npz,
                                           .pytorch = "read_npz({path}, {inputs}, {targets})"};
