/* shm_map: memory that all ranks of a group on one host map. It is a memfd: it has no name in any file system, does not
 * depend on the size of /dev/shm, and is freed with its last process, however that ends. Rank 0 sends the descriptor
 * over a Unix socket to ranks that prove the job's secret. Every rank locks one byte of it until it exits, so the
 * kernel shows which ranks are alive. */
#ifndef DIST_SHM_MAP_H
#define DIST_SHM_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "dist/comm/comm_backend.h"

struct shm_map {
    int fd;
    void *base; /* (size), zeroed */
    size_t size;
};

/* [what]: name of the map, unique in the group. STATUS_PEER: a rank was lost; STATUS_IO: it failed on a rank, with the
 * first error in order of rank; all ranks get the same result. All ranks of the group. */
status shm_map_open(const struct comm_setup *setup, const char *what, size_t size, struct shm_map *out);
/* Not collective; releases this rank's lock. Takes a map that was never opened (base NULL). */
void shm_map_close(struct shm_map *map);

/* Whether [rank], another one, still has the map open. */
bool shm_map_is_open_at(const struct shm_map *map, int rank);

/* The process id of [rank], another one; 0: it has exited, or is in another pid namespace. */
pid_t shm_map_pid(const struct shm_map *map, int rank);

/* identity (size): a string that is equal for ranks that can share memory: host name, boot id, network namespace, user.
 * DDPTRAIN_HOST, if set, is part of it: two values on one machine count as two hosts (for tests). */
#define HOST_VARIABLE "DDPTRAIN_HOST"
void shm_host_identity(char *identity, size_t size);

#endif
