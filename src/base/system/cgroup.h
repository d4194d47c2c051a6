/* cgroup: the control groups of this process, version 1 and 2. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdbool.h>

/* The root of the file system; tests have a folder with proc/self/cgroup and sys/fs/cgroup. */
#define CGROUP_ROOT ""

/* The maximum length of the path of a group, with its NUL. Longer paths are ignored. */
#define CGROUP_MAX_PATH 5000

/* Called with the folder of a group below sys/fs/cgroup, which need not exist; false: the last one. */
typedef bool cgroup_visitor(void *context, const char *folder, bool is_v2);

/* Visits the group of this process for [controller] ("memory") and its ancestors, leaf first, the root last. In a
 * container the paths of /proc/self/cgroup may not exist, but the root does. With both versions in use, each one is
 * visited so, in the order of /proc/self/cgroup. */
void cgroup_visit(const char *root, const char *controller, cgroup_visitor *visit, void *context);

#endif
