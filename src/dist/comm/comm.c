/* The calls of comm.h: argument checks, a call of the backend, and the message of a failure: "rank 1 of 4: all_reduce
 * failed (...)", with the rank that failed first if the store has a report; and the groups that the calls are of. */
#include "dist/comm/comm.h"

#include <dlfcn.h>
#include <nettle/memops.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/system/machine.h"
#include "base/system/module.h"
#include "device/cpu/parallel.h"
#include "dist/comm/comm_backend.h"
#include "dist/comm/comm_group.h"
#include "dist/comm/comm_shm.h"

/* ---- groups ---- */

/* Ranks publish their host in the store; the hosts decide the backend. A group that is split from another inherits
 * members, hosts and backend. */

#define CAUSE_SECONDS 1.0 /* maximum wait for the report of the rank that failed first */

/* The failure of the backend in [call], with the rank that failed first. Consumes [failure]. */
static status comm_explain(const struct comm_group *g, const char *call, status failure) {
    int rank = g->job_rank, size = g->job_size;
    if (status_code(failure) != STATUS_PEER) return status_prefix(failure, "rank %d of %d: %s", rank, size, call);
    SCOPED_TEXT cause = {0};
    bool is_known = store_cause(g->store, CAUSE_SECONDS, &cause);
    status named = is_known ? status_new(store_failure_code(g->store), "rank %d of %d lost a peer in %s: %s", rank,
                                         size, call, cause.data)
                            : status_new(STATUS_PEER, "rank %d of %d lost contact with another rank in %s (%s)", rank,
                                         size, call, status_message(failure));
    status_free(failure);
    return named;
}

/* ---- groups: the object ---- */

static void free_object(struct comm *comm) {
    struct comm_group *g = comm->shared;
    for (int i = 0; g && i < g->buffer_count; i++) free(g->buffers[i]);
    if (g) {
        pthread_mutex_destroy(&g->mutex);
        free(g->members);
        free(g->hosts);
        free(g->equal);
        free(g->why);
        free(g->name);
        free(g->description);
    }
    free(g);
    free(comm->lanes);
}

/* Not yet connected. [like]: the parent group, or the values of the job. */
static status allocate(const struct comm_group *like, const char *name, int rank, int world_size, struct comm **out) {
    *out = NULL;
    size_t world = (size_t)world_size + 1; /* calloc of 0 bytes may return NULL */
    struct comm *lanes = calloc(COMM_LANES, sizeof *lanes);
    struct comm_group *g = calloc(1, sizeof *g);
    if (!lanes || !g) {
        free(lanes);
        free(g);
        return status_memory("a process group");
    }
    *g = (struct comm_group){.name = strdup(name),
                             .store = like->store,
                             .timeout = like->timeout,
                             .job_rank = like->job_rank,
                             .job_size = like->job_size,
                             .launcher = like->launcher,
                             .between = like->between,
                             .members = calloc(world, sizeof *g->members),
                             .hosts = calloc(world, sizeof *g->hosts),
                             .host_count = 1,
                             .equal = calloc(world * COMM_LANES, sizeof *g->equal)};
    pthread_mutex_init(&g->mutex, NULL);
    for (int lane = 0; lane < COMM_LANES; lane++)
        lanes[lane] = (struct comm){.rank = rank, .world_size = world_size, .lane = lane, .shared = g, .lanes = lanes};
    if (!g->name || !g->members || !g->hosts || !g->equal) {
        free_object(lanes);
        return status_memory("a process group");
    }
    *out = lanes;
    return OK;
}

void comm_destroy(struct comm *comm) {
    if (!comm) return;
    struct comm_group *g = comm->shared;
    comm_destroy(g->gpu);
    if (g->backend) store_off_failure(g->store, g);
    if (g->backend) g->backend->destroy(g->group);
    free_object(comm);
}

