/* The values of all files are copied to one block, one file after the other, so that the largest one is in memory
 * twice. */
#include "checkpoint/tensor_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/files/io.h"
#include "checkpoint/foreign.h"
#include "checkpoint/torch_file.h"

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
    char *text = NULL;
    json_error_t error = {0};
    *out = NULL;
    TRY(io_read_text(path, MAX_INDEX_BYTES, &text, &info));
    if (!info.exists) return status_new(STATUS_DATA, "%s: there is no such file", path);
    if (text) *out = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (*out) return OK;
    return status_new(STATUS_DATA, "%s: not a list of the files of tensors%s%s", path, error.text[0] ? ": " : "",
                      error.text);
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
        return status_new(STATUS_DATA, "%s: there is no such file; %s says that tensor '%s' is in it", path,
                          index->path, tensor);
    if (__builtin_add_overflow(index->total, (size_t)info.size + ALIGNMENT, &index->total))
        return status_new(STATUS_DATA, "%s: its files are too large", index->path);
    index->names[index->count] = name;
    index->bytes[index->count++] = info.size;
    return OK;
}

static status find_files(struct tensor_index *index) {
    const char *tensor;
    json_t *value, *found = json_object();
    size_t count = json_object_size(index->files);
    status s = OK;
    index->names = arena_alloc(index->arena, (count + 1) * sizeof *index->names);
    index->bytes = arena_alloc(index->arena, (count + 1) * sizeof *index->bytes);
    json_object_foreach(index->files, tensor, value) {
        const char *name = json_string_value(value);
        if (s || (name && json_object_get(found, name))) continue;
        if (!is_file_name(name))
            s = status_new(STATUS_DATA, "%s: the file of tensor '%s' is not a name of a file beside it", index->path,
                           tensor);
        if (!s) s = add_file(index, name, tensor);
        if (!s && json_object_set(found, name, json_true()) != 0) s = status_memory("the files of tensors");
    }
    json_decref(found);
    if (!s && count == 0) s = status_new(STATUS_DATA, "%s: it lists no tensors (\"weight_map\")", index->path);
    return s;
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
        return status_new(STATUS_DATA, "%s: tensor '%s' is in %s, but the index says %s", index->path, name, file,
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
        s = status_new(STATUS_DATA, "%s: the file has changed while it was read", path);
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
            return status_new(STATUS_DATA, "%s: tensor '%s' is not in %s, where the index says it is", index->path,
                              tensor, json_string_value(file));
    }
    return OK;
}

status tensor_index_read(const char *path, struct safetensors *file) {
    struct tensor_index index = {.path = path, .arena = arena_create()};
    json_t *root;
    *file = (struct safetensors){.path = path};
    status s = parse(path, &root);
    index.files = json_object_get(root, "weight_map");
    if (!s) s = find_files(&index);
    if (!s) s = buffer_new(index.total, path, &file->bytes);
    file->data = file->bytes;
    if (!s && !(file->header = json_object())) s = status_memory("the tensors of several files");
    for (size_t i = 0; !s && i < index.count; i++) s = append(&index, i, file, &file->data_size);
    if (!s) s = check_all(&index, file);
    json_decref(root);
    arena_destroy(index.arena);
    return s;
}
