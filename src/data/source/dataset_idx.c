/* IDX files, MNIST's format: a big-endian header with type and shape, then the values; the labels are in a separate
 * file. Plain files are read with pread; compressed files are decompressed to memory at the first read. */
#include <stdlib.h>
#include <string.h>

#include "base/files/gzip.h"
#include "base/files/io.h"
#include "data/source/npy_header.h"
#include "data/source/source.h"

#define MAX_HEADER (4 + 4 * (MAX_DIMS + 1))
#define IS_LITTLE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* By code - 8. */
static const char *const types[] = {"uint8", "int8", NULL, "int16", "int32", "float32", "float64"};

struct idx_file {
    char *path;
    int fd;       /* of a plain file; -1: not open */
    char *packed; /* (packed_size) a compressed file; NULL: plain, or already decompressed */
    size_t packed_size;
    uint8_t *values; /* of a compressed file, after the first read */
    struct npy_header of;
};

struct idx {
    struct source base;
    struct idx_file inputs, targets;
};

/* ---- header ---- */

/* Parses the first 4 bytes: type and number of dimensions. */
static status parse_magic(struct idx_file *file, const uint8_t *magic) {
    if (magic[0] != 0 || magic[1] != 0)
        return status_data("%s: this is not an IDX file: it starts with the bytes %02x %02x %02x %02x, but MNIST's "
                           "images with 00 00 08 03 and labels with 00 00 08 01",
                           file->path, magic[0], magic[1], magic[2], magic[3]);
    size_t type = (size_t)magic[2] - 8;
    if (type >= sizeof types / sizeof *types || !types[type])
        return status_data("%s: unknown type of values 0x%02x; IDX has 08, 09, 0b, 0c, 0d, 0e", file->path, magic[2]);
    int dims = magic[3];
    if (dims < 1 || dims > MAX_DIMS + 1)
        return status_data("%s: it has %d dimensions; rows need 1 to %d", file->path, dims, MAX_DIMS + 1);
    file->of = (struct npy_header){
        .type = npy_type_named(types[type]), .dims = dims, .bytes = 4 + 4 * (size_t)dims, .is_swapped = IS_LITTLE};
    return OK;
}

static status parse_shape(struct idx_file *file, const uint8_t *shape) {
    for (int i = 0; i < file->of.dims; i++, shape += 4)
        file->of.shape[i] = (size_t)shape[0] << 24 | (size_t)shape[1] << 16 | (size_t)shape[2] << 8 | shape[3];
    return npy_header_check_shape(file->path, &file->of);
}

static status open_packed(struct idx_file *file) {
    uint8_t header[MAX_HEADER];
    struct gzip gzip;
    TRY(file_read(file->path, &file->packed, &file->packed_size));
    TRY(gzip_start(&gzip, file->path, file->packed, file->packed_size));
    status s = gzip_read(&gzip, header, 4);
    if (s == OK) s = parse_magic(file, header);
    if (s == OK) s = gzip_read(&gzip, header + 4, file->of.bytes - 4);
    if (s == OK) s = parse_shape(file, header + 4);
    gzip_end(&gzip);
    if (s == OK && npy_header_value_bytes(&file->of) > gzip_max_size(file->packed_size))
        s = status_data("%s: its header says that it has %.0f bytes, which %zu compressed bytes cannot contain",
                        file->path, npy_header_value_bytes(&file->of), file->packed_size);
    return s;
}

static status open_plain(struct idx_file *file, uint64_t bytes) {
    uint8_t header[MAX_HEADER];
    size_t got;
    TRY(io_read_at(file->fd, file->path, header, sizeof header, 0, &got));
    if (got < 4) return status_data("%s: the file has only %zu bytes; this is not an IDX file", file->path, got);
    TRY(parse_magic(file, header));
    if (got < file->of.bytes)
        return status_data("%s: the file ends within its header; copy the file again", file->path);
    TRY(parse_shape(file, header + 4));
    double expected = (double)file->of.bytes + npy_header_value_bytes(&file->of);
    if ((double)bytes == expected) return OK;
    return status_data("%s: the file has %llu bytes, but its header says %.0f; %s", file->path,
                       (unsigned long long)bytes, expected,
                       (double)bytes < expected ? "copy the file again" : "the file is damaged");
}