int comm_rank(const struct comm *comm) { return comm->rank; }
int comm_world_size(const struct comm *comm) { return comm->world_size; }
struct comm *comm_lane(struct comm *comm, int lane) {
    const struct comm_backend *backend = comm->shared->backend;
    return lane > 0 && backend && backend->enqueued ? NULL : &comm->lanes[lane];
}
const char *comm_backend(const struct comm *comm) {
    const struct comm_group *g = comm->shared->gpu ? comm->shared->gpu->shared : comm->shared;
    return g->backend ? g->backend->name : "self";
}
const char *comm_describe(const struct comm *comm) {
    return comm->shared->description ? comm->shared->description : comm_backend(comm);
}

/* ---- groups: backends ---- */

status comm_backend_gloo(const struct comm_backend **out) {
    void *address = NULL;
    TRY(module_open("gloo", "ddptrain_comm_gloo", &address));
    *out = address;
    return OK;
}

/* Another rank is lost: ends blocked calls. Called by the store's thread. */
static void abort_group(void *group) {
    struct comm_group *g = group;
    if (g->backend->abort) g->backend->abort(g->group);
}

/* [name]: of the group. */
static status fill_setup(struct comm *comm, const char *name, char address[64], struct comm_setup *setup) {
    struct comm_group *g = comm->shared;
    TRY(store_address(g->store, g->timeout, address));
    *setup = (struct comm_setup){.name = name,
                                 .rank = comm->rank,
                                 .world_size = comm->world_size,
                                 .members = g->members,
                                 .hosts = g->hosts,
                                 .timeout = g->timeout,
                                 .address = address,
                                 .store = g->store,
                                 .gpu = g->gpu_number,
                                 .between = g->between};
    return OK;
}

status comm_connect_with(struct comm *comm, const struct comm_backend *backend) {
    struct comm_group *g = comm->shared;
    struct comm_setup setup;
    char address[64];
    TRY(fill_setup(comm, g->name, address, &setup));
    TRY(backend->create(&setup, &g->group));
    g->backend = backend;
    status s = store_on_failure(g->store, abort_group, g);
    if (status_code(s) != STATUS_BUG) return s;
    status_free(s);
    return status_usage(
        "there are %d groups of ranks, and no more are possible at once; an extension must destroy those "
        "that it no longer needs (comm_destroy)",
        STORE_MAX_HANDLERS);
}

status comm_agree(const struct comm_setup *setup, const char *what, status own, int *number) {
    char key[STORE_MAX_KEY], text[1024], *value, *error;
    status failure = OK;
    snprintf(text, sizeof text, "%d %s", *number, status_message(own));
    snprintf(key, sizeof key, "%s/%s/%d", setup->name, what, setup->rank);
    if (setup->rank != 0) failure = store_set(setup->store, key, text, strlen(text));
    for (int r = 1; setup->rank == 0 && r < setup->world_size && !failure; r++) {
        snprintf(key, sizeof key, "%s/%s/%d", setup->name, what, r);
        failure = store_take(setup->store, key, setup->timeout, (void **)&value, NULL);
        if (failure) break;
        long theirs = strtol(value, &error, 10);
        if (theirs > *number) *number = (int)theirs;
        if (error[0] && error[1] && !own) own = status_new(STATUS_IO, "rank %d: %s", setup->members[r], error + 1);
        free(value);
    }
    snprintf(key, sizeof key, "%s/%s", setup->name, what);
    snprintf(text, sizeof text, "%d %s", *number, status_message(own));
    status_free(own);
    if (setup->rank == 0 && !failure) failure = store_set(setup->store, key, text, strlen(text));
    if (!failure) failure = store_get(setup->store, key, setup->timeout, (void **)&value, NULL);
    if (failure) return failure;
    *number = (int)strtol(value, &error, 10);
    if (error[0] && error[1]) failure = status_new(STATUS_IO, "%s", error + 1);
    free(value);
    return failure;
}

status comm_connect_gloo(struct comm *comm) {
    TRY(comm_backend_gloo(&comm->shared->between));
    return comm_connect_with(comm, comm->shared->between);
}

/* ---- groups: MPI ---- */

