/* The verbs other than train, which the simulation does not run. Weak: program.c defines the verb train. */
#include "command.h"

#define X(name_) __attribute__((weak)) const struct verb verb_##name_ = {.name = #name_};
VERBS(X)
#undef X
