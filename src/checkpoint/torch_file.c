/* The pickle of a file of torch.save names each tensor's type, shape and member of the archive. They become the header
 * of a safetensors file whose values are those bytes, so that both formats are loaded by the same code. */
#include "checkpoint/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dims.h"
#include "base/files/io.h"
#include "base/files/zip.h"
#include "base/scoped.h"
#include "checkpoint/pickle.h"

/* ---- reading ---- */

struct reading {
    struct safetensors *file;
    const char *path;
    struct zip zip;
    const struct zip_member **members; /* (zip.count) sorted by their names */
    bool *is_checked;                  /* (zip.count) of zip.members, whose checksums were compared */
    struct arena *arena;
    size_t size;          /* of the file */
    bool wants_optimizer; /* torch_file_read_optimizer */
    size_t values_left;   /* with it: more than its pickle has without repeating values */
};

static status bad(const struct reading *r, const char *name, const char *what) {
    return safetensors_bad(r->file, name, what);
}

/* ---- tensors ---- */

static const char *dtype_of(const char *storage) {
    static const struct {
        const char *storage, *dtype;
    } types[] = {{"FloatStorage", "F32"},     {"DoubleStorage", "F64"}, {"HalfStorage", "F16"},
                 {"BFloat16Storage", "BF16"}, {"LongStorage", "I64"},   {"IntStorage", "I32"},
                 {"ShortStorage", "I16"},     {"CharStorage", "I8"},    {"ByteStorage", "U8"},
                 {"BoolStorage", "BOOL"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].storage, storage) == 0) return types[i].dtype;
    return NULL;
}

static bool is_call(const struct pickle_value *value, const char *function) {
    return value->kind == PICKLE_CALL && value->items[0]->kind == PICKLE_GLOBAL &&
           strcmp(value->items[0]->text, function) == 0 && value->items[1]->kind == PICKLE_TUPLE;
}

/* The arguments of the call that makes a tensor; NULL: [value] is no tensor. A Parameter contains its tensor. */
static const struct pickle_value *tensor_of(const struct pickle_value *value) {
    if (is_call(value, "torch._utils _rebuild_parameter") && value->items[1]->count >= 1)
        value = value->items[1]->items[0];
    return is_call(value, "torch._utils _rebuild_tensor_v2") && value->items[1]->count >= 4 ? value->items[1] : NULL;
}

/* A tensor as its pickle describes it. */
struct described {
    const char *dtype, *key;
    uint64_t storage_elements, first; /* of the storage; the tensor's first element */
    size_t dims, elements, bytes;
    int64_t shape[MAX_DIMS];
};

static bool is_number(const struct pickle_value *value) { return value->kind == PICKLE_NUMBER && value->number >= 0; }

/* ("storage", torch.FloatStorage, key, location, elements) */
static status read_storage(const struct reading *r, const char *name, const struct pickle_value *value,
                           struct described *out) {
    const struct pickle_value *id = value->kind == PICKLE_PERSISTENT ? value->items[0] : NULL;
    if (!id || id->kind != PICKLE_TUPLE || id->count < 5 || id->items[1]->kind != PICKLE_GLOBAL ||
        id->items[2]->kind != PICKLE_TEXT || !is_number(id->items[4]))
        return bad(r, name, "its storage is not described as torch.save does it");
    const char *storage = strchr(id->items[1]->text, ' ');
    out->dtype = storage && strncmp(id->items[1]->text, "torch ", 6) == 0 ? dtype_of(storage + 1) : NULL;
    if (!out->dtype) return bad(r, name, "its dtype must be float32, float64, float16, bfloat16 or an integer type");
    out->key = id->items[2]->text;
    out->storage_elements = (uint64_t)id->items[4]->number;
    return OK;
}