static bool is_in_environment(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

const char *comm_mpi_module(enum dist_launcher launcher) {
    switch (launcher) {
    case LAUNCHER_OPENMPI:
    case LAUNCHER_PMIX:
        return "openmpi";
    case LAUNCHER_MPICH:
    case LAUNCHER_PALS:
    case LAUNCHER_MVAPICH2:
        return "mpich";
    case LAUNCHER_SLURM: /* what srun sets depends on its --mpi: pmix, or pmi2 */
        return is_in_environment("PMIX_RANK") ? "openmpi" : is_in_environment("PMI_FD") ? "mpich" : NULL;
    default:
        return NULL;
    }
}

static const struct {
    const char *module, *title, *library, *package; /* library: "" where the build has found none */
} mpis[] = {
    {"openmpi", "Open MPI", OPENMPI_LIBRARY, "libopenmpi-dev"},
    {"mpich", "MPICH", MPICH_LIBRARY, "libmpich-dev"},
};

/* A module is not linked to its MPI, whose components look for symbols in the global namespace, and which a Debian
 * package of this program must not depend on. */
status comm_backend_mpi(enum dist_launcher launcher, const struct comm_backend **out) {
    const char *name = comm_mpi_module(launcher);
    void *address = NULL;
    int i = 0;
    char remedy[128];
    *out = NULL;
    if (!name)
        return status_usage("backend mpi needs ranks that an MPI has started, but %s has started these; use mpirun, or "
                            "srun with --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
                            dist_launcher_name(launcher));
    while (strcmp(mpis[i].module, name) != 0) i++;
    if (mpis[i].library[0] && !dlopen(mpis[i].library, RTLD_NOW | RTLD_GLOBAL))
        return status_usage("backend mpi: cannot load the library of %s: %s", mpis[i].title, dlerror());
    snprintf(remedy, sizeof remedy, "the job was started by %s: build ddptrain with Debian's %s", mpis[i].title,
             mpis[i].package);
    TRY(module_need(name, "ddptrain_comm_mpi", "backend mpi", remedy, &address));
    *out = address;
    return OK;
}

/* All ranks open the module, or none goes on: those that can would wait for the others in MPI_Init_thread. */
status comm_connect_mpi(struct comm *comm) {
    const struct comm_backend *backend;
    struct comm_setup setup;
    char address[64];
    int number = 0;
    status own = comm_backend_mpi(comm->shared->launcher, &backend);
    if (comm->world_size == 1) {
        TRY(own);
        return comm_connect_with(comm, backend);
    }
    SCOPED_STRING name = text_path(comm->shared->name, "mpi");
    status reason = own ? status_new(status_code(own), "%s", status_message(own)) : OK;
    status failure = fill_setup(comm, name, address, &setup);
    if (failure)
        status_free(own);
    else
        failure = comm_agree(&setup, "module", own, &number);
    if (reason) { /* this rank's own */
        status_free(failure);
        failure = reason;
    }
    TRY(failure);
    return comm_connect_with(comm, backend);
}

/* Whether MPI can be used on all ranks: it is started, and a group that costs no connection is created for a moment. */
static status try_mpi(struct comm *comm, const struct comm_backend **out) {
    struct comm_setup setup;
    char address[64];
    int number = 0;
    void *group = NULL;
    SCOPED_STRING name = text_path(comm->shared->name, "trial");
    status failure = fill_setup(comm, name, address, &setup);
    if (!failure) failure = comm_agree(&setup, "module", comm_backend_mpi(comm->shared->launcher, out), &number);
    if (!failure) failure = (*out)->create(&setup, &group);
    if (!failure) (*out)->destroy(group);
    return failure;
}

/* ---- groups: auto ---- */

/* Chooses the backend between hosts: MPI where it has started the job, else Gloo. *why (freed by the caller): why it is
 * not MPI; NULL: there is no reason to mention. */
static status choose_between(struct comm *comm, char **why) {
    struct comm_group *g = comm->shared;
    *why = NULL;
    if (g->between) return OK; /* as in the group that this one is split from */
    if (comm_mpi_module(g->launcher)) {
        status failure = try_mpi(comm, &g->between);
        if (!failure) return OK;
        g->between = NULL;
        if (!status_is_system(failure)) return failure;
        *why = strdup(status_message(failure));
        status_free(failure);
    }
    return comm_backend_gloo(&g->between);
}

static status connect_between(struct comm *comm) {
    struct comm_group *g = comm->shared;
    if (!g->between) TRY(comm_backend_gloo(&g->between));
    return comm_connect_with(comm, g->between);
}

/* "shared memory, gloo between hosts (no MPI: <why>)" */
static void describe(struct comm_group *g, status no_shm, const char *no_mpi) {
    const char *name = g->backend->name;
    struct text text = {0};
    if (strcmp(name, "shm") == 0)
        text_printf(&text, "shared memory");
    else if (strncmp(name, "shm+", 4) == 0)
        text_printf(&text, "shared memory, %s between hosts", name + 4);
    else
        text_printf(&text, "%s", name);
    if (no_shm) text_printf(&text, " (no shared memory: %s)", status_message(no_shm));
    if (no_mpi) text_printf(&text, " (no MPI: %s)", no_mpi);
    g->description = text.data;
}

/* The creation of shm has the same result on all ranks, so all do without it together. */
status comm_connect_auto(struct comm *comm) {
    struct comm_group *g = comm->shared;
    bool is_one_host = g->host_count == 1;
    SCOPED_STRING no_mpi = NULL;
    status no_shm = OK, failure = is_one_host ? OK : choose_between(comm, &no_mpi);
    TRY(failure);
    if (g->host_count < comm->world_size) /* several ranks on a host */
        no_shm = comm_connect_with(comm, is_one_host                            ? &comm_shm
                                         : strcmp(g->between->name, "mpi") == 0 ? &comm_hosts_mpi
                                                                                : &comm_hosts_gloo);
    if (no_shm && !status_is_system(no_shm)) {
        failure = no_shm;
        no_shm = OK;
    } else if (!g->backend) {
        failure = connect_between(comm);
    }
    if (!failure) describe(g, no_shm, no_mpi);
    status_free(no_shm);
    return failure;
}

status comm_add_gpu(struct comm *comm, const struct comm_backend *backend, int gpu) {
    struct comm_group *g = comm->shared;
    SCOPED_STRING name = text_path(g->name, "gpu");
    TRY(allocate(g, name, comm->rank, comm->world_size, &g->gpu));
    struct comm_group *own = g->gpu->shared;
    memcpy(own->members, g->members, (size_t)comm->world_size * sizeof *own->members);
    memcpy(own->hosts, g->hosts, (size_t)comm->world_size * sizeof *own->hosts);
    own->host_count = g->host_count;
    own->gpu_number = gpu;
    status failure = comm_connect_with(g->gpu, backend);
    if (failure && status_code(failure) != STATUS_USAGE) failure = comm_explain(g, "connecting the GPUs", failure);
    if (failure) {
        comm_destroy(g->gpu);
        g->gpu = NULL;
        return failure;
    }
    struct text text = {0};
    text_printf(&text, "%s; host memory by %s", backend->title, comm_describe(comm));
    free(g->description);
    g->description = text.data;
    return OK;
}

#define X(id, name, connect, gpu, needs_gpus) name,
const char *const comm_backend_names[] = {COMM_BACKENDS(X) NULL};
#undef X

typedef status connect_function(struct comm *comm);

#define X(id, name, connect, gpu, needs_gpus) connect,
static connect_function *const connects[] = {COMM_BACKENDS(X)};
#undef X
#define BACKENDS (sizeof connects / sizeof *connects)

status comm_backend_find(const char *name, int *backend) {
    SCOPED_TEXT names = {0};
    for (size_t i = 0; i < BACKENDS; i++) {
        text_printf(&names, "%s%s", i == 0 ? "" : i + 1 < BACKENDS ? ", " : " or ", comm_backend_names[i]);
        *backend = (int)i;
        if (strcmp(name, comm_backend_names[i]) == 0) return OK;
    }
    return status_usage("expected %s, got '%s'", text_string(&names), name);
}

static status connect_by(struct comm *comm, int backend) {
    status failure = connects[backend](comm);
    if (status_code(failure) == STATUS_USAGE || !failure) return failure;
    return comm_explain(comm->shared, "connecting the ranks", failure);
}

/* ---- groups: the group of all ranks ---- */

/* Hosts are numbered in order of their first rank. All ranks. */
static status find_hosts(struct comm *comm) {
    struct comm_group *g = comm->shared;
    char own[512];
    shm_host_identity(own, sizeof own);
    TRY(store_number(g->store, "hosts", own, strlen(own), g->timeout, g->hosts));
    g->host_count = 0;
    for (int r = 0; r < comm->world_size; r++)
        if (g->hosts[r] == g->host_count) g->host_count++;
    return OK;
}

status comm_create(const char *backend, const struct dist_env *env, struct store *store, double timeout,
                   struct comm **out) {
    struct comm_group job = {.store = store,
                             .timeout = timeout,
                             .job_rank = env->rank,
                             .job_size = env->world_size,
                             .launcher = env->launcher};
    int choice = BACKEND_AUTO;
    *out = NULL;
    if (env->world_size > 1) TRY(status_prefix(comm_backend_find(backend, &choice), "communication backend"));
    TRY(allocate(&job, "comm", env->rank, env->world_size, out));
    for (int r = 0; r < env->world_size; r++) (*out)->shared->members[r] = r;
    if (env->world_size == 1) return OK;
    status failure = find_hosts(*out);
    if (!failure) failure = connect_by(*out, choice);
    if (failure) {
        comm_destroy(*out);
        *out = NULL;
    }
    return failure;
}

/* ---- groups: groups of a group ---- */

/* The arguments of a rank to comm_split. */
struct split_request {
    int32_t color, key;
};

/* The rank that [rank] gets in the new group of its color. */
static int new_rank_of(const struct split_request *requests, int world_size, int rank) {
    int new_rank = 0;
    for (int r = 0; r < world_size; r++) {
        if (requests[r].color != requests[rank].color) continue;
        new_rank += requests[r].key < requests[rank].key || (requests[r].key == requests[rank].key && r < rank);
    }
    return new_rank;
}

/* The members of the new group and their hosts; the hosts are renumbered from 0. */
static void fill_members(const struct comm *from, const struct split_request *requests, struct comm *to) {
    const struct comm_group *parent = from->shared;
    struct comm_group *g = to->shared;
    for (int r = 0; r < from->world_size; r++) {
        if (requests[r].color != requests[from->rank].color) continue;
        int rank = new_rank_of(requests, from->world_size, r);
        g->members[rank] = parent->members[r];
        g->hosts[rank] = -1 - parent->hosts[r]; /* negative: not yet renumbered */
    }
    g->host_count = 0;
    for (int r = 0; r < to->world_size; r++) {
        int old = g->hosts[r];
        if (old >= 0) continue;
        for (int i = r; i < to->world_size; i++)
            if (g->hosts[i] == old) g->hosts[i] = g->host_count;
        g->host_count++;
    }
}

/* A new group uses the backend of its parent; "shm+gloo" becomes "auto", since the new group may be on one host. */
static int backend_of(const struct comm_group *g) {
    for (int i = 0; i < (int)BACKENDS; i++)
        if (g->backend && strcmp(g->backend->name, comm_backend_names[i]) == 0) return i;
    return BACKEND_AUTO;
}

static status split(struct comm *comm, const struct split_request *requests, struct comm **out) {
    struct comm_group *g = comm->shared;
    int color = requests[comm->rank].color, count = 0;
    unsigned number = g->splits++;
    if (color < 0) return OK;
    for (int r = 0; r < comm->world_size; r++) count += requests[r].color == color;
    SCOPED_STRING name = text_format("%s/%u.%d", g->name, number, color);
    TRY(allocate(g, name, new_rank_of(requests, comm->world_size, comm->rank), count, out));
    fill_members(comm, requests, *out);
    status failure = count > 1 ? connect_by(*out, backend_of(g)) : OK;
    if (!failure && count > 1 && g->gpu)
        failure = comm_add_gpu(*out, g->gpu->shared->backend, g->gpu->shared->gpu_number);
    if (failure) {
        comm_destroy(*out);
        *out = NULL;
    }
    return failure;
}

status comm_split(struct comm *comm, int color, int key, struct comm **out) {
    *out = NULL;
    struct split_request mine = {.color = color < 0 ? -1 : color, .key = key};
    struct split_request *all = malloc((size_t)comm->world_size * sizeof mine);
    if (!all) return status_memory("a process group");
    status failure = comm_all_gather(comm, &mine, 2, COMM_INT32, all);
    if (!failure) failure = split(comm, all, out);
    free(all);
    return failure;
}

/* The name of a group and its ranks: "'pairs' of the ranks 0, 2". */
static void describe_members(const char *name, const int *ranks, size_t count, struct text *out) {
    text_printf(out, "'%s' of %s", name, count == 0 ? "no rank" : count == 1 ? "rank " : "the ranks ");
    for (size_t i = 0; i < count; i++) text_printf(out, "%s%d", i ? ", " : "", ranks[i]);
}

/* [all]: the descriptions of all ranks, one after another. */
static status compare_members(const struct comm *comm, const char *all, const size_t *sizes) {
    const char *at = all;
    for (int r = 0; r < comm->world_size; at += sizes[r++])
        if (sizes[r] != sizes[0] || memcmp(at, all, sizes[0]) != 0)
            return status_usage("the ranks make different groups: rank 0 %.*s, rank %d %.*s; all must call "
                                "comm_new_group with the same name and ranks",
                                (int)sizes[0], all, r, (int)sizes[r], at);
    return OK;
}

static status check_members(const struct comm *comm, const char *name, const int *ranks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool is_repeated = false;
        for (size_t k = 0; k < i; k++) is_repeated = is_repeated || ranks[k] == ranks[i];
        if (ranks[i] < 0 || ranks[i] >= comm->world_size)
            return status_usage("the group '%s' names rank %d, but the ranks are numbered 0 to %d", name, ranks[i],
                                comm->world_size - 1);
        if (is_repeated) return status_usage("the group '%s' names rank %d twice", name, ranks[i]);
    }
    return OK;
}

