/* module: shared objects of ddptrain (ddptrain_gloo.so, ddptrain_cuda.so) that are loaded at run time only when needed,
 * so that the program starts fast without them. */
#pragma once

#include "base/status.h"

/* Loads ddptrain_[name].so and looks up [symbol] in it. The search order is $DDPTRAIN_MODULE_DIR, the folder of this
 * code (of the program or of libddptrain_predict.so), for the library ddptrain in it, ../lib/ddptrain relative to it,
 * the installed folder. Modules are never unloaded. Not found: STATUS_USAGE with the paths that were tried; not
 * loadable: STATUS_USAGE with dlopen's error. */
status module_open(const char *name, const char *symbol, void **address);
/* path (PATH_MAX): of the file of this program; "" without /proc. */
void module_program_path(char *path);
/* Whether there is a file of that name, which may not be loadable. */
bool module_is_installed(const char *name);
/* The same for a module that the config requires; the failure is "[needs]: <error>; [remedy]". */
status module_need(const char *name, const char *symbol, const char *needs, const char *remedy, void **address);