static status read_shape(const struct reading *r, const char *name, const struct pickle_value *shape,
                         const struct pickle_value *strides, struct described *out) {
    if (shape->kind != PICKLE_TUPLE || strides->kind != PICKLE_TUPLE || shape->count > MAX_DIMS ||
        strides->count != shape->count)
        return bad(r, name, "its shape is not a tuple of at most 8 numbers");
    out->dims = shape->count;
    out->elements = 1;
    bool is_contiguous = true;
    for (size_t d = shape->count; d-- > 0;) {
        if (!is_number(shape->items[d]) || strides->items[d]->kind != PICKLE_NUMBER)
            return bad(r, name, "its shape is not sensible");
        out->shape[d] = shape->items[d]->number;
        if (out->shape[d] != 1 && strides->items[d]->number != (int64_t)out->elements) is_contiguous = false;
        if (__builtin_mul_overflow(out->elements, (size_t)out->shape[d], &out->elements))
            return bad(r, name, "its shape is not sensible");
    }
    if (!is_contiguous && out->elements)
        return bad(r, name, "it is a view with other strides (transposed or sliced); save its contiguous()");
    return OK;
}

static int compare_members(const void *a, const void *b) {
    return strcmp((*(const struct zip_member *const *)a)->name, (*(const struct zip_member *const *)b)->name);
}

static void index_members(struct reading *r) {
    r->members = arena_alloc(r->arena, (r->zip.count + 1) * sizeof *r->members);
    r->is_checked = arena_alloc(r->arena, r->zip.count + 1);
    for (size_t i = 0; i < r->zip.count; i++) r->members[i] = &r->zip.members[i];
    qsort(r->members, r->zip.count, sizeof *r->members, compare_members);
}

/* Compares the checksum of a member once, which many tensors may share. */
static status check_member(const struct reading *r, const struct zip_member *member) {
    bool *is_checked = &r->is_checked[member - r->zip.members];
    if (!*is_checked) TRY(zip_check(&r->zip, member, (const uint8_t *)r->file->bytes + member->start));
    *is_checked = true;
    return OK;
}

/* Finds the bytes of the tensor in the file. */
static status find_values(const struct reading *r, const char *name, const char *root, const struct described *t,
                          size_t *offset) {
    const struct zip_member named = {.name = arena_printf(r->arena, "%sdata/%s", root, t->key)}, *wanted = &named;
    const struct zip_member **found = bsearch(&wanted, r->members, r->zip.count, sizeof *r->members, compare_members);
    const struct zip_member *member = found ? *found : NULL;
    size_t element = safetensors_dtype(t->dtype)->bytes;
    if (!member) return bad(r, name, "its values are not in the archive");
    if (member->is_deflated) return bad(r, name, "its values are compressed; torch.save stores them");
    if (member->start > r->size || member->size > r->size - member->start ||
        t->storage_elements > member->size / element || t->first > t->storage_elements ||
        t->elements > t->storage_elements - t->first)
        return bad(r, name, "it is larger than its values in the archive");
    *offset = (size_t)(member->start + t->first * element);
    return check_member(r, member);
}

static status describe(const struct reading *r, const char *root, const char *name, const struct pickle_value *args,
                       struct described *out, size_t *offset) {
    TRY(read_storage(r, name, args->items[0], out));
    if (!is_number(args->items[1])) return bad(r, name, "its offset is not sensible");
    out->first = (uint64_t)args->items[1]->number;
    TRY(read_shape(r, name, args->items[2], args->items[3], out));
    return find_values(r, name, root, out, offset);
}

static status add_tensor(const struct reading *r, const char *root, const char *name, const struct pickle_value *args) {
    struct described t = {0};
    size_t offset = 0;
    if (json_object_get(r->file->header, name)) return bad(r, name, "it is in the file twice");
    TRY(describe(r, root, name, args, &t, &offset));
    json_t *shape = json_array(), *offsets = json_array(), *entry = json_object();
    for (size_t d = 0; d < t.dims; d++) json_array_append_new(shape, json_integer(t.shape[d]));
    size_t end = offset + t.elements * safetensors_dtype(t.dtype)->bytes;
    json_array_append_new(offsets, json_integer((json_int_t)offset));
    json_array_append_new(offsets, json_integer((json_int_t)end));
    json_object_set_new(entry, "dtype", json_string(t.dtype));
    json_object_set_new(entry, "shape", shape);
    json_object_set_new(entry, "data_offsets", offsets);
    if (json_object_set_new(r->file->header, name, entry) == 0) return OK;
    return status_data("%s: the name of a tensor is not UTF-8", r->path);
}

