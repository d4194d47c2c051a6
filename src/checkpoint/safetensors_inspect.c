/* The output of `ddptrain inspect` for a safetensors file, with the tensors in the order of the file. */
#include <math.h>

#include "checkpoint/range.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor_index.h"

#define CHUNK 4096    /* values converted at a time */
#define MAX_VALUE 400 /* bytes of a value of the metadata that are shown */

static struct range range_of(const struct safetensors *file, const struct safetensors_entry *tensor) {
    struct range range = RANGE_NONE;
    float values[CHUNK];
    for (size_t i = 0; i < tensor->count; i += CHUNK) {
        size_t count = tensor->count - i < CHUNK ? tensor->count - i : CHUNK;
        tensor->dtype->convert(file->data + tensor->offset + i * tensor->dtype->bytes, values, count);
        for (size_t j = 0; j < count; j++) range_add(&range, (double)values[j]);
    }
    return range;
}

static void print_metadata(json_t *metadata, struct text *out) {
    const char *name;
    json_t *value;
    json_object_foreach(metadata, name, value) {
        if (!json_is_string(value)) continue;
        text_add_value(out, name, TEXT_MAX_NAME);
        text_add(out, "  ");
        text_add_value(out, json_string_value(value), MAX_VALUE);
        text_add(out, "\n");
    }
}

static status print_tensors(const struct safetensors *file, struct text *out) {
    const char *name;
    json_t *value;
    size_t tensors = 0, values = 0;
    text_add(out, "\n");
    json_object_foreach(file->header, name, value) {
        struct safetensors_entry tensor;
        struct text kind = {0};
        if (!safetensors_is_tensor(name)) continue;
        TRY(safetensors_entry(file, name, value, &tensor));
        text_printf(&kind, "%s (", tensor.dtype->name);
        for (int d = 0; d < tensor.dims; d++) text_printf(&kind, "%s%lld", d ? ", " : "", (long long)tensor.shape[d]);
        text_add(&kind, ")");
        text_add(out, "  ");
        size_t start = out->length;
        text_add_value(out, name, TEXT_MAX_NAME);
        text_pad(out, start, 28);
        text_printf(out, " %-22s", kind.data);
        text_free(&kind);
        if (tensor.dtype->convert) {
            struct range range = range_of(file, &tensor);
            range_print(&range, out);
        }
        text_add(out, "\n");
        tensors++;
        values += tensor.count;
    }
    text_printf(out, "\n%zu tensor%s, %zu value%s\n", tensors, text_plural(tensors, "s"), values,
                text_plural(values, "s"));
    return OK;
}

status safetensors_inspect(const char *path, struct text *out) {
    struct safetensors file;
    bool is_index = tensor_index_is_name(path);
    status s = is_index ? tensor_index_read(path, &file) : safetensors_read(path, &file);
    if (!s) {
        text_printf(out, "file    %s\nformat  %s\n", path, is_index ? "several files of tensors" : "safetensors");
        print_metadata(json_object_get(file.header, "__metadata__"), out);
        s = print_tensors(&file, out);
    }
    safetensors_close(&file);
    return s;
}
