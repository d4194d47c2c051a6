/* shm_map: memory that all ranks of a group on one host see. It is a memfd: it has no name in any file system, does not
 * depend on the size of /dev/shm, and is gone with its last process, however that ends. Its descriptor travels over a
 * Unix socket to ranks that prove the job's secret. Every rank holds a lock on a byte of it for as long as it lives, so
 * the kernel knows who is there. */
#ifndef DIST_SHM_MAP_H
#define DIST_SHM_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "dist/comm/comm_backend.h"

struct shm_map {
    int fd;
    void *base; /* (size), zero at first */
    size_t size;
};

/* [what] names it in the group: new for each map. STATUS_PEER: a rank was lost; STATUS_IO: this host cannot do it, with
 * the first reason in order of rank; all ranks get the same. All ranks of the group. */
status shm_map_open(const struct comm_setup *setup, const char *what, size_t size, struct shm_map *out);
/* Not collective; the others see that this rank is gone. Takes a map that was never opened (base NULL). */
void shm_map_close(struct shm_map *map);

/* Whether [rank], another one, still has the map open. */
bool shm_map_is_open_at(const struct shm_map *map, int rank);

/* The process of [rank], another one; 0: it has gone, or is not to be seen from here. */
pid_t shm_map_holder(const struct shm_map *map, int rank);

/* What ranks that can share memory have in common, and others not: the running kernel and its network namespace.
 * DDPTRAIN_HOST, if set, is part of it: two values on one machine are two hosts (for trying things out). */
#define HOST_VARIABLE "DDPTRAIN_HOST"
void shm_host_identity(char *identity, size_t size);

#endif