status comm_new_group(struct comm *comm, const char *name, const int *ranks, size_t count, struct comm **out) {
    SCOPED_TEXT own = {0};
    void *all = NULL;
    size_t *sizes = calloc((size_t)comm->world_size, sizeof *sizes);
    int key = -1;
    *out = NULL;
    if (!sizes) return status_memory("a process group");
    describe_members(name, ranks, count, &own);
    status s = comm_all_gather_bytes(comm, text_string(&own), own.length, &all, sizes);
    if (!s) s = compare_members(comm, all, sizes);
    if (!s) s = check_members(comm, name, ranks, count);
    for (size_t i = 0; i < count; i++)
        if (ranks[i] == comm->rank) key = (int)i;
    if (!s) s = comm_split(comm, key < 0 ? -1 : 0, key, out);
    free(all);
    free(sizes);
    return s;
}

/* ---- groups: memory ---- */

status comm_alloc(struct comm *comm, size_t size, void **out) {
    struct comm_group *g = comm->shared;
    *out = NULL;
    if (g->backend && g->backend->alloc) {
        status failure = g->backend->alloc(g->group, size, out);
        if (!status_is_system(failure)) return failure;
        status_free(failure);
    }
    if (g->buffer_count == MAX_BUFFERS) return status_new(STATUS_BUG, "too many buffers of comm_alloc");
    size_t whole = (size + 4095) / 4096 * 4096;
    void *buffer = aligned_alloc(4096, whole ? whole : 4096);
    if (!buffer) return status_memory("a buffer of %zu bytes", size);
    memset(buffer, 0, whole);
    *out = g->buffers[g->buffer_count++] = buffer;
    return OK;
}