/* [path] is owned by the file then. */
static status open_file(struct idx_file *file, char *path) {
    uint8_t start[2];
    size_t got;
    uint64_t bytes;
    file->path = path;
    if (!path) return status_memory("a dataset");
    TRY(file_check(path, &bytes));
    TRY(io_open(path, &file->fd));
    TRY(io_read_at(file->fd, path, start, sizeof start, 0, &got));
    if (!gzip_is(start, got)) return open_plain(file, bytes);
    TRY(io_close(file->fd, path));
    file->fd = -1;
    return open_packed(file);
}

static void close_file(struct idx_file *file) {
    if (file->fd >= 0) status_free(io_close(file->fd, file->path)); /* nothing was written that could be lost */
    buffer_free(file->packed);
    buffer_free(file->values);
    free(file->path);
}

/* ---- values ---- */

/* Decompresses all values. */
static status decompress(struct idx_file *file) {
    uint8_t header[MAX_HEADER];
    uint8_t *values;
    struct gzip gzip;
    size_t row = file->of.size * file->of.type->bytes;
    TRY(rows_alloc(file->of.rows, row, file->path, &values));
    status s = gzip_start(&gzip, file->path, file->packed, file->packed_size);
    if (s == OK) s = gzip_read(&gzip, header, file->of.bytes);
    if (s == OK) s = gzip_read(&gzip, values, file->of.rows * row);
    if (s == OK) s = gzip_finish(&gzip);
    gzip_end(&gzip);
    if (s != OK) {
        buffer_free(values);
        return s;
    }
    file->values = values;
    buffer_free(file->packed);
    file->packed = NULL;
    return OK;
}

/* Reads rows first .. first + count - 1 without conversion. */
static status read_raw(struct idx_file *file, size_t first, size_t count, void *out) {
    size_t row = file->of.size * file->of.type->bytes;
    if (file->packed) TRY(decompress(file));
    if (!file->values) return npy_read_raw(file->fd, file->path, file->of.bytes + first * row, out, count * row);
    memcpy(out, file->values + first * row, count * row);
    return OK;
}

/* The raw values are read to the end of [out], so that a conversion does not overwrite values that follow. */
static status read_values(struct idx_file *file, size_t first, size_t count, double *out) {
    size_t n = count * file->of.size;
    uint8_t *raw = (uint8_t *)out + n * (sizeof *out - file->of.type->bytes);
    TRY(read_raw(file, first, count, raw));
    npy_header_convert(&file->of, raw, n, out);
    return OK;
}

static status read_idx(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct idx *idx = (struct idx *)source;
    if (inputs) TRY(read_values(&idx->inputs, first, count, inputs));
    return targets ? read_values(&idx->targets, first, count, targets) : OK;
}

static status read_stored(struct source *source, bool as_floats, size_t first, size_t count, void *inputs) {
    (void)as_floats;
    return read_raw(&((struct idx *)source)->inputs, first, count, inputs);
}

/* ---- the source ---- */

/* "t10k-images-idx3-ubyte.gz" -> "t10k-labels-idx1-ubyte.gz"; NULL for other names. malloc'ed. */
static char *labels_of(const char *path) {
    static const char *const words[][2] = {{"images", "labels"}, {"idx3", "idx1"}};
    char *labels = strdup(path), *name = labels ? strrchr(labels, '/') : NULL;
    name = name ? name + 1 : labels;
    bool has_images = name && strstr(name, words[0][0]);
    for (int i = 0; has_images && i < 2; i++) {
        char *at = strstr(name, words[i][0]);
        if (at) memcpy(at, words[i][1], strlen(words[i][1]));
    }
    if (has_images) return labels;
    free(labels);
    return NULL;
}

