/* params: all parameters of a model as ranges of one flat buffer of values and one of gradients, in forward order,
 * frozen ones after all others. So a gradient bucket is a range, the optimizer is one loop, a checkpoint is one pass,
 * and a shard is a range. Each range starts at a multiple of 16 floats; the gaps are zero and stay zero. */
#pragma once

#include "base/arena.h"
#include "base/dims.h"
#include "base/status.h"
#include "device/device.h"

struct param {
    const char *name; /* PyTorch's state_dict name: "0.weight" */
    int dims;
    int64_t shape[MAX_DIMS];
    size_t offset, count; /* in elements of the flat buffers */
    size_t value;         /* offset of its values: as offset, unless they are gathered (model_gather_values) */
    size_t gradient;      /* offset of its gradient: as offset, unless gradients are split (model.c) */
    size_t part;          /* elements of its gradient that exist at a time; 0: all */
    bool is_frozen;       /* no update, no visible gradient */
    bool is_unused;       /* frozen, because it does not affect the output */
    size_t last_draw;     /* index, from 1, of its last draw among the draws of model.init; 0: none */
};

struct params {
    struct param *items; /* in forward order; offsets ascend among trained ones, and among frozen ones */
    size_t count, capacity;
    size_t total;        /* elements of a flat buffer, gaps included */
    size_t trained;      /* elements of the trained parameters, from the first one on: what is reduced and has optimizer
                            state */
    size_t elements;     /* elements of all parameters without gaps: the number of parameters */
    float *values;       /* (total, or value_floats where that is not 0), on the device; NULL before params_alloc */
    float *gradients;    /* (total, or gradient_floats where that is not 0) */
    size_t value_floats; /* if not all values exist at once */
    size_t gradient_floats; /* the same for gradients */
    /* If not all values exist at once: those of this rank's shard, not owned, and what stores the initial values of a
     * parameter in it. */
    float *own; /* (own_count) */
    size_t own_count;
    void (*keep)(void *user, size_t index);
    void *keeper;
    bool is_exposed;             /* [values] are all values, in the host's memory, for a time (zero_expose) */
    bool has_external_gradients; /* params_use_gradients */
    bool has_external_values;    /* params_use_values */
};

/* Adds a parameter; returns its index. [name] is copied into [arena]. */
size_t params_declare(struct params *params, struct arena *arena, const char *name, int dims, const int64_t *shape);

/* Elements that a parameter of [count] elements takes in a flat buffer. */
size_t params_padded(size_t count);

/* Moves the ranges of frozen parameters after the others, when all are declared and marked. Before params_alloc. */
void params_move_frozen_last(struct params *params);

/* Elements of the buffer of gradients. */
static inline size_t params_gradient_floats(const struct params *params) {
    return params->gradient_floats ? params->gradient_floats : params->total;
}

static inline size_t params_value_floats(const struct params *params) {
    return params->value_floats ? params->value_floats : params->total;
}

/* Around drawing initial values of parameters [first, first + count): where not all values exist at once, they have
 * memory between the calls, which is zero at first. Else both do nothing. */
void params_draw_begin(const struct params *params, size_t first, size_t count);
void params_draw_end(const struct params *params, size_t first, size_t count);

/* Allocates the values and, unless [has_gradients] is false, the gradients, zeroed. */
status params_alloc(struct params *params, struct device *device, bool has_gradients);
/* Uses [gradients] (params_gradient_floats), not owned, which must outlive it. The own ones are copied there. */
void params_use_gradients(struct params *params, struct device *device, float *gradients);
/* Uses [values] (total), not owned, instead of the own ones: those of an equal model on the same kind of device. */
void params_use_values(struct params *params, struct device *device, float *values);
void params_free(struct params *params, struct device *device);

void params_zero_gradients(struct params *params, struct device *device);

/* Number of names that match [pattern], a shell pattern (fnmatch). */
size_t params_match(const struct params *params, const char *pattern);
/* STATUS_USAGE: "<what>; the parameters are 0.weight, 0.bias, ..." */
status params_no_match(const struct params *params, const char *what);

static inline float *params_value(const struct params *params, size_t index) {
    return params->values + params->items[index].value;
}
/* Where a layer stores the initial values that it draws; NULL, for rng_uniform and similar, if model.init draws all
 * of them again. */
static inline float *params_drawn(const struct params *params, size_t index) {
    return params->items[index].last_draw ? NULL : params_value(params, index);
}
static inline float *params_gradient(const struct params *params, size_t index) {
    return params->gradients + params->items[index].gradient;
}
