/* rules: the table of update rules. A new one is a header in rules/, its include and its row here: the union of
 * constants, the enum, the CPU's loops (cpu/sets/optimizers.c) and the GPU's kernels (cuda/optimizers.cu) follow from
 * it. */
#ifndef DEVICE_RULES_H
#define DEVICE_RULES_H

#include "device/rules/adadelta.h"
#include "device/rules/adagrad.h"
#include "device/rules/adam.h"
#include "device/rules/adamax.h"
#include "device/rules/lion.h"
#include "device/rules/nadam.h"
#include "device/rules/radam.h"
#include "device/rules/rmsprop.h"
#include "device/rules/sgd.h"

/* X(id, name, number of state buffers, how many of them (the first ones) every update uses, function of the flags) */
#define UPDATE_RULES(X)                                                                                                \
    X(RULE_SGD, sgd, 1, 0, rule_no_flags)                                                                              \
    X(RULE_ADAM, adam, 3, 2, adam_flags)                                                                               \
    X(RULE_ADAGRAD, adagrad, 1, 1, rule_no_flags)                                                                      \
    X(RULE_RMSPROP, rmsprop, 3, 1, rmsprop_flags)                                                                      \
    X(RULE_LION, lion, 1, 1, rule_no_flags)                                                                            \
    X(RULE_NADAM, nadam, 2, 2, nadam_flags)                                                                            \
    X(RULE_RADAM, radam, 2, 2, radam_flags)                                                                            \
    X(RULE_ADAMAX, adamax, 2, 2, adamax_flags)                                                                         \
    X(RULE_ADADELTA, adadelta, 2, 2, adadelta_flags)

enum update_rule {
#define X(id, name, states, always, own_flags) id,
    UPDATE_RULES(X)
#undef X
        RULE_COUNT
};

/* The constants of an update for numbers with the same settings. */
union optimizer_constants {
#define X(id, name, states, always, own_flags) struct name##_constants name;
    UPDATE_RULES(X)
#undef X
};

#endif