static status open_targets(struct idx *idx, const struct dataset_config *config, bool is_validation) {
    const char *key = is_validation ? "dataset.validation.targets" : "dataset.targets";
    const char *path = is_validation ? config->validation.targets : NULL;
    if (!is_validation && config->targets.count > 1)
        return status_usage("dataset.targets: format idx takes one file, got %zu", config->targets.count);
    if (!is_validation && config->targets.count == 1) path = config->targets.items[0];
    char *copy = path ? strdup(path) : labels_of(idx->inputs.path);
    if (!copy) return status_usage("%s is missing: give the IDX file of the labels of '%s'", key, idx->inputs.path);
    TRY(open_file(&idx->targets, copy));
    idx->base.target_name = idx->targets.path;
    if (idx->targets.of.rows == idx->inputs.of.rows) return OK;
    return status_data("%s has %zu rows, but '%s' has %zu", idx->inputs.path, idx->inputs.of.rows, idx->targets.path,
                       idx->targets.of.rows);
}

/* Adds the dimension of the channel to images and of the feature to scalars. */
static void set_shape(struct idx *idx) {
    struct source *base = &idx->base;
    const struct npy_header *of = &idx->inputs.of, *targets = &idx->targets.of;
    int missing = of->dims == 1 || of->dims == 3;
    base->rows = of->rows;
    base->input_size = of->size;
    base->target_size = targets->size;
    base->input_dims = of->dims - 1 + missing;
    base->input_shape[0] = 1;
    for (int i = 1; i < of->dims; i++) base->input_shape[i - 1 + missing] = (int64_t)of->shape[i];
    base->target_dims = targets->dims ? targets->dims - 1 : 0;
    for (int i = 0; i < base->target_dims; i++) base->target_shape[i] = (int64_t)targets->shape[i + 1];
    base->is_float32 = of->type->is_float32;
    base->is_bytes = of->type == npy_type_named("uint8");
    base->divide = base->is_bytes && of->dims >= 3 ? 255 : 1; /* as torchvision's ToTensor */
    base->is_small = idx->inputs.packed != NULL;
}

static void close_idx(struct source *source) {
    struct idx *idx = (struct idx *)source;
    close_file(&idx->inputs);
    close_file(&idx->targets);
    free(idx);
}

static status open_idx(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    (void)wants_classes;
    struct idx *idx = calloc(1, sizeof *idx);
    if (!idx) return status_memory("a dataset");
    idx->base.format = &dataset_idx;
    idx->inputs.fd = idx->targets.fd = -1;
    status s = open_file(&idx->inputs, strdup(path));
    if (s == OK && !config->request.without_targets) s = open_targets(idx, config, train != NULL);
    if (s == OK) {
        set_shape(idx);
        *out = &idx->base;
    } else {
        close_idx(&idx->base);
    }
    return s;
}

static void describe_idx(const struct source *source, enum row_value kind, size_t row, size_t element,
                         struct text *out) {
    const struct idx *idx = (const struct idx *)source;
    const struct idx_file *file = kind == ROW_TARGET ? &idx->targets : &idx->inputs;
    text_printf(out, "%s: row %zu", file->path, row);
    if (file->of.dims == 1) return;
    text_add(out, ", element [");
    npy_add_indices(file->of.dims - 1, file->of.shape + 1, element, out);
    text_add(out, "]");
}

static const char *const extensions[] = {".idx", ".idx.gz", "-ubyte", "-ubyte.gz", NULL};
const struct dataset_format dataset_idx = {.name = "idx",
                                           .keys = KEY_TARGETS,
                                           .extensions = extensions,
                                           .has_target_file = true,
                                           .open = open_idx,
                                           .read = read_idx,
                                           .read_stored = read_stored,
                                           .describe = describe_idx,
                                           .close = close_idx,
                                           .pytorch = "read_idx({path}, {labels})"};
