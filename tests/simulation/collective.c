/* A backend for src/dist/comm that replaces Gloo: a mesh of TCP connections, whose addresses are exchanged through the
 * store. Each call sends this rank's bytes to all others and waits for theirs. It fails when the connection of a peer
 * ends, and when the store's heartbeat aborts it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm_backend.h"
#include "dist/process/net.h"
#include "simulation.h"

#define MAX_WORLD 8
#define MAX_BYTES 4096

struct mesh {
    int rank, world_size;
    double timeout;
    int fds[MAX_WORLD];
    char bytes[MAX_WORLD][MAX_BYTES];
};

static void mesh_destroy(void *group) {
    struct mesh *m = group;
    if (!m) return;
    for (int r = 0; r < m->world_size; r++)
        if (m->fds[r] >= 0) close(m->fds[r]);
    free(m);
}

static void mesh_abort(void *group) {
    const struct mesh *m = group;
    for (int r = 0; r < m->world_size; r++)
        if (m->fds[r] >= 0) shutdown(m->fds[r], SHUT_RDWR);
}

static status lost(int rank) {
    return status_new(STATUS_PEER, "the connection to rank %d broke: %s", rank, strerror(errno));
}

static status publish(const struct comm_setup *setup, int listener) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char key[64], value[96];
    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        return status_errno(STATUS_PEER, errno, "cannot listen");
    snprintf(key, sizeof key, "%s/mesh/%d", setup->name, setup->rank);
    int length = snprintf(value, sizeof value, "%s %d", setup->address, net_port(&address));
    return store_set(setup->store, key, value, (size_t)length);
}

static status connect_to(struct mesh *m, const struct comm_setup *setup, int rank, double deadline) {
    char key[64], host[64];
    void *value;
    int port = 0;
    int32_t own = m->rank;
    bool is_final;
    snprintf(key, sizeof key, "%s/mesh/%d", setup->name, rank);
    TRY(store_get(setup->store, key, setup->timeout, &value, NULL));
    sscanf(value, "%63s %d", host, &port);
    free(value);
    status failure = net_connect(host, port, deadline, &m->fds[rank], &is_final);
    if (failure) {
        status peer = status_new(STATUS_PEER, "%s", status_message(failure));
        status_free(failure);
        return peer;
    }
    return net_send(m->fds[rank], &own, sizeof own, deadline) ? OK : lost(rank);
}

static status accept_from(struct mesh *m, int listener, double deadline) {
    int32_t rank = -1;
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            if (net_receive(fd, &rank, sizeof rank, clock_seconds() + 5) && rank > m->rank && rank < m->world_size &&
                m->fds[rank] < 0) {
                m->fds[rank] = fd;
                return OK;
            }
            close(fd);
        } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            return status_errno(STATUS_PEER, errno, "cannot accept a connection");
        }
        if (clock_seconds() > deadline) return status_new(STATUS_PEER, "a rank did not connect");
        clock_sleep(0.005);
    }
}

static status connect_all(struct mesh *m, const struct comm_setup *setup, int listener) {
    double deadline = clock_seconds() + 20;
    TRY(publish(setup, listener));
    for (int r = 0; r < m->rank; r++) TRY(connect_to(m, setup, r, deadline));
    for (int r = m->rank + 1; r < m->world_size; r++) TRY(accept_from(m, listener, deadline));
    return OK;
}

/* Without injected errors: their messages would be those of this file, not of the product. */
static status mesh_create_faultless(const struct comm_setup *setup, void **out);
static status mesh_create(const struct comm_setup *setup, void **out) {
    current_process()->is_faultless = true;
    status s = mesh_create_faultless(setup, out);
    current_process()->is_faultless = false;
    return s;
}

static status mesh_create_faultless(const struct comm_setup *setup, void **out) {
    int listener;
    struct mesh *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return status_memory("a process group");
    m->rank = setup->rank;
    m->world_size = setup->world_size;
    m->timeout = setup->timeout;
    for (int r = 0; r < MAX_WORLD; r++) m->fds[r] = -1;
    status failure = net_listen(setup->address, 0, false, &listener);
    if (failure) {
        mesh_destroy(m);
        return failure;
    }
    failure = connect_all(m, setup, listener);
    close(listener);
    if (failure)
        mesh_destroy(m);
    else
        *out = m;
    return failure;
}

static status exchange(struct mesh *m, const void *data, size_t size) {
    double deadline = clock_seconds() + m->timeout;
    memcpy(m->bytes[m->rank], data, size);
    for (int r = 0; r < m->world_size; r++)
        if (r != m->rank && !net_send(m->fds[r], data, size, deadline)) return lost(r);
    for (int r = 0; r < m->world_size; r++)
        if (r != m->rank && !net_receive(m->fds[r], m->bytes[r], size, deadline)) return lost(r);
    return OK;
}

static status mesh_reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op,
                          int root) {
    struct mesh *m = group;
    const void *all[MAX_WORLD];
    (void)lane;
    (void)root;
    TRY(exchange(m, data, count * comm_type_size(type)));
    for (int r = 0; r < m->world_size; r++) all[r] = m->bytes[r];
    combine(data, all, m->world_size, count, type, op);
    return OK;
}

static status mesh_broadcast(void *group, int lane, void *data, size_t size, int root) {
    struct mesh *m = group;
    (void)lane;
    TRY(exchange(m, data, size));
    memcpy(data, m->bytes[root], size);
    return OK;
}

static status mesh_barrier(void *group, int lane) {
    (void)lane;
    return exchange(group, "", 1);
}

static const struct comm_backend mesh = {.name = "gloo",
                                         .create = mesh_create,
                                         .destroy = mesh_destroy,
                                         .abort = mesh_abort,
                                         .reduce = mesh_reduce,
                                         .broadcast = mesh_broadcast,
                                         .barrier = mesh_barrier};

status __wrap_module_open(const char *name, const char *symbol, void **address);
status __wrap_module_open(const char *name, const char *symbol, void **address) {
    (void)name;
    (void)symbol;
    *address = (void *)(uintptr_t)&mesh;
    return OK;
}
