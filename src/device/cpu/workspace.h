/* workspace: scratch memory of a CPU device for operators. There is one, as large as the largest reservation, because
 * operators run one after the other. */
#ifndef DEVICE_CPU_WORKSPACE_H
#define DEVICE_CPU_WORKSPACE_H

#include <stddef.h>

#include "base/status.h"

struct device;

/* Grows the workspace to at least this size; its content is lost. After a failure it is as before. Before the loop, or
 * by an operator before it uses the workspace. [what] as in device_alloc. */
status workspace_reserve(struct device *device, size_t bytes, const char *what);

/* The workspace, 64-byte aligned; at least as large as reserved. Get it in each operator: it may move when another
 * operator reserves more. */
void *workspace_of(struct device *device);

#endif
