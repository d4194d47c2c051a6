/* One file in memory, weights that are in several files, and writing. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/buffer.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "checkpoint/inspect.h"
#include "checkpoint/torch_file.h"

/* ---- reading ---- */

/* The header of a safetensors file: its length, JSON (jansson rejects duplicates and limits the depth), then type,
 * shape and range of each tensor. */

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
    return status_data("%s: tensor '%s': %s", file->path, name, what);
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
    return status_data("%s: there are %zu unused bytes after the last tensor", file->path, file->data_size - end);
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
    if (size < sizeof length) return status_data("%s: not a safetensors file (too short)", name);
    memcpy(&length, bytes, sizeof length);
    if (length > size - sizeof length || length > MAX_HEADER_BYTES)
        return status_data("%s: not a safetensors file, or truncated (its header would be longer than the file)", name);
    json_error_t error;
    file->header = json_loadb((const char *)bytes + sizeof length, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(file->header)) return status_data("%s: its header is not JSON: %s", name, error.text);
    file->data = (const unsigned char *)bytes + sizeof length + length;
    file->data_size = size - sizeof length - (size_t)length;
    return check_tensors(file);
}

static status read_bytes(const char *path, void **bytes, size_t *size) {
    struct io_info info;
    int fd;
    TRY(io_stat(path, &info));
    if (!info.exists) return status_data("%s: there is no such file", path);
    if (!info.is_file) return status_data("%s: not a regular file", path);
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

status safetensors_check(const char *name, const void *bytes, size_t size) {
    struct safetensors file;
    status s = safetensors_parse(name, bytes, size, &file);
    safetensors_close(&file);
    return s;
}

/* ---- weights in several files ---- */

/* The values of all files are copied to one block, one file after the other, so that the largest one is in memory
 * twice. */

#define MAX_INDEX_BYTES ((size_t)64 << 20)
#define ALIGNMENT 64 /* of the values of a file in the block: any type's */

struct tensor_index {
    const char *path;
    json_t *files;       /* of each tensor: "weight_map" */
    const char **names;  /* (count) of the files, each once */
    uint64_t *bytes;     /* (count) of the files */
    size_t count, total; /* total: bytes of the block */
    struct arena *arena;
};

bool tensor_index_is_name(const char *path) {
    size_t length = strlen(path), size = strlen(TENSOR_INDEX_ENDING);
    return length > size && strcmp(path + length - size, TENSOR_INDEX_ENDING) == 0;
}

static status parse(const char *path, json_t **out) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    json_error_t error = {0};
    *out = NULL;
    TRY(io_read_text(path, MAX_INDEX_BYTES, &text, &info));
    if (!info.exists) return status_data("%s: there is no such file", path);
    if (text) *out = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (*out) return OK;
    return status_data("%s: not a list of the files of tensors%s%s", path, error.text[0] ? ": " : "", error.text);
}

/* A file beside the index, not one elsewhere. */
static bool is_file_name(const char *name) { return name && *name && !strchr(name, '/') && name[0] != '.'; }

static const char *path_of(const struct tensor_index *index, const char *name) {
    const char *slash = strrchr(index->path, '/');
    return arena_printf(index->arena, "%.*s%s", slash ? (int)(slash + 1 - index->path) : 0, index->path, name);
}

/* Adds a file with its size. */
static status add_file(struct tensor_index *index, const char *name, const char *tensor) {
    struct io_info info;
    const char *path = path_of(index, name);
    TRY(io_stat(path, &info));
    if (!info.is_file)
        return status_data("%s: there is no such file; %s says that tensor '%s' is in it", path, index->path, tensor);
    if (__builtin_add_overflow(index->total, (size_t)info.size + ALIGNMENT, &index->total))
        return status_data("%s: its files are too large", index->path);
    index->names[index->count] = name;
    index->bytes[index->count++] = info.size;
    return OK;
}

static status find_files(struct tensor_index *index) {
    const char *tensor;
    json_auto_t *found = json_object();
    json_t *value;
    size_t count = json_object_size(index->files);
    index->names = arena_alloc(index->arena, (count + 1) * sizeof *index->names);
    index->bytes = arena_alloc(index->arena, (count + 1) * sizeof *index->bytes);
    json_object_foreach(index->files, tensor, value) {
        const char *name = json_string_value(value);
        if (name && json_object_get(found, name)) continue;
        if (!is_file_name(name))
            return status_data("%s: the file of tensor '%s' is not a name of a file beside it", index->path, tensor);
        TRY(add_file(index, name, tensor));
        if (json_object_set(found, name, json_true()) != 0) return status_memory("the files of tensors");
    }
    return count ? OK : status_data("%s: it lists no tensors (\"weight_map\")", index->path);
}

