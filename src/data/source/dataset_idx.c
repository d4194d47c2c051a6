/* IDX files, MNIST's format: a big-endian header with type and shape, then the values; the labels are in a separate
 * file. Plain files are read with pread; compressed files are decompressed to memory at the first read. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/files/gzip.h"
#include "base/files/io.h"
#include "data/source/source.h"

#define MAX_HEADER (4 + 4 * (MAX_DIMS + 1))

struct idx_type {
    uint8_t code;
    size_t bytes;
    bool is_float32;
    double (*value)(const uint8_t *bytes);
};

static double of_uint8(const uint8_t *b) { return (double)b[0]; }
static double of_int8(const uint8_t *b) { return (double)(int8_t)b[0]; }
static double of_int16(const uint8_t *b) { return (double)(int16_t)(b[0] << 8 | b[1]); }

static uint32_t word_at(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static double of_int32(const uint8_t *b) { return (double)(int32_t)word_at(b); }

static double of_float(const uint8_t *b) { return (double)bits_to_float(word_at(b)); }
static double of_double(const uint8_t *b) { return bits_to_double((uint64_t)word_at(b) << 32 | word_at(b + 4)); }

static const struct idx_type types[] = {
    {0x08, 1, true, of_uint8},  {0x09, 1, true, of_int8},  {0x0b, 2, true, of_int16},
    {0x0c, 4, false, of_int32}, {0x0d, 4, true, of_float}, {0x0e, 8, false, of_double},
};

struct idx_file {
    char *path;
    int fd;       /* of a plain file; -1: not open */
    char *packed; /* (packed_size) a compressed file; NULL: plain, or already decompressed */
    size_t packed_size;
    uint8_t *values; /* of a compressed file, after the first read */
    const struct idx_type *type;
    int dims; /* with the rows */
    uint32_t shape[MAX_DIMS + 1];
    size_t header, rows, size; /* bytes; rows; values of a row */
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
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == magic[2]) file->type = &types[i];
    if (!file->type)
        return status_data("%s: unknown type of values 0x%02x; IDX has 08, 09, 0b, 0c, 0d, 0e", file->path, magic[2]);
    file->dims = magic[3];
    if (file->dims < 1 || file->dims > MAX_DIMS + 1)
        return status_data("%s: it has %d dimensions; rows need 1 to %d", file->path, file->dims, MAX_DIMS + 1);
    file->header = 4 + 4 * (size_t)file->dims;
    return OK;
}

static status parse_shape(struct idx_file *file, const uint8_t *shape) {
    for (int i = 0; i < file->dims; i++) file->shape[i] = word_at(shape + (size_t)i * 4);
    file->rows = file->shape[0];
    file->size = 1;
    for (int i = 1; i < file->dims; i++) {
        if (file->shape[i] == 0) return status_data("%s: its rows have 0 values", file->path);
        if (file->shape[i] > (uint32_t)INT32_MAX / file->size)
            return status_data("%s: its rows have more than %d values; the file may be damaged", file->path, INT32_MAX);
        file->size *= file->shape[i];
    }
    return OK;
}

static double value_bytes(const struct idx_file *file) {
    return (double)file->rows * (double)file->size * (double)file->type->bytes;
}

static status open_packed(struct idx_file *file) {
    uint8_t header[MAX_HEADER];
    struct gzip gzip;
    TRY(file_read(file->path, &file->packed, &file->packed_size));
    TRY(gzip_start(&gzip, file->path, file->packed, file->packed_size));
    status s = gzip_read(&gzip, header, 4);
    if (s == OK) s = parse_magic(file, header);
    if (s == OK) s = gzip_read(&gzip, header + 4, file->header - 4);
    if (s == OK) s = parse_shape(file, header + 4);
    gzip_end(&gzip);
    if (s == OK && value_bytes(file) > gzip_max_size(file->packed_size))
        s = status_data("%s: its header says that it has %.0f bytes, which %zu compressed bytes cannot contain",
                        file->path, value_bytes(file), file->packed_size);
    return s;
}

