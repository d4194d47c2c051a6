/* What loading with and without a map have in common. */
#include "checkpoint/loading.h"

#include <math.h>
#include <string.h>

#include "checkpoint/tensor_index.h"
#include "checkpoint/torch_file.h"

/* ---- names ---- */

static bool starts_with(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

const struct param *loading_find_param(const struct loading *l, const char *name) {
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++)
            if (strcmp(l->target->sets[s]->items[i].name, name) == 0) return &l->target->sets[s]->items[i];
    return NULL;
}

const struct safetensors_alias *loading_find_alias(const struct loading *l, const char *name) {
    for (size_t i = 0; i < l->target->alias_count; i++)
        if (strcmp(l->target->aliases[i].name, name) == 0) return &l->target->aliases[i];
    return NULL;
}

/* PyTorch's batch counter of BatchNorm, which only momentum=None uses. */
bool loading_is_batch_counter(const char *name) {
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, "num_batches_tracked") == 0;
}

/* Whether the names of all tensors start with l->prefix and [more]. */
static bool is_common_prefix(const struct loading *l, const char *more) {
    const char *name;
    json_t *entry;
    size_t count = 0;
    json_object_foreach(l->file.header, name, entry) {
        if (!safetensors_is_tensor(name)) continue;
        if (!starts_with(name + l->prefix.length, more)) return false;
        if (loading_find_param(l, name + l->prefix.length)) return false; /* a name of the model without prefix */
        count++;
    }
    return count > 0;
}

/* Finds the prefixes of wrappers: DistributedDataParallel's "module.", torch.compile's "_orig_mod.". */
static void find_prefix(struct loading *l) {
    static const char *const wrappers[] = {"module.", "_orig_mod."};
    for (size_t i = 0; i < 2 * sizeof wrappers / sizeof *wrappers; i++)
        if (is_common_prefix(l, wrappers[i % 2])) text_add(&l->prefix, wrappers[i % 2]);
}

/* ---- the file ---- */

static void copy_wanted(const struct loading *l) {
    const json_t *metadata = json_object_get(l->file.header, "__metadata__");
    for (size_t i = 0; i < l->target->wanted_count; i++) {
        struct safetensors_wanted *wanted = &l->target->wanted[i];
        const char *text = json_string_value(json_object_get(metadata, wanted->key));
        wanted->value = text ? strdup(text) : NULL;
    }
}

/* Whether a tensor has a name of the model after l->prefix and [length] more characters. */
static bool is_in_model(const struct loading *l, size_t length) {
    const char *name;
    json_t *entry;
    bool is_in = false;
    json_object_foreach(l->file.header, name, entry) {
        bool is_tensor = safetensors_is_tensor(name);
        is_in = is_in || (is_tensor && loading_find_param(l, name + l->prefix.length + length));
    }
    return is_in;
}

#define MAX_PARTS 3 /* of a prefix */

void loading_find_member(struct loading *l) {
    struct text part = {0};
    const char *first = NULL;
    json_t *entry;
    json_object_foreach(l->file.header, first, entry) {
        if (safetensors_is_tensor(first)) break;
    }
    const char *dot = first ? strchr(first + l->prefix.length, '.') : NULL;
    for (int i = 0; dot && i < MAX_PARTS; i++, dot = strchr(dot + 1, '.')) {
        text_clear(&part);
        text_add_bytes(&part, first + l->prefix.length, (size_t)(dot + 1 - first) - l->prefix.length);
        if (!is_common_prefix(l, text_string(&part))) break;
        if (!is_in_model(l, part.length)) continue;
        text_add(&l->prefix, text_string(&part));
        break;
    }
    text_free(&part);
}

status loading_open(struct loading *l, const char *path) {
    TRY(tensor_index_is_name(path) ? tensor_index_read(path, &l->file)
        : l->target->is_torch      ? torch_file_read(path, &l->file)
                                   : safetensors_read(path, &l->file));
    copy_wanted(l);
    find_prefix(l);
    return OK;
}

void loading_close(struct loading *l) {
    text_free(&l->prefix);
    safetensors_close(&l->file);
}

/* ---- values ---- */

status loading_check_type(const struct loading *l, const char *name, const struct safetensors_entry *entry) {
    if (entry->dtype->convert) return OK;
    return safetensors_bad(&l->file, name, "its dtype must be F32, F64, F16 or BF16");
}

status loading_entry(const struct loading *l, const char *name, const json_t *entry, struct safetensors_entry *out) {
    TRY(safetensors_entry(&l->file, name, entry, out));
    return loading_check_type(l, name, out);
}

void loading_add_shape(struct text *out, int dims, const int64_t *shape) {
    text_add(out, "(");
    for (int d = 0; d < dims; d++) text_printf(out, "%s%lld", d ? ", " : "", (long long)shape[d]);
    text_add(out, dims == 1 ? ",)" : ")");
}

/* Rejects the first of the converted values (found->count) that is not finite. */
status loading_check_finite(const struct loading *l, const char *name, const struct safetensors_entry *found,
                            const float *values) {
    size_t at = 0;
    while (at < found->count && isfinite(values[at])) at++;
    if (at == found->count) return OK;
    double value = (double)values[at];
    if (found->dtype->bytes == sizeof value)
        memcpy(&value, l->file.data + found->offset + at * sizeof value, sizeof value);
    struct text what = {0};
    text_printf(&what, "value %zu (from 0) is ", at);
    if (isfinite(value))
        text_printf(&what, "%g, too large for float32", value);
    else
        text_printf(&what, "%s; a run starts from finite numbers", isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf");
    status s = safetensors_bad(&l->file, name, text_string(&what));
    text_free(&what);
    return s;
}
