/* Offsets are assigned when parameters are declared, and again when the frozen ones are known. */
#include "model/params.h"

#include <fnmatch.h>
#include <string.h>

#include "base/text.h"

#define ALIGNMENT 16 /* floats: one cache line, one AVX-512 register */

size_t params_padded(size_t count) { return (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

size_t params_declare(struct params *params, struct arena *arena, const char *name, int dims, const int64_t *shape) {
    if (params->count == params->capacity) {
        size_t capacity = params->capacity ? params->capacity * 2 : 16;
        struct param *items = arena_alloc(arena, capacity * sizeof *items);
        if (params->count) memcpy(items, params->items, params->count * sizeof *items);
        params->items = items;
        params->capacity = capacity;
    }
    struct param *p = &params->items[params->count];
    *p = (struct param){.name = arena_copy(arena, name), .dims = dims, .offset = params->total, .count = 1};
    p->value = p->gradient = p->offset;
    for (int d = 0; d < dims; d++) {
        p->shape[d] = shape[d];
        p->count *= (size_t)shape[d];
    }
    params->elements += p->count;
    params->total += params_padded(p->count);
    params->trained = params->total;
    return params->count++;
}

static size_t assign_offsets(struct params *params, bool is_frozen, size_t offset) {
    for (size_t i = 0; i < params->count; i++) {
        struct param *p = &params->items[i];
        if (p->is_frozen != is_frozen) continue;
        p->offset = p->value = p->gradient = offset;
        offset += params_padded(p->count);
    }
    return offset;
}

void params_move_frozen_last(struct params *params) {
    params->trained = assign_offsets(params, false, 0);
    assign_offsets(params, true, params->trained);
}

status params_alloc(struct params *params, struct device *device, bool has_gradients) {
    TRY(device_alloc(device, params_value_floats(params) * sizeof(float), "the parameters", (void **)&params->values));
    if (!has_gradients) return OK;
    return device_alloc(device, params_gradient_floats(params) * sizeof(float), "the gradients",
                        (void **)&params->gradients);
}

/* After the frozen ones, whose values always exist. */
void params_draw_begin(const struct params *params, size_t first, size_t count) {
    size_t at = params->total - params->trained;
    for (size_t i = first; params->keep && i < first + count; i++) {
        struct param *p = &params->items[i];
        if (p->is_frozen) continue;
        p->value = at;
        at += params_padded(p->count);
        memset(params->values + p->value, 0, p->count * sizeof *params->values);
    }
}

void params_draw_end(const struct params *params, size_t first, size_t count) {
    for (size_t i = first; params->keep && i < first + count; i++)
        if (!params->items[i].is_frozen) params->keep(params->keeper, i);
}

void params_use_gradients(struct params *params, struct device *device, float *gradients) {
    device_ops(device)->copy(device, F32(params->gradients), F32(gradients), params_gradient_floats(params));
    device_free(device, params->gradients);
    params->gradients = gradients;
    params->has_external_gradients = true;
}

void params_use_values(struct params *params, struct device *device, float *values) {
    device_free(device, params->values);
    params->values = values;
    params->has_external_values = true;
}

void params_free(struct params *params, struct device *device) {
    if (!params->has_external_values) device_free(device, params->values);
    if (!params->has_external_gradients) device_free(device, params->gradients);
    params->values = params->gradients = NULL;
}

void params_zero_gradients(struct params *params, struct device *device) {
    device_zero(device, params->gradients, params_gradient_floats(params) * sizeof *params->gradients);
}

size_t params_match(const struct params *params, const char *pattern) {
    size_t count = 0;
    for (size_t i = 0; i < params->count; i++) count += fnmatch(pattern, params->items[i].name, 0) == 0;
    return count;
}

#define MAX_NAMES 8 /* in a message */

status params_no_match(const struct params *params, const char *what) {
    struct text names = {0};
    for (size_t i = 0; i < params->count && i < MAX_NAMES; i++)
        text_printf(&names, "%s%s", i ? ", " : "", params->items[i].name);
    if (params->count > MAX_NAMES) text_printf(&names, " and %zu more", params->count - MAX_NAMES);
    status s = params->count ? status_usage("%s; the parameters are %s", what, text_string(&names))
                             : status_usage("%s; there are no parameters", what);
    text_free(&names);
    return s;
}
