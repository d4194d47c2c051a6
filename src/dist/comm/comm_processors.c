/* Ranks exchange their affinity masks, which show whether a launcher has bound them to processors. */
#include "dist/comm/comm_processors.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/machine.h"
#include "device/cpu/parallel.h"
#include "dist/comm/comm_group.h"

static cpu_set_t own_mask(void) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) memset(&mask, 0xff, sizeof mask);
    return mask;
}

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

/* What a rank says of the processors that it uses. */
struct use {
    cpu_set_t mask;
    int threads;
};

/* Whether [uses] (count), of the ranks of one host, leave a processor. */
static bool leaves_processor(const struct use *uses, int count) {
    cpu_set_t all;
    CPU_ZERO(&all);
    int threads = 0, quota = processors_quota();
    for (int r = 0; r < count; r++) {
        CPU_OR(&all, &all, &uses[r].mask);
        threads += uses[r].threads;
    }
    int processors = CPU_COUNT(&all);
    return threads < (quota > 0 && quota < processors ? quota : processors);
}

status comm_overlaps(struct comm *comm, bool *overlaps) {
    *overlaps = comm->shared->host_count > 1 || strcmp(comm_backend(comm), "shm") != 0;
    if (*overlaps || comm->world_size == 1) return OK;
    struct use own = {own_mask(), (int)parallel_threads()}, *uses = calloc((size_t)comm->world_size, sizeof *uses);
    if (!uses) return status_memory("the processors of %d ranks", comm->world_size);
    status failure = comm_all_gather(comm, &own, sizeof own, COMM_UINT8, uses);
    if (!failure) *overlaps = leaves_processor(uses, comm->world_size);
    free(uses);
    return failure;
}

status comm_limit_threads(struct comm *comm) {
    size_t world = (size_t)comm->world_size;
    if (world == 1) return OK;
    cpu_set_t own = own_mask(), *masks = calloc(2 * world, sizeof *masks);
    if (!masks) return status_memory("the masks of %d ranks", comm->world_size);
    status failure = comm_all_gather(comm, &own, sizeof own, COMM_UINT8, masks);
    if (!failure && !parallel_is_given()) parallel_limit(share_of(comm, masks, masks + world));
    free(masks);
    return failure;
}
