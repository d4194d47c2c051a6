/* Every update rule of device/rules.h as plain loops that the compiler vectorises, including square roots and
 * divisions: one for each value of the rule's flags; and the runs of an update. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"

#define INLINE static inline __attribute__((always_inline))

_Static_assert(OPTIMIZER_STATES == 3, "a loop has one argument for each buffer of state");

/* A rule over (count) elements with the same constants; clip is not NaN. */
typedef void update_kernel(const union optimizer_constants *constants, float clip, float *values, float *gradients,
                           float *const states[OPTIMIZER_STATES], size_t count);

/* A loop of the rule [name] over (count) numbers; [flags] are a constant. The constants are a copy, which no store
 * changes.
 */
#define X(id, name, states_, always, own_flags)                                                                        \
    INLINE void name##_loop(unsigned flags, const struct name##_constants s, float clip, float *restrict values,       \
                            float *restrict gradients, float *restrict state0, float *restrict state1,                 \
                            float *restrict state2, size_t count) {                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            struct rule_number n = {.value = values[i], .gradient = gradients[i] * clip};                              \
            gradients[i] = 0;                                                                                          \
            if (RULE_USES(flags, 0)) n.state[0] = state0[i];                                                           \
            if (RULE_USES(flags, 1)) n.state[1] = state1[i];                                                           \
            if (RULE_USES(flags, 2)) n.state[2] = state2[i];                                                           \
            name##_rule(&s, flags, &n);                                                                                \
            values[i] = n.value;                                                                                       \
            if (RULE_USES(flags, 0)) state0[i] = n.state[0];                                                           \
            if (RULE_USES(flags, 1)) state1[i] = n.state[1];                                                           \
            if (RULE_USES(flags, 2)) state2[i] = n.state[2];                                                           \
        }                                                                                                              \
    }
UPDATE_RULES(X)
#undef X

/* Bits [from, to). */
#define BITS(from, to) ((1u << (to)) - (1u << (from)))
/* Whether a rule can use the buffers [used], bits: only its own, and those that every update uses. */
#define CAN_USE(used, states, always) (((used) & ~BITS(0, states)) == 0 && (~(used)&BITS(0, always)) == 0)

/* The loop for each value of the flags; what the rule cannot have is not compiled. */
#define LOOP(name, used, own)                                                                                          \
    name##_loop((used) | (own) << OPTIMIZER_STATES, constants->name, clip, values, gradients, states[0], states[1],    \
                states[2], count)
#define LOOPS(name, used, count_, always, own_flags)                                                                   \
    case used:                                                                                                         \
        assert(CAN_USE(used, count_, always));                                                                         \
        if (!CAN_USE(used, count_, always)) break;                                                                     \
        switch (own_flags(&constants->name)) {                                                                         \
        case 0:                                                                                                        \
            LOOP(name, used, 0u);                                                                                      \
            break;                                                                                                     \
        case 1:                                                                                                        \
            LOOP(name, used, 1u);                                                                                      \
            break;                                                                                                     \
        case 2:                                                                                                        \
            LOOP(name, used, 2u);                                                                                      \
            break;                                                                                                     \
        default:                                                                                                       \
            LOOP(name, used, 3u);                                                                                      \
            break;                                                                                                     \
        }                                                                                                              \
        break;
#define X(id, name, count_, always, own_flags)                                                                         \
    static void name(const union optimizer_constants *constants, float clip, float *values, float *gradients,          \
                     float *const *states, size_t count) {                                                             \
        switch ((states[0] != NULL) << 0 | (states[1] != NULL) << 1 | (states[2] != NULL) << 2) {                      \
            LOOPS(name, 0u, count_, always, own_flags)                                                                 \
            LOOPS(name, 1u, count_, always, own_flags)                                                                 \
            LOOPS(name, 2u, count_, always, own_flags)                                                                 \
            LOOPS(name, 3u, count_, always, own_flags)                                                                 \
            LOOPS(name, 4u, count_, always, own_flags)                                                                 \
            LOOPS(name, 5u, count_, always, own_flags)                                                                 \
            LOOPS(name, 6u, count_, always, own_flags)                                                                 \
            LOOPS(name, 7u, count_, always, own_flags)                                                                 \
        }                                                                                                              \
    }
