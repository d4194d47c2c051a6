/* store_server: the thread of rank 0 that keeps the keys and knows who has joined and who has left. */
#ifndef DIST_STORE_SERVER_H
#define DIST_STORE_SERVER_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/store/store_members.h"

struct store_server;

struct store_server_config {
    int listener;              /* a non-blocking listening socket; the server owns it from now on */
    int local, local_watch;    /* the server's ends of rank 0's own connections, already trusted; owned too */
    int world_size, node_size; /* node_size as members_create's */
    const bool *informed;      /* (nodes) of which no other rank will come: nobody waits for one; NULL: none */
    uint32_t incarnation;
    struct members_limits limits;
    struct log *log;  /* for "waiting for ..."; NULL: silent. Not owned */
    const char *hint; /* added to that; copied */
    uint64_t job;
    const uint8_t *secret; /* (32); copied */
    const char *place;     /* "n1:29500": for messages; copied */
    const char *who;       /* rank 0's "host n1, pid 71"; copied */
};

/* Starts the thread, which has all signals blocked. */
status store_server_start(const struct store_server_config *config, struct store_server **out);

/* Waits until all ranks but 0 have left, 10 s at most, and 2 s after a failure; then ends the thread. Takes NULL. */
void store_server_stop(struct store_server *server);

/* This host's end of the connection of another rank, preferring one from another host. Once all ranks have joined. 0,
 * or why there is none: an errno value. */
int store_server_address(struct store_server *server, struct sockaddr_storage *address);

#endif