/* ---- the dictionary ---- */

static const char *key_text(const struct pickle_value *key) { return key->kind == PICKLE_TEXT ? key->text : "?"; }

static status read_dict(const struct reading *r, const char *root, const struct pickle_value *dict) {
    if (dict->kind != PICKLE_DICT)
        return status_data("%s: it is not a dictionary of tensors; save model.state_dict(), not the model itself",
                           r->path);
    for (size_t i = 0; i < dict->count; i += 2) {
        const struct pickle_value *key = dict->items[i], *args = tensor_of(dict->items[i + 1]);
        if (!args || key->kind != PICKLE_TEXT)
            return bad(r, key_text(key), "it is not a tensor; the file must be the state_dict, or contain one");
        TRY(add_tensor(r, root, key->text, args));
    }
    return OK;
}

/* ---- numbers ---- */

static json_t *json_of(const struct pickle_value *value) {
    json_t *out = value->kind == PICKLE_NUMBER ? json_integer(value->number)
                  : value->kind == PICKLE_REAL ? json_real(value->real)
                  : value->kind == PICKLE_TEXT ? json_string(value->text)
                                               : NULL;
    return out ? out : json_null(); /* not finite, not UTF-8, or of no use */
}

/* The shortest decimal that a script may have written for the float. */
static double decimal_of(float value) {
    char text[32];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits, (double)value);
    while (strtof(text, NULL) != value && digits++ < 9);
    return strtod(text, NULL);
}

/* One element of a tensor. */
static json_t *element_of(const unsigned char *bytes, const struct safetensors_dtype *dtype) {
    double number = 0;
    uint64_t integer = 0;
    float single;
    if (!dtype->convert) { /* an integer; those of torch.save are signed, or of one byte */
        for (size_t i = 0; i < dtype->bytes; i++) integer |= (uint64_t)bytes[i] << (8 * i);
        bool is_negative = dtype->name[0] == 'I' && bytes[dtype->bytes - 1] >= 128;
        for (size_t i = dtype->bytes; is_negative && i < sizeof integer; i++) integer |= UINT64_C(255) << (8 * i);
        return json_integer((json_int_t)integer);
    }
    dtype->convert(bytes, &single, 1);
    if (dtype->bytes == sizeof number) memcpy(&number, bytes, sizeof number);
    return json_real(dtype->bytes == sizeof number ? number : decimal_of(single));
}

/* A number, which may be a tensor (`lr` of an optimizer with capturable=True). */
static status read_value(const struct reading *r, const char *root, const char *key, const struct pickle_value *value,
                         json_t **out) {
    const struct pickle_value *args = tensor_of(value);
    struct described t = {0};
    size_t offset = 0;
    *out = NULL;
    if (args) TRY(describe(r, root, key, args, &t, &offset));
    if (args && t.elements == 1)
        *out = element_of((const unsigned char *)r->file->bytes + offset, safetensors_dtype(t.dtype));
    if (!*out) *out = json_of(value);
    return OK;
}

/* ---- the state_dict among other things ---- */

/* A training script's snapshot has the state_dict of the model beside the number of epochs, the state of the optimizer
 * and others. */

/* Whether it has tensors, and nothing else. */
static bool is_state_dict(const struct pickle_value *value) {
    if (value->kind != PICKLE_DICT || value->count == 0) return false;
    for (size_t i = 0; i < value->count; i += 2)
        if (value->items[i]->kind != PICKLE_TEXT || !tensor_of(value->items[i + 1])) return false;
    return true;
}

static bool has_one_element(const struct pickle_value *args) {
    const struct pickle_value *shape = args->items[2];
    bool is_one = shape->kind == PICKLE_TUPLE;
    for (size_t i = 0; is_one && i < shape->count; i++) is_one = shape->items[i]->number == 1;
    return is_one;
}