/* Adds the tensor [name] of a file whose values are at [at] of the block. */
static status add_tensor(const struct tensor_index *index, struct safetensors *all, const char *name, json_t *entry,
                         const char *file, size_t at) {
    if (!safetensors_is_tensor(name)) {
        json_object_set(all->header, name, entry); /* the last file's */
        return OK;
    }
    const char *listed = json_string_value(json_object_get(index->files, name));
    if (!listed || strcmp(listed, file) != 0)
        return status_data("%s: tensor '%s' is in %s, but the index says %s", index->path, name, file,
                           listed ? listed : "that it is in none");
    json_t *moved = json_copy(entry), *offsets = json_object_get(entry, "data_offsets");
    json_int_t from = json_integer_value(json_array_get(offsets, 0)) + (json_int_t)at;
    json_int_t to = json_integer_value(json_array_get(offsets, 1)) + (json_int_t)at;
    json_object_set_new(moved, "data_offsets", json_pack("[II]", from, to));
    return json_object_set_new(all->header, name, moved) == 0 ? OK : status_memory("the tensors of several files");
}

/* Appends the file [i] to the block, which has [*used] bytes. */
static status append(const struct tensor_index *index, size_t i, struct safetensors *all, size_t *used) {
    const char *path = path_of(index, index->names[i]), *name;
    struct safetensors part;
    json_t *entry;
    status s = foreign_is_torch(path) ? torch_file_read(path, &part) : safetensors_read(path, &part);
    if (!s && (part.data_size > index->bytes[i] || *used + part.data_size > index->total))
        s = status_data("%s: the file has changed while it was read", path);
    if (!s && part.data_size) memcpy((char *)all->bytes + *used, part.data, part.data_size);
    json_object_foreach(part.header, name, entry) {
        if (!s) s = add_tensor(index, all, name, entry, index->names[i], *used);
    }
    *used += s ? 0 : (part.data_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    safetensors_close(&part);
    return s;
}

static status check_all(const struct tensor_index *index, const struct safetensors *all) {
    const char *tensor;
    json_t *file;
    json_object_foreach(index->files, tensor, file) {
        if (!json_object_get(all->header, tensor))
            return status_data("%s: tensor '%s' is not in %s, where the index says it is", index->path, tensor,
                               json_string_value(file));
    }
    return OK;
}

status tensor_index_read(const char *path, struct safetensors *file) {
    SCOPED_ARENA arena = arena_create();
    struct tensor_index index = {.path = path, .arena = arena};
    json_auto_t *root = NULL;
    *file = (struct safetensors){.path = path};
    TRY(parse(path, &root));
    index.files = json_object_get(root, "weight_map");
    TRY(find_files(&index));
    TRY(buffer_new(index.total, path, &file->bytes));
    file->data = file->bytes;
    if (!(file->header = json_object())) return status_memory("the tensors of several files");
    for (size_t i = 0; i < index.count; i++) TRY(append(&index, i, file, &file->data_size));
    return check_all(&index, file);
}

/* ---- writing ---- */

static void write_metadata(const struct safetensors_note *notes, size_t count, struct text *out) {
    text_add(out, "{\"__metadata__\":{\"format\":\"pt\"");
    for (size_t i = 0; i < count; i++) {
        if (!notes[i].value) continue;
        text_printf(out, ",\"%s\":", notes[i].key);
        text_add_json(out, notes[i].value);
    }
    text_add(out, "}");
}

static void write_header(const struct named_tensor *tensors, size_t count, struct text *out) {
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = named_tensor_elements(&tensors[i]) * sizeof(float);
        text_add(out, ",");
        text_add_json(out, tensors[i].name);
        text_add(out, ":{\"dtype\":\"F32\",\"shape\":[");
        for (int d = 0; d < tensors[i].dims; d++)
            text_printf(out, "%s%lld", d ? "," : "", (long long)tensors[i].shape[d]);
        text_printf(out, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
    text_add(out, "}");
    while (out->length % 8) text_add(out, " "); /* aligns the values */
}

status safetensors_write(const char *path, const struct safetensors_note *notes, size_t note_count,
                         const struct named_tensor *tensors, size_t count) {
    struct text header = {0};
    struct io_part *parts = calloc(count + 2, sizeof *parts);
    if (!parts) return status_memory("the tensors of a file");
    write_metadata(notes, note_count, &header);
    write_header(tensors, count, &header);
    uint64_t length = header.length;
    parts[0] = (struct io_part){&length, sizeof length};
    parts[1] = (struct io_part){header.data, header.length};
    for (size_t i = 0; i < count; i++)
        parts[i + 2] = (struct io_part){tensors[i].values, named_tensor_elements(&tensors[i]) * sizeof(float)};
    status s = io_replace(path, parts, count + 2);
    free(parts);
    text_free(&header);
    return s;
}
