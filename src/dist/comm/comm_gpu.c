/* Loads the module of NCCL, checks which GPU each rank has, and makes the enqueued calls: those of the backend's table
 * between comm_begin and comm_finish, so that a failure names the rank that failed first. */
#include "dist/comm/comm_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/module.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "dist/comm/comm_group.h"
#include "dist/process/env.h"
#include "dist/process/net.h"

#define IDENTITY 160 /* bytes of "host GPU", padded */

/* ---- opening ---- */

status comm_backend_nccl(const struct comm_backend **out) {
    void *address = NULL;
    TRY(module_need("nccl", "ddptrain_comm_nccl", "dist.backend: nccl needs a build with NCCL and its library",
                    "see docs/gpu.md for how to build and install them, or use dist.backend: gloo", &address));
    *out = address;
    return OK;
}

typedef status open_function(const struct comm_backend **out);

static const struct {
    open_function *open; /* NULL: none */
    bool needs_gpus;
} gpu_backends[] = {
#define X(id, name, connect, gpu, needs) {gpu, needs},
    COMM_BACKENDS(X)
#undef X
};

bool comm_backend_uses_gpus(int backend) { return gpu_backends[backend].open != NULL; }

bool comm_backend_needs_gpus(int backend) { return gpu_backends[backend].needs_gpus; }

status comm_gpu_check(int backend) {
    const struct comm_backend *opened;
    return gpu_backends[backend].open(&opened);
}

static bool may_share(void) {
    const char *text = getenv(GPUS_SHARE_VARIABLE);
    return text && strcmp(text, "1") == 0;
}

status comm_check_gpus(struct comm *comm, const char *identity) {
    char own[IDENTITY] = {0}, host[100];
    int world = comm->world_size;
    if (world == 1 || may_share()) return OK;
    host_name(host, sizeof host);
    snprintf(own, sizeof own, "%d %s", comm->shared->hosts[comm->rank], identity);
    char *all = malloc((size_t)world * IDENTITY);
    if (!all) return status_memory("a process group");
    status failure = comm_all_gather(comm, own, IDENTITY, COMM_UINT8, all);
    for (int r = 1; r < world && !failure; r++)
        for (int earlier = 0; earlier < r && !failure; earlier++)
            if (memcmp(all + (size_t)r * IDENTITY, all + (size_t)earlier * IDENTITY, IDENTITY) == 0)
                failure =
                    status_usage("train.device: cuda needs a GPU for each process: ranks %d and %d have the same, "
                                 "%s; start as many processes as GPUs, or let the launcher give each its own "
                                 "(srun --gpus-per-task 1)",
                                 earlier, r, all + (size_t)r * IDENTITY + strcspn(all + (size_t)r * IDENTITY, " ") + 1);
    free(all);
    return failure;
}

/* NCCL uses the interface that reaches rank 0, as Gloo does, unless the user has chosen one. */
static status choose_interface(struct comm *comm) {
    struct comm_group *g = comm->shared;
    const char *chosen = getenv(INTERFACE_VARIABLE);
    char address[64], name[64], exactly[80];
    if (getenv("NCCL_SOCKET_IFNAME")) return OK;
    TRY(store_address(g->store, g->timeout, address));
    net_interface(address, name, sizeof name);
    if (chosen && *chosen) snprintf(name, sizeof name, "%s", chosen);
    snprintf(exactly, sizeof exactly, "=%s", name); /* "=": without it, longer names with this prefix match, too */
    if (strcmp(name, "?") != 0) setenv("NCCL_SOCKET_IFNAME", exactly, 1);
    return OK;
}

/* NCCL rejects ranks of one host that share a GPU, so each rank gets a host id of its own. */
static void set_distinct_host_ids(int rank) {
    char id[32];
    snprintf(id, sizeof id, "ddptrain-%d", rank);
    setenv("NCCL_HOSTID", id, 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
}

/* The sums of NVLink SHARP "are not deterministic between different calls" (NCCL, "NVLink Sharp"). NCCL has no such
 * setting for one communicator. */
static void disable_nvls(void) { setenv("NCCL_NVLS_ENABLE", "0", 0); }

void comm_gpu_variables(struct text *out) {
    size_t before = out->length;
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "NCCL_", 5) == 0) text_printf(out, "%s%s", out->length > before ? ", " : "", *variable);
}

status comm_open_gpu(struct comm *comm, int backend, int gpu, const char *identity, bool allows_nvls) {
    const struct comm_backend *opened = NULL;
    if (comm->world_size == 1) return OK;
    TRY(gpu_backends[backend].open(&opened));
    TRY(comm_check_gpus(comm, identity));
    TRY(choose_interface(comm));
    if (may_share()) set_distinct_host_ids(comm->rank);
    if (!allows_nvls) disable_nvls();
    return comm_add_gpu(comm, opened, gpu);
}

struct comm *comm_gpu(struct comm *comm) {
    return comm->shared->gpu;
}

/* ---- enqueued calls ---- */

static const struct comm_enqueued *calls_of(const struct comm *gpu) { return gpu->shared->backend->enqueued; }

status comm_gpu_after(struct comm *gpu, void *stream) {
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->after(gpu->shared->group, stream));
}

status comm_gpu_before(struct comm *gpu, void *stream) {
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->before(gpu->shared->group, stream));
}

status comm_gpu_add_marks(struct comm *gpu, size_t count, size_t *first) {
    return calls_of(gpu)->add_marks(gpu->shared->group, count, first);
}

status comm_gpu_mark(struct comm *gpu, size_t index) {
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->mark(gpu->shared->group, index));
}

status comm_gpu_before_mark(struct comm *gpu, size_t index, void *stream) {
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->before_mark(gpu->shared->group, index, stream));
}

status comm_gpu_average(struct comm *gpu, float *data, size_t count, bool is_compressed, struct comm_result to) {
    if (count == 0) return OK;
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->average(gpu->shared->group, data, count, is_compressed, to));
}

status comm_gpu_average_scatter(struct comm *gpu, float *data, size_t count, bool is_compressed,
                                struct comm_result to) {
    if (count == 0) return OK;
    TRY(comm_begin(gpu, "reduce_scatter"));
    return comm_finish(gpu, "reduce_scatter",
                       calls_of(gpu)->average_scatter(gpu->shared->group, data, count, is_compressed, to));
}

status comm_gpu_reserve(struct comm *gpu, size_t count) { return calls_of(gpu)->reserve(gpu->shared->group, count); }

status comm_gpu_all_gather(struct comm *gpu, const float *own, float *data, size_t count) {
    if (count == 0) return OK;
    TRY(comm_begin(gpu, "all_gather"));
    return comm_finish(gpu, "all_gather", calls_of(gpu)->all_gather(gpu->shared->group, own, data, count));
}

status comm_gpu_copy(struct comm *gpu, float *to, const float *from, size_t count) {
    if (count == 0) return OK;
    TRY(comm_begin(gpu, "all_gather"));
    return comm_finish(gpu, "all_gather", calls_of(gpu)->copy(gpu->shared->group, to, from, count));
}

status comm_gpu_wait(struct comm *gpu, void *stream) {
    TRY(comm_begin(gpu, "all_reduce"));
    return comm_finish(gpu, "all_reduce", calls_of(gpu)->wait(gpu->shared->group, stream));
}
