/* /proc/self/cgroup has lines "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1). The groups of version 1 are
 * in a folder for each controller. */
#include "base/system/cgroup.h"

#include <stdio.h>
#include <string.h>

/* Whether the list [names] (length), separated by commas, has [name]. */
static bool has_name(const char *names, size_t length, const char *name) {
    for (const char *at = names, *end = names + length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == strlen(name) && strncmp(at, name, word) == 0) return true;
        at += word + 1;
    }
    return false;
}

/* Visits the group [path] below [top] and its ancestors; false: the visitor has ended it. */
static bool visit_group(const char *top, const char *path, bool is_v2, cgroup_visitor *visit, void *context) {
    char folder[CGROUP_MAX_PATH];
    size_t root = strlen(top);
    int length = snprintf(folder, sizeof folder, "%s%s", top, path);
    if (*path != '/' || length < 0 || (size_t)length >= sizeof folder) return true;
    while ((size_t)length > root && folder[length - 1] == '/') folder[--length] = 0;
    for (;;) {
        if (!visit(context, folder, is_v2)) return false;
        if (strlen(folder) == root) return true;
        *strrchr(folder + root, '/') = 0;
    }
}

void cgroup_visit(const char *root, const char *controller, cgroup_visitor *visit, void *context) {
    char line[CGROUP_MAX_PATH], top[CGROUP_MAX_PATH];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    bool goes_on = true;
    while (file && goes_on && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool is_v2 = strncmp(line, "0::", 3) == 0;
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || (!is_v2 && !has_name(first + 1, (size_t)(second - first - 1), controller))) continue;
        snprintf(top, sizeof top, "%s/sys/fs/cgroup%s%s", root, is_v2 ? "" : "/", is_v2 ? "" : controller);
        goes_on = visit_group(top, second + 1, is_v2, visit, context);
    }
    if (file) fclose(file);
}
