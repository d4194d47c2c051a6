/* store_server: the thread of rank 0 that stores the keys and tracks which ranks have joined and left. */
#pragma once

#include <sys/socket.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/store/store.h"
#include "dist/store/store_members.h"

struct store_server;

struct store_server_config {
    int listener;              /* a non-blocking listening socket; the server owns it from now on */
    int local;                 /* the server's end of rank 0's own connection, which needs no proof; owned, too */
    int world_size, node_size; /* node_size as in members_create */
    int spare;                 /* descriptors for connections without a proof, beyond one for each rank that joins */
    const bool *informed; /* (nodes) whose ranks, except rank 0, will not join and are not waited for; NULL: none */
    uint32_t restart_count;
    struct members_limits limits;
    double heartbeat_seconds; /* store_heartbeat_seconds */
    struct log *log;          /* for "waiting for ..."; NULL: silent. Not owned */
    const char *hint;         /* added to those messages; copied */
    uint64_t job;
    const uint8_t *secret; /* (32); copied */
    bool is_guessable;     /* the secret: a warning if there are several hosts */
    const char *endpoint;  /* "n1:29500": for messages; copied */
    const char *process;   /* rank 0's "host n1, pid 71"; copied */
};

/* Starts the thread, with all signals blocked. */
status store_server_start(const struct store_server_config *config, struct store_server **out);

/* Waits until all ranks but 0 have left, 10 s at most, and 2 s after a failure; then ends the thread. Takes NULL. */
void store_server_stop(struct store_server *server);

/* *address: the local address of the connection of another rank, of another host if there is one. Call it after all
 * ranks have joined. Returns 0 or an errno value. */
int store_server_address(struct store_server *server, struct sockaddr_storage *address);

/* ---- a table of keys and values, owned by the store; not thread-safe ---- */

struct store_keys;

/* NULL: no memory. */
struct store_keys *store_keys_create(void);
void store_keys_destroy(struct store_keys *keys); /* takes NULL */

/* Copies key and value; replaces an older value. false: no memory. */
bool store_keys_set(struct store_keys *keys, const char *key, const void *value, size_t size);
/* NULL: no such key. The value is valid until the key is set again or removed. */
const uint8_t *store_keys_get(const struct store_keys *keys, const char *key, size_t *size);
/* Does nothing without that key. */
void store_keys_remove(struct store_keys *keys, const char *key);

void store_server_traffic(const struct store_server *s, struct store_traffic *out); /* from any thread */
