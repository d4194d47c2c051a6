/* params: all parameters of a model as ranges of one flat buffer of values and one of gradients, in forward order,
 * those that are frozen after all others. So a gradient bucket is a range, the optimizer is one loop, a checkpoint is
 * one pass, and sharding later is a cut. Each range starts at a multiple of 16 floats; the gaps hold zeros and stay
 * zero.
 */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "device/device.h"

#define MODEL_MAX_DIMS 8

struct param {
    const char *name; /* PyTorch's state_dict name: "0.weight" */
    int dims;
    int64_t shape[MODEL_MAX_DIMS];
    size_t offset, count; /* in elements of the flat buffers */
    size_t gradient;      /* where its gradient stands: as offset, unless gradients are taken in parts (gradients.h) */
    size_t part;          /* elements of its gradient that exist at a time; 0: all */
    bool is_frozen;       /* no update, no gradient for others to see */
    size_t last_draw;     /* of the draws that model.init makes of parameters, counted from 1, its last one; 0: none */
};

struct params {
    struct param *items; /* in forward order; offsets ascend among those that are trained, and among those frozen */
    size_t count, capacity;
    size_t total;    /* elements of a flat buffer, gaps included */
    size_t trained;  /* of them those that are not frozen, from the first on: what is reduced and has optimizer state */
    size_t elements; /* elements of all parameters, gaps left out: what people call the number of parameters */
    float *values;   /* (total), on the device; NULL before params_alloc */
    float *gradients;       /* (total, or gradient_floats where that is not 0) */
    size_t gradient_floats; /* of gradients that do not all exist at once */
    bool borrows_gradients; /* params_use_gradients */
};

/* Adds a parameter; returns its index. [name] is copied into [arena]. */
size_t params_declare(struct params *params, struct arena *arena, const char *name, int dims, const int64_t *shape);

/* What a parameter of [count] elements takes of a flat buffer. */
size_t params_padded(size_t count);

/* When all are declared and marked: moves the frozen ones' ranges behind the others'. Before params_alloc. */
void params_part_frozen(struct params *params);

/* Elements of the buffer of gradients. */
static inline size_t params_gradient_floats(const struct params *params) {
    return params->gradient_floats ? params->gradient_floats : params->total;
}

/* Allocates the values and, unless [has_gradients] is false, the gradients, zeroed. */
status params_alloc(struct params *params, struct device *device, bool has_gradients);
/* Takes [gradients] (total), of somebody who outlives the use of them, instead of its own; their content is copied. */
void params_use_gradients(struct params *params, struct device *device, float *gradients);
void params_free(struct params *params, struct device *device);

void params_zero_gradients(struct params *params, struct device *device);

/* How many names fit [pattern], one of the shell's (fnmatch). */
size_t params_match(const struct params *params, const char *pattern);
/* STATUS_USAGE: "<what>; the parameters are 0.weight, 0.bias, ..." */
status params_no_match(const struct params *params, const char *what);

static inline float *params_value(const struct params *params, size_t index) {
    return params->values + params->items[index].offset;
}
/* Where a layer's own initial values go that it draws; NULL, for rng_uniform and the like, where model.init draws all
 * of them again. */
static inline float *params_drawn(const struct params *params, size_t index) {
    return params->items[index].last_draw ? NULL : params_value(params, index);
}
static inline float *params_gradient(const struct params *params, size_t index) {
    return params->gradients + params->items[index].gradient;
}

#endif