/* ---- calls: failures ---- */

/* After the first failure the ranks are no longer in the same call, so every later call of either lane returns the
 * message of the first failure, which names the rank that failed first. */
static status first_failure(struct comm_group *g) {
    pthread_mutex_lock(&g->mutex); /* the lane that failed first unlocks it after it has set g->why */
    status failure = status_new(STATUS_PEER, "%s", g->why ? g->why : "communication has failed");
    pthread_mutex_unlock(&g->mutex);
    return failure;
}

/* From here to comm_finish, the heartbeat reports that this rank is in [call]. */
status comm_begin(struct comm *comm, const char *call) {
    if (atomic_load(&comm->shared->has_failed)) return first_failure(comm->shared);
    activity_enter(store_activity(comm->shared->store), comm->lane, call);
    return OK;
}

static status fail(struct comm_group *g, const char *call, status failure) {
    pthread_mutex_lock(&g->mutex);
    bool is_first = !atomic_exchange(&g->has_failed, true);
    if (is_first) {
        failure = comm_explain(g, call, failure);
        g->why = strdup(status_message(failure));
    }
    pthread_mutex_unlock(&g->mutex);
    if (is_first) return failure;
    status_free(failure);
    return first_failure(g);
}

status comm_finish(struct comm *comm, const char *call, status failure) {
    activity_leave(store_activity(comm->shared->store), comm->lane);
    return failure ? fail(comm->shared, call, failure) : OK;
}

