/* --cpu-bind cores: divides the processors of the launcher among its ranks. */
#include <errno.h>
#include <stdlib.h>

#include "base/system/machine.h"
#include "dist/launch/launch.h"

status launch_split(int nproc, cpu_set_t **parts) {
    cpu_set_t mask;
    *parts = NULL;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return status_errno(STATUS_IO, errno, "--cpu-bind cores: cannot read the processors that this process may use");
    *parts = calloc((size_t)nproc, sizeof **parts);
    if (!*parts) return status_memory("the processors of --cpu-bind cores");
    if (processors_split(&mask, CPU_FOLDER, nproc, *parts)) return OK;
    free(*parts);
    *parts = NULL;
    return status_new(STATUS_USAGE, "--cpu-bind cores: %d process%s here, but %d processor%s to bind them to", nproc,
                      text_plural((uint64_t)nproc, "es"), CPU_COUNT(&mask),
                      text_plural((uint64_t)CPU_COUNT(&mask), "s"));
}

void launch_describe_parts(const cpu_set_t *parts, int nproc, int first, struct text *out) {
    for (int i = 0; i < nproc; i++) {
        text_printf(out, i == 0 ? "rank %d on processors " : ", rank %d on ", first + i);
        processors_list(&parts[i], out);
    }
}
