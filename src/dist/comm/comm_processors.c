/* Ranks exchange their affinity masks, which show whether a launcher has bound them to processors. */
#include "dist/comm/comm_processors.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "device/cpu/parallel.h"
#include "dist/comm/comm_group.h"

static int share_of(const struct comm *comm, const cpu_set_t *masks, cpu_set_t *here) {
    const int *hosts = comm->shared->hosts;
    int count = 0, own = 0;
    for (int r = 0; r < comm->world_size; r++) {
        if (hosts[r] != hosts[comm->rank]) continue;
        if (r == comm->rank) own = count;
        here[count++] = masks[r];
    }
    return processors_share(here, count, own, processors_quota());
}

status comm_limit_threads(struct comm *comm) {
    size_t world = (size_t)comm->world_size;
    if (world == 1) return OK;
    cpu_set_t own, *masks = calloc(2 * world, sizeof *masks);
    if (!masks) return status_memory("the masks of %d ranks", comm->world_size);
    if (sched_getaffinity(0, sizeof own, &own) != 0) memset(&own, 0xff, sizeof own);
    status failure = comm_all_gather(comm, &own, sizeof own, COMM_UINT8, masks);
    if (!failure && !parallel_is_given()) parallel_limit(share_of(comm, masks, masks + world));
    free(masks);
    return failure;
}
