/* config_aliases_internal: the macros of the rows, and notes that several tables have. */
#ifndef TRAIN_CONFIG_ALIASES_INTERNAL_H
#define TRAIN_CONFIG_ALIASES_INTERNAL_H

#include <stddef.h>

#include "train/config/config_aliases.h"

#define KEY(place_, words_, meant_)                                                                                    \
    { .kind = ALIAS_KEY, .place = place_, .names = words_, .meant = meant_ }
#define KEY_NOTE(place_, words_, meant_, note_)                                                                        \
    { .kind = ALIAS_KEY, .place = place_, .names = words_, .meant = meant_, .note = note_ }
#define VALUE(place_, words_, meant_)                                                                                  \
    { .kind = ALIAS_VALUE, .place = place_, .names = words_, .meant = meant_ }
#define VALUE_NOTE(place_, words_, meant_, note_)                                                                      \
    { .kind = ALIAS_VALUE, .place = place_, .names = words_, .meant = meant_, .note = note_ }
#define CALL(place_, type_, keys_)                                                                                     \
    { .kind = ALIAS_CALL, .place = place_, .names = type_, .meant = keys_ }

#define INFERRED "the size of the input is inferred; leave the key out"
#define NO_OPTION "there is no such option; leave the key out"

extern const struct schema_alias config_aliases_training[], config_aliases_values[], config_aliases_calls[];

#endif
