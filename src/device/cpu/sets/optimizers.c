/* Every update rule of device/rules.h as plain loops that the compiler vectorises, including square roots and
 * divisions: one for each value of the rule's flags. */
#include <assert.h>

#include "device/cpu/sets/set.h"

#define INLINE static inline __attribute__((always_inline))

_Static_assert(OPTIMIZER_STATES == 3, "a loop has one argument for each buffer of state");

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

static void average(float weight, const float *restrict values, float *restrict mean, size_t count) {
    for (size_t i = 0; i < count; i++) mean[i] = average_rule(weight, values[i], mean[i]);
}

static void clamp(float limit, float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = clamp_rule(limit, x[i]);
}

#define X(id, name, states, always, own_flags) .update[id] = name,
const struct optimizer_kernels IN_SET(optimizer_kernels) = {UPDATE_RULES(X).average = average, .clamp = clamp};
#undef X