/* ---- calls ---- */

static bool is_alone(const struct comm *comm) { return comm->world_size == 1; }

static status check_rank(const struct comm *comm, const char *call, int rank) {
    if (rank >= 0 && rank < comm->world_size) return OK;
    return status_new(STATUS_BUG, "%s with rank %d in a group of %d", call, rank, comm->world_size);
}

static void copy_unless_same(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

/* A group of one: the result of every operation is the input. */
status comm_all_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op) {
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "all_reduce"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "all_reduce", g->backend->reduce(g->group, comm->lane, data, count, type, op, COMM_ALL));
}

bool comm_has_library_sum(const struct comm *comm) {
    return comm->shared->backend && comm->shared->backend->library_sum;
}

status comm_library_sum(struct comm *comm, float *data, size_t count) {
    struct comm_group *g = comm->shared;
    if (!comm_has_library_sum(comm)) return status_usage("the backend has no all-reduce of a library");
    TRY(comm_begin(comm, "all_reduce"));
    store_begin_call(g->store, "MPI_Allreduce", g->timeout, "a rank has not called it, or is lost");
    status failure = g->backend->library_sum(g->group, data, count);
    store_end_call(g->store);
    return comm_finish(comm, "all_reduce", failure);
}

status comm_average(struct comm *comm, float *data, size_t count) {
    if (is_alone(comm) || count == 0) return OK;
    struct comm_group *g = comm->shared;
    float factor = (float)(1.0 / comm->world_size);
    if (!g->backend->average) {
        for (size_t i = 0; i < count; i++) data[i] *= factor;
        return comm_all_reduce(comm, data, count, COMM_FLOAT32, COMM_SUM);
    }
    TRY(comm_begin(comm, "all_reduce"));
    return comm_finish(comm, "all_reduce", g->backend->average(g->group, comm->lane, data, count, factor));
}

