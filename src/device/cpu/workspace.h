/* workspace: memory of a CPU device that operators use while they run and do not need afterwards. There is one, as
 * large as the largest reservation, because operators run one after the other. */
#ifndef DEVICE_CPU_WORKSPACE_H
#define DEVICE_CPU_WORKSPACE_H

#include <stddef.h>

#include "base/status.h"

struct device;

/* Makes the workspace at least this large; its content is lost. Before the loop. [what] as in device_alloc. */
status workspace_reserve(struct device *device, size_t bytes, const char *what);

/* The workspace, 64-byte aligned; never less than what was reserved. Ask for it in each operator: it may move when
 * another one reserves more. */
void *workspace_of(struct device *device);

#endif
