/* Loading compares all names and shapes of file and model before it copies values. Writing stores the tensors in the
 * given order, without gaps. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/text.h"
#include "checkpoint/loading.h"

status safetensors_check(const char *name, const void *bytes, size_t size) {
    struct safetensors file;
    status s = safetensors_parse(name, bytes, size, &file);
    safetensors_close(&file);
    return s;
}

/* ---- names ---- */

static const json_t *find(const struct loading *l, const char *name) {
    struct text wrapped = {0};
    text_printf(&wrapped, "%s%s", text_string(&l->prefix), name);
    const json_t *entry = json_object_get(l->file.header, text_string(&wrapped));
    text_free(&wrapped);
    return entry;
}

/* The tensor of a parameter; the file may have a tied one under an alias only. */
static const json_t *find_any(const struct loading *l, const char *name) {
    const json_t *entry = find(l, name);
    for (size_t i = 0; !entry && i < l->target->alias_count; i++)
        if (strcmp(l->target->aliases[i].of, name) == 0) entry = find(l, l->target->aliases[i].name);
    return entry;
}

/* ---- comparison ---- */

static status compare_param(const struct loading *l, const struct param *param, struct text *differences) {
    const json_t *entry = find_any(l, param->name);
    struct safetensors_entry found;
    if (!entry) {
        text_printf(differences, "\n  %s: ", param->name);
        loading_add_shape(differences, param->dims, param->shape);
        text_add(differences, " in the model, not in the file");
        return OK;
    }
    TRY(loading_entry(l, param->name, entry, &found));
    if (found.dims == param->dims && memcmp(found.shape, param->shape, (size_t)found.dims * sizeof *found.shape) == 0)
        return OK;
    text_printf(differences, "\n  %s: ", param->name);
    loading_add_shape(differences, found.dims, found.shape);
    text_add(differences, " in the file, ");
    loading_add_shape(differences, param->dims, param->shape);
    text_add(differences, " in the model");
    return OK;
}

/* Whether the file has the matrix [param] with its dimensions swapped, (in, out) instead of (out, in). */
static bool is_transposed(const struct loading *l, const struct param *param) {
    const json_t *entry = find_any(l, param->name);
    struct safetensors_entry found;
    if (!entry || param->dims != 2 || param->shape[0] == param->shape[1]) return false;
    status s = loading_entry(l, param->name, entry, &found);
    bool is_readable = s == OK;
    status_free(s);
    return is_readable && found.dims == 2 && found.shape[0] == param->shape[1] && found.shape[1] == param->shape[0];
}

static bool has_transposed(const struct loading *l) {
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++)
            if (is_transposed(l, &l->target->sets[s]->items[i])) return true;
    return false;
}

/* Lists the square product matrices of a file whose other matrices are (in, out): they probably are transposed too. */
static void add_squares(const struct loading *l, struct text *differences) {
    bool is_any = false;
    for (size_t i = 0; i < l->target->product_count; i++) {
        const struct param *param = loading_find_param(l, l->target->products[i]);
        if (!param || param->dims != 2 || param->shape[0] != param->shape[1] || !find_any(l, param->name)) continue;
        is_any = true;
        text_printf(differences, "\n  %s: ", param->name);
        loading_add_shape(differences, param->dims, param->shape);
        text_add(differences, " is square and cannot be distinguished by shape");
    }
    text_printf(differences,
                "\nsome matrices of the file match only transposed, (in, out) as in Hugging Face's Conv1D; transpose "
                "them before saving%s",
                is_any ? ", and also the square ones, which are then transposed too" : "");
}

/* An alias of a tied parameter must have the same values. */
static status compare_alias(const struct loading *l, const struct safetensors_alias *alias, struct text *differences) {
    struct safetensors_entry one, other;
    const json_t *entry = find(l, alias->name), *original = find_any(l, alias->of);
    TRY(loading_entry(l, alias->name, entry, &one));
    TRY(loading_entry(l, alias->of, original, &other));
    bool is_same = one.dtype == other.dtype && one.dims == other.dims &&
                   memcmp(one.shape, other.shape, (size_t)one.dims * sizeof *one.shape) == 0 &&
                   memcmp(l->file.data + one.offset, l->file.data + other.offset, one.count * one.dtype->bytes) == 0;
    if (!is_same)
        text_printf(differences, "\n  %s: differs from %s, to which the model ties it", alias->name, alias->of);
    return OK;
}

/* A name of the file that is not a parameter's. */
static status compare_other(const struct loading *l, const char *name, struct text *differences) {
    const struct safetensors_alias *alias = loading_find_alias(l, name);
    if (alias) return compare_alias(l, alias, differences);
    if (!loading_is_batch_counter(name)) text_printf(differences, "\n  %s: in the file, not in the model", name);
    return OK;
}

static status compare_all(const struct loading *l, struct text *differences) {
    const char *name;
    json_t *entry;
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++)
            TRY(compare_param(l, &l->target->sets[s]->items[i], differences));
    json_object_foreach(l->file.header, name, entry) {
        const char *own = name + l->prefix.length;
        if (safetensors_is_tensor(name) && !loading_find_param(l, own)) TRY(compare_other(l, own, differences));
    }
    if (has_transposed(l)) add_squares(l, differences);
    return OK;
}

static status compare(const struct loading *l) {
    struct text differences = {0};
    status s = compare_all(l, &differences);
    if (!s && differences.length)
        s = status_new(STATUS_DATA, "%s: does not match the model:%s", l->file.path, text_string(&differences));
    text_free(&differences);
    return s;
}

static status fill(const struct loading *l, const struct params *params) {
    for (size_t i = 0; i < params->count; i++) {
        struct safetensors_entry found;
        TRY(loading_entry(l, params->items[i].name, find_any(l, params->items[i].name), &found));
        found.dtype->convert(l->file.data + found.offset, params_value(params, i), found.count);
        TRY(loading_check_finite(l, params->items[i].name, &found, params_value(params, i)));
    }
    return OK;
}

status safetensors_load(const char *path, const struct safetensors_target *target) {
    struct loading l = {.target = target};
    status s = loading_open(&l, path);
    if (!s) loading_find_member(&l);
    if (!s) s = compare(&l);
    for (size_t i = 0; !s && i < target->set_count; i++) s = fill(&l, target->sets[i]);
    loading_close(&l);
    return s;
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