static status open_plain(struct idx_file *file, uint64_t bytes) {
    uint8_t header[MAX_HEADER];
    size_t got;
    TRY(io_read_at(file->fd, file->path, header, sizeof header, 0, &got));
    if (got < 4) return status_data("%s: the file has only %zu bytes; this is not an IDX file", file->path, got);
    TRY(parse_magic(file, header));
    if (got < file->header) return status_data("%s: the file ends within its header; copy the file again", file->path);
    TRY(parse_shape(file, header + 4));
    double expected = (double)file->header + value_bytes(file);
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
    TRY(rows_alloc(file->rows, file->size * file->type->bytes, file->path, &values));
    status s = gzip_start(&gzip, file->path, file->packed, file->packed_size);
    if (s == OK) s = gzip_read(&gzip, header, file->header);
    if (s == OK) s = gzip_read(&gzip, values, file->rows * file->size * file->type->bytes);
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
    size_t row = file->size * file->type->bytes, got;
    if (file->packed) TRY(decompress(file));
    if (file->values) {
        memcpy(out, file->values + first * row, count * row);
        return OK;
    }
    TRY(io_read_at(file->fd, file->path, out, count * row, file->header + first * row, &got));
    if (got == count * row) return OK;
    return status_data("%s: the file was truncated after it was opened", file->path);
}

/* The raw values are read to the end of [out], so that a conversion does not overwrite values that follow. */
static status read_values(struct idx_file *file, size_t first, size_t count, double *out) {
    size_t n = count * file->size, bytes = file->type->bytes;
    const uint8_t *raw = (const uint8_t *)out + n * (sizeof *out - bytes);
    TRY(read_raw(file, first, count, (uint8_t *)out + n * (sizeof *out - bytes)));
    for (size_t i = 0; i < n; i++) out[i] = file->type->value(raw + i * bytes);
    return OK;
}

static status read_idx(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct idx *idx = (struct idx *)source;
    if (inputs) TRY(read_values(&idx->inputs, first, count, inputs));
    return targets ? read_values(&idx->targets, first, count, targets) : OK;
}

static status read_bytes(struct source *source, size_t first, size_t count, uint8_t *inputs) {
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
    if (idx->targets.rows == idx->inputs.rows) return OK;
    return status_data("%s has %zu rows, but '%s' has %zu", idx->inputs.path, idx->inputs.rows, idx->targets.path,
                       idx->targets.rows);
}

/* Adds the dimension of the channel to images and of the feature to scalars. */
static void set_shape(struct idx *idx) {
    struct source *base = &idx->base;
    const struct idx_file *file = &idx->inputs;
    int missing = file->dims == 1 || file->dims == 3;
    base->rows = file->rows;
    base->input_size = file->size;
    base->target_size = idx->targets.size;
    base->input_dims = file->dims - 1 + missing;
    base->input_shape[0] = 1;
    for (int i = 1; i < file->dims; i++) base->input_shape[i - 1 + missing] = file->shape[i];
    base->target_dims = idx->targets.dims ? idx->targets.dims - 1 : 0;
    for (int i = 0; i < base->target_dims; i++) base->target_shape[i] = idx->targets.shape[i + 1];
    base->is_float32 = file->type->is_float32;
    base->is_bytes = file->type->value == of_uint8;
    base->divide = base->is_bytes && file->dims >= 3 ? 255 : 1; /* as torchvision's ToTensor */
    base->is_small = file->packed != NULL;
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
    size_t block = file->size;
    for (int i = 1; i < file->dims; i++) {
        block /= file->shape[i];
        text_printf(out, "%s%zu", i == 1 ? ", element [" : ", ", element / block);
        element %= block;
    }
    if (file->dims > 1) text_add(out, "]");
}

static const char *const extensions[] = {".idx", ".idx.gz", "-ubyte", "-ubyte.gz", NULL};
const struct dataset_format dataset_idx = {.name = "idx",
                                           .keys = KEY_TARGETS,
                                           .extensions = extensions,
                                           .has_target_file = true,
                                           .open = open_idx,
                                           .read = read_idx,
                                           .read_bytes = read_bytes,
                                           .describe = describe_idx,
                                           .close = close_idx,
                                           .pytorch = "read_idx({path}, {labels})"};