status comm_reduce(struct comm *comm, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    TRY(check_rank(comm, "reduce", root));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "reduce"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "reduce", g->backend->reduce(g->group, comm->lane, data, count, type, op, root));
}

status comm_reduce_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, enum comm_op op,
                           void *out) {
    if (is_alone(comm)) copy_unless_same(out, data, count * comm_type_size(type));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "reduce_scatter"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "reduce_scatter",
                       g->backend->reduce_scatter(g->group, comm->lane, data, count, type, op, out));
}

status comm_broadcast(struct comm *comm, void *data, size_t count, enum comm_type type, int root) {
    TRY(check_rank(comm, "broadcast", root));
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "broadcast"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "broadcast",
                       g->backend->broadcast(g->group, comm->lane, data, count * comm_type_size(type), root));
}

static status gather(struct comm *comm, const char *call, const void *data, const size_t *sizes, void *out, int root) {
    if (is_alone(comm)) copy_unless_same(out, data, sizes[0]);
    if (is_alone(comm)) return OK;
    TRY(comm_begin(comm, call));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, call, g->backend->gather(g->group, comm->lane, data, sizes, out, root));
}

static status gather_equal(struct comm *comm, const char *call, const void *data, size_t size, void *out, int root) {
    if (size == 0) return OK;
    size_t *sizes = comm->shared->equal + comm->lane * comm->world_size;
    for (int r = 0; r < comm->world_size; r++) sizes[r] = size;
    return gather(comm, call, data, sizes, out, root);
}

