/* module: parts of ddptrain that are opened at run time only when needed (ddptrain_gloo.so, ddptrain_cuda.so), so that
 * the program starts in milliseconds where they are not. */
#ifndef BASE_MODULE_H
#define BASE_MODULE_H

#include "base/status.h"

/* Opens ddptrain_[name].so, looked for in $DDPTRAIN_MODULE_DIR, the program's own folder, the folder ../lib/ddptrain
 * beside it and the installed folder, and finds [symbol] in it. Modules are never closed. Not found: STATUS_USAGE
 * naming the places; not loadable: STATUS_USAGE with the loader's reason. */
status module_open(const char *name, const char *symbol, void **address);
/* The same for what the user asked for: "[needs]: <why not>; [remedy]". */
status module_need(const char *name, const char *symbol, const char *needs, const char *remedy, void **address);

#endif