/* Whether it has a tensor of floats itself. The state of a generator of random numbers, bytes, is none, nor is a number
 * that the script keeps as a tensor. */
static bool has_weights(const struct pickle_value *dict) {
    for (size_t i = 0; i < dict->count; i += 2) {
        const struct pickle_value *args = tensor_of(dict->items[i + 1]);
        if (args && has_one_element(args)) continue;
        const struct pickle_value *id =
            args && args->items[0]->kind == PICKLE_PERSISTENT ? args->items[0]->items[0] : NULL;
        bool is_known = id && id->kind == PICKLE_TUPLE && id->count > 1 && id->items[1]->kind == PICKLE_GLOBAL;
        if (args && !(is_known && strcmp(id->items[1]->text, "torch ByteStorage") == 0)) return true;
    }
    return false;
}

static bool is_usual(const char *key) {
    static const char *const keys[] = {"model_state_dict", "state_dict", "model", "net", "MODEL_STATE", "model_state"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

#define MAX_FOUND 8

struct found {
    const struct pickle_value *dicts[MAX_FOUND];
    const char *keys[MAX_FOUND];
    size_t count;
};

/* The state_dicts among the values of [dict]; only those under a usual name if there are such. */
static void find_state_dicts(const struct pickle_value *dict, struct found *out) {
    bool has_usual = false;
    for (size_t i = 0; i < dict->count && out->count < MAX_FOUND; i += 2) {
        bool usual = is_usual(key_text(dict->items[i]));
        if ((has_usual && !usual) || !is_state_dict(dict->items[i + 1])) continue;
        if (usual && !has_usual) out->count = 0;
        has_usual |= usual;
        out->keys[out->count] = key_text(dict->items[i]);
        out->dicts[out->count++] = dict->items[i + 1];
    }
}

/* [is_itself]: the dictionary that has these also has tensors. */
static status several(const struct reading *r, const struct found *found, bool is_itself) {
    SCOPED_TEXT keys = {0};
    for (size_t i = 0; i < found->count; i++) {
        text_add(&keys, i == 0 ? "'" : i + 1 < found->count ? ", '" : " and '");
        text_add_value(&keys, found->keys[i], TEXT_MAX_NAME);
        text_add(&keys, "'");
    }
    return status_data("%s: %s %s tensors%s; save that of the model alone%s", r->path, text_string(&keys),
                       found->count == 1 ? "is a dictionary of" : "are dictionaries of",
                       is_itself ? " beside others of the file" : "", is_itself ? "" : ", or under the key 'model'");
}

/* The numbers beside the state_dict, such as that of the epoch, become metadata. */
static status add_numbers(const struct reading *r, const char *root, const struct pickle_value *dict) {
    json_t *metadata = json_object(), *value;
    json_object_set_new(r->file->header, "__metadata__", metadata);
    SCOPED_TEXT number = {0};
    status s = OK;
    for (size_t i = 0; !s && i < dict->count; i += 2) {
        const char *key = key_text(dict->items[i]);
        const struct pickle_value *args = tensor_of(dict->items[i + 1]);
        if (dict->items[i]->kind != PICKLE_TEXT || (args && !has_one_element(args))) continue;
        s = read_value(r, root, key, dict->items[i + 1], &value);
        text_clear(&number);
        if (!s && json_is_integer(value)) text_add_int(&number, json_integer_value(value));
        if (!s && json_is_real(value)) text_add_double(&number, json_real_value(value));
        if (number.length) json_object_set_new(metadata, key, json_string(text_string(&number)));
        if (!s) json_decref(value);
    }
    return s;
}

static status read_pickle(const struct reading *r, const char *root, const struct pickle_value *value) {
    struct found found = {0};
    if (value->kind != PICKLE_DICT) return read_dict(r, root, value);
    find_state_dicts(value, &found);
    bool is_itself = has_weights(value);
    if (found.count + is_itself > 1) return several(r, &found, is_itself);
    if (found.count == 0) return read_dict(r, root, value);
    TRY(add_numbers(r, root, value));
    return read_dict(r, root, found.dicts[0]);
}

/* ---- the state_dict of an optimizer ---- */

/* {"state": {0: {"step": tensor, "exp_avg": tensor}, ...}, "param_groups": [{"params": [0, ...], "lr": 0.1, ...}, ...]}
 */

/* The value of [dict] under [key] if it is of this kind; else NULL. */
static const struct pickle_value *value_of(const struct pickle_value *dict, const char *key, enum pickle_kind kind) {
    for (size_t i = 0; dict->kind == PICKLE_DICT && i < dict->count; i += 2)
        if (strcmp(key_text(dict->items[i]), key) == 0 && dict->items[i + 1]->kind == kind) return dict->items[i + 1];
    return NULL;
}

/* Counts [count] values more; a pickle may refer to the same ones any number of times. */
static status take_values(struct reading *r, size_t count) {
    if (count > r->values_left) return bad(r, "param_groups", "the state_dict of the optimizer repeats its values");
    r->values_left -= count;
    return OK;
}

static status add_group(struct reading *r, const char *root, const struct pickle_value *dict, json_t *groups) {
    if (dict->kind != PICKLE_DICT) return bad(r, "param_groups", "a group is not a dictionary");
    json_t *group = json_object();
    json_array_append_new(groups, group);
    TRY(take_values(r, dict->count));
    for (size_t i = 0; i < dict->count; i += 2) {
        const struct pickle_value *value = dict->items[i + 1];
        const char *key = key_text(dict->items[i]);
        bool is_list = value->kind == PICKLE_LIST || value->kind == PICKLE_TUPLE;
        json_t *json = is_list ? json_array() : NULL, *item;
        if (!is_list) TRY(read_value(r, root, key, value, &json));
        if (json_object_set_new(group, key, json)) return bad(r, "param_groups", "a key is not UTF-8");
        if (is_list) TRY(take_values(r, value->count));
        for (size_t k = 0; is_list && k < value->count; k++) {
            TRY(read_value(r, root, key, value->items[k], &item));
            json_array_append_new(json, item);
        }
    }
    return OK;
}

/* The state of the parameter with this number. */
static status add_state(struct reading *r, const char *root, const struct pickle_value *number,
                        const struct pickle_value *dict, json_t *metadata) {
    if (!is_number(number) || dict->kind != PICKLE_DICT)
        return bad(r, "state", "it is not a dictionary from numbers of parameters to theirs");
    TRY(take_values(r, dict->count));
    for (size_t i = 0; i < dict->count; i += 2) {
        const struct pickle_value *value = dict->items[i + 1], *args = tensor_of(value);
        const char *name = arena_printf(r->arena, "%lld/%s", (long long)number->number, key_text(dict->items[i]));
        if (args) TRY(add_tensor(r, root, name, args));
        if (!args && value->kind != PICKLE_NONE && json_object_set_new(metadata, name, json_of(value)))
            return bad(r, "state", "a key is not UTF-8");
    }
    return OK;
}

static status read_optimizer(struct reading *r, const char *root, const struct pickle_value *dict) {
    const struct pickle_value *found = NULL, *state = NULL, *groups = NULL;
    for (size_t i = 0; dict->kind == PICKLE_DICT && i < dict->count; i += 2) {
        const struct pickle_value *value = dict->items[i + 1];
        TRY(take_values(r, value->count));
        if (!value_of(value, "state", PICKLE_DICT) || !value_of(value, "param_groups", PICKLE_LIST)) continue;
        if (found) return bad(r, key_text(dict->items[i]), "it is the state_dict of a second optimizer");
        found = value;
    }
    if (!found) return OK;
    state = value_of(found, "state", PICKLE_DICT);
    groups = value_of(found, "param_groups", PICKLE_LIST);
    json_t *metadata = json_object(), *list = json_array();
    r->file->header = json_object();
    json_object_set_new(r->file->header, "__metadata__", metadata);
    json_object_set_new(metadata, "param_groups", list);
    TRY(take_values(r, groups->count + state->count));
    for (size_t i = 0; i < groups->count; i++) TRY(add_group(r, root, groups->items[i], list));
    for (size_t i = 0; i < state->count; i += 2)
        TRY(add_state(r, root, state->items[i], state->items[i + 1], metadata));
    return OK;
}

/* ---- the archive ---- */

/* "archive/" of the member "archive/data.pkl" */
static status find_root(const struct reading *r, const struct zip_member **pickle, char **root) {
    for (size_t i = 0; i < r->zip.count; i++) {
        const char *name = r->zip.members[i].name;
        if (!text_ends_with(name, "/data.pkl")) continue;
        *pickle = &r->zip.members[i];
        *root = arena_copy(r->arena, name);
        (*root)[strlen(name) - strlen("data.pkl")] = 0;
        return OK;
    }
    return status_data("%s: a zip archive without data.pkl, so not a file of torch.save", r->path);
}

static status check_order(const struct reading *r, const char *root) {
    const struct zip_member *order = zip_find(&r->zip, arena_printf(r->arena, "%sbyteorder", root));
    char text[8] = "";
    size_t got = 0;
    if (!order) return OK;
    TRY(zip_read_start(&r->zip, order, text, sizeof text - 1, &got));
    if (strcmp(text, "little") == 0) return OK;
    return status_data("%s: its numbers are not little-endian; save it again on another machine", r->path);
}

static status read_archive(struct reading *r) {
    const struct zip_member *member = NULL;
    const struct pickle_value *value = NULL;
    char *root = NULL;
    uint8_t *pickle = NULL;
    index_members(r);
    TRY(find_root(r, &member, &root));
    TRY(check_order(r, root));
    TRY(zip_read_all(&r->zip, member, &pickle));
    status s = pickle_parse(r->path, pickle, (size_t)member->size, r->arena, &value);
    buffer_free(pickle);
    r->values_left = 2 * (size_t)member->size;
    if (s || !r->wants_optimizer) return s ? s : read_pickle(r, root, value);
    json_decref(r->file->header);
    r->file->header = NULL;
    return read_optimizer(r, root, value);
}

static status read_open_file(struct reading *r, int fd) {
    struct io_info info;
    TRY(io_stat_fd(fd, r->path, &info));
    if (!info.is_file) return status_data("%s: not a regular file", r->path);
    r->size = (size_t)info.size;
    TRY(buffer_new(r->size, r->path, &r->file->bytes));
    TRY(io_read(fd, r->path, r->file->bytes, r->size, NULL));
    r->file->data = r->file->bytes;
    r->file->data_size = r->size;
    r->file->header = json_object();
    if (r->size > 2 && memcmp(r->file->bytes, "\x80\x02", 2) == 0)
        return status_data(
            "%s: the old format of torch.save (before PyTorch 1.6); load it in PyTorch and save it again", r->path);
    if (r->size < 4 || memcmp(r->file->bytes, "PK\3\4", 4) != 0)
        return status_data("%s: not a file of torch.save", r->path);
    TRY(zip_open(fd, r->path, info.size, r->arena, &r->zip));
    return read_archive(r);
}

static status read_file(const char *path, bool wants_optimizer, struct safetensors *file) {
    int fd = -1;
    struct io_info info;
    *file = (struct safetensors){.path = path};
    TRY(io_stat(path, &info));
    if (!info.exists) return status_data("%s: there is no such file", path);
    TRY(io_open(path, &fd));
    struct reading reading = {.file = file, .path = path, .arena = arena_create(), .wants_optimizer = wants_optimizer};
    status s = read_open_file(&reading, fd);
    arena_destroy(reading.arena);
    return status_first(s, io_close(fd, path));
}

status torch_file_read(const char *path, struct safetensors *file) { return read_file(path, false, file); }

status torch_file_read_optimizer(const char *path, struct safetensors *file) { return read_file(path, true, file); }

/* ---- writing ---- */

/* The pickle has protocol 2 and needs no memo. Each tensor is the call that torch.save pickles,
 * torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks), and its storage is the
 * persistent id ("storage", torch.FloatStorage, key, "cpu", elements): the bytes of the member data/<key>. */

#define ROOT "archive/" /* torch.load takes the folder of the first member */

/* ---- pickle ---- */

static void add_bytes(struct text *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(number >> (8 * i) & 0xff);
        text_add_bytes(out, &byte, 1);
    }
}

static void add_string(struct text *out, const char *string) {
    text_add(out, "X"); /* BINUNICODE */
    add_bytes(out, strlen(string), 4);
    text_add(out, string);
}

/* A number that is not negative. */
static void add_int(struct text *out, uint64_t number) {
    if (number < 256) {
        text_add(out, "K"); /* BININT1 */
        add_bytes(out, number, 1);
    } else if (number <= INT32_MAX) {
        text_add(out, "J"); /* BININT */
        add_bytes(out, number, 4);
    } else {
        text_add(out, "\x8a"); /* LONG1 */
        add_bytes(out, 8, 1);
        add_bytes(out, number, 8);
    }
}

static void add_tuple(struct text *out, const int64_t *numbers, int count) {
    text_add(out, "("); /* MARK */
    for (int i = 0; i < count; i++) add_int(out, (uint64_t)numbers[i]);
    text_add(out, "t"); /* TUPLE */
}

/* OrderedDict(): GLOBAL, EMPTY_TUPLE, REDUCE */
static void add_dictionary(struct text *out) { text_add(out, "ccollections\nOrderedDict\n)R"); }

static void pickle_tensor(struct text *out, const struct named_tensor *tensor, const char *key) {
    int64_t strides[MAX_DIMS], stride = 1;
    for (int d = tensor->dims; d-- > 0; stride *= tensor->shape[d]) strides[d] = stride;
    text_add(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_string(out, "storage");
    text_add(out, "ctorch\nFloatStorage\n");
    add_string(out, key);
    add_string(out, "cpu");
    add_int(out, named_tensor_elements(tensor));
    text_add(out, "tQ"); /* TUPLE, BINPERSID */
    add_int(out, 0);
    add_tuple(out, tensor->shape, tensor->dims);
    add_tuple(out, strides, tensor->dims);
    text_add(out, "\x89"); /* NEWFALSE */
    add_dictionary(out);
    text_add(out, "tR"); /* TUPLE, REDUCE */
}

static const char *key_of(struct arena *arena, size_t index) { return arena_printf(arena, "%zu", index); }

static void add_pickle(struct text *out, struct arena *arena, const struct named_tensor *tensors, size_t count) {
    text_add_bytes(out, "\x80\x02", 2); /* PROTO 2 */
    add_dictionary(out);
    text_add(out, "(");
    for (size_t i = 0; i < count; i++) {
        add_string(out, tensors[i].name);
        pickle_tensor(out, &tensors[i], key_of(arena, i));
    }
    text_add(out, "u."); /* SETITEMS, STOP */
}

/* ---- archive ---- */

status torch_file_write(const char *path, const struct named_tensor *tensors, size_t count) {
    SCOPED_ARENA arena = arena_create();
    SCOPED_TEXT pickle = {0};
    add_pickle(&pickle, arena, tensors, count);
    struct zip_new_member *members = arena_alloc(arena, (count + 3) * sizeof *members);
    members[0] = (struct zip_new_member){ROOT "data.pkl", pickle.data, pickle.length};
    members[1] = (struct zip_new_member){ROOT "byteorder", "little", 6};
    for (size_t i = 0; i < count; i++)
        members[i + 2] = (struct zip_new_member){arena_printf(arena, ROOT "data/%s", key_of(arena, i)),
                                                 tensors[i].values, named_tensor_elements(&tensors[i]) * sizeof(float)};
    members[count + 2] = (struct zip_new_member){ROOT "version", "3\n", 2};
    return zip_write(path, members, count + 3);
}
