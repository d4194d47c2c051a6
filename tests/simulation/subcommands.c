/* The commands other than train, which the simulation does not run. Weak: program.c defines the command train. */
#include "command.h"

#define X(name_) __attribute__((weak)) const struct subcommand subcommand_##name_ = {.name = #name_};
SUBCOMMANDS(X)
#undef X