status comm_all_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out) {
    return gather_equal(comm, "all_gather", data, count * comm_type_size(type), out, COMM_ALL);
}

status comm_gather(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root) {
    TRY(check_rank(comm, "gather", root));
    return gather_equal(comm, "gather", data, count * comm_type_size(type), out, root);
}

/* All ranks first exchange their sizes. */
static status gather_bytes(struct comm *comm, const char *call, const void *data, size_t size, int root, void **out,
                           size_t *sizes) {
    *out = NULL;
    TRY(gather_equal(comm, call, &size, sizeof size, sizes, COMM_ALL));
    size_t total = 0;
    for (int r = 0; r < comm->world_size; r++) total += sizes[r];
    bool is_receiver = root == COMM_ALL || root == comm->rank;
    void *all = is_receiver ? malloc(total + 1) : NULL;
    if (is_receiver && !all) return fail(comm->shared, call, status_memory("%zu bytes", total));
    status failure = total ? gather(comm, call, data, sizes, all, root) : OK;
    if (failure)
        free(all);
    else
        *out = all;
    return failure;
}

status comm_all_gather_bytes(struct comm *comm, const void *data, size_t size, void **out, size_t *sizes) {
    return gather_bytes(comm, "all_gather", data, size, COMM_ALL, out, sizes);
}

status comm_gather_bytes(struct comm *comm, const void *data, size_t size, int root, void **out, size_t *sizes) {
    *out = NULL;
    TRY(check_rank(comm, "gather", root));
    return gather_bytes(comm, "gather", data, size, root, out, sizes);
}

status comm_scatter(struct comm *comm, const void *data, size_t count, enum comm_type type, void *out, int root) {
    size_t size = count * comm_type_size(type);
    TRY(check_rank(comm, "scatter", root));
    if (is_alone(comm)) copy_unless_same(out, data, size);
    if (is_alone(comm) || count == 0) return OK;
    TRY(comm_begin(comm, "scatter"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "scatter", g->backend->scatter(g->group, comm->lane, data, size, out, root));
}

status comm_barrier(struct comm *comm) {
    if (is_alone(comm)) return OK;
    TRY(comm_begin(comm, "barrier"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "barrier", g->backend->barrier(g->group, comm->lane));
}

static status check_peer(const struct comm *comm, const char *call, int peer) {
    TRY(check_rank(comm, call, peer));
    return peer == comm->rank ? status_new(STATUS_BUG, "%s between rank %d and itself", call, peer) : OK;
}

status comm_send(struct comm *comm, const void *data, size_t count, enum comm_type type, int to) {
    TRY(check_peer(comm, "send", to));
    if (count == 0) return OK;
    TRY(comm_begin(comm, "send"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "send", g->backend->send(g->group, comm->lane, data, count * comm_type_size(type), to));
}

status comm_recv(struct comm *comm, void *data, size_t count, enum comm_type type, int from) {
    TRY(check_peer(comm, "recv", from));
    if (count == 0) return OK;
    TRY(comm_begin(comm, "recv"));
    struct comm_group *g = comm->shared;
    return comm_finish(comm, "recv", g->backend->recv(g->group, comm->lane, data, count * comm_type_size(type), from));
}

/* ---- processors ---- */

/* Ranks exchange their affinity masks, which show whether a launcher has bound them to processors. */

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

/* ---- proofs ---- */

/* The nonce is last and has a fixed length, and the name of a link has no colon, so all messages differ. */

bool comm_proof_message(const char *link, int from, int to, const void *nonce, size_t size, struct text *out) {
    if (size != COMM_NONCE) return false;
    text_printf(out, "%s:%d>%d:", link, from, to);
    text_add_bytes(out, nonce, size);
    return true;
}

bool comm_proof_is_good(const uint8_t received[COMM_PROOF], const uint8_t expected[COMM_PROOF]) {
    return nettle_memeql_sec(received, expected, COMM_PROOF) != 0;
}