UPDATE_RULES(X)
#undef X

#define X(id, name, states, always, own_flags) [id] = name,
static update_kernel *const kernels[RULE_COUNT] = {UPDATE_RULES(X)};
#undef X

/* ---- operators ---- */

/* A run of an update, or an average or a clamp of [values]. */
struct change {
    update_kernel *kernel;
    const union optimizer_constants *constants;
    float factor; /* clip, or the weight of an average, or the limit of a clamp */
    float *values, *gradients, *states[OPTIMIZER_STATES];
    const float *from; /* of an average, or of a copy */
};

#define LINE 16                 /* floats of a line of the cache */
#define CHUNK 512               /* of each array of an update: with the next ones a part of a first-level cache */
#define SHORT ((size_t)1 << 17) /* elements of an update of one chunk: they are in a cache */

/* The address of element [first] of [p]; NULL for NULL. */
static float *offset(float *p, size_t first) { return p ? p + first : NULL; }

static void prefetch(const float *p, size_t count) {
    for (size_t i = 0; p && i < count; i += LINE) __builtin_prefetch(p + i, 1);
}

/* A chunk at a time: gradients are zeroed while they are in the cache, and the next values and states are fetched. */
static void update_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    size_t chunk = last - first <= SHORT ? SHORT : CHUNK;
    for (size_t end; first < last; first = end) {
        float *states[OPTIMIZER_STATES];
        end = last - first < chunk ? last : first + chunk;
        size_t next = last - end < chunk ? last - end : chunk;
        prefetch(c->values + end, next);
        for (int i = 0; i < OPTIMIZER_STATES; i++) {
            states[i] = offset(c->states[i], first);
            prefetch(offset(c->states[i], end), next);
        }
        c->kernel(c->constants, c->factor, c->values + first, c->gradients + first, states, end - first);
    }
}

static void zero_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    memset(c->gradients + first, 0, (last - first) * sizeof *c->gradients);
}

static void update(struct device *device, const struct optimizer_update *u) {
    update_kernel *kernel = kernels[u->rule];
    (void)device;
    for (const struct optimizer_run *run = u->runs; run < u->runs + u->run_count; run++) {
        size_t count = run->end - run->begin;
        struct change c = {.kernel = kernel, .factor = *u->clip, .gradients = u->gradients + run->begin};
        bool is_skipped = run->constants == OPTIMIZER_SKIP || isnan(*u->clip);
        if (!is_skipped) {
            c.constants = &u->constants[run->constants];
            c.values = u->values + run->begin;
            for (int i = 0; i < OPTIMIZER_STATES; i++) c.states[i] = offset(u->states[i], run->at);
        }
        parallel_for(count, PARALLEL_FLOATS, is_skipped ? zero_part : update_part, &c);
    }
}

static void average_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    const float *restrict values = c->from;
    float *restrict mean = c->values, weight = c->factor;
    for (size_t i = first; i < last; i++) mean[i] = average_rule(weight, values[i], mean[i]);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    struct change c = {.factor = weight, .values = mean, .from = values};
    (void)device;
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, average_part, &c);
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    memcpy(c->values + first, c->from + first, (last - first) * sizeof *c->values);
}

static void save_or_restore(struct device *device, const float *clip, float *values, float *saved, size_t count) {
    struct change c = {.from = isnan(*clip) ? saved : values, .values = isnan(*clip) ? values : saved};
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, copy_part, &c);
}

static void clamp_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    float limit = c->factor, *x = c->values;
    for (size_t i = first; i < last; i++) x[i] = clamp_rule(limit, x[i]);
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    struct change c = {.factor = limit, .values = x};
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, clamp_part, &c);
}

const struct optimizer_ops IN_SET(optimizers) = {
    .update = update, .average = average, .save_or_restore = save_or_restore, .clamp = clamp};
