/* The header of a safetensors file: its length, JSON (jansson rejects duplicates and limits the depth), then type,
 * shape and range of each tensor. */
#include "checkpoint/safetensors_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/buffer.h"
#include "base/files/io.h"

#define MAX_HEADER_BYTES (100u << 20) /* as the reference implementation */

static void from_f32(const unsigned char *from, float *to, size_t count) { memcpy(to, from, count * sizeof *to); }

static void from_f64(const unsigned char *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, from + i * sizeof value, sizeof value);
        to[i] = (float)value;
    }
}

static uint16_t half_at(const unsigned char *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

static void from_bf16(const unsigned char *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = bits_from_bfloat16(half_at(from + 2 * i));
}

static void from_f16(const unsigned char *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = bits_from_float16(half_at(from + 2 * i));
}

static const struct safetensors_dtype dtypes[] = {
    {"F32", 4, from_f32}, {"F64", 8, from_f64}, {"F16", 2, from_f16}, {"BF16", 2, from_bf16}, {"I64", 8, NULL},
    {"I32", 4, NULL},     {"I16", 2, NULL},     {"I8", 1, NULL},      {"U64", 8, NULL},       {"U32", 4, NULL},
    {"U16", 2, NULL},     {"U8", 1, NULL},      {"BOOL", 1, NULL},    {"F8_E4M3", 1, NULL},   {"F8_E5M2", 1, NULL},
};

status safetensors_bad(const struct safetensors *file, const char *name, const char *what) {
    return status_new(STATUS_DATA, "%s: tensor '%s': %s", file->path, name, what);
}

static status read_shape(const struct safetensors *file, const char *name, const json_t *shape,
                         struct safetensors_entry *out) {
    out->dims = (int)json_array_size(shape);
    out->count = 1;
    if (!json_is_array(shape) || json_array_size(shape) > MAX_DIMS)
        return safetensors_bad(file, name, "its shape is not a list of at most 8 numbers");
    for (int d = 0; d < out->dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        out->shape[d] = json_integer_value(size);
        if (!json_is_integer(size) || out->shape[d] < 0 || out->shape[d] > INT64_C(1) << 40)
            return safetensors_bad(file, name, "its shape is not sensible");
        if (__builtin_mul_overflow(out->count, (size_t)out->shape[d], &out->count))
            return safetensors_bad(file, name, "its shape is not sensible");
    }
    return OK;
}

const struct safetensors_dtype *safetensors_dtype(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0) return &dtypes[i];
    return NULL;
}

status safetensors_entry(const struct safetensors *file, const char *name, const json_t *entry,
                         struct safetensors_entry *out) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t bytes;
    *out = (struct safetensors_entry){0};
    if (dtype) out->dtype = safetensors_dtype(dtype);
    if (!out->dtype)
        return safetensors_bad(file, name, "its dtype must be F32, F64, F16, BF16, an 8-bit float or an integer");
    TRY(read_shape(file, name, json_object_get(entry, "shape"), out));
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return safetensors_bad(file, name, "it has no data_offsets");
    if (json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from) ||
        (uint64_t)json_integer_value(to) > file->data_size)
        return safetensors_bad(file, name, "its values are outside of the file (is the file truncated?)");
    out->offset = (size_t)json_integer_value(from);
    if (__builtin_mul_overflow(out->count, out->dtype->bytes, &bytes) ||
        bytes != (size_t)json_integer_value(to) - out->offset)
        return safetensors_bad(file, name, "its data_offsets do not match its shape");
    return OK;
}

bool safetensors_is_tensor(const char *name) { return strcmp(name, "__metadata__") != 0; }

struct byte_range {
    const char *name;
    size_t start, end;
};

static int compare_starts(const void *left, const void *right) {
    const struct byte_range *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* Checks that the ranges (count) cover all of the data without gaps and overlaps, as the format requires. */
static status check_ranges(const struct safetensors *file, struct byte_range *ranges, size_t count) {
    size_t end = 0;
    if (count) qsort(ranges, count, sizeof *ranges, compare_starts);
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].start < end)
            return safetensors_bad(file, ranges[i].name, "its values overlap those of another tensor");
        if (ranges[i].start > end)
            return safetensors_bad(file, ranges[i].name, "there are unused bytes before its values");
        end = ranges[i].end;
    }
    if (end == file->data_size) return OK;
    return status_new(STATUS_DATA, "%s: there are %zu unused bytes after the last tensor", file->path,
                      file->data_size - end);
}

static status check_tensors(const struct safetensors *file) {
    const char *name;
    json_t *entry;
    size_t count = 0;
    struct byte_range *ranges = calloc(json_object_size(file->header) + 1, sizeof *ranges);
    status s = ranges ? OK : status_memory("the tensors of a file");
    json_object_foreach(file->header, name, entry) {
        struct safetensors_entry found;
        if (s || !safetensors_is_tensor(name)) continue;
        s = safetensors_entry(file, name, entry, &found);
        if (!s)
            ranges[count++] = (struct byte_range){name, found.offset, found.offset + found.count * found.dtype->bytes};
    }
    if (!s) s = check_ranges(file, ranges, count);
    free(ranges);
    return s;
}

status safetensors_parse(const char *name, const void *bytes, size_t size, struct safetensors *file) {
    *file = (struct safetensors){.path = name};
    uint64_t length;
    if (size < sizeof length) return status_new(STATUS_DATA, "%s: not a safetensors file (too short)", name);
    memcpy(&length, bytes, sizeof length);
    if (length > size - sizeof length || length > MAX_HEADER_BYTES)
        return status_new(STATUS_DATA,
                          "%s: not a safetensors file, or truncated (its header would be longer than the file)", name);
    json_error_t error;
    file->header = json_loadb((const char *)bytes + sizeof length, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(file->header))
        return status_new(STATUS_DATA, "%s: its header is not JSON: %s", name, error.text);
    file->data = (const unsigned char *)bytes + sizeof length + length;
    file->data_size = size - sizeof length - (size_t)length;
    return check_tensors(file);
}

static status read_bytes(const char *path, void **bytes, size_t *size) {
    struct io_info info;
    int fd;
    TRY(io_stat(path, &info));
    if (!info.exists) return status_new(STATUS_DATA, "%s: there is no such file", path);
    if (!info.is_file) return status_new(STATUS_DATA, "%s: not a regular file", path);
    TRY(io_open(path, &fd));
    status s = buffer_new((size_t)info.size, path, bytes);
    if (!s) s = io_read(fd, path, *bytes, (size_t)info.size, NULL);
    *size = (size_t)info.size;
    return status_first(s, io_close(fd, path));
}

status safetensors_read(const char *path, struct safetensors *file) {
    void *bytes = NULL;
    size_t size = 0;
    *file = (struct safetensors){.path = path};
    status s = read_bytes(path, &bytes, &size);
    if (!s) s = safetensors_parse(path, bytes, size, file);
    file->bytes = bytes;
    return s;
}

void safetensors_close(struct safetensors *file) {
    json_decref(file->header);
    buffer_free(file->bytes);
    *file = (struct safetensors){0};
}
